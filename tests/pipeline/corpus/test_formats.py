"""Every format people have: the same rows from each, whatever wrote it, and columns beside them."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import safetensors.numpy
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.formats import FORMATS
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.ingest.sources import open_sources
from latentscale_pipeline.errors import BadInput, Incomplete
from tests.conftest import Ended

Writer = Callable[[Path, np.ndarray], object]
Command = Callable[..., Ended]


def rows(n: int = 40, d: int = 5, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(n * d).standard_normal((n, d)).astype(dtype)


def write_bin(path: Path, values: np.ndarray) -> None:
    path.write_bytes(struct.pack("<II", *values.shape) + values.tobytes())


def write_vecs(path: Path, values: np.ndarray) -> None:
    length = struct.pack("<i", values.shape[1])
    path.write_bytes(b"".join(length + row.tobytes() for row in values))


def list_column(values: np.ndarray, size: int = -1) -> pa.Array:
    flat = pa.array(values.reshape(-1))
    if size > 0:
        return pa.FixedSizeListArray.from_arrays(flat, size)
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, flat)


def table(values: np.ndarray, size: int = -1) -> pa.Table:
    n = len(values)
    return pa.table(
        {
            "id": pa.array([f"row {i}" for i in range(n)]),
            "emb": list_column(values, size),
            "lang": pa.array([("en", "de")[i % 2] for i in range(n)]).dictionary_encode(),
            "weight": pa.array(np.arange(n) + 0.5),
        }
    )


def many_columns(values: np.ndarray) -> pa.Table:
    names = [f"emb_{i}" for i in range(values.shape[1])]
    order = sorted(names)  # emb_10 before emb_2, as some writers do
    return pa.table(
        {"id": list(range(len(values)))} | {n: values[:, names.index(n)] for n in order}
    )


def write_stream(path: Path, made: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made, max_chunksize=7)


def write_file(path: Path, made: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, made.schema) as writer:
        writer.write_table(made, max_chunksize=7)


def write_hdf5(path: Path, values: np.ndarray, **options: object) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("deep/vectors", data=values, **options)
        file.create_dataset("label", data=[f"l{i}" for i in range(len(values))])


def write_text(
    path: Path, values: np.ndarray, delimiter: str, header: str = "", end: str = "\n"
) -> None:
    lines = [delimiter.join(str(value) for value in row) for row in values]
    path.write_text(header + end.join(lines) + end)


def write_word2vec(path: Path, values: np.ndarray, header: bool = True) -> None:
    first = f"{values.shape[0]} {values.shape[1]}\n" if header else ""
    lines = [f"wörd{i} " + " ".join(map(str, row)) + " \n" for i, row in enumerate(values)]
    path.write_text(first + "".join(lines))


def named(values: np.ndarray) -> str:
    return ",".join(f"x{i}" for i in range(values.shape[1])) + "\n"


WRITERS: dict[str, Writer] = {
    "v.npy": lambda p, v: np.save(p, v),
    "fortran.npy": lambda p, v: np.save(p, np.asfortranarray(v)),
    "big endian.npy": lambda p, v: np.save(p, v.astype(">f4")),
    "v.npz": lambda p, v: np.savez(p, labels=np.arange(len(v)), v=v),
    "packed.npz": lambda p, v: np.savez_compressed(p, v=v),
    "list.parquet": lambda p, v: pa.parquet.write_table(table(v), p, row_group_size=16),
    "fixed.parquet": lambda p, v: pa.parquet.write_table(table(v, v.shape[1]), p),
    "columns.parquet": lambda p, v: pa.parquet.write_table(many_columns(v), p, row_group_size=9),
    "v.arrow": lambda p, v: write_file(p, table(v)),
    "stream.arrow": lambda p, v: write_stream(p, table(v)),
    "columns.arrow": lambda p, v: write_stream(p, many_columns(v)),
    "v.feather": lambda p, v: pa.feather.write_feather(table(v), str(p), compression="lz4"),
    "v.h5": write_hdf5,
    "chunked.hdf5": lambda p, v: write_hdf5(p, v, chunks=(min(7, len(v)), 2), compression="gzip"),
    "v.fbin": write_bin,
    "v.fvecs": write_vecs,
    "v.safetensors": lambda p, v: safetensors.numpy.save_file({"v": v, "y": np.arange(3)}, p),
    "v.csv": lambda p, v: write_text(p, v, ",", named(v)),
    "bare.csv": lambda p, v: write_text(p, v, ",", end="\r\n"),
    "frame.csv": lambda p, v: write_text(p, v, ",", ",".join(map(str, range(v.shape[1]))) + "\n"),
    "v.tsv": lambda p, v: write_text(p, v, "\t"),
    "v.txt": lambda p, v: write_text(p, v, " "),
    "v.vec": write_word2vec,
    "glove.txt": lambda p, v: write_word2vec(p, v, header=False),
    "2.zarr": lambda p, v: zarr.create_array(str(p), data=v, chunks=(7, 3), zarr_format=2),
    "3.zarr": lambda p, v: zarr.create_array(str(p), data=v, chunks=(8, 2), shards=(16, 4)),
    "corpus": lambda p, v: (np.save(f"{p}.npy", v), ingest([f"{p}.npy"], str(p))),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_round_trip_from_every_format_gives_the_same_fingerprint(
    tmp_path: Path, name: str
) -> None:
    values = rows(41, 12)
    np.save(tmp_path / "plain.npy", values)
    expected = ingest([str(tmp_path / "plain.npy")], str(tmp_path / "expected"))
    WRITERS[name](tmp_path / name, values)
    corpus = ingest([str(tmp_path / name)], str(tmp_path / "out"))
    np.testing.assert_array_equal(corpus.read_all(), values)
    assert corpus.fingerprint == expected.fingerprint


@pytest.mark.parametrize("name", WRITERS)
def test_any_range_of_rows_is_read_from_every_format(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("BLOCK_BYTES", "PLAIN_BYTES"):
        monkeypatch.setattr(f"latentscale_pipeline.corpus.formats.file.{limit}", 100)
    monkeypatch.setattr("latentscale_pipeline.corpus.formats.lines.NOTED_ROWS", 8)
    values = rows(41, 6)
    WRITERS[name](tmp_path / name, values)
    [source] = open_sources([str(tmp_path / name)]).items
    elsewhere = pickle.loads(pickle.dumps(source))
    for start, stop in [(0, 41), (0, 1), (7, 9), (16, 32), (40, 41), (5, 41)]:
        found = np.concatenate(list(elsewhere.blocks(start, stop)))
        np.testing.assert_array_equal(found.astype("f4"), values[start:stop])


@pytest.mark.parametrize(
    ("suffix", "dtype", "write"),
    [
        ("f16bin", "<f2", write_bin),
        ("u8bin", "u1", write_bin),
        ("i8bin", "i1", write_bin),
        ("bvecs", "u1", write_vecs),
    ],
)
def test_other_values_of_the_binary_families(
    tmp_path: Path, suffix: str, dtype: str, write: Writer
) -> None:
    values = (rows(30, 4) * 20).clip(0).astype(dtype)
    write(tmp_path / f"v.{suffix}", values)
    corpus = ingest([str(tmp_path / f"v.{suffix}")], str(tmp_path / "c"))
    np.testing.assert_array_equal(corpus.read_all(), values.astype(corpus.dtype))
    assert corpus.dtype == ("float16" if suffix == "f16bin" else "float32")
    write(tmp_path / "nameless", values)
    named = open_sources([str(tmp_path / "nameless")], kind=suffix).items[0]
    np.testing.assert_array_equal(np.concatenate(list(named.blocks())), values)


def test_structure_tells_the_binary_families_apart_without_a_name(tmp_path: Path) -> None:
    for i, (write, dtype) in enumerate(
        [(write_bin, "<f4"), (write_bin, "<f2"), (write_vecs, "<f4")]
    ):
        write(tmp_path / str(i), rows(30, 4, dtype))
        [source] = open_sources([str(tmp_path / str(i))]).items
        assert (source.rows, source.d, source.dtype) == (30, 4, np.dtype(dtype))
    write_bin(tmp_path / "neighbours.ibin", np.zeros((30, 4), "<i4"))
    with pytest.raises(BadInput, match="unknown format"):
        open_sources([str(tmp_path / "neighbours.ibin")])


def test_bfloat16_is_widened_exactly(tmp_path: Path) -> None:
    values = rows(6, 3)
    bits = (values.view("<u4") >> 16).astype("<u2")
    header = b'{"v":{"dtype":"BF16","shape":[6,3],"data_offsets":[0,36]}}'
    data = struct.pack("<Q", len(header)) + header + bits.tobytes()
    (tmp_path / "v.safetensors").write_bytes(data)
    corpus = ingest([str(tmp_path / "v.safetensors")], str(tmp_path / "c"))
    np.testing.assert_array_equal(corpus.read_all(), (bits.astype("<u4") << 16).view("<f4"))


def test_shards_of_a_folder_are_read_in_natural_order_and_recorded(tmp_path: Path) -> None:
    values = rows(110, 4)
    folder = tmp_path / "img_emb"
    folder.mkdir()
    for i, piece in enumerate(np.split(values, 11)):
        np.save(folder / f"img_emb_{i}.npy", piece)
        labels = pa.table({"caption": [f"{i} of {len(piece)}"] * len(piece), "n": [i] * len(piece)})
        (tmp_path / "metadata").mkdir(exist_ok=True)
        pa.parquet.write_table(labels, tmp_path / "metadata" / f"metadata_{i}.parquet")
    corpus = ingest(
        [str(folder)],
        str(tmp_path / "c"),
        labels=str(tmp_path / "metadata"),
        weights=str(tmp_path / "metadata/*.parquet"),
        columns={"labels": "caption", "weights": "n"},
    )
    np.testing.assert_array_equal(corpus.read_all(), values)
    recorded = [source.path.rpartition("/")[2] for source in corpus.manifest.sources]
    assert recorded == [f"img_emb_{i}.npy" for i in range(11)]
    assert corpus.texts("labels") == [f"{i} of 10" for i in range(11) for _ in range(10)]
    np.testing.assert_array_equal(corpus.weights(), np.repeat(np.arange(11), 10))


@pytest.mark.parametrize("name", ["list.parquet", "v.arrow", "stream.arrow", "v.feather"])
def test_columns_of_a_table_become_ids_labels_and_weights(
    latentscale: Command, tmp_path: Path, name: str
) -> None:
    from latentscale_pipeline.corpus import open_corpus

    values = rows()
    WRITERS[name](tmp_path / name, values)
    options = ["--ids-column", "id", "--labels-column", "lang", "--weights-column", "weight"]
    assert latentscale("ingest", tmp_path / name, tmp_path / "c", *options).code == 0
    corpus = open_corpus(str(tmp_path / "c"))
    assert corpus.texts("ids") == [f"row {i}" for i in range(40)]
    assert corpus.texts("labels") == ["en", "de"] * 20
    np.testing.assert_array_equal(corpus.weights(), np.arange(40) + 0.5)
    again = ingest([corpus.url], str(tmp_path / "again"), columns={"labels": "labels"})
    assert again.texts("labels") == corpus.texts("labels")
    assert again.fingerprint == corpus.fingerprint


def test_columns_of_text_and_hdf5_and_a_column_beside_float_columns(tmp_path: Path) -> None:
    values = rows()
    write_word2vec(tmp_path / "v.vec", values)
    words = ingest([str(tmp_path / "v.vec")], str(tmp_path / "a"), columns={"ids": "word"})
    assert words.texts("ids") == [f"wörd{i}" for i in range(40)]
    write_hdf5(tmp_path / "v.h5", values)
    inner = ingest([str(tmp_path / "v.h5")], str(tmp_path / "b"), columns={"labels": "label"})
    assert inner.texts("labels") == [f"l{i}" for i in range(40)]
    lines = ["name,score,x,y"] + [
        f'"a, {i}",{i}.5,{row[0]},{row[1]}' for i, row in enumerate(values)
    ]
    (tmp_path / "v.csv").write_text("\n".join(lines))
    corpus = ingest(
        [str(tmp_path / "v.csv")],
        str(tmp_path / "c"),
        columns={"ids": "name", "weights": "score"},
    )
    assert corpus.texts("ids") == [f"a, {i}" for i in range(40)]
    np.testing.assert_array_equal(corpus.weights(), np.arange(40) + 0.5)
    np.testing.assert_array_equal(corpus.read_all(), values[:, :2])


def test_a_column_with_whole_numbers_and_gaps_is_no_dimension(tmp_path: Path) -> None:
    values = rows(60, 3)
    lines = ["id,year,x,y,z"]
    lines += [
        f"r{i},{'' if i == 7 else 2000 + i}," + ",".join(map(repr, row))
        for i, row in enumerate(values.tolist())
    ]
    (tmp_path / "v.csv").write_text("\n".join(lines))
    corpus = ingest([str(tmp_path / "v.csv")], str(tmp_path / "c"))
    np.testing.assert_array_equal(corpus.read_all(), values)


@pytest.mark.parametrize("column", ["weight", "weights"])
def test_a_column_called_weight_is_no_dimension(tmp_path: Path, column: str) -> None:
    values = rows(20, 3)
    columns = {name: values[:, i] for i, name in enumerate("abc")} | {column: np.ones(20)}
    pa.parquet.write_table(pa.table(columns), tmp_path / "v.parquet")
    sources = open_sources([str(tmp_path / "v.parquet")])
    assert (sources.d, sources.unused_weights) == (3, column)
    named = open_sources([str(tmp_path / "v.parquet")], columns={"weights": column})
    assert (named.d, named.unused_weights) == (3, None)


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_tensors_of_arrow_are_vectors(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = rows(20, 6)
    kind = pa.fixed_shape_tensor(pa.float32(), shape)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 6)
    table = pa.table({"emb": pa.ExtensionArray.from_storage(kind, flat)})
    pa.parquet.write_table(table, tmp_path / "v.parquet")
    with pa.ipc.new_file(str(tmp_path / "v.arrow"), table.schema) as file:
        file.write_table(table)
    for name in ("v.parquet", "v.arrow"):
        corpus = ingest([str(tmp_path / name)], str(tmp_path / f"{name}.zarr"))
        np.testing.assert_array_equal(corpus.read_all(), values)


def test_bytes_of_hdf5_may_be_utf8(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["vectors"] = rows(3, 4)
        file["id"] = np.array([f"idé{i}".encode() for i in range(3)])
    corpus = ingest([str(tmp_path / "v.h5")], str(tmp_path / "c"))
    assert corpus.texts("ids") == ["idé0", "idé1", "idé2"]


def test_words_of_word2vec_may_have_blanks(tmp_path: Path) -> None:
    values = rows(60, 4)
    words = [f"w{i}" for i in range(60)]
    words[5], words[6], words[7], words[57] = "a\u00a0b", "\u3000", "a\u3000b\u00a0", ". . ."
    lines = [" ".join([word, *map(str, row)]) for word, row in zip(words, values, strict=True)]
    for name, head in (("v.vec", ["60 4"]), ("glove.txt", [])):
        (tmp_path / name).write_text("\n".join([*head, *lines]) + " \n")
        columns = {"ids": "word" if head else "0"}
        corpus = ingest([str(tmp_path / name)], str(tmp_path / f"{name}.zarr"), columns=columns)
        np.testing.assert_array_equal(corpus.read_all(), values)
        assert words == corpus.texts("ids")
    lines[30] += " 1"
    (tmp_path / "more.vec").write_text("\n".join(["60 4", *lines]))
    with pytest.raises(BadInput, match=r"row 30, at byte \d+, has 6 fields instead of 5"):
        ingest([str(tmp_path / "more.vec")], str(tmp_path / "d"))


def test_an_empty_cell_in_a_column_of_lists_is_a_row_of_nan(tmp_path: Path) -> None:
    values = rows(80, 3)
    cells = [f'{i},"{row}"' for i, row in enumerate(values.tolist())]
    cells[3], cells[70] = "3,", "70,"
    (tmp_path / "v.csv").write_text("\n".join(["id,emb", *cells]))
    corpus = ingest([str(tmp_path / "v.csv")], str(tmp_path / "c"), on_invalid="drop")
    np.testing.assert_array_equal(corpus.read_all(), np.delete(values, [3, 70], axis=0))


@pytest.mark.parametrize("name", ["v.parquet", "v.arrow"])
def test_vectors_may_be_missing_in_many_first_rows(tmp_path: Path, name: str) -> None:
    values = rows(300, 5)
    vectors = [None] * 200 + values[200:].tolist()
    table = pa.table({"emb": pa.array(vectors, pa.list_(pa.float32())), "n": range(300)})
    if name.endswith("parquet"):
        pa.parquet.write_table(table, tmp_path / name, row_group_size=70)
    else:
        with pa.ipc.new_file(str(tmp_path / name), table.schema) as file:
            file.write_table(table, max_chunksize=90)
    corpus = ingest([str(tmp_path / name)], str(tmp_path / "c"), on_invalid="drop")
    np.testing.assert_array_equal(corpus.read_all(), values[200:])


def test_lines_that_end_with_carriage_returns_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_bytes(b"a,b,c\r1.5,2.5,3.5\r4.5,5.5,6.5\r")
    with pytest.raises(BadInput, match="lines end with carriage returns alone; write it with"):
        open_sources([str(tmp_path / "v.csv")])


def test_notes_beside_a_table_are_no_part_of_it(tmp_path: Path) -> None:
    folder, values = tmp_path / "t", rows(20, 6)
    folder.mkdir()
    table = pa.table({"emb": list(values)})
    pa.parquet.write_table(table, folder / "part.0.parquet")
    pa.parquet.write_metadata(table.schema, folder / "_common_metadata")
    assert open_sources([str(folder)]).rows == 20


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_numbers_beside_a_column_of_lists_are_other_values(
    latentscale: Command, tmp_path: Path, kind: str
) -> None:
    columns = {"vector": rows(20, 6).tolist(), "score": [0.5] * 20, "price": [1.25] * 20}
    file = tmp_path / f"v.{kind}"
    if kind == "parquet":
        pa.parquet.write_table(pa.table(columns), file)
    elif kind == "csv":
        lines = [f'"{vector}",0.5,1.25\n' for vector in columns["vector"]]
        file.write_text("vector,score,price\n" + "".join(lines))
    else:
        made = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in made))
    ended = latentscale("ingest", file, tmp_path / "c")
    assert ended.code == 0, ended.err
    assert "ingest: left out: score, price\n" in ended.err
    np.testing.assert_array_equal(
        np.concatenate(list(open_corpus(str(tmp_path / "c")).read_blocks("vectors", 0, 20))),
        rows(20, 6),
    )


def test_numbers_beside_lists_of_whole_numbers_are_no_vectors(
    latentscale: Command, tmp_path: Path
) -> None:
    codes = rows(20, 6).astype("i1")
    columns = {"vector": list(codes), "score": [0.5] * 20, "price": [1.25] * 20}
    pa.parquet.write_table(pa.table(columns), tmp_path / "v.parquet")
    ended = latentscale("ingest", tmp_path / "v.parquet", tmp_path / "c")
    assert ended.code == 2
    assert "no two-dimensional float array (it holds vector int8 (20, 6), " in ended.err
    [source] = open_sources([str(tmp_path / "v.parquet")], vectors="vector").items
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), codes)


def test_several_candidates_are_listed_and_one_is_named(
    latentscale: Command, tmp_path: Path
) -> None:
    text, image = rows(20, 3), rows(20, 6)
    pa.parquet.write_table(
        pa.table({"text": list_column(text), "image": list_column(image)}), tmp_path / "v.parquet"
    )
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["text"], file["image"] = text, image
    safetensors.numpy.save_file({"text": text, "image": image}, tmp_path / "v.safetensors")
    group = zarr.create_group(str(tmp_path / "v.zarr"))
    group.create_array("text", data=text)
    group.create_array("image", data=image)
    for name in ("v.parquet", "v.h5", "v.safetensors", "v.zarr"):
        ended = latentscale("ingest", tmp_path / name, tmp_path / "c")
        assert ended.code == 2
        assert ended.err.count("\n") == 1
        assert "there are several two-dimensional float arrays (it holds " in ended.err
        assert "text float32 (20, 3)" in ended.err
        assert "image float32 (20, 6)" in ended.err
        assert ended.err.count("float32") == 2
        [source] = open_sources([str(tmp_path / name)], vectors="image").items
        np.testing.assert_array_equal(np.concatenate(list(source.blocks())), image)
    with pytest.raises(BadInput, match=r"there is no 'video' in it \(it holds .*name one of those"):
        open_sources([str(tmp_path / "v.h5")], vectors="video")


def test_numbered_columns_are_told_from_other_columns(tmp_path: Path) -> None:
    values = rows(20, 3)
    columns = {f"emb_{i}": values[:, i] for i in range(3)} | {"score": values[:, 0]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "v.parquet")
    [source] = open_sources([str(tmp_path / "v.parquet")]).items
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), values)
    columns |= {f"other{i}": values[:, i] for i in range(2)}
    pa.parquet.write_table(pa.table(columns), tmp_path / "w.parquet")
    with pytest.raises(BadInput, match=r"several .*emb_\* float32 \(20, 3\), other\* float32"):
        open_sources([str(tmp_path / "w.parquet")])
    assert open_sources([str(tmp_path / "w.parquet")], vectors="other*").d == 2


@pytest.mark.parametrize("extra", ["parquet", "hdf5"])
def test_a_missing_library_is_one_line_with_the_extra(
    latentscale: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    name, module = {"parquet": ("list.parquet", "pyarrow"), "hdf5": ("v.h5", "h5py")}[extra]
    WRITERS[name](tmp_path / name, rows())
    reader = "latentscale_pipeline.corpus.formats." + ("arrow" if extra == "parquet" else "hdf5")
    monkeypatch.delitem(sys.modules, reader, raising=False)
    for loaded in [m for m in sys.modules if m.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    ended = latentscale("ingest", tmp_path / name, tmp_path / "c")
    assert ended.code == 2
    assert f"install it with: pip install 'latentscale[{extra}]'" in ended.err
    assert ended.err.count("\n") == 1


def test_an_unknown_format_is_one_line(latentscale: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", rows())
    ended = latentscale("ingest", tmp_path / "v.npy", tmp_path / "c", "--format", "tiff")
    assert ended.code == 2
    assert "'tiff' isn't a format; the formats are npy, npz, parquet" in ended.err
    assert set(FORMATS) >= {"csv", "tsv", "word2vec", "u8bin", "safetensors", "zarr"}


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 60),
    d=st.integers(2, 9),
    name=st.sampled_from(sorted(set(WRITERS) - {"corpus"})),
    seed=st.integers(0, 9),
)
def test_values_of_any_size_survive_every_format(
    tmp_path_factory: pytest.TempPathFactory, n: int, d: int, name: str, seed: int
) -> None:
    path = tmp_path_factory.mktemp("f") / name
    bits = np.random.default_rng(seed).integers(0, 2**32, (n, d), dtype=np.uint32)
    values = bits.view(np.float32)
    values[~np.isfinite(values)] = 0.25
    values[:, 0] = 0.5  # text without a point anywhere would be whole numbers
    WRITERS[name](path, values)
    [source] = open_sources([str(path)]).items
    found = np.concatenate(list(source.blocks())).astype(np.float32)
    np.testing.assert_array_equal(found, values)


def test_files_in_an_object_store(s3_url: str, tmp_path: Path) -> None:
    from latentscale_pipeline.storage.objects import ObjectStore

    values = rows(41, 12)
    for name in ("v.npy", "list.parquet", "stream.arrow", "v.feather", "v.h5", "v.fvecs", "v.csv"):
        WRITERS[name](tmp_path / name, values)
        ObjectStore(s3_url).write(name, (tmp_path / name).read_bytes())
        [source] = open_sources([f"{s3_url}/{name}"]).items
        found = np.concatenate(list(source.blocks(3, 40))).astype(np.float32)
        np.testing.assert_array_equal(found, values[3:40])


def test_labels_are_written_alike_beside_gaps(tmp_path: Path) -> None:
    """Each batch of rows may lack values or not; both have the same labels."""
    flags = [True, False, True, True, None, False]
    table = pa.table({"flag": flags, "vector": [[float(i), 1.0] for i in range(6)]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    corpus = ingest([str(tmp_path / "t.parquet")], str(tmp_path / "c"), columns={"labels": "flag"})
    [labels] = corpus.read_blocks("labels", 0, 6)
    assert labels.tolist() == ["True", "False", "True", "True", "", "False"]


def test_a_vector_in_either_order_is_read_as_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.eye(100, 3, dtype=np.float32))
    header = {"descr": "<i8", "fortran_order": True, "shape": (100,)}
    with (tmp_path / "l.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(np.arange(100).tobytes())
    with zipfile.ZipFile(tmp_path / "l.npz", "w") as archive:
        archive.write(tmp_path / "l.npy", "l.npy")
    for name in ("l.npy", "l.npz"):
        target = str(tmp_path / f"{name}.zarr")
        corpus = ingest([str(tmp_path / "v.npy")], target, labels=str(tmp_path / name))
        assert corpus.texts("labels") == [str(i) for i in range(100)]


def test_whole_decimals_are_ids_and_labels_with_all_their_digits(tmp_path: Path) -> None:
    large = [Decimal(12345678901234567890 + i) for i in range(4)]
    columns = {
        "vector": pa.array(np.eye(4, 3).tolist()),
        "id": pa.array(large, pa.decimal128(38, 0)),
        "label": pa.array([Decimal(2**53 + 1), None, Decimal(2), Decimal(3)], pa.decimal128(38, 0)),
        "share": pa.array(map(Decimal, range(1, 5)), pa.decimal128(38, 0)),
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = [str(tmp_path / "a.parquet")]
    corpus = ingest(source, str(tmp_path / "c.zarr"), columns={"weights": "share"})
    assert corpus.texts("ids") == [str(value) for value in large]
    assert corpus.texts("labels") == [str(2**53 + 1), "", "2", "3"]
    assert np.concatenate(list(corpus.companion_blocks("weights"))).tolist() == [1, 2, 3, 4]


def test_an_empty_list_is_no_vector_that_others_are_measured_by(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"e": [[], [1.0, 2.0], [3.0, 4.0]]}), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="row 0 has 0 dimensions, but the first vector has 2"):
        ingest([str(tmp_path / "a.parquet")], str(tmp_path / "c.zarr"))


def test_an_hdf5_file_that_is_being_written_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    writing = (
        "import h5py, sys, numpy as np; f = h5py.File(sys.argv[1], 'w'); "
        "f['v'] = np.eye(9, 3, dtype='f4'); f.flush(); print('written', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", writing, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(Incomplete, match="a program that writes it has it open; run"):
            ingest([str(path)], str(tmp_path / "c.zarr"))
        writer.communicate(b"\n")
    assert ingest([str(path)], str(tmp_path / "c.zarr")).n == 9
