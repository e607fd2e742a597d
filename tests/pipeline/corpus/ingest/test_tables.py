"""Tables as users have them: named columns beside vectors, in several orders, with gaps."""

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latentscale_pipeline.corpus import open_corpus
from tests.conftest import Ended

Command = Callable[..., Ended]
ROWS = np.random.default_rng(0).normal(size=(20, 4)).round(4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_csv(name: str, header: list[str], *columns: object) -> None:
    lines = [",".join(map(str, row)) for row in zip(*map(list, columns), strict=True)]
    Path(name).write_text("\n".join([",".join(header), *lines]) + "\n")


def test_a_data_frames_column_numbers_beside_a_name_are_no_row(
    folder: Path, latentscale: Command
) -> None:
    ids = [f"r{i}" for i in range(20)]
    write_csv("rows.csv", ["id", "0", "1", "2", "3"], ids, *ROWS.T)
    assert latentscale("ingest", "rows.csv", "rows.zarr").code == 0
    corpus = open_corpus("rows.zarr")
    np.testing.assert_allclose(corpus.read_all(), ROWS, rtol=1e-6)
    assert corpus.texts("ids") == ids
    write_csv("two.csv", ["", "0", "1"], range(20), *ROWS.T[:2])
    assert latentscale("ingest", "two.csv", "two.zarr").code == 0
    np.testing.assert_allclose(open_corpus("two.zarr").read_all(), ROWS[:, :2], rtol=1e-6)
    # Without a word in it such a line may be a row.
    Path("bare.csv").write_text("7,1,2,3\n" + "\n".join(",".join(map(str, r)) for r in ROWS))
    assert latentscale("ingest", "bare.csv", "bare.zarr", "--vectors", "*").code == 0
    assert open_corpus("bare.zarr").n == 21


def test_ids_and_labels_are_no_dimensions(folder: Path, latentscale: Command) -> None:
    whole = (100 * ROWS).astype(int)
    write_csv("whole.csv", ["id", *"abcd"], range(1000, 1020), *whole.T)
    assert latentscale("ingest", "whole.csv", "whole.zarr").code == 0
    corpus = open_corpus("whole.zarr")
    np.testing.assert_array_equal(corpus.read_all(), whole)
    assert corpus.texts("ids") == [str(i) for i in range(1000, 1020)]
    labels = [float(i % 3) for i in range(20)]
    labels[4] = np.nan
    table = pa.table({"label": labels, **dict(zip("wxyz", ROWS.T, strict=True))})
    pq.write_table(table, "gaps.parquet")
    ended = latentscale("ingest", "gaps.parquet", "gaps.zarr")
    assert ended.code == 0, ended.err
    assert "label (double" in ended.err or "label (float64" in ended.err
    np.testing.assert_allclose(open_corpus("gaps.zarr").read_all(), ROWS, rtol=1e-6)
    kinds = [["0", "1", "unknown"][(i % 7) // 3] for i in range(20)]
    write_csv("mixed.csv", ["label", *"wxyz"], kinds, *ROWS.T)
    assert latentscale("ingest", "mixed.csv", "mixed.zarr").code == 0
    assert open_corpus("mixed.zarr").texts("labels") == kinds
    assert open_corpus("mixed.zarr").d == 4
    # Whoever asks for all columns gets them.
    assert latentscale("ingest", "whole.csv", "all.zarr", "--vectors", "*").code == 0
    assert open_corpus("all.zarr").d == 5


def test_columns_are_joined_by_their_names(folder: Path, latentscale: Command) -> None:
    write_csv("1.csv", [*"wxyz"], *ROWS.T)
    write_csv("2.csv", [*"zxwy"], *ROWS.T[[3, 1, 0, 2]])
    assert latentscale("ingest", "1.csv", "2.csv", "both.zarr").code == 0
    np.testing.assert_allclose(open_corpus("both.zarr").read_all(), [*ROWS, *ROWS], rtol=1e-6)
    write_csv("3.csv", [*"wxyv"], *ROWS.T)
    ended = latentscale("ingest", "1.csv", "3.csv", "other.zarr")
    assert ended.code == 2
    assert "3.csv:*: its vectors have a column v, which" in ended.err


def test_ids_are_kept_as_they_are_written(folder: Path, latentscale: Command) -> None:
    ids = ["007", "7", "0012", "12345678901234567890", *map(str, range(16))]
    write_csv("rows.csv", ["id", *"wxyz"], ids, *ROWS.T)
    assert latentscale("ingest", "rows.csv", "rows.zarr").code == 0
    assert open_corpus("rows.zarr").texts("ids") == ids
    Path("some.txt").write_bytes("\ufeff007\n12\u20281\n7\n".encode())
    ended = latentscale("subset", "rows.zarr", "some.zarr", "--ids", "some.txt")
    assert ended.code == 0, ended.err
    assert open_corpus("some.zarr").texts("ids") == ["007", "7", "7"]
    # Labels may turn out as text after many numbers.
    labels = ["1"] * 70 + ["other"]
    write_csv("long.csv", ["label", "x", "y"], labels, range(71), [0.5] * 71)
    assert latentscale("ingest", "long.csv", "long.zarr", "--vectors", "*").code != 0
    write_csv("long.csv", ["label", "x", "y"], labels, [0.25] * 71, [0.5] * 71)
    assert latentscale("ingest", "long.csv", "long.zarr").code == 0
    assert open_corpus("long.zarr").texts("labels") == labels


def test_lists_longer_than_what_is_looked_at_first(folder: Path, latentscale: Command) -> None:
    rows = np.random.default_rng(1).normal(size=(60, 1536))
    lists = ['"' + str(row.tolist()) + '"' for row in rows]
    write_csv("rows.csv", ["id", "embedding"], range(60), lists)
    assert latentscale("ingest", "rows.csv", "rows.zarr").code == 0
    np.testing.assert_allclose(open_corpus("rows.zarr").read_all(), rows, rtol=1e-6)


def test_conditions_on_a_table_know_bytes_gaps_and_flags(
    folder: Path, latentscale: Command
) -> None:
    np.save("rows.npy", ROWS)
    assert latentscale("ingest", "rows.npy", "rows.zarr").code == 0
    score = np.arange(20.0)
    score[:3] = np.nan
    np.savez("table.npz", lang=np.array([b"en", "dé".encode()] * 10), score=score)
    flags = {"checked": [i % 2 == 0 for i in range(20)], "word": ["a", None] * 10}
    pq.write_table(pa.table(flags), "table.parquet")
    for table, condition, count in (
        ("table.npz", "lang != 'en'", 10),
        ("table.npz", "lang == 'dé'", 10),
        ("table.npz", "score is not null", 17),
        ("table.npz", "not (score > 5)", 3),
        ("table.parquet", "checked", 10),
        ("table.parquet", "word is null", 10),
    ):
        given = ("--table", table, "--where", condition, "--overwrite")
        ended = latentscale("subset", "rows.zarr", "some.zarr", *given)
        assert ended.code == 0, ended.err
        assert open_corpus("some.zarr").n == count, condition


def test_labels_that_were_never_written_are_refused(folder: Path, latentscale: Command) -> None:
    with h5py.File("rows.h5", "w") as file:
        file["emb"] = np.random.default_rng(2).normal(size=(2000, 3))
        file.create_dataset("label", (2000,), "i4", chunks=(100,))[:100] = 7
    ended = latentscale("ingest", "rows.h5", "rows.zarr")
    assert ended.code == 2
    assert "19 of its 20 chunks were never written" in ended.err


def test_a_name_that_is_not_utf_8_is_refused_in_a_line(folder: Path, latentscale: Command) -> None:
    np.save(os.fsdecode(b"caf\xe9.npy"), ROWS)
    ended = latentscale("ingest", ".", "rows.zarr")
    assert ended.code == 2
    assert "caf\ufffd.npy: the file's name isn't UTF-8; rename it\n" in ended.err


def test_half_a_character_at_the_end_of_a_text_is_replaced(
    folder: Path, latentscale: Command
) -> None:
    line = '{"text": "hello \\ud83d", "emb": [0.5, 1.5]}\n'
    Path("rows.jsonl").write_text(line * 3)
    ended = latentscale("ingest", "rows.jsonl", "rows.zarr")
    assert ended.code == 0, ended.err
    assert open_corpus("rows.zarr").texts("texts") == ["hello \ufffd"] * 3
