"""Reading a corpus: the same rows for us and for plain Zarr, and no damage goes unnoticed."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale_pipeline.corpus import Corpus, CorruptShard, open_corpus, shards, verify
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.manifest import MANIFEST_KEY, checksum, read_manifest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended

ROWS = 2500
SHARD = "vectors/c/1/0"


def vectors(n: int = ROWS, d: int = 7, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(n + d).standard_normal((n, d)).astype(dtype)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """2500 x 7 in shards of 1024 rows, with labels and weights."""
    np.save(tmp_path / "v.npy", vectors())
    (tmp_path / "labels.txt").write_text("".join(f"l{i}\n" for i in range(ROWS)))
    np.save(tmp_path / "weights.npy", np.arange(ROWS) / 2)
    return ingest(
        [str(tmp_path / "v.npy")],
        str(tmp_path / "c.zarr"),
        labels=str(tmp_path / "labels.txt"),
        weights=str(tmp_path / "weights.npy"),
        shard_bytes=1,
    )


def test_it_says_what_it_holds(corpus: Corpus, tmp_path: Path) -> None:
    assert (corpus.n, corpus.d, corpus.dtype) == (ROWS, 7, np.float32)
    assert (corpus.shard_rows, corpus.shard_count) == (1024, 3)
    assert corpus.shard_range(2) == slice(2048, ROWS)
    assert corpus.url == str(tmp_path / "c.zarr")
    with pytest.raises(IndexError):
        corpus.shard_range(3)
    with pytest.raises(IndexError):
        corpus.read_shard(-1)


def test_rows_are_read_by_shard_range_and_index(corpus: Corpus) -> None:
    expected = vectors()
    for i in range(3):
        np.testing.assert_array_equal(corpus.read_shard(i), expected[corpus.shard_range(i)])
    for start, stop in [(0, 0), (5, 9), (1000, 1100), (1024, 2048), (1, ROWS), (ROWS, ROWS)]:
        np.testing.assert_array_equal(corpus.read_rows(start, stop), expected[start:stop])
    chosen = np.array([0, 3, 3, 1023, 1024, 2499])
    np.testing.assert_array_equal(corpus.read_index(chosen), expected[chosen])
    assert corpus.read_index(np.array([], int)).shape == (0, 7)
    assert corpus.texts("labels") == [f"l{i}" for i in range(ROWS)]
    assert corpus.texts("ids") is None
    weights = corpus.weights()
    assert weights is not None
    np.testing.assert_array_equal(weights, np.arange(ROWS) / 2)


def test_an_index_fetches_only_the_shards_it_needs(corpus: Corpus) -> None:
    Path(corpus.url, "vectors/c/0/0").unlink()
    chosen = np.array([1030, 2100])
    np.testing.assert_array_equal(corpus.read_index(chosen), vectors()[chosen])


def test_runs_share_the_shard_between_them(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []

    def read_shard(self: Corpus, i: int, read: Any = Corpus.read_shard) -> Any:
        fetched.append(i)
        return read(self, i)

    monkeypatch.setattr(Corpus, "read_shard", read_shard)
    runs = [np.arange(0, 400), np.arange(400, 1500), np.array([], int), np.array([1500, 2499])]
    for run, found in zip(runs, corpus.read_runs(runs), strict=True):
        np.testing.assert_array_equal(found, vectors()[run])
    assert fetched == [0, 1, 2]
    backwards = list(corpus.read_runs(runs[::-1]))
    np.testing.assert_array_equal(backwards[-1], vectors()[:400])


@pytest.mark.parametrize("rows", [[3, 1], [-1, 2], [2500], [[1]], [0.5]])
def test_an_index_that_makes_no_sense_is_refused(corpus: Corpus, rows: list[object]) -> None:
    with pytest.raises(ValueError, match="rows must"):
        corpus.read_index(np.array(rows))


def test_a_pickled_corpus_without_some_shards_lacks_them_still(corpus: Corpus) -> None:
    part = corpus.without([SHARD])
    again = pickle.loads(pickle.dumps(part))
    assert again == part
    assert again.fingerprint == part.fingerprint != corpus.fingerprint
    np.testing.assert_array_equal(again.read_all(), part.read_all())


def test_it_pickles_small_and_notices_when_it_was_replaced(corpus: Corpus, tmp_path: Path) -> None:
    pickled = pickle.dumps(corpus)
    assert len(pickled) < 500
    np.testing.assert_array_equal(pickle.loads(pickled).read_all(), vectors())
    np.save(tmp_path / "other.npy", vectors(1500))
    ingest([str(tmp_path / "other.npy")], corpus.url, overwrite=True)
    script = "import pickle, sys; pickle.loads(bytes.fromhex(sys.argv[1]))"
    ended = subprocess.run(
        [sys.executable, "-c", script, pickled.hex()], capture_output=True, text=True, check=False
    )
    assert "BadInput" in ended.stderr
    assert "the corpus was replaced while it was in use" in ended.stderr


def test_a_relative_path_holds_in_any_working_directory(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(corpus.url).parent)
    pickled = pickle.dumps(open_corpus("c.zarr"))
    monkeypatch.chdir("/")
    assert pickle.loads(pickled).url == corpus.url


def test_anyone_reads_the_same_with_plain_zarr(corpus: Corpus) -> None:
    group = zarr.open_group(corpus.url, mode="r")
    np.testing.assert_array_equal(group["vectors"][:], vectors())
    assert group["vectors"].shards == (1024, 7)
    assert group["labels"][ROWS - 1] == "l2499"
    np.testing.assert_array_equal(group["weights"][:], np.arange(ROWS) / 2)


def test_shards_of_zeros_are_stored(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", np.zeros((2100, 4), np.float32))
    corpus = ingest([str(tmp_path / "z.npy")], str(tmp_path / "c"), shard_bytes=1)
    assert len(list((tmp_path / "c/vectors/c").glob("*/0"))) == 3
    assert corpus.manifest.zero_rows.count == 2100
    assert corpus.manifest.zero_rows.first == 0
    assert not corpus.read_all().any()


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(1, 3000),
    d=st.integers(1, 40),
    dtype=st.sampled_from(["float16", "float32"]),
    shard_bytes=st.sampled_from([1, 100_000, 1 << 20, 64 << 20]),
)
def test_shards_decode_to_what_was_encoded(n: int, d: int, dtype: str, shard_bytes: int) -> None:
    rows = vectors(n, d, dtype)
    row_bytes = d * rows.itemsize
    shard_rows, chunk_rows = shards.plan_rows(n, row_bytes, shard_bytes)
    assert shard_rows % 1024 == 0
    assert shard_rows % chunk_rows == 0
    assert chunk_rows * row_bytes <= max(shards.CHUNK_BYTES, row_bytes)
    layout = shards.Layout(n, (d,), dtype, shard_rows, chunk_rows)
    data = shards.encode_shard(rows[:shard_rows], layout)
    decoded = shards.decode_shard(data, min(n, shard_rows), layout)
    np.testing.assert_array_equal(decoded, rows[:shard_rows])
    assert decoded.dtype == rows.dtype
    # Also of a shard that isn't full, nothing is copied; Zarr, which copies, reads the same.
    assert np.shares_memory(decoded, np.frombuffer(data, np.uint8))
    with mock.patch.object(shards, "_rows_in_place", return_value=None):
        copied = shards.decode_shard(data, min(n, shard_rows), layout)
    np.testing.assert_array_equal(decoded, copied)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=50))
def test_strings_decode_to_what_was_encoded(texts: list[str]) -> None:
    layout = shards.Layout(len(texts), (), "string", 1024, 1024)
    data = shards.encode_shard(np.array(texts, np.dtypes.StringDType()), layout)
    assert shards.decode_shard(data, len(texts), layout).tolist() == texts


def missing(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def test_without_a_shard_its_rows_are_gone_and_the_rest_moves_up(corpus: Corpus) -> None:
    everything = vectors()
    labels = np.array([f"l{i}" for i in range(ROWS)])
    # The last shard is shorter than the others.
    for left_out in ([0], [1], [2], [0, 2], [0, 1]):
        keep = ~np.isin(np.arange(ROWS) // 1024, left_out)
        reduced = corpus.without([f"vectors/c/{i}/0" for i in left_out])
        expected = everything[keep]
        for reader in (reduced, pickle.loads(pickle.dumps(reduced))):
            assert (reader.n, reader.shard_count) == (len(expected), 3 - len(left_out))
            assert reader.excluded_rows == ROWS - len(expected)
            np.testing.assert_array_equal(reader.read_all(), expected)
            for i in range(reader.shard_count):
                np.testing.assert_array_equal(reader.read_shard(i), expected[reader.shard_range(i)])
            chosen = np.array([0, 5, len(expected) - 1])
            np.testing.assert_array_equal(reader.read_index(chosen), expected[chosen])
            assert reader.texts("labels") == labels[keep].tolist()
            weights = reader.weights()
            assert weights is not None
            np.testing.assert_array_equal(weights, (np.arange(ROWS) / 2)[keep])


def test_a_shard_that_is_left_out_may_be_damaged(corpus: Corpus) -> None:
    flipped(Path(corpus.url, SHARD))
    reduced = corpus.without([f"{corpus.url}/{SHARD}"])
    np.testing.assert_array_equal(reduced.read_all(), np.delete(vectors(), np.s_[1024:2048], 0))


def test_the_fingerprint_says_which_rows_of_which_corpus(corpus: Corpus, tmp_path: Path) -> None:
    names = [f"vectors/c/{i}/0" for i in range(3)]
    assert corpus.without([]) == corpus
    prints = {corpus.without([name]).fingerprint for name in names}
    assert len(prints | {corpus.fingerprint}) == 4
    backwards = corpus.without([names[2], names[0]]).fingerprint
    assert backwards == corpus.without([names[0], names[2]]).fingerprint
    # The same rows of the same corpus, cut into other shards.
    np.save(tmp_path / "long.npy", vectors(4096))
    source = [str(tmp_path / "long.npy")]
    small = ingest(source, str(tmp_path / "small"), shard_bytes=1)
    large = ingest(source, str(tmp_path / "large"), shard_bytes=2048 * 7 * 4)
    assert (small.shard_rows, large.shard_rows) == (1024, 2048)
    assert (
        small.without(["vectors/c/0/0", "vectors/c/1/0"]).fingerprint
        == large.without(["vectors/c/0/0"]).fingerprint
    )


def test_leaving_out_what_is_not_there_or_everything_is_refused(corpus: Corpus) -> None:
    with pytest.raises(BadInput) as raised:
        corpus.without(["vectors/c/7/0"])
    assert str(raised.value) == (
        f"{corpus.url}: there is no shard vectors/c/7/0 to exclude; the shards are "
        "vectors/c/0/0 to vectors/c/2/0"
    )
    with pytest.raises(BadInput, match="all 3 shards are excluded"):
        corpus.without([f"vectors/c/{i}/0" for i in range(3)])


def test_zero_rows_in_a_shard_that_is_left_out_do_not_count(tmp_path: Path) -> None:
    rows = vectors()
    rows[[3, 2000, 2100]] = 0
    np.save(tmp_path / "zeros.npy", rows)
    corpus = ingest([str(tmp_path / "zeros.npy")], str(tmp_path / "z.zarr"), shard_bytes=1)
    assert corpus.zero_rows == 3
    assert corpus.without([SHARD]).zero_rows == 2
    assert corpus.without(["vectors/c/0/0", "vectors/c/2/0"]).zero_rows == 1


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE = {
    missing: "it is missing",
    emptied: r"it is empty instead of \d+ bytes long",
    truncated: r"it is truncated: \d+ of \d+ bytes",
    lengthened: r"it has \d+ bytes instead of \d+",
    flipped: r"its checksum differs \(bytes changed\)",
    made_a_folder: "it is missing",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("key", [SHARD, "labels/c/0", "weights/c/0"])
def test_damage_is_named_on_reading(
    corpus: Corpus, damage: Callable[[Path], None], key: str
) -> None:
    damage(Path(corpus.url, key))
    read: dict[str, Callable[[], object]] = {
        SHARD: lambda: corpus.read_shard(1),
        "labels/c/0": lambda: corpus.texts("labels"),
        "weights/c/0": corpus.weights,
    }
    line = rf"^{corpus.url}/{key}: {DAMAGE[damage]}; restore this file, or ingest the corpus again"
    with pytest.raises(CorruptShard, match=line) as raised:
        read[key]()
    assert "\n" not in str(raised.value)
    np.testing.assert_array_equal(corpus.read_shard(0), vectors()[:1024])


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("key", [SHARD, "labels/c/0", "vectors/zarr.json", "zarr.json"])
def test_verify_names_every_bad_file(
    corpus: Corpus,
    damage: Callable[[Path], None],
    key: str,
    latentscale: Callable[..., Ended],
) -> None:
    damage(Path(corpus.url, key))
    damage(Path(corpus.url, "vectors/c/2/0"))
    ended = latentscale("verify", corpus.url)
    assert ended.code == 2
    lines = ended.out.splitlines()
    assert len(lines) == 2
    assert {line.split(": ")[0] for line in lines} == {
        f"{corpus.url}/{key}",
        f"{corpus.url}/vectors/c/2/0",
    }
    assert ended.err.splitlines()[-1] == (
        f"latentscale: {corpus.url}: 2 of 9 files are bad; restore them, or ingest the corpus "
        "again with --overwrite"
    )
    document = json.loads(latentscale("verify", corpus.url, "--json").out)
    assert document["ok"] is False
    assert document["problems"] == lines


def test_verify_of_a_whole_corpus(corpus: Corpus) -> None:
    found = verify(corpus)
    assert found.problems == ()
    assert found.objects == 9
    files = [path for path in Path(corpus.url).rglob("*") if path.is_file()]
    assert found.size == sum(path.stat().st_size for path in files if path.name != MANIFEST_KEY)


def test_verify_recomputes_the_fingerprint(corpus: Corpus) -> None:
    path = Path(corpus.url, MANIFEST_KEY)
    document = json.loads(path.read_bytes())
    document["fingerprint"] = "0" * 32
    path.write_bytes(restated(document))
    assert verify(open_corpus(corpus.url)).problems == (
        f"{corpus.url}: the rows don't match the manifest's fingerprint; ingest the corpus again",
    )


def restated(document: dict[str, object]) -> bytes:
    """A manifest with its own checksum put right."""
    document.pop("checksum", None)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**document, "checksum": checksum(canonical)}).encode()


def test_the_manifest_round_trips(corpus: Corpus) -> None:
    assert read_manifest(corpus.manifest.to_bytes(), "here") == corpus.manifest
    document = json.loads(Path(corpus.url, MANIFEST_KEY).read_bytes())
    assert document["schema"] == "latentscale.corpus/1"
    assert list(document["shards"][0]) == ["key", "size", "xxh3", "rows"]
    data = Path(corpus.url, SHARD).read_bytes()
    assert document["shards"][1]["size"] == len(data)
    assert document["shards"][1]["xxh3"] == checksum(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d | {"n": 2501}, "the shards of vectors don't add up to 2501 rows"),
        (lambda d: d | {"dtype": "float64"}, "it states the dtype 'float64'"),
        (lambda d: d | {"shards": d["shards"][:-1]}, "don't add up to 2500 rows"),
        (lambda d: d | {"n": 0}, "it states no rows"),
        (lambda d: d | {"shard_rows": 1000}, "the shards of vectors can't have 1000 rows"),
        (lambda d: {k: v for k, v in d.items() if k != "dropped"}, "missing or malformed"),
        (lambda d: d | {"arrays": []}, "missing or malformed"),
    ],
)
def test_an_inconsistent_manifest_is_one_line(
    corpus: Corpus, change: Callable[[dict[str, object]], dict[str, object]], message: str
) -> None:
    path = Path(corpus.url, MANIFEST_KEY)
    path.write_bytes(restated(change(json.loads(path.read_bytes()))))
    with pytest.raises(BadInput, match=message) as raised:
        open_corpus(corpus.url)
    assert str(raised.value).startswith(f"{path}: damaged manifest: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it isn't a corpus manifest"),
        (b"{", "it isn't a corpus manifest"),
        (b"\xff\xfe", "it isn't a corpus manifest"),
        (b"[1]", "it isn't a corpus manifest"),
        (b"{}", "it isn't a corpus manifest"),
        (b'{"schema": "latentscale.corpus/1"}', "its own checksum differs"),
    ],
)
def test_a_damaged_manifest_is_one_line(corpus: Corpus, data: bytes, message: str) -> None:
    path = Path(corpus.url, MANIFEST_KEY)
    path.write_bytes(data)
    with pytest.raises(BadInput, match=f"{path}: damaged manifest: {message}; restore it"):
        open_corpus(corpus.url)


def test_any_changed_byte_of_the_manifest_is_noticed(corpus: Corpus) -> None:
    data = Path(corpus.url, MANIFEST_KEY).read_bytes()
    for at in range(10, len(data) - 10, 37):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            manifest = read_manifest(changed, "here")
        except BadInput:
            continue
        assert manifest == corpus.manifest  # white space only


def test_a_manifest_of_another_schema_is_one_line(corpus: Corpus) -> None:
    Path(corpus.url, MANIFEST_KEY).write_text('{"schema": "latentscale.corpus/9"}')
    with pytest.raises(BadInput, match=r"schema 'latentscale\.corpus/9', but this version reads"):
        open_corpus(corpus.url)


def test_what_is_not_a_corpus_says_so(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="none: no such corpus; check the path"):
        open_corpus(str(tmp_path / "none"))
    with pytest.raises(BadInput, match=r"v\.npy: not a corpus \(no manifest\.json\); create one"):
        open_corpus(str(tmp_path / "v.npy"))
    Path(corpus.url, MANIFEST_KEY).unlink()
    with pytest.raises(BadInput, match="its ingest was interrupted"):
        open_corpus(corpus.url)


def test_a_corpus_in_an_object_store(tmp_path: Path, s3_url: str) -> None:
    np.save(tmp_path / "v.npy", vectors())
    ObjectStore(s3_url).write("in/v.npy", (tmp_path / "v.npy").read_bytes())
    local = ingest([str(tmp_path / "v.npy")], str(tmp_path / "c"), shard_bytes=1)
    corpus = ingest([f"{s3_url}/in"], f"{s3_url}/c.zarr", shard_bytes=1)
    assert corpus.fingerprint == local.fingerprint
    assert corpus.url == f"{s3_url}/c.zarr"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(corpus)).read_all(), vectors())
    assert verify(corpus).problems == ()
    store = ObjectStore(corpus.url)
    data = store.read(SHARD)
    for damaged, message in [
        (b"", "empty"),
        (data[:100], "truncated"),
        (b"\1" + data[1:], "checksum differs"),
    ]:
        store.write(SHARD, damaged)
        with pytest.raises(CorruptShard, match=f"{corpus.url}/{SHARD}: .*{message}"):
            corpus.read_shard(1)
    store.remove(SHARD)
    with pytest.raises(CorruptShard, match=f"{corpus.url}/{SHARD}: it is missing"):
        corpus.read_shard(1)
    with pytest.raises(BadInput, match="there is a corpus already"):
        ingest([f"{s3_url}/in/v.npy"], corpus.url)
    again = ingest([f"{s3_url}/in/*.npy"], corpus.url, overwrite=True)
    assert verify(again).problems == ()
    assert len(store.keys()) == 4
