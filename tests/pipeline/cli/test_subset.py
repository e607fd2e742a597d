"""``latentscale subset`` as its help shows it, and conditions on columns of booleans."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latentscale_pipeline.corpus import open_corpus
from tests.conftest import Ended

Command = Callable[..., Ended]
ROWS = 12_000


@pytest.fixture
def folder(tmp_path: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(1).normal(size=(ROWS, 2)).astype("f4"))
    labels = ["en", "en-GB", "de", "fr"] * (ROWS // 4)
    Path("labels.txt").write_text("".join(f"{label}\n" for label in labels))
    number = np.arange(ROWS)
    pq.write_table(pa.table({"year": 2015 + number % 10}), "meta.parquet")
    np.savez("meta.npz", checked=number % 2 == 0, draft=number % 3 == 0, x=number)
    ended = latentscale("ingest", "rows.npy", "corpus.zarr", "--labels", "labels.txt")
    assert ended.code == 0
    return tmp_path


def test_the_examples_of_the_help_work(latentscale: Command, folder: Path) -> None:
    shown = latentscale("subset", "--help").out.splitlines()
    examples = [line.strip() for line in shown if line.startswith("    latentscale ")]
    measured = latentscale("run", "corpus.zarr", "--measures", "duplicates", "--name", "nightly")
    assert measured.code == 0, measured.err
    (job,) = Path("jobs").glob("nightly-*")
    job.rename("jobs/nightly-1a2b3c4d")
    rows = {}
    for example in examples:
        _, *arguments = shlex.split(example)
        ended = latentscale(*arguments, "--json")
        assert ended.code == 0, ended.err
        rows[arguments[2]] = json.loads(ended.out)["n"]
    [example] = re.findall(r'such as\s+"([^"]*)"', " ".join(" ".join(shown).split()))
    ended = latentscale("subset", "corpus.zarr", "some.zarr", "--where", example, "--json")
    assert json.loads(ended.out)["n"] == 3000
    # Directions in the plane, none within 0.05 of another: at least 0.318 rad apart.
    assert 10 < rows.pop("distinct.zarr") <= 19
    assert 10 < rows.pop("clean.zarr") <= 19
    assert rows == {
        "english.zarr": 6000,
        "recent.zarr": 6000,
        "good.zarr": 4000,
        "small.zarr": 10_000,
        "diverse.zarr": 1000,
    }


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("checked", 6000),
        ("not checked", 6000),
        ("checked and x > 3", 5998),
        ("draft == true", 4000),
        ("draft == True", 4000),
    ],
)
def test_booleans_of_a_table_are_conditions(
    latentscale: Command, folder: Path, condition: str, rows: int
) -> None:
    options = ("--table", "meta.npz", "--where", condition)
    ended = latentscale("subset", "corpus.zarr", "some.zarr", *options, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["n"] == rows


def test_labels_of_true_and_false_are_conditions(latentscale: Command, folder: Path) -> None:
    Path("flags.txt").write_text("true\nfalse\nfalse\n" * (ROWS // 3))
    assert latentscale("ingest", "rows.npy", "flags.zarr", "--labels", "flags.txt").code == 0
    ended = latentscale("subset", "flags.zarr", "some.zarr", "--where", "not labels", "--json")
    assert json.loads(ended.out)["n"] == 8000


def test_a_label_is_no_condition(latentscale: Command, folder: Path) -> None:
    assert latentscale("subset", "corpus.zarr", "some.zarr", "--where", "labels") == Ended(
        2, "", "latentscale: 'labels': not a condition; write one such as column == 'en'\n"
    )


def test_near_rows_are_dropped_without_a_job_of_ones_own(
    tmp_path: Path, latentscale: Command
) -> None:
    rows = np.random.default_rng(2).normal(size=(300, 8)).astype("f4")
    rows[100:140] = rows[:40] * np.float32(1.001)
    np.save(tmp_path / "rows.npy", rows)
    source, target = tmp_path / "rows.zarr", tmp_path / "kept.npy"
    assert latentscale("ingest", tmp_path / "rows.npy", source).code == 0
    ended = latentscale("export", source, target, "--drop-duplicates", "0.0001")
    assert ended.code == 0, ended.err
    assert "40 of 300 rows left out: each is within 0.0001 (cosine) of an earlier " in ended.err
    kept = np.load(target)
    assert np.array_equal(kept, np.delete(rows, np.arange(100, 140), axis=0))
    both = ("--drop-duplicates", "0.0001", "--cover", "20", "--metric", "euclidean")
    ended = latentscale("export", source, target, "--overwrite", *both)
    assert ended.code == 0, ended.err
    # Under the Euclidean distance no row is that near.
    assert "0 of 300 rows left out" in ended.err
    assert "20 chosen rows: effective number (cosine, order 2) " in ended.err
    assert "20 random rows: effective number (cosine, order 2) " in ended.err
    assert np.load(target).shape == (20, 8)


def test_of_near_rows_one_stays_of_those_that_meet_all_other_conditions(
    tmp_path: Path, latentscale: Command
) -> None:
    rows = np.random.default_rng(2).normal(size=(100, 8)).astype("f4")
    rows[50:70] = rows[:20] * np.float32(1.001)
    rows[90:95] = rows[60:65] * np.float32(1.002)
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "labels.txt").write_text("de\n" * 50 + "en\n" * 50)
    source, target = tmp_path / "rows.zarr", tmp_path / "kept.npy"
    labels = ("--labels", tmp_path / "labels.txt")
    assert latentscale("ingest", tmp_path / "rows.npy", source, *labels).code == 0
    job = ("--measures", "duplicates", "--output", tmp_path / "jobs", "--name", "job", "--quiet")
    within = ("-o", "measures.duplicates.within=0.0001")
    assert latentscale("run", source, *job, *within).code == 0
    english = np.delete(rows[50:], np.arange(40, 45), axis=0)
    for corpus, how in (
        (source, ("--drop-duplicates", "0.0001")),
        (tmp_path / "jobs" / "job", ("--without", "near-duplicates")),
    ):
        ended = latentscale("export", corpus, target, "--label", "en", "--overwrite", *how)
        assert ended.code == 0, ended.err
        assert "5 of 50 rows left out" in ended.err
        assert np.array_equal(np.load(target), english)
        sample = ("--sample", 45, "--label", "en")
        assert latentscale("export", corpus, target, *sample, "--overwrite", *how).code == 0
        assert np.array_equal(np.load(target), english), "rows are drawn from those that stay"


def test_near_rows_of_many_are_dropped_by_cells(
    tmp_path: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentscale_pipeline.cli.subset.MAX_COMPARED", 500)
    rows = np.random.default_rng(2).normal(size=(900, 8)).astype("f4")
    rows[800:840] = rows[:40] * np.float32(1.001)
    np.save(tmp_path / "rows.npy", rows)
    assert latentscale("ingest", tmp_path / "rows.npy", tmp_path / "rows.zarr").code == 0
    target = tmp_path / "kept.npy"
    ended = latentscale("export", tmp_path / "rows.zarr", target, "--drop-duplicates", "0.0001")
    assert ended.code == 0, ended.err
    assert "40 of 900 rows left out" in ended.err
    assert "near rows were looked for in cells: of 675 random rows " in ended.err
    assert np.array_equal(np.load(target), np.delete(rows, np.arange(800, 840), axis=0))


def test_rows_of_a_job_without_some_shards_are_those_that_it_counts(
    tmp_path: Path, latentscale: Command
) -> None:
    rows = np.random.default_rng(4).normal(size=(4000, 4)).astype("f4")
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "ids.txt").write_text("".join(f"id{i}\n" for i in range(4000)))
    # The third source row is dropped; shards of 1024 rows follow.
    rows[2, 1] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    corpus = tmp_path / "corpus.zarr"
    given = ("--ids", tmp_path / "ids.txt", "--on-invalid", "drop", "--shard-size", "4KiB")
    assert latentscale("ingest", tmp_path / "rows.npy", corpus, *given).code == 0
    excluded = "exclude_shards={corpus: [vectors/c/0/0, vectors/c/2/0]}"
    ended = latentscale(
        *("run", corpus, "-o", excluded, "--measures", "duplicates", "--name", "part"),
        *("--output", tmp_path / "jobs", "-o", "cluster.kind=serial"),
    )
    assert ended.code == 0, ended.err
    [job] = (tmp_path / "jobs").glob("part-*")
    kept = np.concatenate([np.arange(1025, 2049), np.arange(3073, 4000)])
    listed = latentscale("rows", job, "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in listed] == [f"id{i}" for i in kept]
    assert latentscale("export", job, tmp_path / "all.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "all.npy"), rows[kept])
    some = ("--where", "row >= 1020 and row < 1030")
    assert latentscale("export", job, tmp_path / "some.parquet", *some).code == 0
    table = pa.parquet.read_table(tmp_path / "some.parquet").to_pydict()
    assert table["row"] == [*range(1020, 1030)]
    assert table["source_row"] == kept[1020:1030].tolist()
    assert table["ids"] == [f"id{i}" for i in kept[1020:1030]]
    np.testing.assert_array_equal(np.array(table["vector"], "f4"), rows[kept[1020:1030]])
    # A table of the sources has all of their rows, or a row for each of the corpus.
    stored = np.delete(np.arange(4000), 2)
    for name, numbers in (("whole", np.arange(4000)), ("own", stored)):
        marked = np.isin(numbers, [1, 3, 1500])
        pa.parquet.write_table(pa.table({"mark": marked}), tmp_path / f"{name}.parquet")
        chosen = ("--table", tmp_path / f"{name}.parquet", "--where", "mark", "--overwrite")
        ended = latentscale("export", corpus, tmp_path / "marked.npy", *chosen)
        assert ended.code == 0, ended.err
        np.testing.assert_array_equal(np.load(tmp_path / "marked.npy"), rows[[1, 3, 1500]])
    pa.parquet.write_table(pa.table({"mark": marked[1:]}), tmp_path / "own.parquet")
    refused = latentscale("export", corpus, tmp_path / "marked.npy", *chosen)
    assert "has 3999, and its sources 4000; give one row for each" in refused.err
    named = latentscale("subset", job, tmp_path / "part.zarr", "--where", "id == 'id1300'")
    assert named.code == 0, named.err
    part = open_corpus(str(tmp_path / "part.zarr"))
    assert part.texts("ids") == ["id1300"]
    np.testing.assert_array_equal(part.read_all(), rows[1300:1301])


def test_rows_of_a_job_after_others_were_appended(
    latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(5).normal(size=(120, 32)).astype("f4")
    rows[60:70] = rows[:10]
    np.save("a.npy", rows)
    np.save("b.npy", rows[:30] + 3.0)
    assert latentscale("ingest", "a.npy", "c.zarr").code == 0
    options = ("--measures", "duplicates", "-o", "cluster={kind: serial}", "--quiet")
    assert latentscale("run", "c.zarr", "--name", "mon", *options).code == 0
    assert latentscale("ingest", "b.npy", "c.zarr", "--append").code == 0
    [job] = Path("jobs").glob("mon-*")
    ended = latentscale("subset", job, "s.zarr", "--without", "near-duplicates", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["n"] == 110
    chosen = ("--where", "near_duplicate_of is null and row < 65")
    ended = latentscale("export", job, "s.npy", *chosen)
    assert ended.code == 0, ended.err
    assert np.array_equal(np.load("s.npy"), rows[:60])
    refused = latentscale("subset", "c.zarr", "t.zarr", "--rows", job, *chosen)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"latentscale: {job.absolute()}: the job has measured 120 of the 150 rows of "
        f"{tmp_path}/c.zarr; give the job instead of it for these, or run it again for all\n"
    )
    Path("link").symlink_to(job)
    for place in (job, "link"):
        assert json.loads(latentscale("status", place, "--json").out)["job"] == job.name


def test_rows_of_a_job_whose_corpora_lack_shards(
    latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.random.default_rng(6).normal(size=(4000, 64)).astype("f4"))
    np.save("b.npy", np.random.default_rng(7).normal(size=(300, 64)).astype("f4"))
    for name, size in (("a", "256KiB"), ("b", "1MiB")):
        ended = latentscale("ingest", f"{name}.npy", f"{name}.zarr", "--shard-size", size)
        assert ended.code == 0, ended.err
    first, second = (shard.key for shard in open_corpus("a.zarr").manifest.vectors.shards[:2])
    options = ("--measures", "duplicates", "-o", "cluster={kind: serial}", "--quiet")
    for reference, excluded in (("b.zarr", "[]"), ("a.zarr", f"[{second}]")):
        without = f"exclude_shards={{corpus: [{first}], reference: {excluded}}}"
        given = ("a.zarr", "--reference", reference, "--output", f"jobs-{reference}", "-o", without)
        ended = latentscale("run", *given, *options)
        assert ended.code == 0, ended.err
        [job] = Path(f"jobs-{reference}").glob("a-*")
        for of in ("corpus", "reference"):
            chosen = ("--of", of, "--where", "row < 10", "--overwrite", "--json")
            ended = latentscale("subset", job, "some.zarr", *chosen)
            assert ended.code == 0, ended.err
            assert json.loads(ended.out)["n"] == 10
    refused = latentscale("subset", "a.zarr", "t.zarr", "--rows", job, "--where", "row < 10")
    assert "of the 4,000 rows of" in refused.err
