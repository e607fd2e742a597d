"""Damaged files of every format: one line that names the file, never zeros, never a traceback."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.ingest.sources import open_sources
from latentscale_pipeline.errors import BadInput
from tests.conftest import Ended
from tests.pipeline.corpus.test_formats import WRITERS, rows

PLAIN = rows(40, 4)
FILES = sorted(name for name in WRITERS if name not in {"corpus", "2.zarr", "3.zarr"})
Command = Callable[..., Ended]


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, path.stat().st_size + size if size < 0 else size)


def put(at: int, data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        whole = bytearray(path.read_bytes())
        at_byte = at % len(whole)
        whole[at_byte : at_byte + len(data)] = data
        path.write_bytes(whole)

    return write


def ragged(path: Path) -> None:
    vectors = pa.array([list(row[: 3 if i == 7 else 4]) for i, row in enumerate(PLAIN.tolist())])
    pa.parquet.write_table(pa.table({"v": vectors}), path)


def gaps(path: Path) -> None:
    vectors = PLAIN.tolist()
    vectors[9][1] = None
    pa.parquet.write_table(pa.table({"v": pa.array(vectors)}), path)


def beyond(path: Path) -> None:
    """Write lists whose offsets point beyond the file."""
    table = pa.table({"v": pa.array(PLAIN.tolist(), pa.list_(pa.float32()))})
    kind = pa.ipc.new_stream if path.name.startswith("stream") else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, kind(sink, table.schema) as writer:
        writer.write_table(table)
    offsets = np.arange(0, 4 * len(PLAIN) + 1, 4, dtype="<i4")
    assert path.read_bytes().count(offsets.tobytes()) == 1
    path.write_bytes(
        path.read_bytes().replace(offsets.tobytes(), (offsets + 100_000).astype("<i4").tobytes())
    )


def missing_vector(path: Path) -> None:
    vectors: list[object] = PLAIN.tolist()
    vectors[5] = None
    pa.parquet.write_table(pa.table({"v": pa.array(vectors)}), path)


def header(about: object) -> Callable[[Path], object]:
    data = json.dumps(about).encode()
    whole = struct.pack("<Q", len(data)) + data + b"\0" * 640
    return lambda path: path.write_bytes(whole)


def tensor(**changes: object) -> dict[str, object]:
    return {"v": {"dtype": "F32", "shape": [40, 4], "data_offsets": [0, 640]} | changes}


def line(number: int, text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        lines = path.read_text("utf-8").splitlines()
        lines[number] = text
        path.write_text("\n".join(lines) + "\n")

    return write


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "bin cut": ("v.fbin", cut(-6), r"truncated at byte 642, in row 39: 40 rows of 4 dimensions"),
    "bin long": (
        "v.fbin",
        put(0, struct.pack("<I", 39)),
        "take 632 bytes as .fbin, but it has 648",
    ),
    "bin turned": ("v.fbin", put(0, struct.pack(">II", 40, 4)), "bytes 0 to 7, is big-endian"),
    "bin header": ("v.fbin", cut(5), "its header ends at byte 5 of 8"),
    "bin huge": ("v.fbin", put(0, b"\xff" * 8), r"take 73786976277658337288 bytes as \.fbin|trunc"),
    "vecs cut": ("v.fvecs", cut(-6), r"truncated: it ends at byte 794, 14 bytes into row 39"),
    "vecs ragged": (
        "v.fvecs",
        put(100, b"\3\0\0\0"),
        "row 5, at byte 100, states 3 dimensions ins",
    ),
    "vecs turned": ("v.fvecs", put(0, struct.pack(">i", 4)), "dimensions .4. in big-endian order"),
    "vecs header": ("v.fvecs", put(0, b"\xff" * 4), "row 0, at byte 0, states -1 dimensions"),
    "parquet cut": (
        "list.parquet",
        cut(-9),
        r"damaged, truncated or unknown Parquet within its \d",
    ),
    "parquet ragged": (
        "list.parquet",
        ragged,
        "row 7 has 3 dimensions, but the first vector has 4",
    ),
    "parquet null": ("list.parquet", gaps, "row 9 holds NaN"),
    "parquet no vector": ("list.parquet", missing_vector, "row 5 has no vector"),
    "arrow cut": ("v.arrow", cut(-9), "damaged, truncated or unknown Arrow within its"),
    "arrow offsets": ("v.arrow", beyond, "damaged, .* Arrow .*[Oo]ffset"),
    "stream offsets": ("stream.arrow", beyond, "damaged, .* Arrow .*[Oo]ffset"),
    "stream cut": ("stream.arrow", cut(700), "damaged, truncated or unknown Arrow within its 700"),
    "feather 1": ("v.arrow", put(0, b"FEA1"), "Feather version 1"),
    "hdf5 cut": ("v.h5", cut(-9), "damaged, truncated or unknown HDF5 within its"),
    "safetensors cut": ("v.safetensors", cut(-9), "truncated: a tensor ends at byte"),
    "safetensors length": (
        "v.safetensors",
        put(0, b"\xff" * 7),
        "bytes 0 to 7 state a header of .* bytes",
    ),
    "safetensors dtype": (
        "v.safetensors",
        header(tensor(dtype="F64")),
        "640 bytes don't match shape",
    ),
    "safetensors place": (
        "v.safetensors",
        header(tensor(data_offsets=[-8, 632])),
        "invalid shape .* or offsets",
    ),
    "safetensors not JSON": ("v.safetensors", put(9, b"]]"), "damaged header in bytes 8 to"),
    "csv ragged": ("v.csv", line(3, "1,2"), r"row 2, at byte \d+, has 2 fields instead of 4"),
    "csv word": ("v.csv", line(4, "1,2,x,4"), r"row 3, at byte \d+: 'x' isn't a number; fix it"),
    "csv hole": ("v.csv", line(4, "1,2,,4"), "row 3 holds NaN"),
    "csv bytes": ("v.csv", put(300, b"\xff\xfe"), r"at byte 300, isn't UTF-8"),
    "word2vec rows": ("v.vec", line(0, "41 4"), "first line states 41 rows, but it has 40"),
    "word2vec ragged": (
        "v.vec",
        line(7, "w 1 2 3"),
        r"row 6, at byte \d+, has 4 fields instead of",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_damaged_file_is_one_line_with_its_place(
    latentscale: Command, tmp_path: Path, case: str
) -> None:
    name, damage, message = BROKEN[case]
    WRITERS[name](tmp_path / name, PLAIN)
    damage(tmp_path / name)
    ended = latentscale("ingest", tmp_path / name, tmp_path / "c")
    assert ended.code == 2, ended.err
    assert ended.err.startswith(f"latentscale: {tmp_path}/{name}")
    assert re.search(message, ended.err), ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "c/manifest.json").exists()


def test_a_negative_shape_of_an_array_is_damage(latentscale: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.ones((20, 3), "<f4"))
    whole = (tmp_path / "v.npy").read_bytes()
    (tmp_path / "v.npy").write_bytes(whole.replace(b"(20, 3)", b"(-2,-3)"))
    ended = latentscale("ingest", tmp_path / "v.npy", tmp_path / "c")
    assert ended.code == 2
    assert "v.npy: damaged .npy header within its first 128 bytes (shape is not valid" in ended.err


@pytest.mark.parametrize("name", sorted({*FILES, "2.zarr", "3.zarr"}))
def test_nan_an_empty_file_and_a_folder_in_place_of_a_file(
    latentscale: Command, tmp_path: Path, name: str
) -> None:
    values = PLAIN.copy()
    values[11, 2] = np.nan
    WRITERS[name](tmp_path / name, values)
    ended = latentscale("ingest", tmp_path / name, tmp_path / "c")
    assert ended.code == 2
    assert f"{tmp_path}/{name}" in ended.err
    assert (
        "row 11 holds NaN; fix the source, or leave such rows out with --on-invalid drop"
        in ended.err
    )
    if not name.endswith(".zarr"):
        (tmp_path / "empty").mkdir()
        (tmp_path / "empty" / name).touch()
        ended = latentscale("ingest", tmp_path / "empty" / name, tmp_path / "c")
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert "the file is empty; write it again" in ended.err
        (tmp_path / "folder" / name).mkdir(parents=True)
        ended = latentscale("ingest", tmp_path / "folder" / name, tmp_path / "c")
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert "the folder is empty; name the files that hold the vectors" in ended.err


@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(FILES))
def test_whatever_happens_to_its_bytes_a_file_gives_rows_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    path = tmp_path_factory.mktemp("f") / name
    WRITERS[name](path, PLAIN)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3), label="changes")):
        at = data.draw(st.integers(0, max(0, len(whole) - 1)), label="at")
        change = data.draw(st.sampled_from(["flip", "cut", "fill", "insert", "turn"]))
        if change == "flip":
            whole[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
        elif change == "cut":
            del whole[at:]
        elif change == "fill":
            whole[at : at + 16] = data.draw(st.sampled_from([b"\0", b"\xff"])) * 16
        elif change == "insert":
            whole[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        else:
            whole[at : at + 8] = whole[at : at + 8][::-1]
        if not whole:
            break
    path.write_bytes(whole)
    problem = None
    try:
        [source] = open_sources([str(path)]).items
        found = sum(len(block) for block in source.blocks())
    except BadInput as error:
        problem = str(error)
    if problem is None:
        assert found == source.rows
    else:
        assert problem.startswith(str(path))
        assert "\n" not in problem


# ---------------------------------------------------------------- nothing but the named files


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Vectors outside the file that is named; whatever leads to them must not be followed."""
    (tmp_path / "outside").mkdir()
    with h5py.File(tmp_path / "outside/secret.h5", "w") as file:
        file["vectors"] = PLAIN
    zarr.create_array(str(tmp_path / "outside/secret.zarr"), data=PLAIN, chunks=(40, 4))
    (tmp_path / "outside/secret.bin").write_bytes(PLAIN.tobytes())
    (tmp_path / "inside").mkdir()
    return tmp_path / "outside"


def test_hdf5_that_points_to_other_files_is_refused(secret: Path, tmp_path: Path) -> None:
    place = tmp_path / "inside"
    with h5py.File(place / "link.h5", "w") as file:
        file["vectors"] = h5py.ExternalLink("../outside/secret.h5", "/vectors")
    with h5py.File(place / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((40, 4), "f4")
        layout[...] = h5py.VirtualSource(str(secret / "secret.h5"), "vectors", (40, 4))
        file.create_virtual_dataset("vectors", layout)
    with h5py.File(place / "external.h5", "w") as file:
        file.create_dataset(
            "vectors", (40, 4), "f4", external=[(str(secret / "secret.bin"), 0, 640)]
        )
    with h5py.File(place / "unwritten.h5", "w") as file:
        file.create_dataset("vectors", (40, 4), "f4", chunks=(8, 4))[:8] = 1
    for name, message in [
        ("link.h5", "no two-dimensional float array"),
        ("virtual.h5", "its values are in other files, which aren't read"),
        ("external.h5", "its values are in other files, which aren't read"),
        ("unwritten.h5", "4 of its 5 chunks were never written and would be read as zeros"),
    ]:
        with pytest.raises(BadInput, match=message):
            open_sources([str(place / name)])
    with pytest.raises(BadInput, match="there is no 'vectors' in it"):
        open_sources([str(place / "link.h5")], vectors="vectors")


def test_zarr_that_points_out_of_its_folder_is_refused(secret: Path, tmp_path: Path) -> None:
    place = tmp_path / "inside"
    zarr.create_array(str(place / "link.zarr"), data=PLAIN, chunks=(40, 4))
    chunk = place / "link.zarr/c/0/0"
    chunk.unlink()
    chunk.symlink_to(secret / "secret.zarr/c/0/0")
    with pytest.raises(BadInput, match=r"c/0/0: a link that leads out of .*link\.zarr; replace"):
        open_sources([str(place / "link.zarr")])
    zarr.create_group(str(place / "folder.zarr"))
    (place / "folder.zarr/vectors").symlink_to(secret / "secret.zarr")
    with pytest.raises(BadInput, match="a link that leads out of"):
        open_sources([str(place / "folder.zarr")])
    group = zarr.create_group(str(place / "summary.zarr"))
    group.create_array("y", data=np.arange(3))
    with warnings.catch_warnings(action="ignore"):
        zarr.consolidate_metadata(str(place / "summary.zarr"))
    document = json.loads((place / "summary.zarr/zarr.json").read_text())
    about = json.loads((secret / "secret.zarr/zarr.json").read_text())
    document["consolidated_metadata"]["metadata"]["../../outside/secret.zarr"] = about
    (place / "summary.zarr/zarr.json").write_text(json.dumps(document))
    with pytest.raises(BadInput, match="no two-dimensional float array"):
        open_sources([str(place / "summary.zarr")])
    with pytest.raises(BadInput, match="there is no"):
        open_sources([str(place / "summary.zarr")], vectors="../../outside/secret.zarr")


def test_the_members_of_an_archive_are_never_written_anywhere(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", PLAIN)
    place = tmp_path / "inside"
    place.mkdir()
    with zipfile.ZipFile(place / "v.npz", "w") as archive:
        archive.write(tmp_path / "v.npy", "../../escaped.npy")
        link = zipfile.ZipInfo("link.npy")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    before = sorted(tmp_path.rglob("*"))
    [source] = open_sources([str(place / "v.npz")]).items
    np.testing.assert_array_equal(np.concatenate(list(source.blocks())), PLAIN)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    """Whatever way it comes, what unpickling would do isn't done."""

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    trapped = np.array([[Trap()]], dtype=object)
    np.save(tmp_path / "v.npy", trapped, allow_pickle=True)
    np.savez(tmp_path / "v.npz", v=trapped)
    (tmp_path / "v.pkl").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "v.pt").write_bytes((tmp_path / "v.npz").read_bytes())
    zarr.create_array(str(tmp_path / "z.zarr"), data=PLAIN, zarr_format=2)
    about = json.loads((tmp_path / "z.zarr/.zarray").read_text())
    about |= {"dtype": "|O", "filters": [{"id": "pickle"}]}
    (tmp_path / "z.zarr/.zarray").write_text(json.dumps(about))
    for name in ("v.npy", "v.npz", "v.pkl", "v.pt", "z.zarr"):
        with pytest.raises(BadInput):
            ingest([str(tmp_path / name)], str(tmp_path / "c"))
        np.save(tmp_path / "w.npy", PLAIN[:1])
        with pytest.raises(BadInput):
            ingest([str(tmp_path / "w.npy")], str(tmp_path / "c"), labels=str(tmp_path / name))
    assert not (tmp_path / "sprung").exists()
