"""From sources to a corpus: values, faults, interruptions and limits."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale_pipeline.corpus import Corpus, open_corpus, verify
from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.corpus.ingest.create import ensure_corpus, ingest
from latentscale_pipeline.errors import BadInput, Incomplete, SourceChanged, StoreFull
from latentscale_pipeline.storage.objects import ObjectStore


def vectors(n: int = 3000, d: int = 6, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, d)).astype(dtype)


def saved(path: Path, rows: np.ndarray) -> str:
    np.save(path, rows)
    return str(path)


@pytest.mark.parametrize(
    ("source", "stored"),
    [
        ("<f2", "float16"),
        (">f2", "float16"),
        ("<f4", "float32"),
        (">f4", "float32"),
        ("<f8", "float32"),
        ("<i4", "float32"),
        ("u1", "float32"),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_values_are_kept_or_cast(tmp_path: Path, source: str, stored: str, order: str) -> None:
    rows = np.asarray((vectors() * 20).clip(0).astype(source), order="F" if order == "F" else "C")
    corpus = ingest([saved(tmp_path / "v.npy", rows)], str(tmp_path / "c"), shard_bytes=1)
    assert corpus.dtype == stored
    np.testing.assert_array_equal(corpus.read_all(), rows.astype(stored))
    assert corpus.manifest.sources[0].dtype == np.dtype(source).name
    assert verify(corpus).problems == ()


@settings(max_examples=10, deadline=None)
@given(
    n=st.integers(1, 4000),
    d=st.integers(1, 12),
    parts=st.integers(1, 4),
    shard_bytes=st.sampled_from([1, 50_000, 64 << 20]),
    dtype=st.sampled_from(["float16", "float32"]),
)
def test_rows_come_back_whatever_the_cut(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    d: int,
    parts: int,
    shard_bytes: int,
    dtype: str,
) -> None:
    folder = tmp_path_factory.mktemp("i")
    rows = vectors(n, d, dtype)
    pieces = [piece for piece in np.array_split(rows, parts) if len(piece)]
    files = [saved(folder / f"{i}.npy", piece) for i, piece in enumerate(pieces)]
    corpus = ingest(files, str(folder / "c"), shard_bytes=shard_bytes)
    np.testing.assert_array_equal(corpus.read_all(), rows)
    np.testing.assert_array_equal(zarr.open_group(corpus.url, mode="r")["vectors"][:], rows)


def test_the_fingerprint_is_the_same_from_every_format(tmp_path: Path) -> None:
    rows = vectors()
    saved(tmp_path / "c.npy", rows)
    saved(tmp_path / "f.npy", np.asfortranarray(rows))
    saved(tmp_path / "big.npy", rows.astype(">f4"))
    saved(tmp_path / "double.npy", rows.astype(np.float64))
    np.savez(tmp_path / "c.npz", v=rows)
    np.savez_compressed(tmp_path / "f.npz", v=np.asfortranarray(rows))
    zarr.create_array(str(tmp_path / "2.zarr"), data=rows, chunks=(700, 4), zarr_format=2)
    zarr.create_array(str(tmp_path / "3.zarr"), data=rows, chunks=(256, 6), shards=(512, 6))
    (tmp_path / "parts").mkdir()
    for i, piece in enumerate(np.array_split(rows, 12)):
        saved(tmp_path / f"parts/p{i}.npy", piece)
    (tmp_path / "l.txt").write_text("x\n" * 3000)
    names = ["c.npy", "f.npy", "big.npy", "double.npy", "c.npz", "f.npz", "2.zarr", "3.zarr"]
    corpora = [
        ingest([str(tmp_path / name)], str(tmp_path / f"out/{name}"), shard_bytes=size)
        for name, size in zip([*names, "parts"], [1, 1 << 30] * 5, strict=False)
    ]
    labels = str(tmp_path / "l.txt")
    corpora.append(ingest([corpora[0].url], str(tmp_path / "out/again"), labels=labels))
    assert len({corpus.fingerprint for corpus in corpora}) == 1
    assert {corpus.shard_count for corpus in corpora} == {1, 3}


def test_mixed_dtypes_take_the_wider(tmp_path: Path) -> None:
    files = [
        saved(tmp_path / "a.npy", vectors(5, 3, "float16")),
        saved(tmp_path / "b.npy", vectors(6, 3)),
    ]
    assert ingest(files, str(tmp_path / "c")).dtype == np.float32
    assert ingest(files, str(tmp_path / "d"), dtype="float16").dtype == np.float16


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.nan, "holds NaN"),
        (np.inf, "holds infinity"),
        (-np.inf, "holds infinity"),
        (1e39, "holds a value too large for float32"),
    ],
)
def test_an_invalid_row_is_named(tmp_path: Path, value: float, what: str) -> None:
    rows = vectors(2000, 6, "float64")
    first = saved(tmp_path / "a.npy", rows)
    rows[1500, 2] = rows[1700, 0] = value
    second = saved(tmp_path / "b.npy", rows)
    with pytest.raises(BadInput) as raised:
        ingest([first, second], str(tmp_path / "c"), shard_bytes=1)
    assert str(raised.value) == (
        f"{second}: row 1500 (row 3500 of all sources) {what}; 2 such rows among the first 2,000; "
        "fix the source, or leave such rows out with --on-invalid drop, or with drop-zero, which "
        "also leaves out rows of zeros (latentscale ingest, or run SOURCE)"
    )
    assert not [path for path in (tmp_path / "c").rglob("*") if path.is_file()]


def test_rows_that_float32_takes_for_zero_are_refused(tmp_path: Path) -> None:
    rows = vectors(2000, 6, "float64")
    rows[5], rows[7], rows[9, 1:] = 0.0, 1e-42, 1e-50
    whole = saved(tmp_path / "a.npy", rows)
    with pytest.raises(BadInput, match=r"a\.npy: row 7 is too small for float32; fix the source"):
        ingest([whole], str(tmp_path / "c"))
    kept = ingest([whole], str(tmp_path / "c"), on_invalid="drop")
    assert kept.n == 1999
    assert kept.source_rows(np.array([6, 7])).tolist() == [6, 8]
    assert ingest([saved(tmp_path / "b.npy", rows.astype("f4"))], str(tmp_path / "d")).n == 2000


def test_invalid_rows_are_dropped_with_their_companions(tmp_path: Path) -> None:
    rows = vectors(5000)
    bad = np.random.default_rng(0).choice(5000, 1200, replace=False)
    rows[bad, 3] = np.nan
    rows[2600] = 0
    files = [saved(tmp_path / "a.npy", rows[:2500]), saved(tmp_path / "b.npy", rows[2500:])]
    (tmp_path / "l.txt").write_text("".join(f"é{i}\r\n" for i in range(5000)))
    np.save(tmp_path / "w.npy", np.arange(5000))
    np.save(tmp_path / "i.npy", np.arange(5000))
    corpus = ingest(
        files,
        str(tmp_path / "c"),
        labels=str(tmp_path / "l.txt"),
        weights=str(tmp_path / "w.npy"),
        ids=str(tmp_path / "i.npy"),
        on_invalid="drop",
        shard_bytes=1,
    )
    kept = np.setdiff1d(np.arange(5000), bad)
    np.testing.assert_array_equal(corpus.read_all(), rows[kept])
    assert corpus.texts("labels") == [f"é{i}" for i in kept]
    assert corpus.texts("ids") == [str(i) for i in kept]
    np.testing.assert_array_equal(corpus.weights(), kept)
    dropped = corpus.manifest.dropped
    assert dropped.count == 1200
    assert list(dropped.rows) == sorted(bad.tolist())[:1000]
    np.testing.assert_array_equal(np.load(tmp_path / "c/dropped.npy"), np.sort(bad))
    if 2600 in kept:
        assert corpus.manifest.zero_rows.first == np.searchsorted(kept, 2600)
    clean = ingest([saved(tmp_path / "k.npy", rows[kept])], str(tmp_path / "d"))
    assert clean.fingerprint == corpus.fingerprint
    assert clean.manifest.dropped.count == 0


def test_zero_rows_are_left_out_if_asked(tmp_path: Path) -> None:
    rows = vectors(500)
    rows[[0, 77, 499]] = 0
    rows[[5, 78], 1] = np.inf
    source = saved(tmp_path / "a.npy", rows)
    (tmp_path / "i.txt").write_text("".join(f"{row}\n" for row in range(500)))
    # What an ingest with another choice left behind isn't taken for its own.
    with pytest.raises(BadInput, match="row 5 holds infinity"):
        ingest([source], str(tmp_path / "c"), shard_bytes=1)
    ids = str(tmp_path / "i.txt")
    corpus = ingest([source], str(tmp_path / "c"), ids=ids, on_invalid="drop-zero", shard_bytes=1)
    kept = np.setdiff1d(np.arange(500), [0, 5, 77, 78, 499])
    np.testing.assert_array_equal(corpus.read_all(), rows[kept])
    assert corpus.texts("ids") == [str(row) for row in kept]
    assert corpus.manifest.dropped.rows == (0, 5, 77, 78, 499)
    assert corpus.manifest.zero_rows.count == 0
    nothing = saved(tmp_path / "z.npy", np.zeros((4, 2)))
    with pytest.raises(BadInput, match=r"all 4 rows hold .*, or are zero; check how"):
        ingest([nothing], str(tmp_path / "d"), on_invalid="drop-zero")


def test_nothing_left_after_dropping_is_one_line(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.npy", np.full((4, 2), np.nan))
    with pytest.raises(BadInput, match="all 4 rows hold NaN, infinity or a value"):
        ingest([source], str(tmp_path / "c"), on_invalid="drop")


SIDECARS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "too few": ("labels", lambda p: p.write_text("a\nb\n"), "2 labels for 3 rows of vectors"),
    "too many": ("ids", lambda p: p.write_text("a\n" * 4), "4 ids for 3 rows of vectors"),
    "not UTF-8": (
        "labels",
        lambda p: p.write_bytes(b"a\n\xff\nc\n"),
        "row 1, at byte 2, isn't UTF-8",
    ),
    "not a number": ("weights", lambda p: p.write_text("1\nx\n2\n"), "row 1: 'x' isn't a number"),
    "negative": ("weights", lambda p: p.write_text("1\n2\n-1\n"), "row 2: weight -1.0; weights"),
    "not finite": ("weights", lambda p: p.write_text("1\nnan\n1\n"), "row 1: weight nan"),
    "all zero": ("weights", lambda p: p.write_text("0\n0\n0\n"), "all weights are zero"),
    "fractions": ("labels", lambda p: npy(p, np.full(3, 0.5)), "row 0: 0.5 isn.t a whole number"),
    "float ids": ("ids", lambda p: npy(p, np.ones(3)), "ids must be text or integers"),
    "rank": ("weights", lambda p: npy(p, np.ones((3, 1))), "weights must be numbers, one per row"),
    "objects": ("ids", lambda p: npy(p, np.array([1, "a", None], object)), "aren't unpickled"),
    "compressed": (
        "labels",
        lambda p: p.write_bytes(gzip.compress(b"a\nb\nc\n")),
        "compressed by gzip; decompress it with gunzip",
    ),
    "missing": ("ids", lambda p: None, "no such file or folder"),
}


def npy(path: Path, values: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, values)


@pytest.mark.parametrize("case", SIDECARS)
def test_a_bad_sidecar_is_one_line(tmp_path: Path, case: str) -> None:
    name, make, message = SIDECARS[case]
    make(tmp_path / "s")
    source = saved(tmp_path / "v.npy", vectors(3))
    with pytest.raises(BadInput, match=message) as raised:
        ingest([source], str(tmp_path / "c"), **{name: str(tmp_path / "s")})
    assert str(raised.value).startswith(f"{tmp_path}/s: ")
    assert not (tmp_path / "c").exists()
    (tmp_path / "c").mkdir()
    with pytest.raises(BadInput, match=message):
        ingest([source], str(tmp_path / "c"), **{name: str(tmp_path / "s")})
    assert not list((tmp_path / "c").iterdir()), "and a folder that was there stays"


@pytest.mark.parametrize("dtype", ["<U9", ">U9", "S9", "int16"])
def test_labels_from_npy(tmp_path: Path, dtype: str) -> None:
    values = np.arange(3000).astype(dtype)
    np.save(tmp_path / "l.npy", values)
    source = saved(tmp_path / "v.npy", vectors())
    corpus = ingest([source], str(tmp_path / "c"), labels=str(tmp_path / "l.npy"))
    assert corpus.texts("labels") == [str(i) for i in range(3000)]


def test_long_sidecars_fill_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("latentscale_pipeline.corpus.ingest.writing")
    monkeypatch.setattr(module, "COMPANION_ROWS", 1024)
    monkeypatch.setattr("latentscale_pipeline.corpus.formats.lines.NOTED_ROWS", 44)
    (tmp_path / "l.txt").write_text("\ufeff" + "\n".join(f"l{i}" for i in range(5000)))
    source = saved(tmp_path / "v.npy", vectors(5000))
    corpus = ingest([source], str(tmp_path / "c"), labels=str(tmp_path / "l.txt"))
    assert len(corpus.manifest.arrays["labels"].shards) == 5
    assert corpus.texts("labels") == [f"l{i}" for i in range(5000)]


def test_an_existing_target_is_kept(tmp_path: Path) -> None:
    source = saved(tmp_path / "v.npy", vectors())
    first = ingest([source], str(tmp_path / "c"))
    with pytest.raises(BadInput, match="there is a corpus already; give another path, or --overw"):
        ingest([source], first.url)
    saved(tmp_path / "w.npy", vectors(2000))
    (tmp_path / "l.txt").write_text("x\n" * 3000)
    labels = str(tmp_path / "l.txt")
    ingest([source], first.url, shard_bytes=1, labels=labels, overwrite=True)
    (tmp_path / "c/notes.txt").write_text("mine")
    second = ingest([str(tmp_path / "w.npy")], first.url, overwrite=True)
    assert verify(second).problems == ()
    files = {str(p.relative_to(second.url)) for p in Path(second.url).rglob("*") if p.is_file()}
    expected = {"manifest.json", "zarr.json", "vectors/zarr.json", "vectors/c/0/0", "notes.txt"}
    assert files == expected
    np.testing.assert_array_equal(read_by_zarr(second.url), vectors(2000))


def test_nobody_elses_files_are_touched(tmp_path: Path) -> None:
    source = saved(tmp_path / "v.npy", vectors())
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "notes.txt").write_text("mine")
    zarr.create_array(str(tmp_path / "z"), data=vectors())
    (tmp_path / "m").mkdir()
    (tmp_path / "m/manifest.json").write_text("{}")
    for target, overwrite, message in [
        ("theirs", False, "it exists and isn't a corpus"),
        ("theirs", True, "it exists and isn't a corpus"),
        ("z", True, "it exists and isn't a corpus"),
        ("v.npy", True, "the corpus would overwrite its source"),
        (".", True, "the corpus would overwrite its source"),
        ("m", False, "there is a corpus already"),
        ("m", True, "the manifest.json there isn't a corpus manifest"),
    ]:
        before = sorted(tmp_path.rglob("*"))
        for wait in (False, True) if message.startswith("it exists") else (False,):
            with pytest.raises(BadInput, match=message):
                ingest([source], str(tmp_path / target), overwrite=overwrite, wait=wait)
            assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_folder_is_a_good_target(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    assert ingest([saved(tmp_path / "v.npy", vectors())], str(tmp_path / "c")).n == 3000


def test_progress_counts_rows(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    files = [saved(tmp_path / f"{i}.npy", vectors(1000)) for i in range(3)]
    ingest(files, str(tmp_path / "c"), progress=lambda done, total: told.append((done, total)))
    assert told == [(1000, 3000), (2000, 3000), (3000, 3000)]


def test_what_storage_garbles_is_written_again_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ObjectStore.write
    garbled: list[str] = []

    def once(store: ObjectStore, key: str, data: bytes) -> None:
        wrong = key == "vectors/c/0/0" and key not in garbled
        garbled.append(key)
        write(store, key, b"\0" + data[1:] if wrong else data)

    monkeypatch.setattr(ObjectStore, "write", once)
    source = saved(tmp_path / "v.npy", vectors())
    assert verify(ingest([source], str(tmp_path / "c"))).problems == ()
    assert garbled.count("vectors/c/0/0") == 2
    monkeypatch.setattr(ObjectStore, "write", lambda s, k, d: write(s, k, b"\0" + d[1:]))
    with pytest.raises(Incomplete, match="what was read back differs from what was written"):
        ingest([source], str(tmp_path / "d"))
    with pytest.raises(BadInput):
        open_corpus(str(tmp_path / "d"))


KILLED = """
import os, signal, sys
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.corpus.ingest.create import ingest
source, target, last, half = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "half"
write, sync, count = ObjectStore.write, os.fsync, 0
def killed(descriptor):
    os.kill(os.getpid(), signal.SIGKILL)
def counting(store, key, data):
    global count
    count += 1
    if count == last:
        if not half:
            killed(0)
        os.fsync = killed
    write(store, key, data)
ObjectStore.write = counting
ingest([source], target, shard_bytes=1, overwrite="overwrite" in sys.argv)
"""


@pytest.mark.parametrize(
    ("last", "half"), [(1, "half"), (3, "whole"), (5, "half"), (6, "whole"), (7, "half")]
)
def test_killed_at_any_write_it_leaves_no_corpus_and_runs_again(
    tmp_path: Path, last: int, half: str
) -> None:
    """Writes are the group, a heartbeat, three shards, the array's document, the manifest."""
    source = saved(tmp_path / "v.npy", vectors())
    target = str(tmp_path / "c")
    script = [sys.executable, "-c", KILLED, source, target, str(last), half]
    assert subprocess.run(script, check=False).returncode == -9
    with pytest.raises(BadInput):
        open_corpus(target)
    corpus = ingest([source], target)
    assert verify(corpus).problems == ()
    np.testing.assert_array_equal(corpus.read_all(), vectors())
    files = [path for path in Path(target).rglob("*") if path.is_file()]
    assert len(files) == len(corpus.manifest.objects()) + 1


def read_by_zarr(url: str) -> Any:
    return zarr.open_group(url, mode="r")["vectors"][:]


def files_of(url: str) -> set[str]:
    return {str(p.relative_to(url)) for p in Path(url).rglob("*") if p.is_file()}


@pytest.fixture
def replaced(tmp_path: Path) -> tuple[Corpus, str, str]:
    """A corpus with labels that has grown, and the source and labels of another one."""
    saved(tmp_path / "old.npy", vectors(2500))
    saved(tmp_path / "more.npy", vectors(1500))
    new = saved(tmp_path / "new.npy", -vectors(2100))
    for name, rows in (("old", 2500), ("more", 1500), ("new", 2100)):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n" * rows)
    target = str(tmp_path / "c")
    labels = str(tmp_path / "old.txt")
    ingest([str(tmp_path / "old.npy")], target, shard_bytes=1, labels=labels)
    more = str(tmp_path / "more.txt")
    return append([str(tmp_path / "more.npy")], target, labels=more), new, str(tmp_path / "new.txt")


class Killed(BaseException):
    """The process is gone."""


def forget_the_lock(url: str) -> None:
    """Do as if the holder's process were gone: it is this one."""
    shutil.rmtree(Path(url, "writing"), ignore_errors=True)


def test_a_corpus_is_there_until_the_new_one_is_whole(
    replaced: tuple[Corpus, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before any of its writes and removals, an ingest leaves the old corpus or the new."""
    old, source, labels = replaced
    new = -vectors(2100)
    calls = 0
    last = 0

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > last:
                raise Killed
            return operation(*arguments, **options)

        return call

    for name in ("write", "remove", "remove_all"):
        monkeypatch.setattr(ObjectStore, name, counted(getattr(ObjectStore, name)))
    fingerprints = []
    while len(fingerprints) == 0 or fingerprints[-1] == old.fingerprint:
        calls = 0
        with pytest.raises(Killed):
            ingest([source], old.url, shard_bytes=1, labels=labels, overwrite=True)
        forget_the_lock(old.url)
        there = open_corpus(old.url)
        assert verify(there).problems == ()
        fingerprints.append(there.fingerprint)
        if there.fingerprint == old.fingerprint:
            np.testing.assert_array_equal(there.read_all(), old.read_all())
            assert there.texts("labels") == ["old"] * 2500 + ["more"] * 1500
            np.testing.assert_array_equal(read_by_zarr(old.url), vectors(2500))
        last += 1
    assert len(fingerprints) > 4
    np.testing.assert_array_equal(there.read_all(), new)
    both = np.concatenate([vectors(2500), vectors(1500)])
    np.testing.assert_array_equal(old.read_all(), both, "the old shards haven't been deleted yet")
    for more in range(24):  # replacing it again, and cleaning up
        calls, last = 0, more
        with contextlib.suppress(Killed):
            ingest([source], old.url, shard_bytes=1, labels=labels, overwrite=True)
        forget_the_lock(old.url)
        there = open_corpus(old.url)
        assert verify(there).problems == ()
        assert there.texts("labels") == ["new"] * 2100
        np.testing.assert_array_equal(there.read_all(), new)
    monkeypatch.undo()
    for _ in range(2):  # the second time the shards get the names that the old ones had
        whole = ingest([source], old.url, shard_bytes=1, labels=labels, overwrite=True)
        assert verify(whole).problems == ()
        assert whole.texts("labels") == ["new"] * 2100
        np.testing.assert_array_equal(read_by_zarr(old.url), new)
        assert files_of(old.url) == {"manifest.json", *(o.key for o in whole.manifest.objects())}
        with pytest.raises(BadInput, match="the corpus was replaced while it was in use"):
            old.read_all()


@pytest.mark.parametrize("store", ["disk", "s3"])
def test_a_bad_source_leaves_the_corpus_that_is_there(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = str(tmp_path / "c") if store == "disk" else f"{request.getfixturevalue('s3_url')}/c"
    old = ingest([saved(tmp_path / "v.npy", vectors())], target, shard_bytes=1)
    keys = ObjectStore(target).keys()
    bad = vectors(5000)
    bad[4000, 3] = np.nan
    with pytest.raises(BadInput, match="row 4000 holds NaN"):
        ingest([saved(tmp_path / "w.npy", bad)], target, shard_bytes=1, overwrite=True)
    assert ObjectStore(target).keys() == keys
    assert verify(open_corpus(target)).problems == ()
    assert open_corpus(target).fingerprint == old.fingerprint
    new = ingest([saved(tmp_path / "w.npy", vectors(5000))], target, overwrite=True)
    assert verify(new).problems == ()
    with pytest.raises(BadInput, match="the corpus was replaced while it was in use"):
        old.read_all()


def test_a_corpus_whose_manifest_can_not_be_read_is_not_deleted_either(tmp_path: Path) -> None:
    """It may be another version's, or be restored."""
    old = ingest([saved(tmp_path / "v.npy", vectors())], str(tmp_path / "c"), shard_bytes=1)
    manifest = Path(old.url, "manifest.json")
    whole = manifest.read_bytes()
    manifest.write_bytes(whole.replace(b"latentscale.corpus/1", b"latentscale.corpus/9"))
    bad = vectors()
    bad[2000] = np.inf
    with pytest.raises(BadInput, match="row 2000 holds infinity"):
        ingest([saved(tmp_path / "w.npy", bad)], old.url, overwrite=True)
    manifest.write_bytes(whole)
    assert verify(open_corpus(old.url)).problems == ()


def test_rows_dropped_from_a_corpus_are_listed_until_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentscale_pipeline.corpus.ingest.writing.LISTED_DROPPED_ROWS", 2)
    rows = vectors()
    rows[:5] = np.nan
    source, target = saved(tmp_path / "v.npy", rows), str(tmp_path / "c")
    for _ in range(3):
        corpus = ingest([source], target, on_invalid="drop", overwrite=True)
        assert verify(corpus).problems == ()
        assert len([name for name in files_of(target) if name.startswith("dropped")]) == 1


def test_records_of_other_sources_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of one ingest that was killed may have been written over by another."""
    a = saved(tmp_path / "a.npy", vectors())
    b = saved(tmp_path / "b.npy", -vectors())
    target = str(tmp_path / "c")

    write = ObjectStore.write_checked

    def killed(store: ObjectStore, key: str, data: bytes) -> str:
        if key == "manifest.json":
            raise Killed
        return write(store, key, data)

    monkeypatch.setattr(ObjectStore, "write_checked", killed)
    for source in (a, b):
        with pytest.raises(Killed):
            ingest([source], target, shard_bytes=1)
    monkeypatch.undo()
    corpus = ingest([a], target, shard_bytes=1)
    assert verify(corpus).problems == ()
    np.testing.assert_array_equal(corpus.read_all(), vectors())


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a small file system can't be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_one_line_and_gets_its_space_back(
    tiny_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentscale_pipeline.storage.objects.SHORT_PATIENCE_SECONDS", 0.0)
    source = saved(tmp_path / "v.npy", vectors(60_000, 16))
    with pytest.raises(StoreFull, match="the disk is full or over quota; free some space and run"):
        ingest([source], str(tiny_disk / "c"), shard_bytes=1 << 18)
    assert not [path for path in tiny_disk.rglob("*") if path.is_file()]
    small = saved(tmp_path / "s.npy", vectors(3000))
    old = ingest([small], str(tiny_disk / "c"))
    with pytest.raises(StoreFull, match="the disk is full or over quota; free some space and run"):
        ingest([source], old.url, shard_bytes=1 << 18, overwrite=True)
    assert verify(open_corpus(old.url)).problems == ()
    assert files_of(old.url) == {"manifest.json", *(o.key for o in old.manifest.objects())}


def test_a_file_size_limit_is_like_a_full_disk(tmp_path: Path) -> None:
    source = saved(tmp_path / "v.npy", vectors(60_000, 16))
    command = [sys.executable, "-c", "from latentscale_pipeline.cli import main; main()"]
    ended = subprocess.run(
        [*command, "ingest", source, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert ended.returncode == 3
    assert "c/vectors/c/0/0: the disk is full or over quota" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert not [path for path in (tmp_path / "c").rglob("*") if path.is_file()]


def test_permission_denied_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path / "v.npy", vectors())

    def refused(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    if os.geteuid() == 0:  # root may write anywhere
        monkeypatch.setattr(Path, "mkdir", refused)
    else:
        tmp_path.chmod(0o500)
    with pytest.raises(BadInput, match=r"c/zarr\.json: permission denied; choose another place"):
        ingest([source], str(tmp_path / "c"))


MEASURED = """
import sys
from latentscale_pipeline.corpus.ingest.create import ingest
ingest([sys.argv[1]], sys.argv[2] + "/warm", labels=sys.argv[5])
def peak():  # ru_maxrss begins at that of the process that started this one
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1])
before = peak()
ingest([sys.argv[3]], sys.argv[4], shard_bytes=int(sys.argv[6]))
print(peak() - before)
"""


@pytest.mark.parametrize(
    ("order", "rows", "shard_bytes", "limit"),
    [("C", 100_000, 64 << 20, 320 << 20), ("F", 40_000, 8 << 20, 100 << 20)],
)
def test_memory_stays_at_a_few_shards(
    tmp_path: Path, order: str, rows: int, shard_bytes: int, limit: int
) -> None:
    (tmp_path / "l.txt").write_text("a\n" * 3000)
    small = saved(tmp_path / "s.npy", vectors())
    shape = (rows, 1024)
    with (tmp_path / "big.npy").open("wb") as file:  # zeros that take no space: 400 and 160 MB
        header = {"descr": "<f4", "fortran_order": order == "F", "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 4 * shape[0] * shape[1])
    arguments = [small, str(tmp_path), str(tmp_path / "big.npy"), str(tmp_path / "c")]
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments, str(tmp_path / "l.txt"), str(shard_bytes)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
    assert int(ended.stdout) * 1024 < limit
    assert open_corpus(str(tmp_path / "c")).n == rows


def test_ensure_corpus_ingests_a_source_once(tmp_path: Path) -> None:
    source = saved(tmp_path / "v.npy", vectors())
    output = str(tmp_path / "jobs")
    corpus = ensure_corpus(source, output)
    folder = Path(corpus.url)
    assert folder.parent == tmp_path / "jobs/corpora"
    assert folder.suffix == ".zarr"
    written = (folder / "manifest.json").stat().st_mtime_ns
    again: list[Corpus] = [ensure_corpus(source, output), ensure_corpus(corpus.url, output)]
    assert [c.url for c in again] == [corpus.url, corpus.url]
    assert (folder / "manifest.json").stat().st_mtime_ns == written
    (folder / "vectors/c/0/0").write_bytes(b"")
    assert verify(ensure_corpus(source, output)).problems == ()
    (folder / "manifest.json").unlink()
    assert verify(ensure_corpus(source, output)).problems == ()
    saved(tmp_path / "v.npy", vectors(2000))
    assert ensure_corpus(source, output).url != corpus.url


def test_ensure_corpus_does_not_hide_what_is_wrong(tmp_path: Path) -> None:
    source = saved(tmp_path / "v.npy", vectors())
    corpus = ingest([source], str(tmp_path / "c"))
    Path(corpus.url, "manifest.json").unlink()
    with pytest.raises(BadInput, match="its ingest was interrupted"):
        ensure_corpus(corpus.url, str(tmp_path / "jobs"))
    with pytest.raises(BadInput, match="no such file or folder"):
        ensure_corpus(str(tmp_path / "none"), str(tmp_path / "jobs"))


def test_a_corpus_with_any_one_document_damaged_can_be_overwritten(tmp_path: Path) -> None:
    source = saved(tmp_path / "v.npy", vectors())
    target = str(tmp_path / "c")
    for key in ("zarr.json", "manifest.json", "vectors/zarr.json"):
        ingest([source], target, overwrite=True)
        Path(target, key).write_bytes(b"{")
        assert verify(ingest([source], target, overwrite=True)).problems == ()


def numbered_rows(path: Path, numbers: list[int], other: int = 0) -> None:
    """Write rows whose labels are their numbers."""
    table = pa.table(
        {
            "vector": pa.array([[float(i), 1.0, 2.0] for i in numbers]),
            "label": pa.array([f"{i + other}" for i in numbers]),
        }
    )
    new = path.with_suffix(".new")
    pq.write_table(table, new)
    new.replace(path)


@pytest.mark.parametrize("given", ["a file", "a folder", "labels"])
def test_a_source_that_is_replaced_while_it_is_read_is_refused(tmp_path: Path, given: str) -> None:
    """Labels are read after vectors: those of another version would be stored beside them."""
    source, target = tmp_path / "in" / "a.parquet", tmp_path / "c.zarr"
    source.parent.mkdir()
    numbered_rows(source, list(range(40)))
    labels = tmp_path / "labels.txt"
    labels.write_text("".join(f"{i}\n" for i in range(40)))
    changed = labels if given == "labels" else source

    def replaced(done: int, total: int) -> None:
        if done == total and given == "labels":
            labels.write_text("".join(f"{39 - i}\n" for i in range(40)))
        elif done == total:
            numbered_rows(source, list(range(40))[::-1])

    sources = [str(source.parent if given == "a folder" else source)]
    options = {"labels": str(labels)} if given == "labels" else {}
    message = f"{changed}: it was changed while it was read; run the same command again"
    with pytest.raises(SourceChanged, match=re.escape(message)):
        ingest(sources, str(target), progress=replaced, **options)
    assert not [path for path in target.rglob("*") if path.is_file()]
    # What comes beside it doesn't matter.
    late = source.parent / "later.parquet"
    corpus = ingest(
        sources,
        str(target),
        progress=lambda done, total: numbered_rows(late, [1]),
        **options,
    )
    first = np.concatenate(list(corpus.read_blocks("vectors", 0, 40)))[:, 0]
    own = first if given != "labels" else first[::-1]
    assert corpus.texts("labels") == [f"{value:.0f}" for value in own]
    late.unlink()
    before = (target / "manifest.json").read_bytes()
    with pytest.raises(SourceChanged):
        append(sources, str(target), progress=replaced, **options)
    assert (target / "manifest.json").read_bytes() == before
    assert append(sources, str(target), **options).n == 80


def test_a_changed_target_of_a_link_is_another_source(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "links").mkdir()
    saved(tmp_path / "real/a.npy", vectors(1000))
    (tmp_path / "links/a.npy").symlink_to(tmp_path / "real/a.npy")
    output = str(tmp_path / "jobs")
    given = [str(tmp_path / name) for name in ("links", "links/*.npy", "links/a.npy")]
    before = [ensure_corpus(source, output).url for source in given]
    saved(tmp_path / "real/a.npy", vectors(1000) + 1)
    after = [ensure_corpus(source, output) for source in given]
    assert not set(before) & {corpus.url for corpus in after}
    for corpus in after:
        (rows,) = corpus.read_blocks("vectors", 0, 1000)
        np.testing.assert_array_equal(rows, vectors(1000) + 1)


def test_an_append_removes_temporary_files_of_killed_ones(tmp_path: Path) -> None:
    source, target = saved(tmp_path / "v.npy", vectors(50)), tmp_path / "c.zarr"
    ingest([source], str(target))
    left = target / "appended" / "1-abcdef01" / "vectors" / "c" / f".0.{'a' * 32}.partial"
    left.parent.mkdir(parents=True)
    for name, age in ((left, 7200), (left.with_name(f".1.{'b' * 32}.partial"), 10)):
        name.write_bytes(b"rows")
        os.utime(name, (time.time() - age,) * 2)
    append([source], str(target))
    assert [path.name for path in target.rglob("*.partial")] == [f".1.{'b' * 32}.partial"]


def test_what_is_not_read_may_change_and_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "2024").mkdir(parents=True)
    saved(folder / "2024" / "a.npy", vectors(50))
    log = folder / "nohup.out"
    log.write_text("begun\n")

    def logged(done: int, total: int) -> None:
        log.write_text(log.read_text() + "more\n")

    assert ingest([str(folder)], str(tmp_path / "c.zarr"), progress=logged).n == 50
    # So may a corpus grow, whose rows are read as they were.
    grown = str(tmp_path / "c.zarr")
    made = ingest(
        [grown],
        str(tmp_path / "d.zarr"),
        progress=lambda done, total: (
            append([str(folder / "2024/a.npy")], grown) if done == total else None
        ),
    )
    assert (made.n, open_corpus(grown).n) == (50, 100)
    for name, target in (("latest", folder / "2024"), ("loop", folder / "loop")):
        (folder / name).symlink_to(target)
        with pytest.raises(BadInput, match=f"{folder / name}: not a regular file"):
            ingest([str(folder)], str(tmp_path / "e.zarr"))
        (folder / name).unlink()
