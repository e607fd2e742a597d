"""One command from files to a report, without a job file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.jobs.plan import measure_sections
from tests.conftest import Ended

Command = Callable[..., Ended]

SERIAL = ("-o", "cluster={kind: serial}", "--quiet")


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(3).normal(size=(60, 6)).astype(np.float32)
    np.save("vectors.npy", values)
    return values


def cosine_vendi(folder: Path) -> float:
    results = json.loads((folder / "results.json").read_text())
    [score] = [
        row["value"]
        for row in results["scores"]
        if row["score"] == "vendi" and row["order"] == "1" and row["of"] == "corpus"
    ]
    return float(score)


def write(name: str, values: np.ndarray) -> None:
    lists = values.tolist()
    if name.endswith(".jsonl"):
        Path(name).write_text("".join(json.dumps({"v": v}) + "\n" for v in lists))
    elif name.endswith(".csv"):
        Path(name).write_text("".join(",".join(map(str, v)) + "\n" for v in lists))
    else:
        pa.parquet.write_table(pa.table({"v": pa.array(lists, pa.list_(pa.float32()))}), name)


@pytest.mark.parametrize("name", ["vectors.npy", "rows.jsonl", "rows.csv", "rows.parquet"])
def test_a_file_becomes_a_report(latentscale: Command, rows: np.ndarray, name: str) -> None:
    if name != "vectors.npy":
        write(name, rows)
    options = ["--measures", "vendi", "-o", "measures.vendi.kernels=[cosine]", *SERIAL]
    ended = latentscale("run", name, *options)
    assert ended.code == 0, ended.err
    [folder] = Path("jobs").glob(f"{Path(name).stem}-*")
    assert f"report   {folder.absolute()}/report.html" in ended.out
    unit = rows.astype(np.float64) / np.linalg.norm(rows, axis=1, keepdims=True)
    eigenvalues = np.linalg.eigvalsh(unit @ unit.T / len(rows)).clip(1e-300)
    expected = np.exp(-(eigenvalues * np.log(eigenvalues)).sum())
    assert cosine_vendi(folder) == pytest.approx(expected, rel=1e-6)


def test_measures_are_named_with_commas_or_one_by_one(
    latentscale: Command, rows: np.ndarray
) -> None:
    one_by_one = ("--measures", "spectrum", "--measures", "intrinsic_dimension")
    for given in (one_by_one, ("--measures", "spectrum,intrinsic_dimension")):
        ended = latentscale("run", "vectors.npy", *given, *SERIAL, "--json")
        assert ended.code == 0, ended.err
        found = json.loads(ended.out)["measures"]
        assert {"spectrum", "intrinsic_dimension"} <= {name for name in found if found[name]}
    ended = latentscale("run", "vectors.npy", *one_by_one, "-o", "measures.spectrum.k=5")
    assert "measures.spectrum.k is unknown; there is nothing to set" in ended.err


def test_the_job_file_in_the_folder_stands_for_the_command(
    latentscale: Command, rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("real.npy", rows[::-1] + 0.5)
    options = ["--reference", "real.npy", "--preset", "quick", "--output", "out"]
    assert latentscale("run", "vectors.npy", *options, *SERIAL).code == 0
    [folder] = Path("out").absolute().glob("vectors-*")
    text = (folder / "config.yaml").read_text()
    config = read_config(text, "config.yaml", measures=measure_sections())
    assert config.corpus == str(tmp_path / "vectors.npy")
    assert config.reference == str(tmp_path / "real.npy")
    assert list(config.measures) == ["duplicates", "projection", "heat", "vendi"]
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    again = latentscale("run", folder / "config.yaml", "--quiet")
    assert again.code == 0, again.err
    assert "nothing had to be computed" in again.out
    assert len(list(Path("../out").glob("vectors-*"))) == 1


def test_several_sources_with_labels_and_ids_become_one_corpus(
    latentscale: Command, rows: np.ndarray
) -> None:
    np.save("more.npy", rows[:20] * 2)
    Path("labels.txt").write_text("".join(f"l{i % 3}\n" for i in range(80)))
    Path("ids.txt").write_text("".join(f"row {i}\n" for i in range(80)))
    options = ["--labels", "labels.txt", "--ids", "ids.txt", "--measures", "vendi", *SERIAL]
    assert latentscale("run", "vectors.npy", "more.npy", *options).code == 0
    [path] = Path("jobs/corpora").glob("*.zarr")
    corpus = open_corpus(str(path))
    np.testing.assert_array_equal(corpus.read_all(), np.concatenate([rows, rows[:20] * 2]))
    assert corpus.texts("labels")[4] == "l1"
    assert corpus.texts("ids")[79] == "row 79"
    again = latentscale("run", "vectors.npy", "more.npy", *options)
    assert "nothing had to be computed" in again.out
    Path("labels.txt").write_text("".join(f"other{i % 3}\n" for i in range(80)))
    assert latentscale("run", "vectors.npy", "more.npy", *options).code == 0
    assert len(list(Path("jobs/corpora").glob("*.zarr"))) == 2


def test_columns_are_named_on_the_command_line(latentscale: Command, rows: np.ndarray) -> None:
    """The source and the reference have their ids, labels and vectors in the same columns."""
    for name, values in (("new", rows), ("old", rows + 1)):
        columns = {
            "doc": [f"{name}-{i}" for i in range(60)],
            "topic": ["even", "odd"] * 30,
            "emb": pa.array(values.tolist(), pa.list_(pa.float32())),
            "other": pa.array(values.tolist(), pa.list_(pa.float32())),
        }
        pa.parquet.write_table(pa.table(columns), f"{name}.parquet")
    options = ["--measures", "duplicates", "-o", "cluster={kind: serial}"]
    named = ["--vectors", "emb", "--ids-column", "doc", "--labels-column", "topic"]
    pair = ["new.parquet", "--reference", "old.parquet"]
    ended = latentscale("run", *pair, *named, *options)
    assert ended.code == 0, ended.err
    told = [line for line in ended.err.splitlines() if line.startswith("ingest: ")]
    assert told == 2 * [
        "ingest: ids from column doc",
        "ingest: labels from column topic",
        "ingest: left out: other",
    ]
    job = ended.out.split("report   ")[1].split("/report.html")[0]
    for of, name in (("corpus", "new"), ("reference", "old")):
        shown = latentscale("rows", job, "--of", of, "--columns", "row,id,label", "--json").out
        assert json.loads(shown.splitlines()[3]) == {"row": 3, "id": f"{name}-3", "label": "odd"}
    # The reference may have others, and the message on a missing one says how they are named.
    old = pa.parquet.read_table("old.parquet").rename_columns(["key", "kind", "vector", "other"])
    pa.parquet.write_table(old, "renamed.parquet")
    ended = latentscale("run", "new.parquet", *named, *options, "--reference", "renamed.parquet")
    assert (ended.code, "there is no 'emb' in it" in ended.err) == (2, True)
    assert "name one of those for the reference alone, with --reference-vectors, " in ended.err
    others = ["--reference-vectors", "vector", "--reference-ids-column", "key"]
    others += ["--reference-labels-column", "kind"]
    renamed = ["new.parquet", "--reference", "renamed.parquet"]
    ended = latentscale("run", *renamed, *named, *others, *options)
    assert [line for line in ended.err.splitlines() if "renamed" in line or " kind" in line] == [
        "ingest: labels from column kind"
    ], ended.err
    ended = latentscale("run", "new.parquet", *named, *others, *options)
    assert ended.code == 2
    assert "--reference-vectors needs --reference" in ended.err
    # A corpus has them already.
    [corpus] = [str(path) for path in Path("jobs/corpora").iterdir() if "old" in _sources(path)]
    ended = latentscale("run", "new.parquet", "--reference", corpus, *named, *options)
    assert "nothing had to be computed" in ended.out, ended.err
    [new] = [str(path) for path in Path("jobs/corpora").iterdir() if "new" in _sources(path)]
    ended = latentscale("run", new, "--reference", "old.parquet", *named, *options)
    assert ended.code == 0, ended.err
    ended = latentscale("run", *pair, "--vectors", "emb", "--labels-column", "tpoic", *options)
    assert ended.code == 2
    assert "tpoic" in ended.err
    assert "topic" in ended.err


def _sources(corpus: Path) -> str:
    return json.dumps(json.loads((corpus / "manifest.json").read_text())["sources"])


def test_what_becomes_of_several_sources_is_said(latentscale: Command, rows: np.ndarray) -> None:
    Path("both").mkdir()
    for name in ("a", "b"):
        np.save(f"both/{name}.npy", rows)
    Path("both/notes.txt").write_text("no vectors\n")
    options = ["--measures", "duplicates", "-o", "cluster={kind: serial}"]
    ended = latentscale("run", "both/a.npy", "both/b.npy", *options)
    assert ended.err.splitlines()[0] == (
        "ingest: 2 sources are read as one corpus; --reference compares with another"
    )
    ended = latentscale("run", "both", *options)
    assert f"ingest: {Path('both').absolute()}/notes.txt: left out, unknown format" in ended.err
    assert "ingest" not in latentscale("run", "both", *options, "--quiet").err


def test_corrected_ids_are_those_of_the_results(latentscale: Command, rows: np.ndarray) -> None:
    rows[7] = rows[3]
    np.save("vectors.npy", rows)
    for name in ("old", "new"):
        Path(f"{name}.txt").write_text("".join(f"{name} {i}\n" for i in range(60)))
        ended = latentscale(
            "run", "vectors.npy", "--ids", f"{name}.txt", "--measures", "duplicates", *SERIAL
        )
        assert ended.code == 0, ended.err
        assert " near-duplicates can go: an earlier row, which stays, lies within" in ended.out
        job = ended.out.split("report   ")[1].split("/report.html")[0]
        found = json.loads(latentscale("rows", job, "--only", "exact-duplicates", "--json").out)
        assert found == {"row": 7, "id": f"{name} 7", "duplicate_of": f"{name} 3"}
    # The numbers don't depend on ids, so nothing was computed again.
    assert "nothing" not in ended.out
    plans = [json.loads(path.read_text()) for path in Path("jobs").glob("vectors-*/plan.json")]
    first, second = ([stage["key"] for stage in plan["stages"]] for plan in plans)
    assert first == second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["job.yaml", "vectors.npy"], "job.yaml vectors.npy: name one job file, or only sources"),
        (
            ["job.yaml", "--labels", "l.txt"],
            "job.yaml: a job file can't be given labels, ids, columns or --on-invalid",
        ),
        (["job.yaml", "--preset", "quick"], "--preset is for a job without a job file"),
        (["vectors.npy", "--reference-ids", "l.txt"], "--reference-ids needs --reference"),
        (["vectors.npy", "--labels", "none.txt"], "none.txt: no such file or folder; check the"),
        (
            ["vectors.npy", "--labels", "topic"],
            "check the path, or name a column of the source with --labels-column",
        ),
        (["nothing.npy"], "nothing.npy: no such file or folder; check the path"),
        (["finished"], "finished: the folder of a job; continue it with latentscale resume"),
    ],
)
def test_what_does_not_fit_is_one_line(
    latentscale: Command, rows: np.ndarray, arguments: list[str], message: str
) -> None:
    Path("job.yaml").write_text("name: a\ncorpus: vectors.npy\n")
    Path("finished").mkdir()
    Path("finished/plan.json").write_text("{}")
    ended = latentscale("run", *arguments, *SERIAL)
    assert ended.code == 2
    assert message in ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert not Path("jobs").exists()


def test_a_job_file_needs_no_suffix(latentscale: Command, rows: np.ndarray) -> None:
    Path("job").write_text("name: plain\ncorpus: vectors.npy\nmeasures: {vendi: {}}\n")
    assert latentscale("run", "job", *SERIAL).code == 0
    assert len(list(Path("jobs").glob("plain-*"))) == 1


def test_a_job_file_may_be_json(latentscale: Command, rows: np.ndarray) -> None:
    job = {"name": "plain", "corpus": "vectors.npy", "measures": {"vendi": {}}}
    Path("job.json").write_text(json.dumps(job))
    assert latentscale("run", "job.json", *SERIAL).code == 0
    assert len(list(Path("jobs").glob("plain-*"))) == 1


def test_the_job_file_finds_shared_scales_from_anywhere(
    latentscale: Command, rows: np.ndarray, tmp_path: Path
) -> None:
    options = ["--measures", "vendi", *SERIAL]
    assert latentscale("run", "vectors.npy", "--name", "first", *options).code == 0
    [first] = Path("jobs").glob("first-*")
    shared = ["--name", "second", "-o", f"scales_from={first}"]
    assert latentscale("run", "vectors.npy", *shared, *options).code == 0
    [second] = Path("jobs").glob("second-*")
    text = (second / "config.yaml").read_text()
    config = read_config(text, "config.yaml", measures=measure_sections())
    assert config.scales_from == str(tmp_path / first)
    assert (
        read_config(
            (first / "config.yaml").read_text(), "config.yaml", measures=measure_sections()
        ).scales_from
        == "auto"
    )


def test_plan_takes_the_arguments_of_run(
    tmp_path: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forecast is that of the job that run makes of the same arguments."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        np.savez(f"{name}.npz", emb=generator.normal(size=(80, 4)), other=np.ones((80, 3)))
    Path("ids.txt").write_text("\n".join(map(str, range(160))) + "\n")
    arguments = ("a.npz", "b.npz", "--vectors", "emb", "--ids", "ids.txt", "--name", "both")
    only = ("--measures", "duplicates")
    before = json.loads(latentscale("plan", *arguments, *only, "--json").out)
    assert before["corpora"]["corpus"]["n"] == 160
    assert before["corpora"]["corpus"]["d"] == 4
    assert not Path("jobs").exists()
    assert latentscale("run", *arguments, *only).code == 0
    [job] = Path("jobs").glob("both-*")
    after = json.loads(latentscale("plan", *arguments, *only, "--json").out)
    assert after["job"]["id"] == job.name
    assert after["total"]["tasks_left"] == 0
    ended = latentscale("plan", job / "config.yaml", "--vectors", "emb")
    assert ended.code == 2
    assert "a job file can't be given labels, ids, columns or --on-invalid" in ended.err


def test_rows_with_nan_are_left_out_where_asked(latentscale: Command, rows: np.ndarray) -> None:
    spoilt = rows.copy()
    spoilt[[7, 30], 2] = np.nan
    np.save("spoilt.npy", spoilt)
    np.save("clean.npy", np.delete(rows, [7, 30], axis=0))
    options = ["--measures", "vendi", "-o", "measures.vendi.kernels=[cosine]", *SERIAL[:2]]
    refused = latentscale("run", "spoilt.npy", *options)
    assert refused.code == 2
    assert "row 7 holds NaN" in refused.err
    assert "--on-invalid drop" in refused.err
    ended = latentscale("run", "spoilt.npy", "--on-invalid", "drop", *options)
    assert ended.code == 0, ended.err
    said = (
        "ingest: 2 rows of the corpus left out (NaN, infinity, or out of the range of float32); "
        "the first is source row 7"
    )
    assert said in ended.err.splitlines()
    assert "58 × 6, " in ended.out
    assert "2 rows left out" in ended.out
    assert latentscale("run", "clean.npy", *options).code == 0
    [clean], [spoilt_job] = Path("jobs").glob("clean-*"), Path("jobs").glob("spoilt-*")
    assert cosine_vendi(spoilt_job) == cosine_vendi(clean)
    corpora = json.loads((spoilt_job / "results.json").read_text())["corpora"]
    assert corpora["corpus"]["dropped_rows"] == 2
    assert "58 of 60 rows" in (spoilt_job / "report.html").read_text()
    # The number in the source, by which one's own table is cut.
    exported = latentscale("export", spoilt_job, "kept.parquet")
    assert exported.code == 0, exported.err
    table = pyarrow.parquet.read_table("kept.parquet").to_pydict()
    assert table["row"] == list(range(58))
    assert table["source_row"] == [row for row in range(60) if row not in (7, 30)]
    listed = latentscale("rows", spoilt_job, "--where", "row >= 29", "--json", "--limit", "2")
    assert listed.err == (
        "row: without the 2 rows of the source left out; source_row counts them\n"
    )
    numbers = [(row["row"], row["source_row"]) for row in map(json.loads, listed.out.splitlines())]
    assert numbers == [(29, 31), (30, 32)]
    # A corpus has no such rows: it is taken as it is, not ingested again.
    again = latentscale("run", corpora["corpus"]["uri"], "--on-invalid", "drop", *options)
    assert again.code == 0, again.err
    assert len(list(Path("jobs/corpora").glob("*/manifest.json"))) == 2


def test_a_mistake_in_the_reference_is_told_before_anything_is_ingested(
    latentscale: Command, rows: np.ndarray
) -> None:
    np.save("rows.npy", rows)
    for options in (
        ["--reference", "lats.npy"],
        ["--reference", "lats.npy", "--on-invalid", "drop"],
    ):
        ended = latentscale("run", "rows.npy", *options, *SERIAL)
        assert ended.code == 2
        assert "lats.npy: no such file or folder" in ended.err
        assert not list(Path().glob("jobs/corpora/*"))


def test_rows_with_the_id_of_an_earlier_row_are_told(
    latentscale: Command, rows: np.ndarray
) -> None:
    np.savez("rows.npz", vectors=rows, id=np.arange(60) % 58)
    ended = latentscale("run", "rows.npz", "--measures", "vendi", *SERIAL[:2])
    assert ended.code == 0, ended.err
    said = "ingest: 2 rows of the corpus with the id of an earlier row; the first is row 58"
    assert said in ended.err.splitlines()


def test_a_source_without_the_rows_that_were_left_out_is_another_job(
    latentscale: Command, rows: np.ndarray
) -> None:
    spoilt = rows.copy()
    spoilt[3] = np.inf
    options = ["--measures", "vendi", "-o", "measures.vendi.kernels=[cosine]", *SERIAL]
    for values in (spoilt, np.delete(rows, 3, axis=0)):
        np.save("one.npy", values)
        assert latentscale("run", "one.npy", "--on-invalid", "drop", *options).code == 0
    documents = [json.loads(path.read_text()) for path in Path("jobs").glob("one-*/results.json")]
    left_out = [document["corpora"]["corpus"].get("dropped_rows") for document in documents]
    assert sorted(left_out, key=str) == [1, None]


@pytest.mark.parametrize(("other", "refused"), [(9, True), (4, False)])
def test_rows_are_paired_by_number_only_where_the_same_are_left_out(
    latentscale: Command, rows: np.ndarray, other: int, refused: bool
) -> None:
    for name, bad in (("a", 4), ("b", other)):
        values = rows.copy()
        values[bad] = np.nan
        np.save(f"{name}.npy", values)
    ended = latentscale(
        *("run", "a.npy", "--reference", "b.npy", "--pair", "rows", "--on-invalid", "drop"),
        *("--measures", "alignment", *SERIAL),
    )
    assert ended.code == (2 if refused else 0), ended.err
    said = "1 of the corpus and 1 of the reference were left out as invalid; fix the sources, or "
    assert (said in ended.err) == refused


def test_measures_that_do_not_suit_few_rows_are_left_out(
    latentscale: Command, rows: np.ndarray
) -> None:
    np.save("few.npy", rows[:5])
    planned = latentscale("plan", "few.npy")
    assert (planned.code, planned.err) == (
        0,
        "plan: measures left out: heat (for 6 rows or more)\n",
    )
    ended = latentscale("run", "few.npy", "-o", "cluster={kind: serial}")
    assert ended.code == 0, ended.err
    assert ended.err.splitlines()[0] == "ingest: measures left out: heat (for 6 rows or more)"
    assert "Vendi score, cosine, order 1" in ended.out
    named = latentscale("run", "few.npy", "--measures", "heat", *SERIAL)
    assert (named.code, named.err) == (
        2,
        "latentscale: corpus: heat.k is 5 and there are 5 rows; set measures.heat.k to 4 or less\n",
    )


def test_measures_that_do_not_suit_unequal_dimensions_are_left_out(
    latentscale: Command, rows: np.ndarray
) -> None:
    np.save("narrow.npy", rows[:, :4])
    ended = latentscale(
        *("run", "vectors.npy", "--reference", "narrow.npy", "-o", "cluster={kind: serial}")
    )
    assert ended.code == 0, ended.err
    told = "ingest: measures left out: geomca (for corpora of equal dimensions)"
    assert told in ended.err.splitlines()


def test_a_column_of_a_file_beside_the_corpus_is_none_of_the_reference(
    latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(60, 4)).astype("f4")
    np.save("new.npy", rows)
    np.save("old.npy", rows + 1)
    Path("t.csv").write_text("topic,doc\n" + "".join(f"{'ab'[i % 2]},{i}\n" for i in range(60)))
    options = ["--measures", "duplicates", "-o", "cluster={kind: serial}"]
    files = ["--labels", "t.csv", "--labels-column", "topic"]
    ended = latentscale("run", "new.npy", "--reference", "old.npy", *files, *options)
    assert ended.code == 0, ended.err
    # Beside a file of its own, it is.
    own = ["--reference-labels", "t.csv"]
    ended = latentscale("run", "new.npy", "--reference", "old.npy", *files, *own, *options)
    assert ended.code == 0, ended.err
    job = ended.out.split("report   ")[1].split("/report.html")[0]
    shown = latentscale("rows", job, "--of", "reference", "--columns", "row,label", "--json").out
    assert json.loads(shown.splitlines()[3]) == {"row": 3, "label": "b"}
