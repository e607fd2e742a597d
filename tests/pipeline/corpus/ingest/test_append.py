"""Growing a corpus: the same as if all had been ingested at once, and nothing old is touched."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale_pipeline.corpus import Corpus, open_corpus, verify
from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput, Incomplete, StoreFull
from latentscale_pipeline.storage import objects
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended


def rows(n: int, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, n]).standard_normal((n, d)).astype(np.float32)


def saved(path: Path, values: np.ndarray) -> str:
    np.save(path, values)
    return str(path)


def stored(corpus: Corpus) -> dict[str, bytes]:
    return {o.key: Path(corpus.url, o.key).read_bytes() for o in corpus.manifest.objects()}


def test_ids_that_can_not_be_read_are_not_compared_and_cost_no_rows(tmp_path: Path) -> None:
    first, second = saved(tmp_path / "a.npy", rows(10)), saved(tmp_path / "b.npy", rows(5))
    for name, count in (("a", 10), ("b", 5)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{i}\n" for i in range(count)))
    corpus = ingest([first], str(tmp_path / "c"), ids=str(tmp_path / "a.txt"))
    [shard] = corpus.manifest.arrays["ids"].shards
    damaged = bytearray((tmp_path / "c" / shard.key).read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "c" / shard.key).write_bytes(damaged)
    grown = append([second], str(tmp_path / "c"), ids=str(tmp_path / "b.txt"))
    assert grown.n == 15
    assert grown.manifest.repeated_ids is None


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5000), min_size=2, max_size=4),
    shard_bytes=st.lists(st.sampled_from([1, 40_000, 64 << 20]), min_size=4, max_size=4),
    data=st.data(),
)
def test_a_grown_corpus_is_the_corpus_of_all_its_rows(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    shard_bytes: list[int],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("a")
    pieces = [rows(n, seed=i) for i, n in enumerate(sizes)]
    files = [saved(folder / f"{i}.npy", piece) for i, piece in enumerate(pieces)]
    corpus = ingest(files[:1], str(folder / "c"), shard_bytes=shard_bytes[0])
    for file, size in zip(files[1:], shard_bytes[1:], strict=False):
        before = stored(corpus)
        corpus = append([file], str(folder / "c"), shard_bytes=size)
        now = stored(corpus)
        assert {key: now.get(key) for key in before if "digests" not in key} == {
            key: value for key, value in before.items() if "digests" not in key
        }
    whole = np.concatenate(pieces)
    at_once = ingest(files, str(folder / "at once"))
    assert corpus.fingerprint == at_once.fingerprint
    assert corpus.manifest.sources == at_once.manifest.sources
    np.testing.assert_array_equal(corpus.read_all(), whole)
    assert verify(corpus).problems == ()
    for i in range(corpus.shard_count):
        np.testing.assert_array_equal(corpus.read_shard(i), whole[corpus.shard_range(i)])
        assert len(corpus.read_shard(i)) <= corpus.shard_rows
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    np.testing.assert_array_equal(corpus.read_rows(start, stop), whole[start:stop])
    index = np.sort(np.random.default_rng(stop).integers(0, len(whole), 50))
    np.testing.assert_array_equal(corpus.read_index(index), whole[index])
    left_out = data.draw(st.integers(0, corpus.shard_count - 1))
    if corpus.shard_count > 1:
        key = corpus.manifest.vectors.shards[left_out].key
        expected = np.delete(whole, np.r_[corpus.shard_range(left_out)], axis=0)
        rest = corpus.without([key])
        assert rest.n == len(expected)
        np.testing.assert_array_equal(rest.read_all(), expected)
        np.testing.assert_array_equal(rest.read_index(np.arange(rest.n)), expected)


def test_companions_grow_along_and_anyone_can_open_it_with_zarr(tmp_path: Path) -> None:
    first, second = rows(1500), rows(2100)
    second[7] = np.nan
    second[9] = 0
    options = {"shard_bytes": 1, "on_invalid": "drop"}
    for name, values, tag in [("a", first, "old"), ("b", second, "new")]:
        saved(tmp_path / f"{name}.npy", values)
        lines = "".join(f"{tag}{i}\n" for i in range(len(values)))
        (tmp_path / f"{name}.txt").write_text(lines)
        np.save(tmp_path / f"{name}-w.npy", np.arange(len(values)))
    given = [
        {"labels": str(tmp_path / f"{name}.txt"), "weights": str(tmp_path / f"{name}-w.npy")}
        for name in "ab"
    ]
    ingest([str(tmp_path / "a.npy")], str(tmp_path / "c"), **options, **given[0])
    corpus = append([str(tmp_path / "b.npy")], str(tmp_path / "c"), **options, **given[1])
    kept = np.delete(np.arange(2100), 7)
    assert corpus.texts("labels") == [f"old{i}" for i in range(1500)] + [f"new{i}" for i in kept]
    weights = np.concatenate([np.arange(1500), kept])
    np.testing.assert_array_equal(corpus.weights(), weights)
    np.save(tmp_path / "all-w.npy", weights.astype("f4"))
    vectors = saved(tmp_path / "all.npy", corpus.read_all())
    at_once = ingest([vectors], str(tmp_path / "all"), weights=str(tmp_path / "all-w.npy"))
    assert at_once.fingerprint == corpus.fingerprint
    assert at_once.weights_fingerprint == corpus.weights_fingerprint is not None
    assert ingest([vectors], str(tmp_path / "none")).weights_fingerprint is None
    assert corpus.manifest.dropped.rows == (1507,)
    assert (corpus.manifest.zero_rows.count, corpus.manifest.zero_rows.first) == (1, 1508)
    group = zarr.open_group(corpus.url, mode="r")
    [added] = group["appended"].group_keys()
    np.testing.assert_array_equal(group["vectors"][:], first)
    np.testing.assert_array_equal(group[f"appended/{added}/vectors"][:], second[kept])
    left = corpus.without([corpus.manifest.vectors.shards[-1].key])
    assert left.texts("labels") == corpus.texts("labels")[: left.n]  # type: ignore[index]


def test_what_does_not_fit_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    corpus = ingest([saved(tmp_path / "a.npy", rows(1500))], str(tmp_path / "c"))
    (tmp_path / "l.txt").write_text("x\n" * 1500)
    labels = str(tmp_path / "l.txt")
    labelled = ingest([str(tmp_path / "a.npy")], str(tmp_path / "l"), labels=labels)
    bad = rows(1500)
    bad[3] = np.nan
    before = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    cases: list[tuple[Corpus, np.ndarray, dict[str, str], str]] = [
        (corpus, rows(5, 3), {}, "rows of 3 dimensions, but .*/c has 4; ingest them into"),
        (corpus, rows(1500), {"labels": labels}, "it has no labels, so none can be added"),
        (labelled, rows(5), {}, "it has labels, but the new rows have none; give them with"),
        (corpus, bad, {}, "row 3 has no vector, or only NaN"),
    ]
    for target, values, options, message in cases:
        source = saved(tmp_path / "b.npy", values)
        with pytest.raises(BadInput, match=message):
            append([source], target.url, **options)
        (tmp_path / "b.npy").unlink()
        assert [path for path in sorted(tmp_path.rglob("*")) if path.is_file()] == before
    with pytest.raises(BadInput, match="a corpus can't be appended to itself"):
        append([corpus.url], corpus.url)
    with pytest.raises(BadInput, match="no such corpus"):
        append([str(tmp_path / "a.npy")], str(tmp_path / "none"))
    assert open_corpus(corpus.url).fingerprint == corpus.fingerprint


KILLED = """
import os, signal, sys
from latentscale_pipeline.corpus.ingest.append import append
from latentscale_pipeline.storage.objects import ObjectStore
write, last, count = ObjectStore.write, int(sys.argv[3]), 0
def counting(store, key, data):
    global count
    count += 1
    if count == last:
        os.kill(os.getpid(), signal.SIGKILL)
    write(store, key, data)
ObjectStore.write = counting
append([sys.argv[1]], sys.argv[2], shard_bytes=1)
"""


@pytest.mark.parametrize("last", [1, 2, 5, 7, 9, 10])
def test_killed_at_any_write_the_corpus_is_what_it_was(tmp_path: Path, last: int) -> None:
    """Writes are the heartbeat, three shards, their record, three documents, digests, manifest."""
    corpus = ingest([saved(tmp_path / "a.npy", rows(1500))], str(tmp_path / "c"), shard_bytes=1)
    source = saved(tmp_path / "b.npy", rows(3000))
    script = [sys.executable, "-c", KILLED, source, corpus.url, str(last)]
    assert subprocess.run(script, check=False).returncode == -9
    assert verify(open_corpus(corpus.url)).problems == ()
    assert open_corpus(corpus.url) == corpus
    other = append([saved(tmp_path / "d.npy", rows(1100))], corpus.url)
    assert other.n == 2600
    grown = append([source], corpus.url, shard_bytes=1)
    whole = np.concatenate([rows(1500), rows(1100), rows(3000)])
    np.testing.assert_array_equal(grown.read_all(), whole)
    assert verify(grown).problems == ()
    files = {str(p.relative_to(corpus.url)) for p in Path(corpus.url).rglob("*") if p.is_file()}
    assert files == {stored.key for stored in grown.manifest.objects()} | {"manifest.json"}


KILLED_AFTERWARDS = """
import os, signal, sys
from latentscale_pipeline.corpus.ingest import append
replace = append._replace_manifest
def last(*given):
    replace(*given)
    os.kill(os.getpid(), signal.SIGKILL)
append._replace_manifest = last
files = dict(zip(("ids", "labels"), sys.argv[3:]))
append.append([sys.argv[1]], sys.argv[2], shard_bytes=1, **files)
"""


def test_killed_once_the_rows_are_added_it_adds_them_only_once(tmp_path: Path) -> None:
    corpus = ingest([saved(tmp_path / "a.npy", rows(1500))], str(tmp_path / "c"), shard_bytes=1)
    source = saved(tmp_path / "b.npy", rows(3000))
    script = [sys.executable, "-c", KILLED_AFTERWARDS, source, corpus.url]
    assert subprocess.run(script, check=False).returncode == -9
    assert open_corpus(corpus.url).n == 4500
    grown = append([source], corpus.url, shard_bytes=1)
    np.testing.assert_array_equal(grown.read_all(), np.concatenate([rows(1500), rows(3000)]))
    files = {str(p.relative_to(corpus.url)) for p in Path(corpus.url).rglob("*") if p.is_file()}
    assert files == {stored.key for stored in grown.manifest.objects()} | {"manifest.json"}
    assert append([source], corpus.url, shard_bytes=1).n == 7500


def test_the_same_vectors_with_other_ids_are_other_rows(tmp_path: Path) -> None:
    for name, n in (("a", 20), ("b", 5), ("c", 5)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{i}\n" for i in range(n)))
    first = saved(tmp_path / "a.npy", rows(20))
    source = saved(tmp_path / "b.npy", rows(5))
    corpus = ingest([first], str(tmp_path / "c"), ids=str(tmp_path / "a.txt"))
    script = [sys.executable, "-c", KILLED_AFTERWARDS, source, corpus.url, str(tmp_path / "b.txt")]
    assert subprocess.run(script, check=False).returncode == -9
    grown = append([source], corpus.url, ids=str(tmp_path / "c.txt"), shard_bytes=1)
    assert grown.texts("ids")[18:] == [
        *("a18", "a19"),
        *(f"{name}{i}" for name in "bc" for i in range(5)),
    ]


def test_a_disk_that_is_full_once_the_rows_are_added_costs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = ingest([saved(tmp_path / "a.npy", rows(100))], str(tmp_path / "c"))
    source = saved(tmp_path / "b.npy", rows(50))
    sync = objects.sync_folder

    def refuse(folder: Path) -> None:
        if folder == Path(corpus.url) and open_corpus(corpus.url).n == 150:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        sync(folder)

    monkeypatch.setattr(objects, "sync_folder", refuse)
    monkeypatch.setattr(objects, "SHORT_PATIENCE_SECONDS", 0.0)
    with pytest.raises(StoreFull, match="the disk is full"):
        append([source], corpus.url)
    monkeypatch.undo()
    assert verify(open_corpus(corpus.url)).problems == ()
    grown = append([source], corpus.url)
    np.testing.assert_array_equal(grown.read_all(), np.concatenate([rows(100), rows(50)]))


def test_a_lock_that_can_not_be_removed_costs_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = ingest([saved(tmp_path / "a.npy", rows(100))], str(tmp_path / "c"))
    source, remove = saved(tmp_path / "b.npy", rows(50)), ObjectStore.remove

    def refuse(store: ObjectStore, key: str) -> None:
        if store.url.endswith("writing"):
            raise BadInput(f"{key}: permission denied")
        remove(store, key)

    with monkeypatch.context() as patches:
        patches.setattr(ObjectStore, "remove", refuse)
        grown = append([source], corpus.url)
    np.testing.assert_array_equal(grown.read_all(), np.concatenate([rows(100), rows(50)]))
    assert verify(grown).problems == ()
    assert Path(corpus.url, "writing").exists()
    assert append([source], corpus.url).n == 200
    assert not Path(corpus.url, "writing").exists()


def test_a_failure_to_clean_up_adds_no_rows_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = ingest([saved(tmp_path / "a.npy", rows(100))], str(tmp_path / "c"))
    source = saved(tmp_path / "b.npy", rows(50))
    module = "latentscale_pipeline.corpus.ingest.append._collect_garbage"

    def unreachable(*given: object) -> None:
        raise Incomplete("the store can't be reached")

    with monkeypatch.context() as patches:
        patches.setattr(module, unreachable)
        with pytest.raises(Incomplete, match="can't be reached"):
            append([source], corpus.url)
    assert append([source], corpus.url).n == 150
    assert append([source], corpus.url).n == 200


def test_two_appends_at_once_and_a_damaged_shard_lose_nothing(tmp_path: Path) -> None:
    """Whenever the second one begins, it is refused, whatever its rows, and can be repeated."""
    corpus = ingest([saved(tmp_path / "a.npy", rows(1500))], str(tmp_path / "c"), shard_bytes=1)
    source = saved(tmp_path / "b.npy", rows(3000))
    other = saved(tmp_path / "d.npy", rows(1100))
    refused = 0

    def between(done: int, total: int) -> None:
        nonlocal refused
        for each in (other, source) if not refused else ():
            with pytest.raises(Incomplete, match="is writing it; run the same command again"):
                append([each], corpus.url)
            refused += 1

    append([source], corpus.url, progress=between)
    assert refused == 2
    grown = append([other], corpus.url)
    np.testing.assert_array_equal(
        grown.read_all(), np.concatenate([rows(1500), rows(3000), rows(1100)])
    )
    assert sorted(path.name for path in Path(corpus.url).iterdir()) == [
        *("appended", "manifest.json", "vectors", "zarr.json")
    ]
    Path(grown.url, grown.manifest.vectors.shards[0].key).write_bytes(b"")
    with pytest.raises(BadInput, match="it has 0 bytes instead of"):
        append([other], corpus.url)


def test_a_corpus_that_was_replaced_by_force_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lock was lost, the manifest tells."""
    corpus = ingest([saved(tmp_path / "a.npy", rows(1500))], str(tmp_path / "c"))
    source, other = (saved(tmp_path / f"{n}.npy", rows(n)) for n in (300, 200))

    def between(done: int, total: int) -> None:
        if open_corpus(corpus.url).n == 1500:
            shutil.rmtree(Path(corpus.url, "writing"))
            append([other], corpus.url)

    with pytest.raises(Incomplete, match="another process changed it during the ingest"):
        append([source], corpus.url, progress=between)
    assert verify(open_corpus(corpus.url)).problems == ()
    assert append([source], corpus.url).n == 2000


def test_overwriting_a_grown_corpus_leaves_nothing_of_it(
    latentscale: Callable[..., Ended], tmp_path: Path
) -> None:
    saved(tmp_path / "a.npy", rows(1500))
    saved(tmp_path / "b.npy", rows(700))
    target = tmp_path / "c"
    assert latentscale("ingest", tmp_path / "a.npy", target).code == 0
    ended = latentscale("ingest", tmp_path / "b.npy", target, "--append", "--json")
    assert ended.code == 0
    assert '"n": 2200' in ended.out
    assert latentscale("verify", target).code == 0
    assert latentscale("info", target).code == 0
    refused = latentscale("ingest", tmp_path / "b.npy", target, "--append", "--overwrite")
    assert refused.code == 2
    assert "--append keeps the existing rows" in refused.err
    assert latentscale("ingest", tmp_path / "a.npy", target, "--overwrite").code == 0
    assert open_corpus(str(target)).n == 1500
    assert not [path for path in (target / "appended").rglob("*") if path.is_file()]
