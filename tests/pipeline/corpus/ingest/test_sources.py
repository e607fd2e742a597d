"""Finding and opening sources: order, formats, and one clear line for what can't be one."""

from __future__ import annotations

import io
import os
import random
import shutil
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale_pipeline.corpus.formats.file import File
from latentscale_pipeline.corpus.ingest.create import ensure_corpus, ingest
from latentscale_pipeline.corpus.ingest.sources import natural_order, open_sources, source_key
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.storage import objects
from latentscale_pipeline.storage.objects import ObjectStore

PLAIN = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


def rows_of(*patterns: object) -> np.ndarray:
    sources = open_sources([str(pattern) for pattern in patterns])
    blocks = [block for source in sources.items for block in source.blocks()]
    rows = np.concatenate(blocks)
    assert rows.shape == (sources.rows, sources.d)
    return rows


def test_natural_order_counts_numbers() -> None:
    ordered = ["a/2.npy", "a/10.npy", "a 1/1.npy", "b/img_2", "b/img_10", "b/img_010x", "c"]
    shuffled = random.Random(0).sample(ordered, len(ordered))
    assert sorted(shuffled, key=natural_order) == [
        "a/2.npy",
        "a/10.npy",
        "a 1/1.npy",
        "b/img_2",
        "b/img_010x",
        "b/img_10",
        "c",
    ]


def test_arguments_keep_their_order_and_folders_and_globs_are_natural(tmp_path: Path) -> None:
    for name, value in [("d/img_10", 10), ("d/img_2", 2), ("d/sub/x", 11), ("z", 0), ("a", 99)]:
        path = tmp_path / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full((1, 2), value, np.float32))
    (tmp_path / "d/readme.txt").write_text("not an array")
    (tmp_path / "d/.hidden.npy").write_text("")
    assert rows_of(tmp_path / "z.npy", tmp_path / "d", tmp_path / "a.npy")[:, 0].tolist() == [
        0,
        2,
        10,
        11,
        99,
    ]
    assert rows_of(tmp_path / "d/img_*.npy")[:, 0].tolist() == [2, 10]
    assert rows_of(tmp_path / "**/img_*.npy")[:, 0].tolist() == [2, 10]
    sources = open_sources([str(tmp_path / "d")])
    assert sources.skipped == (str(tmp_path / "d/readme.txt"),)


def test_a_limitwith_glob_signs_is_a_limitfirst(tmp_path: Path) -> None:
    np.save(tmp_path / "x[1].npy", PLAIN)
    np.testing.assert_array_equal(rows_of(tmp_path / "x[1].npy"), PLAIN)


def test_the_suffix_plays_no_part(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", PLAIN)
    (tmp_path / "x.npy").rename(tmp_path / "x.bin")
    np.testing.assert_array_equal(rows_of(tmp_path / "x.bin"), PLAIN)


@settings(max_examples=30, deadline=None)
@given(
    dtype=st.sampled_from(["<f2", "<f4", "<f8", ">f4", ">f8", "i1", "u1", "<i4", ">i8"]),
    order=st.sampled_from("CF"),
    container=st.sampled_from(["npy", "npz", "npz compressed"]),
    n=st.integers(1, 300),
    d=st.integers(1, 9),
)
def test_npy_and_npz_hold_the_same_values(
    tmp_path_factory: pytest.TempPathFactory,
    dtype: str,
    order: str,
    container: str,
    n: int,
    d: int,
) -> None:
    path = tmp_path_factory.mktemp("s") / "x"
    values = np.random.default_rng(n * d).integers(-9, 9, (n, d)).astype(dtype)
    values = np.asarray(values, order="F" if order == "F" else "C")
    if container == "npy":
        with path.open("wb") as file:
            np.save(file, values)
    elif values.dtype.kind == "f":
        save = np.savez if container == "npz" else np.savez_compressed
        with path.open("wb") as file:
            save(file, labels=np.arange(n), vectors=values)
    else:
        return
    np.testing.assert_array_equal(rows_of(path), values)


def test_many_blocks_and_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("BLOCK_BYTES", "PLAIN_BYTES"):
        monkeypatch.setattr(f"latentscale_pipeline.corpus.formats.file.{limit}", 100)
    np.save(tmp_path / "c.npy", PLAIN)
    np.save(tmp_path / "f.npy", np.asfortranarray(PLAIN))
    np.savez_compressed(tmp_path / "c.npz", v=PLAIN)
    np.savez(tmp_path / "f.npz", v=np.asfortranarray(PLAIN))
    for name in ("c.npy", "f.npy", "c.npz", "f.npz"):
        np.testing.assert_array_equal(rows_of(tmp_path / name), PLAIN)


@pytest.mark.parametrize(("version", "shards"), [(2, None), (3, None), (3, (8, 4))])
def test_existing_zarr(tmp_path: Path, version: int, shards: tuple[int, int] | None) -> None:
    chunks = {"chunks": (4, 2), "shards": shards}
    group = zarr.create_group(str(tmp_path / "g"), zarr_format=version)
    group.create_array("deep/vectors", data=PLAIN, **chunks)
    group.create_array("labels", data=np.arange(20))
    zarr.create_array(str(tmp_path / "a"), data=PLAIN, zarr_format=version, **chunks)
    np.testing.assert_array_equal(rows_of(tmp_path / "g"), PLAIN)
    np.testing.assert_array_equal(rows_of(tmp_path / "a"), PLAIN)
    np.testing.assert_array_equal(rows_of(tmp_path / "g/deep/vectors"), PLAIN)
    assert open_sources([str(tmp_path / "g")]).items[0].path == str(tmp_path / "g/deep/vectors")


def test_zarr_in_an_object_store(s3_url: str) -> None:
    zarr.create_array(f"{s3_url}/a", data=PLAIN, chunks=(4, 4), shards=(8, 4))
    np.testing.assert_array_equal(rows_of(f"{s3_url}/a"), PLAIN)
    ObjectStore(s3_url).remove("a/c/1/0")
    with pytest.raises(BadInput, match=r"/a: c/1/0 \(rows 8 to 15\) was never written"):
        open_sources([f"{s3_url}/a"])


def zarr_with(path: Path, damage: Callable[[Path], None], **cut: object) -> None:
    zarr.create_array(str(path), data=PLAIN, **cut)
    damage(path)


@pytest.mark.parametrize(
    ("cut", "damage", "message"),
    [
        ({"chunks": (8, 4)}, lambda p: (p / "c/1/0").unlink(), r"c/1/0 \(rows 8 to 15\) was never"),
        (
            {"chunks": (8, 4)},
            lambda p: (p / "c/2/0").write_bytes(b""),
            r"c/2/0 \(rows 16 to 19\) is empty",
        ),
        (
            {"chunks": (8, 4), "zarr_format": 2},
            lambda p: (p / "0.0").unlink(),
            r"0\.0 \(rows 0 to 7\) was never",
        ),
        (
            {"chunks": (4, 4), "shards": (8, 4)},
            lambda p: zarr.open_array(str(p)).__setitem__(slice(8, 12), 0),
            r"c/1/0 \(rows 8 to 15\) lacks 1 of its chunks",
        ),
        ({"chunks": (8, 4)}, lambda p: (p / "zarr.json").write_text("{"), "not a readable Zarr"),
        ({"chunks": (8, 4)}, lambda p: (p / "zarr.json").unlink(), "not a readable Zarr"),
    ],
)
def test_a_zarr_that_would_read_as_zeros_is_refused(
    tmp_path: Path, cut: dict[str, object], damage: Callable[[Path], None], message: str
) -> None:
    zarr_with(tmp_path / "x.zarr", damage, **cut)
    with pytest.raises(BadInput, match=message) as raised:
        open_sources([str(tmp_path / "x.zarr")])
    assert str(raised.value).startswith(f"{tmp_path}/x.zarr: ")
    assert "\n" not in str(raised.value)


def test_a_damaged_zarr_chunk_is_one_line(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "x"), data=PLAIN, chunks=(20, 4))
    (tmp_path / "x/c/0/0").write_bytes(b"garbage")
    with pytest.raises(BadInput, match="not a readable Zarr") as raised:
        rows_of(tmp_path / "x")
    assert "\n" not in str(raised.value)


def test_a_corpus_is_a_source_and_is_checked(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", PLAIN)
    corpus = ingest([str(tmp_path / "v.npy")], str(tmp_path / "c"))
    np.testing.assert_array_equal(rows_of(corpus.url), PLAIN)
    shard = tmp_path / "c/vectors/c/0/0"
    shard.write_bytes(b"\1" + shard.read_bytes()[1:])
    with pytest.raises(BadInput, match="checksum differs"):
        rows_of(corpus.url)
    (tmp_path / "c/manifest.json").unlink()
    with pytest.raises(BadInput, match="an unfinished corpus"):
        open_sources([corpus.url])


def save_to(path: Path, array: object, **options: object) -> None:
    with path.open("wb") as file:
        np.save(file, array, **options)  # type: ignore[arg-type]


def npz_to(path: Path, **arrays: object) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def packed(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


def as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


NPY = as_npy(PLAIN)

BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty file": (lambda p: p.write_bytes(b""), r"the file is empty; write it again"),
    "text": (
        lambda p: p.write_text("a text\n"),
        r"damaged \.npy header within its first 7 bytes",
    ),
    "header cut": (lambda p: p.write_bytes(NPY[:50]), r"damaged \.npy header within its first 50"),
    "header garbled": (
        lambda p: p.write_bytes(NPY[:10] + b"#" * 60 + NPY[70:]),
        r"damaged \.npy header",
    ),
    "truncated": (
        lambda p: p.write_bytes(NPY[:-20]),
        r"truncated: it ends at byte 428 of 448, in row 18 of 20; copy or write it again",
    ),
    "two arrays": (lambda p: p.write_bytes(NPY + NPY), "448 bytes follow the array, which ends at"),
    "objects": (
        lambda p: save_to(p, np.array([[1, None]], dtype=object), allow_pickle=True),
        "contains Python objects, which aren't unpickled",
    ),
    "one axis": (
        lambda p: save_to(p, PLAIN[0]),
        r"the array has shape \(4,\), but vectors must have two dimensions",
    ),
    "three axes": (lambda p: save_to(p, PLAIN[None]), r"the array has shape \(1, 20, 4\)"),
    "no axis": (lambda p: save_to(p, np.float32(3)), r"the array has shape \(\)"),
    "bool": (lambda p: save_to(p, PLAIN > 0), "values have dtype bool, but vectors must be floats"),
    "complex": (lambda p: save_to(p, PLAIN * 1j), "values have dtype complex64"),
    "text array": (lambda p: save_to(p, PLAIN.astype(str)), "values have dtype <U32"),
    "times": (lambda p: save_to(p, PLAIN.astype("m8[s]")), "values have dtype timedelta64"),
    "no rows": (lambda p: save_to(p, PLAIN[:0]), r"no rows \(shape \(0, 4\)\); leave the file out"),
    "no dimensions": (lambda p: save_to(p, PLAIN[:, :0]), "the rows are empty"),
    "npz of several": (
        lambda p: npz_to(p, a=PLAIN, b=PLAIN, y=np.arange(3)),
        (
            r"several two-dimensional float arrays \(it holds a float32 \(20, 4\), b float32 "
            r"\(20, 4\)\); name one with --vectors"
        ),
    ),
    "npz of none": (
        lambda p: npz_to(p, y=np.arange(3)),
        r"no two-dimensional float array \(it holds y int64 \(3,\)\)",
    ),
    "npz of nothing": (lambda p: p.write_bytes(packed()), "a ZIP archive without .npy arrays"),
    "npz truncated": (
        lambda p: p.write_bytes(packed(a=NPY)[:-30]),
        r"damaged, truncated or unknown \.npz",
    ),
    "npz member truncated": (
        lambda p: p.write_bytes(packed(a=NPY[:-20])),
        r":a: truncated: it ends at byte 428 of 448, in row 18",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_line_that_names_it(tmp_path: Path, case: str) -> None:
    make, message = BAD[case]
    make(tmp_path / "x.npy")
    with pytest.raises(BadInput, match=message) as raised:
        open_sources([str(tmp_path / "x.npy")])
    assert str(raised.value).startswith(f"{tmp_path}/x.npy:")
    assert "\n" not in str(raised.value)


def test_a_flipped_byte_in_an_npz_is_found_at_its_end(tmp_path: Path) -> None:
    data = bytearray(packed(a=as_npy(np.repeat(PLAIN, 5000, axis=0))))
    data[len(data) // 2] ^= 1
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(
        BadInput,
        match=r"x\.npz:a: damaged, truncated or unknown \.npz within its \d+ bytes \(Bad CRC-32",
    ):
        rows_of(tmp_path / "x.npz")


def test_a_file_that_shrinks_after_opening_is_truncated(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", PLAIN)
    sources = open_sources([str(tmp_path / "x.npy")])
    os.truncate(tmp_path / "x.npy", 300)
    with pytest.raises(BadInput, match="it ends at byte 300 of 448, in row 10 of 20"):
        list(sources.items[0].blocks())


def test_arrays_of_jobs_are_no_vectors(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", PLAIN)
    stage = tmp_path / "jobs/nightly-1a2b3c4d/stages/heat"
    stage.mkdir(parents=True)
    np.save(stage / "matrix.npy", PLAIN)
    for name in ("config.json", "plan.json"):
        (tmp_path / "jobs/nightly-1a2b3c4d" / name).write_text("{}")
    [found] = open_sources([str(tmp_path)]).items
    assert found.path == str(tmp_path / "x.npy")
    for folder in ("jobs", "jobs/nightly-1a2b3c4d"):
        with pytest.raises(BadInput, match="nothing here but hidden files and jobs"):
            open_sources([str(tmp_path / folder)])
    # An array of a job that is named as a file is meant.
    [named] = open_sources([str(stage / "matrix.npy")]).items
    assert named.rows == len(PLAIN)


def test_what_is_not_there_says_so(tmp_path: Path) -> None:
    for pattern, message in [
        ("none.npy", "none.npy: no such file or folder; check the path"),
        ("*.npy", r"\*\.npy: no file matches; check the pattern"),
        ("", "the folder is empty; name the files"),
        ("nope://x", "nope://x: can't open this kind of URL"),
    ]:
        url = pattern if "://" in pattern else str(tmp_path / pattern)
        with pytest.raises(BadInput, match=message):
            open_sources([url])
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.txt").write_text("text")
    with pytest.raises(BadInput, match="none of the 2 files there has a known"):
        open_sources([str(tmp_path)])
    (tmp_path / "c.npy").write_bytes(b"")
    with pytest.raises(BadInput, match=r"c\.npy: the file is empty"):
        open_sources([str(tmp_path)])


def test_mixed_dimensions_limitboth_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", PLAIN)
    np.save(tmp_path / "b.npy", PLAIN[:, :3])
    with pytest.raises(BadInput, match=r"b\.npy: rows of 3 dimensions, but .*a\.npy has 4; ingest"):
        open_sources([str(tmp_path)])


def test_the_key_follows_path_size_time_and_order(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a.npy"), str(tmp_path / "b.npy")
    np.save(a, PLAIN)
    np.save(b, PLAIN)
    key = source_key([a, b])
    assert len(key) == 32
    assert key == source_key([a, b]) == source_key([str(tmp_path)])
    assert key != source_key([b, a])
    os.utime(a, (1, 1))
    changed = source_key([a, b])
    assert changed != key
    np.save(b, PLAIN[1:])
    assert source_key([a, b]) not in {key, changed}


def test_the_key_in_an_object_store(s3_url: str) -> None:
    store = ObjectStore(s3_url)
    store.write("a.npy", NPY)
    key = source_key([f"{s3_url}/a.npy"])
    assert key == source_key([f"{s3_url}/*.npy"])
    store.write("a.npy", as_npy(PLAIN + 1))
    assert source_key([f"{s3_url}/a.npy"]) != key


def test_results_among_the_sources_are_no_sources(tmp_path: Path) -> None:
    """A corpus or a job folder may lie in the folder that is ingested."""
    np.save(tmp_path / "v.npy", PLAIN)
    (tmp_path / "sub").mkdir()
    target = str(tmp_path / "sub/c.zarr")
    corpus = ingest([str(tmp_path)], target)
    assert ingest([str(tmp_path)], target, overwrite=True).fingerprint == corpus.fingerprint
    Path(target, "manifest.json").unlink()
    assert ingest([str(tmp_path)], target).fingerprint == corpus.fingerprint
    np.save(tmp_path / "sub/w.npy", PLAIN)
    for pattern in ("**", "*", "sub/*"):
        n = 20 if pattern == "sub/*" else 40
        assert ingest([str(tmp_path / pattern)], target, overwrite=True).n == n
    output = str(tmp_path / "jobs")
    first = ensure_corpus(str(tmp_path / "sub"), output)
    assert ensure_corpus(str(tmp_path / "sub"), output).url == first.url
    key = source_key([str(tmp_path)], output)
    ensure_corpus(str(tmp_path), output)
    assert source_key([str(tmp_path)], output) == key


def test_the_copies_that_jobs_made_are_no_sources(tmp_path: Path) -> None:
    """The output may be the folder of the sources, or that of another run may lie in it."""
    folder = str(tmp_path)
    np.save(tmp_path / "v.npy", PLAIN)
    first = ensure_corpus(folder, folder)
    assert ensure_corpus(folder, folder).url == first.url
    assert first.n == ensure_corpus(folder, str(tmp_path / "jobs")).n == len(PLAIN)
    assert ensure_corpus(folder, str(tmp_path / "others")).n == len(PLAIN)
    assert ingest([str(tmp_path / "*")], str(tmp_path / "c.zarr")).n == len(PLAIN)
    # A corpus that is named is meant, and so is one of another name in such a folder.
    assert ingest([first.url], str(tmp_path / "d.zarr")).n == len(PLAIN)
    (tmp_path / "mine/corpora").mkdir(parents=True)
    shutil.copytree(first.url, tmp_path / "mine/corpora/kept.zarr")
    assert ingest([str(tmp_path / "mine")], str(tmp_path / "e.zarr")).n == len(PLAIN)


def test_another_file_of_the_same_time_is_another_source(tmp_path: Path) -> None:
    a = str(tmp_path / "a.npy")
    np.save(a, PLAIN)
    os.utime(a, (0, 0))
    key, written = source_key([a]), os.stat(a).st_ctime_ns
    while os.stat(a).st_ctime_ns == written:  # clocks of some systems tick every 10 ms
        np.save(a, PLAIN + 1)
        os.utime(a, (0, 0))
    assert source_key([a]) != key


def test_a_pipe_is_refused_and_a_link_is_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(BadInput, match=r"pipe\.npy: not a regular file"):
        open_sources([str(tmp_path / "pipe.npy")])
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "v.npy", PLAIN)
    (tmp_path / "d/link.npy").symlink_to(tmp_path / "v.npy")
    np.testing.assert_array_equal(rows_of(tmp_path / "d"), PLAIN)
    (tmp_path / "d/broken.npy").symlink_to(tmp_path / "gone.npy")
    with pytest.raises(BadInput, match=r"broken\.npy: "):
        open_sources([str(tmp_path / "d")])


def test_an_unreachable_store_is_one_line_and_resumable(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*arguments: object, **options: object) -> None:
        raise ConnectionError("Connection reset by peer")

    ObjectStore(s3_url).write("a.npy", NPY)
    monkeypatch.setattr(ObjectStore(s3_url)._fs, "cat_file", cut)
    monkeypatch.setattr(objects, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(Incomplete, match=r"a\.npy: Connection reset by peer; run the same"):
        open_sources([f"{s3_url}/a.npy"])


def test_other_formats_of_one_file_are_other_sources(tmp_path: Path) -> None:
    raw = tmp_path / "raw.bin"
    raw.write_bytes(np.array([6, 4], "<u4").tobytes() + bytes(range(100, 124)))
    keys = {open_sources([str(raw)], kind=kind).key for kind in ("i8bin", "u8bin", "u8bin")}
    assert len(keys) == 2


def test_a_file_in_memory_that_changed_is_another_source() -> None:
    name = f"memory://{uuid.uuid4().hex}.npy"
    keys = []
    for _ in range(2):
        buffer = io.BytesIO()
        np.save(buffer, np.ones((3, 2), np.float32))
        fsspec.filesystem("memory").pipe_file(name, buffer.getvalue())
        keys.append(source_key([name]))
    assert keys[0] != keys[1]


def test_what_tells_that_a_file_of_a_repository_changed() -> None:
    about = {"name": "datasets/o/n/a.npy", "size": 2048, "type": "file", "blob_id": "aaaa"}
    fs = fsspec.filesystem("memory")
    one, other = (File.of(fs, {**about, "blob_id": blob}) for blob in ("aaaa", "bbbb"))
    assert one.changed != other.changed
