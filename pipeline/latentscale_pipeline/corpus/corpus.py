"""An open corpus: its rows and row-aligned arrays, checked on every read.

A shard is fetched as one object, and its size and checksum are compared with the manifest before
any row is decoded. A shard that differs raises :class:`CorruptShard`; a missing shard is never
read as zeros.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xxhash

from latentscale.array_types import Float64Array, Int64Array
from latentscale_pipeline.corpus.fingerprint import subset_fingerprint
from latentscale_pipeline.corpus.manifest import (
    MANIFEST_KEY,
    SCHEMA,
    Manifest,
    StoredObject,
    checksum,
    read_manifest,
)
from latentscale_pipeline.corpus.shards import decode_shard, group_attributes
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.canonical import digest
from latentscale_pipeline.storage.objects import ObjectStore

GROUP_KEY = "zarr.json"
OWNERSHIP = {"latentscale": SCHEMA}
"""Attributes of the Zarr group of every corpus, complete or not.

An ingest deletes or replaces only folders that have them.
"""


class CorruptShard(BadInput):
    """Raised for a stored object that doesn't match the manifest; ``key`` is the object's key."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message, key)
        self.key = key

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Corpus:
    """A complete corpus. Get one from :func:`open_corpus` or ``ingest``.

    It is pickled as its address and the checksum of its manifest. A worker that unpickles it reads
    the manifest once.

    Attributes
    ----------
    url : str
        Path or URL, without credentials.
    manifest : Manifest
        Description of all stored objects.
    address : str
        Path or URL that works in any process and any working folder. It may contain credentials,
        so it never appears in a message.
    manifest_checksum : str
        Checksum of the stored manifest.
    excluded : tuple of str
        Keys of shards that are left out. Readers don't see their rows, and later rows are
        renumbered.
    appended_rows : int
        Rows in these shards that were appended after the rows that are seen. They don't count as
        left out.
    """

    url: str
    manifest: Manifest
    address: str = field(repr=False, compare=False)
    manifest_checksum: str = field(repr=False)
    excluded: tuple[str, ...] = ()
    appended_rows: int = 0

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        held = (self.address, self.manifest_checksum, self.excluded, self.appended_rows)
        return reopen, held

    def is_current(self) -> bool:
        """Return whether the stored corpus is unchanged, neither replaced nor appended to."""
        try:
            return checksum(self._store.read(MANIFEST_KEY)) == self.manifest_checksum
        except (FileNotFoundError, NotADirectoryError):
            return False

    def without(self, shards: Collection[str]) -> Corpus:
        """Return the corpus without the rows of some shards, in addition to those excluded already.

        Parameters
        ----------
        shards : collection of str
            Keys such as ``vectors/c/3/0``, or paths as they appear in messages.

        Raises
        ------
        BadInput
            If there is no such shard, or no shard would be left.
        """
        known = [shard.key for shard in self.manifest.vectors.shards]
        names = {shard.removeprefix(f"{self.url}/") for shard in shards} | set(self.excluded)
        unknown = sorted(names - set(known))
        if unknown:
            raise BadInput(
                f"{self.url}: there is no shard {unknown[0]} to exclude; the shards are "
                f"{known[0]} to {known[-1]}"
            )
        if len(names) == len(known):
            raise BadInput(f"{self.url}: all {len(known)} shards are excluded; keep at least one")
        return replace(self, excluded=tuple(key for key in known if key in names))

    @cached_property
    def _kept(self) -> tuple[int, ...]:
        """Indices of the stored shards that aren't excluded."""
        shards = self.manifest.vectors.shards
        return tuple(i for i, shard in enumerate(shards) if shard.key not in self.excluded)

    @cached_property
    def _store(self) -> ObjectStore:
        return ObjectStore(self.address)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.manifest.n - self.excluded_rows

    @property
    def excluded_rows(self) -> int:
        """Number of rows in excluded shards."""
        shards = self.manifest.vectors.shards
        return sum(shard.rows for shard in shards if shard.key in self.excluded)

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.manifest.d

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the stored vectors: float16 or float32."""
        return np.dtype(self.manifest.vectors.dtype)

    @property
    def fingerprint(self) -> str:
        """Hash of the vectors' values, dtype and shape.

        If shards are excluded, it is a hash of the complete corpus' fingerprint and the ranges of
        the remaining rows, which needs no reading of rows.
        """
        if not self.excluded:
            return self.manifest.fingerprint
        return subset_fingerprint(self.manifest.fingerprint, self.kept_ranges())

    @property
    def weights_fingerprint(self) -> str | None:
        """Hash of the weights' values, however they are stored; None without weights.

        Reads all of them, a shard at a time.
        """
        if "weights" not in self.manifest.arrays:
            return None
        found = xxhash.xxh3_128()
        for block in self.companion_blocks("weights"):
            found.update(block.astype("<f8").tobytes())
        return found.hexdigest()

    @property
    def labels_fingerprint(self) -> str | None:
        """Hash of the labels, however they are stored; None without labels.

        Reads all of them, a block at a time.
        """
        if "labels" not in self.manifest.arrays:
            return None
        texts, lengths = xxhash.xxh3_128(), xxhash.xxh3_128()
        for block in self.companion_blocks("labels"):
            encoded = [text.encode() for text in block.tolist()]
            texts.update(b"".join(encoded))
            lengths.update(np.array([len(text) for text in encoded], dtype="<i8").tobytes())
        return xxhash.xxh3_128_hexdigest(texts.digest() + lengths.digest())

    @property
    def left_out(self) -> tuple[str, ...]:
        """Why rows of a larger corpus were left out of this one."""
        return self.manifest.left_out

    @cached_property
    def zero_rows(self) -> int:
        """Number of rows that are all zero; counted again if shards are excluded."""
        stored = self.manifest.zero_rows.count
        return self._count_zero_rows() if stored and self.excluded else stored

    def _count_zero_rows(self) -> int:
        shards = (self.read_shard(i) for i in range(self.shard_count))
        return sum(int(np.count_nonzero(~rows.any(axis=1))) for rows in shards)

    @property
    def shard_rows(self) -> int:
        """Largest number of rows in a shard."""
        return max(cut.shard_rows for cut in self.manifest.vectors.cuts)

    @property
    def shard_prints(self) -> tuple[str, ...]:
        """Checksum, size in bytes and row count of each shard, which identify it."""
        shards = self.manifest.vectors.shards
        return tuple(f"{shards[i].xxh3}/{shards[i].size}/{shards[i].rows}" for i in self._kept)

    @property
    def layout(self) -> str:
        """Digest of the number of rows in each shard; the fingerprint doesn't depend on it."""
        shards = self.manifest.vectors.shards
        return digest([shards[i].rows for i in self._kept])[:16]

    @property
    def shard_count(self) -> int:
        """Number of shards of the vectors."""
        return len(self._kept)

    def shard_range(self, i: int) -> slice:
        """Return the range of rows in shard ``i``."""
        if not 0 <= i < self.shard_count:
            raise IndexError(f"shard {i} of a corpus of {self.shard_count} shards")
        return slice(int(self._starts[i]), int(self._starts[i + 1]))

    @cached_property
    def _starts(self) -> Int64Array:
        """First row of each shard, followed by the total number of rows."""
        shards = self.manifest.vectors.shards
        return np.cumsum([0, *(shards[i].rows for i in self._kept)])

    def _shards_of(self, rows: npt.NDArray[Any] | list[int]) -> npt.NDArray[np.intp]:
        """Return the index of the shard that holds each row."""
        return np.searchsorted(self._starts, rows, side="right") - 1

    def read_shard(self, i: int) -> npt.NDArray[Any]:
        """Return the rows of one shard, shape (rows, d), in the stored dtype.

        Raises
        ------
        CorruptShard
            If its file is missing, empty, truncated or changed.
        """
        self.shard_range(i)
        return self._read_shard("vectors", self._kept[i])

    def read_rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the rows from ``start`` up to ``stop``, shape (stop - start, d).

        The shards that hold them are fetched completely, one at a time.
        """
        if not 0 <= start <= stop <= self.n:
            raise ValueError(f"rows {start} to {stop} of a corpus of {self.n} rows")
        rows = np.empty((stop - start, self.d), self.dtype)
        if start == stop:
            return rows
        first_shard, last_shard = self._shards_of([start, stop - 1])
        for i in range(first_shard, last_shard + 1):
            held = self.shard_range(i)
            first, last = max(start, held.start), min(stop, held.stop)
            if first < last:
                shard = self.read_shard(i)
                rows[first - start : last - start] = shard[first - held.start : last - held.start]
        return rows

    def read_index(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        """Return the given rows, shape (len(rows), d); only the shards that hold them are fetched.

        Parameters
        ----------
        rows : ndarray of int
            Row numbers in ascending order; repeats are allowed.
        """
        return next(self.read_runs([rows]))

    def read_runs(self, runs: Iterable[npt.NDArray[np.integer[Any]]]) -> Iterator[npt.NDArray[Any]]:
        """Yield the given rows, run by run.

        Only the shards that hold them are fetched, and one that ends a run and begins the next is
        fetched once. It is in memory between the two.

        Parameters
        ----------
        runs : iterable of ndarray of int
            Row numbers of each run in ascending order; repeats are allowed.
        """
        held, shard = -1, np.empty((0, self.d), self.dtype)
        for rows in runs:
            self._check_rows(rows)
            chosen = np.empty((len(rows), self.d), self.dtype)
            shards = self._shards_of(rows)
            for i in np.unique(shards).tolist():
                if i != held:
                    held, shard = i, self.read_shard(i)
                first, last = np.searchsorted(shards, [i, i + 1])
                chosen[first:last] = shard[rows[first:last] - self._starts[i]]
            yield chosen

    def _check_rows(self, rows: npt.NDArray[np.integer[Any]]) -> None:
        if np.ndim(rows) != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise ValueError("rows must be a one-dimensional array of integers")
        if rows.size and (rows[0] < 0 or rows[-1] >= self.n or (rows[1:] < rows[:-1]).any()):
            raise ValueError(f"rows must ascend within 0 to {self.n - 1}")

    def read_blocks(self, name: str, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield stored rows of ``vectors`` or of a row-aligned array, one block per shard.

        Parameters
        ----------
        name : str
            ``vectors``, ``ids``, ``labels`` or ``weights``.
        start, stop : int
            Range of stored rows, excluded ones included.
        """
        array = self.manifest.array(name)
        first = 0
        for i, shard in enumerate(array.shards):
            low, high = max(start, first), min(stop, first + shard.rows)
            if low < high:
                yield self._read_shard(name, i)[low - first : high - first]
            first += shard.rows

    def read_all(self) -> npt.NDArray[Any]:
        """Return all rows, shape (n, d). They must fit in memory."""
        return self.read_rows(0, self.n)

    def checksum_of(self, name: str) -> str | None:
        """Return a checksum of a row-aligned array, excluded rows included, or None without one."""
        if name not in self.manifest.arrays:
            return None
        shards = self.manifest.arrays[name].shards
        return checksum("".join(shard.xxh3 for shard in shards).encode())

    def companion_blocks(self, name: str) -> Iterator[npt.NDArray[Any]]:
        """Yield the ``ids``, ``labels`` or ``weights`` of all rows in order, if there are any."""
        if name not in self.manifest.arrays:
            return
        for start, stop in self.kept_ranges():
            yield from self.read_blocks(name, start, stop)

    def texts(self, name: str) -> list[str] | None:
        """Return the ``ids`` or ``labels`` of all rows, or None if the corpus has none."""
        texts = [text for block in self.companion_blocks(name) for text in block.tolist()]
        return texts if name in self.manifest.arrays else None

    def texts_at(self, name: str, rows: Int64Array) -> npt.NDArray[Any]:
        """Return the ``ids`` or ``labels`` of some rows, in any order, of a corpus that has them.

        One block of those of all rows is in memory at a time.
        """
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        found, first = [], 0
        for block in self.companion_blocks(name):
            low, high = np.searchsorted(ascending, [first, first + len(block)])
            found.append(block[ascending[low:high] - first])
            first += len(block)
            if high == len(ascending):
                break
        ordered = np.concatenate(found)
        texts = np.empty_like(ordered)
        texts[order] = ordered
        return texts

    def weights(self) -> Float64Array | None:
        """Return the weight of every row, shape (n,), or None if the corpus has none."""
        blocks = list(self.companion_blocks("weights"))
        return np.concatenate(blocks) if blocks else None

    def dropped_rows(self) -> Int64Array:
        """Return the numbers of the source rows that were left out, ascending."""
        known = self.manifest.dropped
        if known.all_rows is None:
            return np.array(known.rows, np.int64)
        stored = io.BytesIO(self.read_object(known.all_rows))
        return cast(Int64Array, np.load(stored, allow_pickle=False))

    def stored_rows(self, rows: Int64Array) -> Int64Array:
        """Return the numbers of rows among all stored ones, those of excluded shards included."""
        starts, stops = np.array(list(self.kept_ranges())).T
        ends = np.cumsum(stops - starts)
        return np.asarray(rows + (stops - ends)[np.searchsorted(ends, rows, side="right")])

    @property
    def lacks_rows(self) -> bool:
        """Whether rows of the sources were left out, so that later ones have other numbers."""
        return bool(self._dropped_count or self.excluded_rows > self.appended_rows)

    @property
    def source_count(self) -> int:
        """Number of rows of the sources, those left out included."""
        return self.n + self.excluded_rows - self.appended_rows + self._dropped_count

    @property
    def _dropped_count(self) -> int:
        """Number of rows that were left out of the sources, without those of appended ones."""
        if not self.appended_rows:
            return self.manifest.dropped.count
        dropped = self.dropped_rows()
        stored_before = dropped - np.arange(len(dropped))
        return int(np.count_nonzero(stored_before < self.manifest.n - self.appended_rows))

    def source_rows(self, rows: Int64Array) -> Int64Array:
        """Return the numbers of rows among all rows of the sources, those left out included."""
        dropped, stored = self.dropped_rows(), self.stored_rows(rows)
        # Before the row k that stays, and the j-th that was dropped, k + j rows were read.
        return stored + np.searchsorted(dropped - np.arange(len(dropped)), stored, side="right")

    def read_object(self, stored: StoredObject) -> bytearray:
        """Return the bytes of one stored object, checked against the manifest.

        Raises
        ------
        CorruptShard
            If it is missing, empty, truncated or changed.
        BadInput
            If the corpus was replaced after it was opened.
        """
        try:
            data = self._store.load(stored.key, stored.size)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise self._refused(stored, "it is missing") from None
        difference = stored.difference(data)
        if difference:
            raise self._refused(stored, difference)
        return data

    def _refused(self, stored: StoredObject, difference: str) -> BadInput:
        """Return the error for an object that doesn't match the open manifest."""
        return self._corrupt(stored, difference) if self.is_current() else _replaced(self.url)

    def check_sizes(self) -> None:
        """Check that every object is there and has the right size, with one listing of the store.

        Raises
        ------
        CorruptShard
            Names the first object that is missing or has another size.
        """
        sizes = self._store.sizes()
        for stored in self.manifest.objects():
            if stored.key not in sizes:
                raise self._corrupt(stored, "it is missing")
            if sizes[stored.key] != stored.size:
                difference = f"it has {sizes[stored.key]} bytes instead of {stored.size}"
                raise self._corrupt(stored, difference)

    def _corrupt(self, stored: StoredObject, difference: str) -> CorruptShard:
        return CorruptShard(
            f"{self._store.locate(stored.key)}: {difference}; restore this file, or ingest the "
            "corpus again with --overwrite",
            stored.key,
        )

    def _read_shard(self, name: str, i: int) -> npt.NDArray[Any]:
        shard = self.manifest.array(name).shards[i]
        data = self.read_object(shard)
        return decode_shard(data, shard.rows, self.manifest.layout(name, i))

    def kept_ranges(self) -> list[tuple[int, int]]:
        """Ranges of stored rows that aren't excluded; adjacent ranges are merged."""
        shards = self.manifest.vectors.shards
        ends = np.cumsum([shard.rows for shard in shards]).tolist()
        ranges: list[tuple[int, int]] = []
        for i in self._kept:
            start = ends[i] - shards[i].rows
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, ends[i]))
        return ranges


def open_corpus(url: str) -> Corpus:
    """Open a corpus by its path or URL. Reads the manifest, but no shard.

    Raises
    ------
    BadInput
        If nothing is there, the corpus is unfinished, or its manifest is damaged.
    """
    store = ObjectStore(url)
    try:
        data = store.read(MANIFEST_KEY)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise _not_a_corpus(store) from None
    manifest = read_manifest(data, store.locate(MANIFEST_KEY))
    return Corpus(store.url, manifest, store.address, checksum(data))


def is_unfinished(store: ObjectStore) -> bool:
    """Return whether an interrupted ingest left an unfinished corpus here."""
    if store.exists(MANIFEST_KEY):
        return False
    try:
        attributes = group_attributes(store.read(GROUP_KEY))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    return OWNERSHIP.items() <= attributes.items()


def _not_a_corpus(store: ObjectStore) -> BadInput:
    if is_unfinished(store):
        return BadInput(
            f"{store.url}: an unfinished corpus (no {MANIFEST_KEY}: its ingest was interrupted); "
            "run the same ingest again"
        )
    if store.exists("plan.json"):
        return BadInput(
            f"{store.url}: the folder of a job, not a corpus; look at it with latentscale status "
            f"{shlex.quote(store.url)}"
        )
    if store.exists(""):
        return BadInput(
            f"{store.url}: not a corpus (no {MANIFEST_KEY}); create one first: latentscale "
            f"ingest {shlex.quote(store.url)} CORPUS"
        )
    return BadInput(f"{store.url}: no such corpus; check the path, or ingest one there")


def _replaced(url: str) -> BadInput:
    return BadInput(
        f"{url}: the corpus was replaced while it was in use; run the same command again"
    )


@lru_cache(maxsize=16)
def reopen(
    url: str, manifest_checksum: str, excluded: tuple[str, ...], appended_rows: int = 0
) -> Corpus:
    """Reopen a corpus, perhaps in another process, and raise if it was replaced since."""
    corpus = open_corpus(url)
    if corpus.manifest_checksum != manifest_checksum:
        raise _replaced(corpus.url)
    return replace(corpus, excluded=excluded, appended_rows=appended_rows)
