"""A corpus in memory reads as the one that an ingest writes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus.in_memory import hold_rows
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", ">f4"])
def test_it_reads_as_a_stored_corpus(dtype: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = (20 * generator.normal(size=(5000, 6))).astype(dtype)
    rows[[3, 4000]] = 0
    weights = generator.random(5000)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "weights.npy", weights)
    stored = ingest(
        [str(tmp_path / "rows.npy")],
        str(tmp_path / "corpus.zarr"),
        weights=str(tmp_path / "weights.npy"),
        shard_bytes=2048 * 6 * 4,
    )
    held = hold_rows(rows, "rows", weights=weights, shard_bytes=2048 * 6 * 4)
    assert held.shard_count > 1
    for name in ("n", "d", "dtype", "shard_count", "shard_rows", "fingerprint", "zero_rows"):
        assert getattr(held, name) == getattr(stored, name), name
    assert held.manifest.zero_rows == stored.manifest.zero_rows
    for i in range(stored.shard_count):
        assert held.shard_range(i) == stored.shard_range(i)
        ours, theirs = held.read_shard(i), stored.read_shard(i)
        assert ours.dtype == theirs.dtype
        assert ours.flags.writeable
        assert (ours == theirs).all()
    assert (held.read_all() == stored.read_all()).all()
    assert (held.read_rows(2000, 2100) == stored.read_rows(2000, 2100)).all()
    chosen = np.array([0, 7, 7, 4999])
    assert (held.read_index(chosen) == stored.read_index(chosen)).all()
    assert held.weights().tolist() == stored.weights().tolist()
    assert held.texts("labels") is None
    assert list(held.companion_blocks("ids")) == []


def test_what_a_reader_changes_stays_its_own() -> None:
    rows = np.ones((10, 3), "f4")
    held = hold_rows(rows, "rows")
    held.read_shard(0)[:] = 7
    assert (rows == 1).all()


def test_columns_of_a_larger_array_are_held_in_rows() -> None:
    whole = np.arange(60, dtype="f4").reshape(10, 6)
    held = hold_rows(whole[:, ::2], "rows")
    assert held.held["vectors"].flags.c_contiguous
    assert (held.read_all() == whole[:, ::2]).all()


def test_a_data_frame_is_told_which_of_its_columns_has_the_vectors() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": ["a", "b"], "embedding": [[1.0, 2.0], [3.0, 4.0]]})
    with pytest.raises(BadInput, match=r"become one by np\.stack\(frame\['embedding'\]\)"):
        hold_rows(frame, "corpus")
    held = hold_rows(np.stack(frame["embedding"]), "corpus")
    np.testing.assert_array_equal(held.read_all(), [[1.0, 2.0], [3.0, 4.0]])


def test_columns_of_a_data_frame_may_share_a_name() -> None:
    pandas = pytest.importorskip("pandas")
    rows = np.arange(12, dtype="f4").reshape(4, 3)
    held = hold_rows(pandas.DataFrame(rows, columns=["a", "a", "b"]), "corpus")
    np.testing.assert_array_equal(held.read_all(), rows)
    pyarrow = pytest.importorskip("pyarrow")
    columns = [pyarrow.array(column) for column in rows.T]
    held = hold_rows(pyarrow.table(columns, names=["a", "a", "b"]), "corpus")
    np.testing.assert_array_equal(held.read_all(), rows)


def test_a_table_of_arrow_is_read_as_a_data_frame_is() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    rows = np.arange(12, dtype="f4").reshape(4, 3)
    held = hold_rows(pyarrow.table({name: rows[:, i] for i, name in enumerate("xyz")}), "corpus")
    np.testing.assert_array_equal(held.read_all(), rows)
    table = pyarrow.table({"id": ["a", "b"], "embedding": [[1.0, 2.0], [3.0, 4.0]]})
    with pytest.raises(BadInput, match=r"by np\.stack\(table\['embedding'\]\.to_numpy\(\)\)"):
        hold_rows(table, "corpus")
    held = hold_rows(np.stack(table["embedding"].to_numpy()), "corpus")
    np.testing.assert_array_equal(held.read_all(), [[1.0, 2.0], [3.0, 4.0]])
    structs = pyarrow.table({"meta": [{"values": 1}, {"values": 2}], "x": [1.0, 2.0]})
    with pytest.raises(BadInput, match=r"make them numbers by rows\.astype\('float32'\)"):
        hold_rows(structs, "corpus")
    table = pyarrow.table({"label": ["a"], "ID": [1], "x": [1.0], "y": [2.0]})
    with pytest.raises(BadInput, match="no coordinates: 'ID' and 'label'; give the") as refused:
        hold_rows(table, "corpus")
    asked = str(refused.value).partition("others, as ")[2].partition(", and to run")[0]
    held = hold_rows(eval(asked, {"table": table}), "corpus")
    np.testing.assert_array_equal(held.read_all(), [[1.0, 2.0]])


def test_a_column_beside_numbered_ones_is_no_coordinate() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"score": [9.0, 8.0], "emb_0": [1.0, 2.0], "emb_1": [3.0, 4.0]})
    with pytest.raises(BadInput, match="no coordinates: 'score'; give the others") as refused:
        hold_rows(frame, "corpus")
    held = hold_rows(eval(str(refused.value).partition("others, as ")[2]), "corpus")
    np.testing.assert_array_equal(held.read_all(), [[1.0, 3.0], [2.0, 4.0]])
    for names in (["x1", "x2", "y1", "y2"], ["a", "b"], ["a", "b", "c1"], [0, 1, 2]):
        plain = pandas.DataFrame(np.ones((3, len(names))), columns=names)
        assert hold_rows(plain, "corpus").d == len(names)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_that_are_no_coordinates_are_named_at_once(library: str) -> None:
    frame = pytest.importorskip(library).DataFrame(
        {"id": ["a", "b"], "x": [1.0, 2.0], "text": ["c", "d"], "y": [3.0, 4.0]}
    )
    with pytest.raises(BadInput, match="no coordinates: 'id' and 'text'; ") as refused:
        hold_rows(frame, "corpus")
    asked = str(refused.value).partition("others, as ")[2].partition(", and to run")[0]
    held = hold_rows(eval(asked, {"frame": frame}), "corpus")
    np.testing.assert_array_equal(held.read_all(), [[1.0, 3.0], [2.0, 4.0]])
    frame = type(frame)({"x": [1.0, 2.0], "y": [3.0, 4.0], "name": ["a", "b"]})
    with pytest.raises(BadInput, match="no coordinates: 'name'; give the others, as frame"):
        hold_rows(frame, "corpus")


@pytest.mark.parametrize(
    ("rows", "advice"),
    [
        (np.ones((3, 2), object), r"make them numbers by rows\.astype\('float32'\)"),
        ((row for row in ([1.0], [2.0])), r"give an array, as np\.array\(list\(rows\)\) is"),
        (np.array([[1.0], [2.0, 3.0]], object), r"one by np\.stack\(column\)"),
    ],
)
def test_objects_are_refused_with_what_makes_numbers_of_them(rows: Any, advice: str) -> None:
    with pytest.raises(BadInput, match=advice):
        hold_rows(rows, "corpus")
