"""Rows of a finished job: chosen, sorted, named, written."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.tables import Table
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.rows import selection, table
from latentscale_pipeline.rows.columns import open_rows
from latentscale_pipeline.rows.selection import Order, choose_rows
from latentscale_pipeline.rows.table import read_tables
from tests.conftest import Ended
from tests.support.jobs import run_here

pq = pytest.importorskip("pyarrow.parquet")

Command = Callable[..., Ended]

HOSTILE = ["=1+1", "<script>alert(1)</script>", "naïve\u202erow", 'a,"b"', "+cmd", "@x", "-3"]
N = 60


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job: rows 40 to 47 repeat rows 0 to 7, the last lies apart, 20 leaks."""
    folder = tmp_path_factory.mktemp("rows")
    generator = np.random.default_rng(0)
    corpus, reference = generator.normal(size=(2, N, 12)).astype("f4")
    corpus[40:44] = corpus[:4]
    corpus[44:48] = corpus[4:8] + generator.normal(size=(4, 12)).astype("f4") * 1e-3
    corpus[20] = reference[5]
    corpus[-1] *= 50
    ids = [*HOSTILE, *(f"r{row}" for row in range(len(HOSTILE), N))]
    labels = [f"topic {row % 3}" for row in range(N)]
    (folder / "ids.txt").write_text("\n".join(ids) + "\n")
    (folder / "labels.txt").write_text("\n".join(labels) + "\n")
    np.save(folder / "corpus.npy", corpus)
    np.save(folder / "reference.npy", reference)
    companions = {"ids": str(folder / "ids.txt"), "labels": str(folder / "labels.txt")}
    url = ingest(
        [str(folder / "corpus.npy")], str(folder / "c.zarr"), shard_bytes=900, **companions
    ).url
    described = {
        "name": "rows",
        "corpus": url,
        "reference": str(folder / "reference.npy"),
        "output": str(folder / "jobs"),
        "measures": {"duplicates": {"metric": "euclidean", "within": 0.05}, "geomca": {"rows": 30}},
        "cluster": {"kind": "serial"},
    }
    (folder / "job.yaml").write_text(json.dumps(described))
    run_here(folder / "job.yaml")
    return next((folder / "jobs").glob("rows-*"))


def lines(ended: Ended) -> list[dict[str, Any]]:
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_rows_are_listed_for_a_reason(job: Path, latentscale: Command) -> None:
    near = lines(latentscale("rows", job, "--only", "near-duplicates", "--json"))
    assert [(found["row"], found["near_duplicate_of"]) for found in near[:4]] == [
        (40 + place, HOSTILE[place]) for place in range(4)
    ]
    assert {found["row"] for found in near} == set(range(40, 48))
    assert [found["nearest_distance"] for found in near] == sorted(
        found["nearest_distance"] for found in near
    )
    exact = lines(latentscale("rows", job, "--only", "exact-duplicates", "--json"))
    assert [found["duplicate_of"] for found in exact] == HOSTILE[:4]
    # The reference has no ids, so its rows are numbers.
    assert lines(latentscale("rows", job, "--only", "leaks", "--json")) == [
        {"row": 20, "id": "r20", "label": "topic 2", "leaks": 5, "reference_distance": 0.0}
    ]
    far = lines(latentscale("rows", job, "--only", "outliers", "--json"))
    assert far[0]["row"] == N - 1
    apart = latentscale("rows", job, "--only", "not-covered", "--of", "corpus")
    assert apart.code == 2
    assert "not-covered are rows of the reference, not of the corpus" in apart.err


def test_results_name_the_most_extreme_rows_of_every_reason(job: Path) -> None:
    document = read_job(str(job)).results.document()
    found = {each["reason"]: (each["of"], each["rows"]) for each in document["rows"]}
    role, exact = found["exact-duplicates"]
    assert role == "corpus"
    names = [*HOSTILE, *(f"r{row}" for row in range(len(HOSTILE), N))]
    assert exact == [
        {"row": row, "id": names[row], "label": f"topic {row % 3}", "other_id": names[row - 40]}
        for row in (40, 41, 42, 43)
    ]
    _, near = found["near-duplicates"]
    assert {row["row"] for row in near} == set(range(40, 48))
    assert [row["distance"] for row in near] == sorted(row["distance"] for row in near)
    assert all(row["other_id"] == names[row["row"] - 40] for row in near)
    _, ((leak),) = found["leaks"]
    assert leak == {"row": 20, "id": "r20", "label": "topic 2", "other": 5, "distance": 0.0}
    _, outliers = found["outliers"]
    assert outliers[0]["row"] == N - 1
    assert outliers[0]["distance"] == max(row["distance"] for row in outliers)
    role, not_covered = found["not-covered"]
    assert role == "reference"
    assert all("id" not in row for row in not_covered)


def test_conditions_columns_order_and_limit(job: Path, latentscale: Command) -> None:
    kept = lines(
        latentscale(
            *("rows", job, "--where", "near_duplicate_of is null and label == 'topic 0'"),
            *("--columns", "row,label", "--json"),
        )
    )
    expected = [row for row in range(0, N, 3) if not 40 <= row < 48]
    assert kept == [{"row": row, "label": "topic 0"} for row in expected]
    columns = ("--columns", "row,reference_distance")
    sorted_rows = ("rows", job, "--sort", "reference_distance:desc", "--limit", 5, *columns)
    far = lines(latentscale(*sorted_rows, "--json"))
    every = lines(latentscale("rows", job, *columns, "--json"))
    assert far == sorted(every, key=lambda found: -found["reference_distance"])[:5]
    assert len(every) == N


def test_columns_that_cover_some_rows_are_null_elsewhere(job: Path, latentscale: Command) -> None:
    every = lines(latentscale("rows", job, "--columns", "row,component", "--json"))
    arrays = json.loads((job / "results.json").read_text())["arrays"]
    considered = np.load(job / arrays["geomca/rows/corpus"]).tolist()
    assert [row["row"] for row in every if row["component"] is not None] == considered
    counted = lines(latentscale("rows", job, "--where", "component is not null", "--json"))
    assert len(counted) == len(considered) == 30
    sorted_rows = lines(
        latentscale("rows", job, "--sort", "component", "--columns", "component", "--json")
    )
    assert all(found["component"] is None for found in sorted_rows[30:])


def test_a_missing_value_meets_no_condition_but_that_it_is_null(
    job: Path, latentscale: Command
) -> None:
    def count(where: str) -> int:
        return len(lines(latentscale("rows", job, "--where", where, "--json")))

    assert count("component is null") == 30
    assert count("component >= 0") == count("not component < 0") == 30
    assert count("component is null and component >= 0") == 0
    assert count("component in [0] or component not in [0]") == 30
    assert count("component != -5 or component is null") == N


def test_random_rows_make_no_subset(job: Path, latentscale: Command, tmp_path: Path) -> None:
    corpus = job.parents[1] / "c.zarr"
    ended = latentscale(
        "subset", corpus, tmp_path / "s", "--rows", job, "--where", "component == 0"
    )
    assert ended.code == 2
    assert "component is known of some random rows only" in ended.err
    described = json.loads((job.parents[1] / "job.yaml").read_text())
    described |= {"output": str(tmp_path / "jobs"), "name": "drawn"}
    described["measures"]["duplicates"]["rows"] = 100
    few = np.random.default_rng(5).normal(size=(400, 12)).astype("f4")
    np.save(tmp_path / "few.npy", np.concatenate([few, few[:50]]))
    described["corpus"] = str(tmp_path / "few.npy")
    (tmp_path / "job.yaml").write_text(json.dumps(described))
    ended = latentscale("run", tmp_path / "job.yaml")
    assert ended.code == 0, ended.err
    assert "--only near-duplicates" not in ended.out
    refused = latentscale("rows", tmp_path / "jobs/drawn", "--only", "near-duplicates")
    assert "only a job that looks at all 450 rows knows its near-duplicates" in refused.err
    looked_at = lines(latentscale("rows", tmp_path / "jobs/drawn", "--only", "leaks", "--json"))
    assert looked_at == []


def test_a_corpus_is_found_by_its_rows_wherever_it_is(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(job.parents[1], moved)
    results = json.loads((moved / "jobs" / job.name / "results.json").read_text())
    for role in ("corpus", "reference"):
        results["corpora"][role]["uri"] = str(tmp_path / "nowhere")
    (moved / "jobs" / job.name / "results.json").write_text(json.dumps(results))
    options = ("--rows", moved / "jobs" / job.name, "--where", "not outlier", "--json")
    made = latentscale("subset", moved / "c.zarr", tmp_path / "s", *options)
    assert made.code == 0, made.err


def test_damaged_arrays_are_told(job: Path, latentscale: Command, tmp_path: Path) -> None:
    copy = tmp_path / job.name
    shutil.copytree(job, copy)
    arrays = json.loads((copy / "results.json").read_text())["arrays"]
    path = copy / arrays["duplicates/corpus/own_nearest_distance"]
    path.write_bytes(path.read_bytes()[:150])
    assert "the array is damaged; run the job again" in latentscale("rows", copy).err
    path.unlink()
    assert "the array is missing; run the job again" in latentscale("rows", copy).err


def test_files_have_what_is_listed(job: Path, latentscale: Command, tmp_path: Path) -> None:
    every = lines(latentscale("rows", job, "--json"))
    for suffix in ("jsonl", "csv", "parquet"):
        ended = latentscale("rows", job, "--output", tmp_path / f"all.{suffix}")
        assert ended.code == 0, ended.err
        assert ended.out.strip().endswith(f"all.{suffix}: {N} rows")
    written = (tmp_path / "all.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in written] == every
    assert pq.read_table(tmp_path / "all.parquet").to_pylist() == every
    with (tmp_path / "all.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["id"] for row in read[:7]] == ["'=1+1", *HOSTILE[1:4], "'+cmd", "'@x", "'-3"]
    assert [row["outlier"] for row in read] == [str(row["outlier"]).lower() for row in every]
    # A score's name is as good as the reason's.
    near = ("rows", job, "--only", "near_duplicates", "--output", tmp_path / "near.csv")
    assert (
        latentscale(*near)
        .out.strip()
        .endswith("near.csv: 8 rows, nearly the same as a row that stays")
    )
    again = latentscale("rows", job, "--output", tmp_path / "all.csv")
    assert again.code == 2
    assert "the file exists; use another path, or --overwrite" in again.err
    none = ("rows", job, "--where", "row > 1000", "--output", tmp_path / "none.parquet")
    assert latentscale(*none).out.strip().endswith("none.parquet: 0 rows")
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0
    types = {str(field.type) for field in pq.read_schema(tmp_path / "none.parquet")}
    assert types == {"int64", "string", "double", "bool"}
    assert pq.read_schema(tmp_path / "none.parquet") == pq.read_schema(tmp_path / "all.parquet")


def test_blocks_change_nothing(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = open_rows(read_job(str(job)), "corpus")
    order = Order("reference_distance", descending=True)

    def chosen() -> list[Any]:
        numbers = choose_rows(rows, "not outlier", order, 9)
        return [part for found in read_tables(rows, numbers, rows.names) for part in found.items()]

    whole = chosen()
    monkeypatch.setattr(selection, "BLOCK_ROWS", 7)
    monkeypatch.setattr(table, "BLOCK_ROWS", 9)
    assert chosen() == whole


def test_a_table_is_printed(job: Path, latentscale: Command) -> None:
    shown = latentscale("rows", job, "--only", "near-duplicates", "--limit", 2)
    header, first, second, more = shown.out.splitlines()
    # The distance is that to the nearest row, which needn't be the one that stays.
    assert header.split() == [
        *("row", "id", "label", "near_duplicate_of", "nearest", "nearest_distance"),
    ]
    assert first.split() == ["40", "r40", "topic", "1", "=1+1", "=1+1", "0"]
    assert "script" in second
    assert more == "2 of 8 rows: --limit N for more, or --output FILE for all"
    sort = ("--sort", "nearest_distance:desc", "--limit", 1)
    shown = latentscale("rows", job, "--where", "not outlier", *sort)
    header, _, others, more = shown.out.splitlines()
    assert header.split() == ["row", "id", "label", "nearest_distance", "outlier"]
    assert others.startswith("other columns, with --columns: duplicate_of, near_duplicate_of, ")
    assert len(latentscale("rows", job, "--limit", 1).out.splitlines()[0].split()) > 10
    assert "\u202e" not in latentscale("rows", job, "--limit", 5).out
    assert latentscale("rows", job, "--where", "row > 99").out == "no such rows\n"
    unlike = latentscale("rows", job, "--where", "label in ['topc 0', 'topic 0'] and row > 99")
    assert unlike.out == ("no such rows: no row has the label 'topc 0'; did you mean topic 0?\n")


def test_a_subset_of_what_a_job_knows(job: Path, latentscale: Command, tmp_path: Path) -> None:
    corpus = job.parents[1] / "c.zarr"
    condition = ("--rows", job, "--where", "near_duplicate_of is null and leaks is null")
    made = latentscale(
        "subset", corpus, tmp_path / "lean", *condition, "--label", "topic 1", "--json"
    )
    assert made.code == 0, made.err
    kept = [row for row in range(1, N, 3) if not 40 <= row < 48 and row != 20]
    assert json.loads(made.out)["n"] == len(kept)
    exported = tmp_path / "kept.npy"
    assert latentscale("export", corpus, exported, *condition, "--label", "topic 1").code == 0
    np.testing.assert_array_equal(np.load(exported), np.load(job.parents[1] / "corpus.npy")[kept])
    other = ingest([str(job.parents[1] / "corpus.npy")], str(tmp_path / "same")).url
    assert latentscale("subset", other, tmp_path / "b", *condition).code == 0
    # The job's source isn't the corpus that was made of it; the message names that.
    source = latentscale("subset", job.parents[1] / "corpus.npy", tmp_path / "d", *condition)
    assert source.code == 2
    named = source.err.partition("measured: ")[2].partition(" (corpus)")[0]
    assert latentscale("subset", named, tmp_path / "d", *condition).code == 0
    np.save(tmp_path / "x.npy", np.eye(4, dtype="f4"))
    refused = latentscale(
        "subset",
        ingest([str(tmp_path / "x.npy")], str(tmp_path / "x")).url,
        tmp_path / "c",
        *condition,
    )
    assert "the job hasn't measured" in refused.err
    bare = latentscale("subset", corpus, tmp_path / "d", "--rows", job)
    assert "--rows gives columns to --where and reasons to --without" in bare.err


def test_a_subset_without_the_rows_that_a_job_names(
    job: Path, latentscale: Command, tmp_path: Path
) -> None:
    """The job stands for its corpus; of near-duplicates one stays, and reasons add up."""
    without = ("--without", "near-duplicates", "--without", "leaks", "--without", "outliers")
    made = latentscale("subset", job, tmp_path / "clean", *without, "--json")
    assert made.code == 0, made.err
    kept = [row for row in range(N - 1) if not 40 <= row < 48 and row != 20]
    assert json.loads(made.out)["n"] == len(kept)
    assert made.err.splitlines()[:3] == [
        f"1 of {N} rows left out: leaks",
        f"1 of {N} rows left out: outliers",
        f"8 of {N - 2} rows left out: near-duplicates",
    ]
    exported = tmp_path / "clean.npy"
    assert latentscale("export", job, exported, *without).code == 0
    np.testing.assert_array_equal(np.load(exported), np.load(job.parents[1] / "corpus.npy")[kept])
    both = ("--without", "leaks", "--where", "row < 30 or outlier", "--json")
    made = latentscale("subset", job, tmp_path / "some", *both)
    assert json.loads(made.out)["n"] == 30
    corpus = job.parents[1] / "c.zarr"
    refused = latentscale("subset", corpus, tmp_path / "d", "--without", "leaks")
    assert "--without needs a finished job: name it as CORPUS, or by --rows" in refused.err
    assert latentscale("export", job, tmp_path / "whole.npy").code == 0
    assert len(np.load(tmp_path / "whole.npy")) == N
    some = latentscale("subset", job, tmp_path / "few", "--sample", 5, "--json")
    assert json.loads(some.out)["n"] == 5
    refused = latentscale("subset", job, tmp_path / "d", "--without", "not-covered")
    assert "'not-covered' is not one of" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--columns", "nothing"], "there is no column nothing; it can be row, id, label, dup"),
        (["--columns", ","], "no columns are named; name at least one"),
        (["--where", "speed > 1"], "there is no column speed"),
        (["--where", "row == rwo"], "there is no column rwo; did you mean row?"),
        (["--where", "label in ['a, music'] and music > 1"], "no column music; it can be"),
        (["--where", "leaks == 'r3'"], "can only be compared with null: write leaks is null, or"),
        (["--where", "not leaks"], "can only be compared with null: write leaks is null, or"),
        (["--where", "leaks == null"], "write leaks is null, or leaks is not null"),
        (["--where", "outlier == 'yes'"], "a condition by itself, as in outlier, or not outlier"),
        (["--where", "row is 3"], "is compares only with null"),
        (["--where", "row +"], "not a condition"),
        (["--sort", "row:up"], "there is no column row:up"),
        (["--sort", "label"], "label is text, which isn't sorted"),
        (["--output", "rows.xlsx"], "use a path that ends in .parquet, .csv or .jsonl"),
    ],
)
def test_what_is_wrong_is_one_line(
    job: Path, latentscale: Command, arguments: list[str], message: str
) -> None:
    ended = latentscale("rows", job, *arguments)
    assert ended.code == 2
    [line] = ended.err.strip().splitlines()
    assert message in line


def test_a_corpus_that_changed_is_refused(job: Path, tmp_path: Path) -> None:
    found = read_job(str(job))
    np.save(tmp_path / "other.npy", np.ones((N, 12), "f4"))
    other = ingest([str(tmp_path / "other.npy")], str(tmp_path / "other")).url
    corpus = found.results.corpora.corpus
    assert corpus is not None
    corpora = found.results.corpora.model_copy(
        update={"corpus": corpus.model_copy(update={"uri": other})}
    )
    moved = type(found)(found.url, found.results.model_copy(update={"corpora": corpora}))
    with pytest.raises(BadInput, match="it isn't the corpus that was measured any more"):
        open_rows(moved, "corpus").names  # noqa: B018


def test_a_job_without_rows_says_how_to_get_them(job: Path) -> None:
    found = read_job(str(job))
    bare = type(found)(found.url, found.results.model_copy(update={"measures": {}}))
    with pytest.raises(BadInput, match="run it again with one of: duplicates"):
        open_rows(bare, "corpus")
    alone = found.results.corpora.model_copy(update={"reference": None})
    bare = type(found)(found.url, found.results.model_copy(update={"corpora": alone}))
    with pytest.raises(BadInput, match="the job has no reference"):
        open_rows(bare, "reference")


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_have_their_influence_and_their_share_of_the_magnitude(
    tmp_path: Path, latentscale: Command, weighted: bool
) -> None:
    """A row that leaves takes its influence with it, in a job of its own."""
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(150, 6)) + np.array([2.0, 0, 0, 0, 0, 0])
    rows[3] = [0, 0, 0, 0, 0, 9.0]
    weights = generator.uniform(0.5, 2.0, 150)
    found = {}
    for name, kept in (("all", np.arange(150)), ("without", np.arange(150) != 3)):
        np.save(tmp_path / f"{name}.npy", rows[kept].astype("f4"))
        np.save(tmp_path / f"{name}-weights.npy", weights[kept])
        companions = {"weights": str(tmp_path / f"{name}-weights.npy")} if weighted else {}
        source = [str(tmp_path / f"{name}.npy")]
        url = ingest(source, str(tmp_path / name), shard_bytes=900, **companions).url
        described = {
            "name": name,
            "corpus": url,
            "output": str(tmp_path / "jobs"),
            "measures": {"vendi": {"kernels": ["cosine"], "orders": [2, 1]}, "magnitude": {}},
            "cluster": {"kind": "serial"},
        }
        (tmp_path / f"{name}.yaml").write_text(json.dumps(described))
        found[name] = run_here(tmp_path / f"{name}.yaml").results
    [job] = (tmp_path / "jobs").glob("all-*")
    columns = "row,vendi_influence,magnitude_weight"
    listed = lines(
        latentscale(
            "rows",
            job,
            "--columns",
            columns,
            "--sort",
            "vendi_influence:desc",
            "--json",
            "--limit",
            "200",
        )
    )
    influences = [one["vendi_influence"] for one in listed]
    assert influences == sorted(influences, reverse=True)
    assert len(listed) == 150
    [third] = [one for one in listed if one["row"] == 3]
    vendi = {
        name: next(s.value for s in each.scores if (s.measure, s.order) == ("vendi", "1"))
        for name, each in found.items()
    }
    assert third["vendi_influence"] == pytest.approx(vendi["all"] - vendi["without"], rel=1e-3)
    magnitude = found["all"].part("magnitude").corpus.value[-1]
    assert sum(one["magnitude_weight"] for one in listed) == pytest.approx(magnitude, rel=1e-3)


def test_influences_are_left_out_where_they_are_not_wanted(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.random.default_rng(3).normal(size=(120, 4)))
    for index, keys in enumerate(({"influence": False}, {"orders": [0]}, {"kernels": ["rbf"]})):
        described = {
            "name": f"j{index}",
            "corpus": str(tmp_path / "c.npy"),
            "output": str(tmp_path / "jobs"),
            "measures": {"vendi": {"kernels": ["cosine"], "orders": [1], **keys}},
            "cluster": {"kind": "serial"},
        }
        (tmp_path / "job.yaml").write_text(json.dumps(described))
        arrays = run_here(tmp_path / "job.yaml").results.arrays
        assert not any("influence" in name for name in arrays)


def test_only_equal_rows_go_where_the_near_ones_are_usual(
    tmp_path: Path, latentscale: Command
) -> None:
    """Of dense rows many are near others; the command to clean a corpus leaves them in."""
    generator = np.random.default_rng(0)
    rows = 1.0 + 0.45 * generator.normal(size=(1600, 3)).astype("f4")
    corpus, reference = rows[:800].copy(), rows[800:]
    corpus[:60] = reference[:60]
    np.save(tmp_path / "c.npy", corpus)
    np.save(tmp_path / "r.npy", reference)
    ended = latentscale(
        *("run", tmp_path / "c.npy", "--reference", tmp_path / "r.npy"),
        *("--measures", "duplicates", "--output", tmp_path / "jobs"),
        *("-o", "measures.duplicates.within=2e-5"),
    )
    assert ended.code == 0, ended.err
    (clean,) = (line for line in ended.out.splitlines() if line.startswith("clean"))
    assert clean.split("-clean.zarr ")[1] == "--without exact-leaks"


def test_corpus_and_reference_are_cleaned_alike(tmp_path: Path, latentscale: Command) -> None:
    generator = np.random.default_rng(3)
    for name, copies in (("c", 80), ("r", 12)):
        rows = generator.normal(size=(900, 24)).astype("f4")
        rows[-copies:] = rows[:copies] + 0.001 * generator.normal(size=(copies, 24))
        np.save(tmp_path / f"{name}.npy", rows)
    options = ("--measures", "duplicates", "--output", tmp_path / "jobs")
    ended = latentscale("run", tmp_path / "c.npy", "--reference", tmp_path / "r.npy", *options)
    assert ended.code == 0, ended.err
    assert "DIFFERS FROM THE REFERENCE" in ended.out
    cleaning = [line.split()[2:] for line in ended.out.splitlines() if line.startswith("clean ")]
    name = Path(cleaning[0][1]).name
    assert [command[2:] for command in cleaning] == [
        [f"{name}-clean.zarr", "--without", "near-duplicates"],
        [f"{name}-clean-reference.zarr", "--of", "reference", "--without", "near-duplicates"],
    ]
    for (_, job, target, *rest), kept in zip(cleaning, (820, 888), strict=True):
        made = latentscale("subset", job, tmp_path / target, *rest, "--json")
        assert json.loads(made.out)["n"] == kept, made.err
    clean, clean_reference = (tmp_path / command[2] for command in cleaning)
    pair = (clean, "--reference", clean_reference)
    ended = latentscale("run", *pair, *options)
    assert "NO DIFFERENCE FOUND" in ended.out, ended.out
    cleaned = ended.out.split("report   ")[1].split("/report.html")[0]
    (tmp_path / "gates.yaml").write_text("gates: [{p_below: 0.01}]")
    gated = latentscale("compare", cleaned, cleaned, "--gates", tmp_path / "gates.yaml")
    assert gated.code == 0, gated.err
    compared = latentscale("compare", cleaned, cleaning[0][1])
    assert "are expected (p" not in compared.out, compared.out
    alone = latentscale("run", tmp_path / "c.npy", *options, "--name", "alone")
    job = alone.out.split("report   ")[1].split("/report.html")[0]
    ended = latentscale("subset", job, tmp_path / "n.zarr", "--of", "reference")
    assert (ended.code, "the job has no reference" in ended.err) == (2, True)
    for reason in ("leaks", "exact-leaks", "outliers"):
        of = ("--of", "reference", "--without", reason)
        ended = latentscale("subset", cleaning[0][1], tmp_path / "n.zarr", *of)
        assert ended.code == 2
        assert f"{reason} are rows of the corpus, not of the reference" in ended.err
        ended = latentscale("subset", job, tmp_path / "n.zarr", "--without", reason)
        assert ended.code == 2
        assert f"a job without a reference knows no {reason}; run it again with one" in ended.err
    only = ("-o", "measures={hubness: {k: 3}}", "-o", f"output={tmp_path}/bare")
    assert latentscale("run", tmp_path / "c.npy", *only, "--name", "bare").code == 0
    [bare] = (tmp_path / "bare").glob("bare-*")
    ended = latentscale("rows", bare, "--only", "near-duplicates")
    assert ended.code == 2
    assert "near-duplicates are found by the measure duplicates; run it again with it" in ended.err
    listed = latentscale("rows", cleaning[0][1], "--of", "reference", "--only", "near-duplicates")
    assert listed.code == 0, listed.err
    ended = latentscale("subset", clean, tmp_path / "n.zarr", "--of", "corpus")
    assert (ended.code, "--of is for a finished job" in ended.err) == (2, True)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_what_rows_writes_names_the_rows_of_a_subset(
    suffix: str, tmp_path: Path, latentscale: Command
) -> None:
    np.save(tmp_path / "c.npy", np.random.default_rng(0).normal(size=(60, 4)).astype("f4"))
    ids = ["-1", "@user", "=x", "'=x", "''=x", "'quoted", "a, b", "a\tb", "a\rb", '"c"', " x"]
    ids += [f"i{place}" for place in range(60 - len(ids))]
    np.save(tmp_path / "ids.npy", ids)
    options = ("--measures", "duplicates", "--output", tmp_path / "jobs", "--name", "a")
    run = ("run", tmp_path / "c.npy", "--ids", tmp_path / "ids.npy", *options)
    assert latentscale(*run).code == 0
    job, written = tmp_path / "jobs" / "a", tmp_path / f"found{suffix}"
    for columns in ((), ("--columns", "row,id"), ("--columns", "id")):
        rows = ("rows", job, "--where", "row < 12", "--output", written, "--overwrite", *columns)
        assert latentscale(*rows).code == 0
        chosen = ("subset", job, tmp_path / "s.zarr", "--ids", written, "--json", "--overwrite")
        made = latentscale(*chosen)
        assert json.loads(made.out)["n"] == 12, made.err
        assert open_corpus(str(tmp_path / "s.zarr")).texts("ids") == ids[:12]
    assert latentscale("rows", job, "--output", written, "--overwrite").code == 0
    table = Table(open_corpus(str(tmp_path / "s.zarr")), str(written))
    found, null = table.column("nearest_distance")
    assert (len(found), null.any()) == (12, False)
    if suffix == ".csv":
        assert pd.read_csv(written)["id"].tolist()[6:] == ids[6:]


def test_rows_are_found_where_jobs_were_moved_with_their_corpora(
    tmp_path: Path, latentscale: Command
) -> None:
    np.save(tmp_path / "c.npy", np.random.default_rng(0).normal(size=(60, 4)).astype("f4"))
    options = ("--measures", "duplicates", "--output", tmp_path / "jobs", "--name", "a")
    assert latentscale("run", tmp_path / "c.npy", *options).code == 0
    (tmp_path / "jobs").rename(tmp_path / "elsewhere")
    listed = latentscale("rows", tmp_path / "elsewhere" / "a", "--json")
    assert listed.code == 0, listed.err
    made = latentscale("subset", tmp_path / "elsewhere" / "a", tmp_path / "s.zarr", "--json")
    assert json.loads(made.out)["n"] == 60


def test_cleaned_corpora_are_not_said_to_share_rows(tmp_path: Path, latentscale: Command) -> None:
    """Variants of one item lie in both; where each keeps one of them, no pair inside is as near."""
    generator = np.random.default_rng(4)
    items = generator.normal(size=(3000, 24))
    for name, copies in (("c", 60), ("r", 0)):
        rows = items[generator.integers(3000, size=600)].astype("f4")
        rows += 0.0005 * generator.normal(size=rows.shape).astype("f4")
        rows[:copies] = rows[copies : 2 * copies] + np.float32(0.0005)
        np.save(tmp_path / f"{name}.npy", rows)
    options = ("--measures", "duplicates", "--output", tmp_path / "jobs")
    ended = latentscale("run", tmp_path / "c.npy", "--reference", tmp_path / "r.npy", *options)
    assert "DIFFERS FROM THE REFERENCE" in ended.out, ended.out
    cleaning = [line.split()[2:] for line in ended.out.splitlines() if line.startswith("clean ")]
    assert len(cleaning) == 2
    for _, job, target, *rest in cleaning:
        assert latentscale("subset", job, tmp_path / target, *rest).code == 0
    clean, clean_reference = (tmp_path / command[2] for command in cleaning)
    pair = (clean, "--reference", clean_reference)
    ended = latentscale("run", *pair, *options, "--name", "cleaned")
    assert "NO DIFFERENCE FOUND" in ended.out, ended.out
    unjudged = "not Exact duplicates; Near-duplicates; Also in the reference."
    assert unjudged in ended.out.replace("\n", " ")
    [folder] = (tmp_path / "jobs").glob("cleaned-*")
    results = json.loads((folder / "results.json").read_text())
    scores = {row["score"]: row for row in results["scores"] if row["of"] != "reference"}
    assert scores["leaks"]["value"] > 0.05
    assert scores["leaks"]["expected_reason"].startswith("rows near others were left out")
    assert "expected" in scores["exact leaks"]
    page = (folder / "report.html").read_text()
    assert "left out of the corpus before" in page
    assert "left out of the reference before" in page
    # Many near rows are a finding beside any reference, and in a corpus that was cleaned once.
    near = [tmp_path / "c.npy", "--reference", clean_reference]
    ended = latentscale("run", *near, *options, "--name", "clean-reference")
    assert "DIFFERS FROM THE REFERENCE\nNear-duplicates: " in ended.out, ended.out
    assert latentscale("ingest", tmp_path / "c.npy", clean, "--append").code == 0
    ended = latentscale("run", clean, *near[1:], *options, "--name", "again")
    assert "DIFFERS FROM THE REFERENCE" in ended.out, ended.out
    assert "Near-duplicates: " in ended.out
    where = ("--where", "near_duplicate_of is null and row < 300")
    assert latentscale("subset", cleaning[0][1], tmp_path / "w.zarr", *where).code == 0
    assert open_corpus(str(tmp_path / "w.zarr")).left_out == ("near-duplicates",)
    assert (
        latentscale(
            "subset", cleaning[0][1], tmp_path / "d.zarr", "--where", "nearest_distance > 0.1"
        ).code
        == 0
    )
    assert "near-duplicates" in open_corpus(str(tmp_path / "d.zarr")).left_out
    # Rows that are added bring back no others.
    target = str(clean_reference)
    assert open_corpus(target).left_out == ("near-duplicates",)
    assert latentscale("ingest", tmp_path / "r.npy", target, "--append").code == 0
    assert open_corpus(target).left_out == ("near-duplicates",)


def test_weights_are_a_column(tmp_path: Path, latentscale: Command) -> None:
    generator = np.random.default_rng(4)
    rows, weights = generator.normal(size=(40, 4)).astype("f4"), generator.uniform(0.5, 2.0, 40)
    rows[30:35] = rows[:5]
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "weights.npy", weights)
    url = str(tmp_path / "c.zarr")
    given = ("ingest", tmp_path / "rows.npy", url, "--weights", tmp_path / "weights.npy")
    assert latentscale(*given).code == 0
    asked = ("--measures", "duplicates", "--output", tmp_path / "jobs", "--quiet")
    assert latentscale("run", url, *asked).code == 0
    [folder] = (tmp_path / "jobs").glob("c-*")
    listed = lines(latentscale("rows", folder, "--columns", "row,weight", "--json"))
    assert [row["weight"] for row in listed] == pytest.approx(weights, rel=1e-6)
    heavy = ("--rows", folder, "--where", "duplicate_of is null and weight > 1")
    assert latentscale("subset", url, tmp_path / "s.zarr", *heavy).code == 0
    kept = np.flatnonzero((weights > 1) & ~np.isin(np.arange(40), np.arange(30, 35)))
    np.testing.assert_array_equal(open_corpus(str(tmp_path / "s.zarr")).read_all(), rows[kept])


@pytest.fixture(scope="module")
def own(job: Path) -> Path:
    """A table of one's own for the corpus: years from 1960 by row, links, hashes, weights."""
    pa = pytest.importorskip("pyarrow")
    ids = open_corpus(str(job.parent.parent / "c.zarr")).texts_at("ids", np.arange(N)).tolist()
    shuffled = np.random.default_rng(3).permutation(N)
    columns = {
        "id": [ids[row] for row in shuffled],
        "year": pa.array([1960 + int(row) for row in shuffled], pa.int16()),
        "link": [f"https://example.org/{row}" if row % 2 else None for row in shuffled],
        "hash": pa.array([2**64 - 1 - int(row) for row in shuffled], pa.uint64()),
        "share": [float("inf") if row == 40 else row / 8 for row in shuffled],
        "outlier": [True] * N,
        "nearest_distances": [[0.0]] * N,
    }
    pq.write_table(pa.table(columns), job.parent.parent / "own.parquet")
    return job.parent.parent / "own.parquet"


def test_columns_of_ones_own_are_read_beside_those_of_the_job(
    job: Path, own: Path, tmp_path: Path, latentscale: Command
) -> None:
    shown = ("--only", "near-duplicates", "--table", own)
    named = ("--columns", "row,year,link,hash,share,near_duplicate_of")
    found = lines(latentscale("rows", job, *shown, *named, "--sort", "year:desc", "--json"))
    assert [row["year"] for row in found] == list(range(2007, 1999, -1))
    assert [row["row"] for row in found] == list(range(47, 39, -1))
    assert found[0] == {
        "row": 47,
        "year": 2007,
        "link": "https://example.org/47",
        "hash": 2**64 - 48,
        "share": 5.875,
        "near_duplicate_of": "r7",
    }
    assert (found[-1]["link"], found[-1]["share"]) == (None, "inf")
    # 64 bits are more than a float has.
    for order, numbers in (("asc", range(47, 39, -1)), ("desc", range(40, 48))):
        sort = ("--sort", f"hash:{order}", "--limit", 3)
        found = lines(latentscale("rows", job, *shown, *named, *sort, "--json"))
        assert [row["row"] for row in found] == list(numbers)[:3]
    target = tmp_path / "found.parquet"
    assert latentscale("rows", job, *shown, *named, "--output", target).code == 0
    written = pq.read_table(target).to_pydict()
    assert sorted(written["hash"]) == [2**64 - 1 - row for row in range(47, 39, -1)]
    assert sorted(written["year"]) == list(range(2000, 2008))


def test_an_even_index_of_a_data_frame_names_rows(tmp_path: Path, latentscale: Command) -> None:
    """Pandas notes it in the metadata and writes no column."""
    pandas = pytest.importorskip("pandas")
    np.save(tmp_path / "c.npy", np.random.default_rng(0).normal(size=(40, 4)))
    ids = range(0, 400, 10)
    (tmp_path / "ids").write_text("".join(f"{each}\n" for each in ids))
    url = tmp_path / "c.zarr"
    assert latentscale("ingest", tmp_path / "c.npy", url, "--ids", tmp_path / "ids").code == 0
    frame = pandas.DataFrame({"v": range(40)}, index=pandas.RangeIndex(390, -10, -10, name="id"))
    for name, write in (("t.parquet", frame.to_parquet), ("t.feather", frame.to_feather)):
        write(tmp_path / name)
        few = ("--table", tmp_path / name, "--where", "v < 3")
        ended = latentscale("subset", url, tmp_path / f"{name}.zarr", *few)
        assert f"{name}: joined by its id, with 40 of 40 rows" in ended.err
        kept = open_corpus(str(tmp_path / f"{name}.zarr"))
        assert kept.texts("ids") == ["370", "380", "390"]
    # One that was made longer or shorter since has no such index.
    table = pq.read_table(tmp_path / "t.parquet")
    pq.write_table(table.slice(0, 39), tmp_path / "short.parquet")
    few = ("--table", tmp_path / "short.parquet", "--where", "v < 3")
    ended = latentscale("subset", url, tmp_path / "short.zarr", *few)
    assert (ended.code, "the table has 39 rows" in ended.err) == (2, True)
    # So does an ingest.
    frame["emb"] = [[float(row), 1.0] for row in range(40)]
    frame.to_parquet(tmp_path / "own.parquet")
    assert latentscale("ingest", tmp_path / "own.parquet", tmp_path / "own.zarr").code == 0
    assert open_corpus(str(tmp_path / "own.zarr")).texts("ids")[:2] == ["390", "380"]


def test_flags_and_missing_texts_of_json_lines_are_such(
    job: Path, tmp_path: Path, latentscale: Command
) -> None:
    ids = open_corpus(str(job.parent.parent / "c.zarr")).texts_at("ids", np.arange(4)).tolist()
    values = [(True, None, "True"), (False, "", "False"), (None, "x", None), (True, "y", "no")]
    pa = pytest.importorskip("pyarrow")
    rows = [dict(zip(("ok", "note", "said"), each, strict=True)) for each in values]
    table = tmp_path / "flags.jsonl"
    named = [{"id": name} | row for name, row in zip(ids, rows, strict=True)]
    table.write_text("".join(json.dumps(each) + "\n" for each in named))
    shown = ("rows", job, "--table", table, "--columns", "row,ok,note,said", "--where", "row < 5")
    found = lines(latentscale(*shown, "--sort", "row", "--json"))
    assert [row["ok"] for row in found] == [True, False, None, True, None]
    assert [row["note"] for row in found] == [None, None, "x", "y", None]
    assert [row["said"] for row in found] == ["True", "False", None, "no", None]
    assert latentscale(*shown, "--output", tmp_path / "f.parquet").code == 0
    written = pq.read_table(tmp_path / "f.parquet")
    assert str(written.schema.field("ok").type) == "bool"
    assert written.column("note").null_count == 3
    ordered = lines(latentscale(*shown, "--sort", "ok:desc", "--json"))
    assert [row["row"] for row in ordered][:2] == [0, 3]
    for where, kept in (("ok", [0, 3]), ("not ok", [1]), ("note is null and row < 4", [0, 1])):
        chosen = latentscale("rows", job, "--table", table, "--where", where, "--json")
        assert [row["row"] for row in lines(chosen)] == kept
    # A file without any value of the column has no type of its own.
    (tmp_path / "parts").mkdir()
    table.rename(tmp_path / "parts" / "a.jsonl")
    nothing = {"id": ["none"], "ok": [None], "note": [None], "said": ["x"]}
    pq.write_table(pa.table(nothing), tmp_path / "parts" / "b.parquet")
    both = ("rows", job, "--table", tmp_path / "parts", *shown[4:])
    assert lines(latentscale(*both, "--sort", "row", "--json")) == found
    texts = nothing | {"ok": ["yes"]}
    pq.write_table(pa.table(texts), tmp_path / "parts" / "b.parquet")
    mixed = lines(latentscale(*both, "--sort", "row", "--json"))
    assert [row["ok"] for row in mixed] == ["True", "False", None, "True", None]
    table = tmp_path / "parts" / "a.jsonl"
    (tmp_path / "parts" / "b.parquet").unlink()
    shown = ("rows", job, "--table", table, *shown[4:])
    # A later value of another type makes texts of all.
    table.write_text(table.read_text() + json.dumps({"id": "none", "ok": "maybe"}) + "\n")
    assert [row["ok"] for row in lines(latentscale(*shown, "--sort", "row", "--json"))] == [
        *("True", "False", None, "True", None)
    ]


def test_a_condition_may_name_columns_of_the_job_and_of_a_table(
    job: Path, own: Path, latentscale: Command
) -> None:
    where = "near_duplicate_of is not null and year >= 2005 and link is not null"
    found = lines(latentscale("rows", job, "--table", own, "--where", where, "--json"))
    assert [row["row"] for row in found] == [45, 47]
    assert [row["year"] for row in found] == [2005, 2007]
    # The job's column, not the table's.
    alone = lines(latentscale("rows", job, "--table", own, "--where", "outlier", "--json"))
    assert 0 < len(alone) < N
    listed = latentscale("rows", job, "--only", "near-duplicates", "--table", own, "--sort", "year")
    assert listed.out.splitlines()[0].split()[-2:] == ["nearest_distance", "year"]


def test_a_subset_may_name_columns_of_a_job_and_of_a_table(
    job: Path, own: Path, tmp_path: Path, latentscale: Command
) -> None:
    chosen = ("--table", own, "--without", "near-duplicates", "--where", "year < 2002")
    ended = latentscale("subset", job, tmp_path / "left.zarr", *chosen, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["n"] == 40  # 40 and 41, years 2000 and 2001, are near others


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--where", "yeer > 3"], "there is no column yeer; "),
        (["--sort", "link"], "link is text, which isn't sorted"),
        (["--columns", "nearest_distances"], "doesn't have one value per row"),
        ([], "--table gives columns to --where, --sort and --columns; write one"),
    ],
)
def test_mistakes_with_a_table_are_told(
    job: Path, own: Path, latentscale: Command, options: list[str], said: str
) -> None:
    ended = latentscale("rows", job, "--table", own, *options)
    assert ended.code == 2
    assert said in ended.err


def test_a_table_may_have_the_ids_and_texts_that_a_corpus_lacks(
    tmp_path: Path, latentscale: Command
) -> None:
    rows = np.random.default_rng(3).normal(size=(60, 4)).astype("f4")
    rows[50:] = rows[:10]
    np.save(tmp_path / "c.npy", rows)
    options = ("--measures", "duplicates", "--output", tmp_path / "jobs", "--quiet")
    assert latentscale("run", tmp_path / "c.npy", *options).code == 0
    [job] = (tmp_path / "jobs").glob("c-*")
    table = [f"r{i},{'ab'[i % 2]},text {i},body {i}" for i in range(60)]
    own = tmp_path / "own.csv"
    own.write_text("\n".join(["id,label,text,body_text", *table]) + "\n")
    asked = ("--only", "exact-duplicates", "--table", own, "--json", "--where", "label == 'b'")
    ended = latentscale("rows", job, *asked, "--columns", "row,id,label,text,body_text")
    assert lines(ended)[0] == {
        "row": 51,
        "id": "r51",
        "label": "b",
        "text": "text 51",
        "body_text": "body 51",
    }
    assert ended.err.endswith("joined by the order of the rows, as the corpus has no ids\n")
    own.write_text("\n".join(["id,label", *(line[:4] for line in table[:9])]) + "\n")
    ended = latentscale("rows", job, *asked)
    assert ended.err.endswith("in the same order, or ingest the corpus again with ids\n")
