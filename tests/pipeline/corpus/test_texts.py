"""Texts of rows: their beginnings are kept with a corpus and shown where its rows are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import latentscale
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.sidecars import TEXT_LENGTH
from tests.conftest import Ended

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Command = Callable[..., Ended]

HOSTILE = "<script>alert(1)</script> naïve\u202e =1+1\nand  a\tsecond line"
SHOWN = "<script>alert(1)</script> naïve\u202e =1+1 and a second line"


def texts(n: int) -> list[str]:
    return [HOSTILE, "", "x" * 1000, *(f"text of row {row}" for row in range(3, n))]


def write_parquet(path: Path, rows: np.ndarray, column: str = "text") -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    pq.write_table(pa.table({"vector": vectors, column: texts(len(rows))}), path)


@pytest.fixture
def rows() -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(60, 8)).astype("f4")
    rows[40:45] = rows[:5]
    return rows


def test_beginnings_are_stored_on_one_line(
    tmp_path: Path, latentscale: Command, rows: np.ndarray
) -> None:
    write_parquet(tmp_path / "rows.parquet", rows)
    ended = latentscale("ingest", tmp_path / "rows.parquet", tmp_path / "c.zarr")
    assert ended.code == 0, ended.err
    assert "ingest: texts from column text" in ended.err
    found = open_corpus(str(tmp_path / "c.zarr")).texts("texts")
    assert found is not None
    assert found[:2] == [SHOWN, ""]
    assert found[2] == "x" * (TEXT_LENGTH - 1) + "…"
    assert found[3:] == texts(60)[3:]


def test_texts_move_with_their_rows(tmp_path: Path, latentscale: Command, rows: np.ndarray) -> None:
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "texts.txt").write_text("\n".join(f"line {row}" for row in range(60)) + "\n")
    source, subset = tmp_path / "c.zarr", tmp_path / "some.zarr"
    given = ("--texts", tmp_path / "texts.txt")
    assert latentscale("ingest", tmp_path / "rows.npy", source, *given).code == 0
    ended = latentscale("ingest", tmp_path / "rows.npy", source, "--append")
    assert ended.code == 2
    assert "it has texts, but the new rows have none; give them with --texts" in ended.err
    assert latentscale("ingest", tmp_path / "rows.npy", source, "--append", *given).code == 0
    where = ("--where", "texts in ['line 3', 'line 59']")
    assert latentscale("subset", source, subset, *where).code == 0
    assert open_corpus(str(subset)).texts("texts") == ["line 3", "line 59"] * 2
    assert latentscale("export", subset, tmp_path / "some.parquet").code == 0
    assert pq.read_table(tmp_path / "some.parquet")["texts"].to_pylist()[0] == "line 3"


def test_a_job_shows_the_texts_of_its_rows(
    tmp_path: Path, latentscale: Command, rows: np.ndarray
) -> None:
    write_parquet(tmp_path / "rows.parquet", rows, "said")
    ended = latentscale(
        "run", tmp_path / "rows.parquet", "--texts-column", "said", "--name", "texts",
        "--measures", "duplicates", "--output", tmp_path / "jobs",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    [job] = (tmp_path / "jobs").glob("texts-*")
    found = json.loads((job / "results.json").read_text())
    near = next(each for each in found["rows"] if each["reason"] == "exact-duplicates")
    first = next(each for each in near["rows"] if each["row"] == 40)
    assert first["text"] == "text of row 40"
    assert first["other_text"] == SHOWN
    page = (job / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\u202e" not in page
    ended = latentscale("rows", job, "--only", "exact-duplicates", "--json")
    assert json.loads(ended.out.splitlines()[0])["text"] == "text of row 40"
    ended = latentscale("rows", job, "--limit", "3", "--columns", "row,text")
    assert ended.code == 0, ended.err
    assert "\u202e" not in ended.out
    assert all(len(line) < 80 for line in ended.out.splitlines())
    assert latentscale("rows", job, "--output", tmp_path / "rows.csv").code == 0
    assert "'=1+1" not in (tmp_path / "rows.csv").read_text()


def test_no_texts_are_taken_if_they_are_not_wanted(
    tmp_path: Path, latentscale: Command, rows: np.ndarray
) -> None:
    write_parquet(tmp_path / "rows.parquet", rows)
    options = ("--texts-column", "")
    assert latentscale("ingest", tmp_path / "rows.parquet", tmp_path / "c", *options).code == 0
    assert open_corpus(str(tmp_path / "c")).texts("texts") is None


def test_texts_are_given_in_python(tmp_path: Path, rows: np.ndarray) -> None:
    results = latentscale.run(
        rows, texts=texts(60), measures="duplicates", output=tmp_path, name="texts"
    )
    found = [row["text"] for row in results.rows("exact-duplicates").records()]
    assert found == [f"text of row {row}" for row in range(40, 45)]


def test_a_file_of_texts_goes_before_the_column(
    tmp_path: Path, latentscale: Command, rows: np.ndarray
) -> None:
    write_parquet(tmp_path / "rows.parquet", rows)
    (tmp_path / "texts.txt").write_text("\n".join(f"line {row}" for row in range(60)) + "\n")
    source, given = tmp_path / "c.zarr", ("--texts", tmp_path / "texts.txt")
    ended = latentscale("ingest", tmp_path / "rows.parquet", source, *given)
    assert ended.code == 0, ended.err
    assert "from column" not in ended.err
    found = open_corpus(str(source)).texts("texts")
    assert found is not None
    assert found[:2] == ["line 0", "line 1"]


def test_rows_name_the_text_of_the_other_row(
    tmp_path: Path, latentscale: Command, rows: np.ndarray
) -> None:
    write_parquet(tmp_path / "rows.parquet", rows)
    options = ("--measures", "duplicates", "--output", tmp_path / "jobs", "--name", "texts")
    assert latentscale("run", tmp_path / "rows.parquet", *options).code == 0
    [job] = (tmp_path / "jobs").glob("texts-*")
    ended = latentscale("rows", job, "--only", "exact-duplicates", "--json")
    found = [json.loads(line) for line in ended.out.splitlines()]
    assert [each["duplicate_of_text"] for each in found[:2]] == [SHOWN, ""]
    target = tmp_path / "rows.parquet.out.parquet"
    assert latentscale("rows", job, "--only", "near-duplicates", "--output", target).code == 0
    assert pq.read_table(target)["nearest_text"].to_pylist()[0] == SHOWN
    ended = latentscale("rows", job, "--columns", "row,tex")
    assert ended.code == 2
    assert ended.err.endswith("there is no column tex; did you mean text?\n")
