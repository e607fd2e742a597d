"""An open corpus: its rows and row-aligned arrays, checked on every read.

A shard is fetched as one whole object, and its size and checksum are compared with the manifest
before a single row is decoded. What differs is refused in one line (:class:`CorruptShard`); it is
never read as zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.fingerprint import of_rows
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
from latentscale_pipeline.storage.objects import ObjectStore

GROUP_KEY = "zarr.json"
OWNERSHIP = {"latentscale": SCHEMA}
"""Attributes of the Zarr group of every corpus, whole or not: what may be swept and redone."""


class CorruptShard(BadInput):
    """A stored object that doesn't match the manifest; ``key`` is its key in the corpus."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message, key)
        self.key = key

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Corpus:
    """A whole corpus. Get one from :func:`open_corpus` or ``ingest``.

    It pickles to its address and the checksum of its manifest, which a worker reads once.

    Attributes
    ----------
    url : str
        Path or URL, without credentials.
    manifest : Manifest
        Everything that is known about what is stored.
    address : str
        What another process, in whatever folder, reaches it by; never for a message.
    manifest_checksum : str
        Of the manifest as it is stored.
    excluded : tuple of str
        Keys of shards that are left out: their rows don't exist for a reader, and the rows after
        them move up.
    """

    url: str
    manifest: Manifest
    address: str = field(repr=False, compare=False)
    manifest_checksum: str = field(repr=False)
    excluded: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return reopen, (self.address, self.manifest_checksum, self.excluded)

    def is_current(self) -> bool:
        """Return whether the corpus at this place is still this one, neither replaced nor grown."""
        try:
            return checksum(self._store.read(MANIFEST_KEY)) == self.manifest_checksum
        except (FileNotFoundError, NotADirectoryError):
            return False

    def without(self, shards: Collection[str]) -> Corpus:
        """Return the corpus without the rows of some shards, beside those it lacks already.

        Parameters
        ----------
        shards : collection of str
            Keys such as ``vectors/c/3/0``, or the paths that messages name.

        Raises
        ------
        BadInput
            If there is no such shard, or none would be left.
        """
        known = [shard.key for shard in self.manifest.vectors.shards]
        names = {shard.removeprefix(f"{self.url}/") for shard in shards} | set(self.excluded)
        unknown = sorted(names - set(known))
        if unknown:
            raise BadInput(
                f"{self.url}: there is no shard {unknown[0]} to leave out; its shards are "
                f"{known[0]} to {known[-1]}"
            )
        if len(names) == len(known):
            raise BadInput(f"{self.url}: all of its {len(known)} shards are to be left out")
        return replace(self, excluded=tuple(key for key in known if key in names))

    @cached_property
    def _kept(self) -> tuple[int, ...]:
        """Which of the stored shards are there for a reader."""
        shards = self.manifest.vectors.shards
        return tuple(i for i, shard in enumerate(shards) if shard.key not in self.excluded)

    @cached_property
    def _store(self) -> ObjectStore:
        return ObjectStore(self.address)

    @property
    def n(self) -> int:
        """Rows."""
        return self.manifest.n - self.excluded_rows

    @property
    def excluded_rows(self) -> int:
        """Rows of the shards that are left out."""
        shards = self.manifest.vectors.shards
        return sum(shard.rows for shard in shards if shard.key in self.excluded)

    @property
    def d(self) -> int:
        """Dimensions."""
        return self.manifest.d

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the stored vectors: float16 or float32."""
        return np.dtype(self.manifest.vectors.dtype)

    @property
    def fingerprint(self) -> str:
        """Hash of the vectors' values, dtype and shape.

        With shards left out, a hash of the whole corpus' fingerprint and the rows that are kept:
        it can be known without reading all of them.
        """
        if not self.excluded:
            return self.manifest.fingerprint
        return of_rows(self.manifest.fingerprint, self._kept_ranges())

    @cached_property
    def zero_rows(self) -> int:
        """How many rows are all zero; counted anew when there are some and shards are left out."""
        stored = self.manifest.zero_rows.count
        return self._count_zero_rows() if stored and self.excluded else stored

    def _count_zero_rows(self) -> int:
        shards = (self.read_shard(i) for i in range(self.shard_count))
        return sum(int(np.count_nonzero(~rows.any(axis=1))) for rows in shards)

    @property
    def shard_rows(self) -> int:
        """Rows of a shard at most."""
        return max(cut.shard_rows for cut in self.manifest.vectors.cuts)

    @property
    def shard_prints(self) -> tuple[str, ...]:
        """Checksum, bytes and rows of each shard, which identify it."""
        shards = self.manifest.vectors.shards
        return tuple(f"{shards[i].xxh3}/{shards[i].size}/{shards[i].rows}" for i in self._kept)

    @property
    def shard_count(self) -> int:
        """How many shards hold the vectors."""
        return len(self._kept)

    def shard_range(self, i: int) -> slice:
        """Return the rows that shard ``i`` holds."""
        if not 0 <= i < self.shard_count:
            raise IndexError(f"shard {i} of a corpus of {self.shard_count} shards")
        return slice(int(self._starts[i]), int(self._starts[i + 1]))

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        """First row of each shard, and the number of rows after the last."""
        shards = self.manifest.vectors.shards
        return np.cumsum([0, *(shards[i].rows for i in self._kept)])

    def _shards_of(self, rows: npt.NDArray[Any] | list[int]) -> npt.NDArray[np.intp]:
        """Return which shard holds each row."""
        return np.searchsorted(self._starts, rows, side="right") - 1

    def read_shard(self, i: int) -> npt.NDArray[Any]:
        """Return the rows of one shard, shape (rows, d), in the stored dtype.

        Raises
        ------
        CorruptShard
            When its file is missing, empty, truncated or changed.
        """
        self.shard_range(i)
        return self._read_shard("vectors", self._kept[i])

    def read_rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the rows from ``start`` up to ``stop``, shape (stop - start, d).

        The shards that hold them are fetched whole, one at a time.
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
        """Return chosen rows, shape (len(rows), d); only the shards that hold them are fetched.

        Parameters
        ----------
        rows : ndarray of int
            Row numbers in ascending order (repeats are allowed).
        """
        rows = np.asarray(rows)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise ValueError("rows must be a one-dimensional array of integers")
        if rows.size and (rows[0] < 0 or rows[-1] >= self.n or (rows[1:] < rows[:-1]).any()):
            raise ValueError(f"rows must ascend within 0 to {self.n - 1}")
        chosen = np.empty((len(rows), self.d), self.dtype)
        shards = self._shards_of(rows)
        for i in np.unique(shards):
            first, last = np.searchsorted(shards, [i, i + 1])
            chosen[first:last] = self.read_shard(int(i))[rows[first:last] - self._starts[i]]
        return chosen

    def read_blocks(self, name: str, start: int, stop: int) -> Iterator[npt.NDArray[Any]]:
        """Yield stored rows of ``vectors`` or of a row-aligned array, shard by shard.

        Parameters
        ----------
        name : str
            ``vectors``, ``ids``, ``labels`` or ``weights``.
        start, stop : int
            Which rows; those of shards that are left out count, too.
        """
        array = self.manifest.array(name)
        first = 0
        for i, shard in enumerate(array.shards):
            low, high = max(start, first), min(stop, first + shard.rows)
            if low < high:
                yield self._read_shard(name, i)[low - first : high - first]
            first += shard.rows

    def read_all(self) -> npt.NDArray[Any]:
        """Return all rows, shape (n, d): for corpora that fit in memory."""
        return self.read_rows(0, self.n)

    def checksum_of(self, name: str) -> str | None:
        """Return a checksum of a row-aligned array, excluded rows and all; None without it."""
        if name not in self.manifest.arrays:
            return None
        shards = self.manifest.arrays[name].shards
        return checksum("".join(shard.xxh3 for shard in shards).encode())

    def companion_blocks(self, name: str) -> Iterator[npt.NDArray[Any]]:
        """Yield the ``ids``, ``labels`` or ``weights`` of all rows in order; nothing without."""
        if name not in self.manifest.arrays:
            return
        for start, stop in self._kept_ranges():
            yield from self.read_blocks(name, start, stop)

    def texts(self, name: str) -> list[str] | None:
        """Return the ``ids`` or ``labels`` of all rows, or None if the corpus has none."""
        texts = [text for block in self.companion_blocks(name) for text in block.tolist()]
        return texts if name in self.manifest.arrays else None

    def weights(self) -> npt.NDArray[np.float64] | None:
        """Return the weight of every row, shape (n,), or None if the corpus has none."""
        blocks = list(self.companion_blocks("weights"))
        return np.concatenate(blocks) if blocks else None

    def read_object(self, stored: StoredObject) -> bytearray:
        """Return the bytes of one stored object, checked against the manifest.

        Raises
        ------
        CorruptShard
            When it is missing, empty, truncated or changed.
        BadInput
            When the corpus was replaced since it was opened.
        """
        try:
            data = self._store.load(stored.key)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise self._refused(stored, "it is missing") from None
        difference = stored.difference(data)
        if difference:
            raise self._refused(stored, difference)
        return data

    def _refused(self, stored: StoredObject, difference: str) -> BadInput:
        """Return the error for an object that changed after the corpus was opened."""
        return self._corrupt(stored, difference) if self.is_current() else _replaced(self.url)

    def check_sizes(self) -> None:
        """Refuse a corpus with objects that are missing or of another size (one listing).

        Raises
        ------
        CorruptShard
            Naming the first of them.
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

    def _kept_ranges(self) -> list[tuple[int, int]]:
        """Which of the stored rows are there for a reader; ranges that meet are one."""
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
    """Open a corpus by its path or URL: reads the manifest, and no shard.

    Raises
    ------
    BadInput
        When there is nothing, no whole corpus, or a damaged manifest.
    """
    store = ObjectStore(url)
    try:
        data = store.read(MANIFEST_KEY)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise _not_a_corpus(store) from None
    manifest = read_manifest(data, store.locate(MANIFEST_KEY))
    return Corpus(store.url, manifest, store.address, checksum(data))


def is_unfinished(store: ObjectStore) -> bool:
    """Return whether an interrupted ingest left something here (only we write such a group)."""
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
            f"{store.url}: not a whole corpus (no {MANIFEST_KEY}: its ingest was interrupted); run "
            "the same ingest again"
        )
    if store.exists(""):
        return BadInput(
            f"{store.url}: not a corpus (no {MANIFEST_KEY}); turn it into one first: latentscale "
            f"ingest {store.url} CORPUS"
        )
    return BadInput(f"{store.url}: no such corpus; check the path, or ingest one there")


def _replaced(url: str) -> BadInput:
    return BadInput(
        f"{url}: the corpus was replaced while it was in use; run the same command again"
    )


@lru_cache(maxsize=16)
def reopen(url: str, manifest_checksum: str, excluded: tuple[str, ...]) -> Corpus:
    """Open a corpus that was open before, perhaps in another process, and refuse another one."""
    corpus = open_corpus(url)
    if corpus.manifest_checksum != manifest_checksum:
        raise _replaced(corpus.url)
    return replace(corpus, excluded=excluded)
