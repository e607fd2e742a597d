"""Encode rows of sources as shards, partition by partition, in any order and in any process.

The shards of an ingest are known before any row is read. They are divided into *partitions* of a
few shards each. :func:`encode_partition` encodes one, given only an :class:`Encoding`: it writes
complete shards under their keys, reads each back, and finally stores a *record* of them. An ingest
that was killed continues with the partitions that have no record. Two processes that encode the
same partition write the same bytes.

Rows with NaN or infinity can be dropped. A separate pass finds them first
(:func:`scan_partition`), because all later rows move up.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale.array_types import BoolArray, Int64Array
from latentscale_pipeline.corpus.fingerprint import block_digests
from latentscale_pipeline.corpus.ingest.sources import Source, Sources
from latentscale_pipeline.corpus.manifest import Shard, StoredObject
from latentscale_pipeline.corpus.shards import Layout, ShardBuffer, shard_key
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.progress import Progress, silent
from latentscale_pipeline.storage.objects import ObjectStore

PARTITION_BYTES = 256 << 20
"""Approximate size of a partition's shards: the work that is lost if a process is killed."""

RECORDS = "ingest"
"""Folder of the records in an unfinished corpus."""

ON_INVALID = ("error", "drop", "drop-zero")
"""What may become of invalid rows."""

_SCAN_ROWS = 1024
_MAX_UNPACKED_BYTES = 1 << 30


@dataclass(frozen=True)
class Encoding:
    """The parameters that all processes of an ingest share.

    Attributes
    ----------
    store : ObjectStore
        The corpus.
    prefix : str
        Prefix of the keys of this piece: empty, or a folder with a slash.
    sources : Sources
        The sources.
    layout : Layout
        Layout of the vectors; its rows are those that are kept.
    key : str
        Hash of the sources and everything else that the shards depend on.
    partition_shards : int
        Number of shards of a partition.
    on_invalid : {"error", "drop", "drop-zero"}
        What becomes of rows that can't be stored and of rows that are all zero
        (:class:`~latentscale_pipeline.corpus.ingest.sources.FieldChoice`).
    dropped : ndarray of int64
        Numbers of the source rows that are dropped, ascending.
    """

    store: ObjectStore
    prefix: str
    sources: Sources
    layout: Layout
    key: str
    partition_shards: int
    on_invalid: str
    dropped: Int64Array

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.layout.rows // self.layout.shard_rows)

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return -(-self.shards // self.partition_shards)

    @property
    def memory_bytes(self) -> int:
        """Memory for encoding a partition: three shards, and 64 MiB for the rows being read."""
        row_bytes = self.layout.row_shape[0] * np.dtype(self.layout.dtype).itemsize
        return 3 * self.layout.shard_rows * row_bytes + (64 << 20)

    def record_key(self, index: int) -> str:
        """Return the key of a partition's record."""
        return f"{RECORDS}/{self.key}/part-{index:05d}.json"


@dataclass(frozen=True)
class Encoded:
    """The record of an encoded partition.

    Attributes
    ----------
    shards : tuple of Shard
        The shards, in order.
    digests : bytes
        Digests of their rows in blocks of 1024; see :mod:`.fingerprint`.
    zero_rows : tuple of int
        Number of rows that are all zero, and the number of the first such row (-1 if none).
    """

    shards: tuple[Shard, ...]
    digests: bytes
    zero_rows: tuple[int, int]

    def to_bytes(self) -> bytes:
        """Return the record as JSON."""
        fields = asdict(self) | {"digests": base64.b64encode(self.digests).decode()}
        return json.dumps(fields).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Encoded:
        """Parse a record."""
        fields = json.loads(data)
        shards = tuple(Shard(**shard) for shard in fields["shards"])
        count, first = fields["zero_rows"]
        return Encoded(shards, base64.b64decode(fields["digests"]), (count, first))


@dataclass(frozen=True)
class Work:
    """The function that processes a partition, which can be sent to another process.

    Attributes
    ----------
    encoding : Encoding
        The parameters of the ingest.
    record : callable
        Processes the partition with a given index and returns its record.
    progress : callable
        ``progress(rows read, rows in all)``; isn't sent to other processes.
    """

    encoding: Encoding
    record: Callable[[Encoding, int, Progress], bytes]
    progress: Progress = silent

    def __call__(self, index: int) -> None:
        """Process one partition and store its record."""
        record = self.record(self.encoding, index, self.progress)
        self.encoding.store.write(self.encoding.record_key(index), record)

    def __reduce__(self) -> tuple[type[Work], tuple[Any, ...]]:
        return Work, (self.encoding, self.record)


Run = Callable[[Work, Sequence[int], int], None]
"""``run(work, partitions, memory bytes of one)`` processes all partitions, in any order."""


def shards_per_partition(sources: Sources, shard_bytes: int) -> int:
    """Return the number of shards of a partition.

    All shards are one partition if a large source can only be read from its beginning.

    Parameters
    ----------
    sources : Sources
    shard_bytes : int
        Size of a full shard.
    """
    items = sources.items
    if any(s.container.sequential and s.size > _MAX_UNPACKED_BYTES for s in items):
        return max(1, sources.rows)
    return max(1, PARTITION_BYTES // shard_bytes)


def run_serially(work: Work, partitions: Sequence[int], memory_bytes: int) -> None:
    """Process the partitions one after another in this process."""
    for partition in partitions:
        work(partition)


def encode_partition(encoding: Encoding, index: int, progress: Progress) -> bytes:
    """Write the shards of one partition, and return its record.

    Raises
    ------
    BadInput
        If a row holds NaN or infinity, or can't be read; the message names it.
    Incomplete
        If the data read back differ from those written.
    """
    layout = encoding.layout
    first = index * encoding.partition_shards
    last = min(first + encoding.partition_shards, encoding.shards)
    buffers = [ShardBuffer(layout) for _ in range(min(2, last - first))]
    stored: list[Future[tuple[Shard, bytes, npt.NDArray[np.intp]]]] = []
    # One shard is stored while the next one is read.
    with ThreadPoolExecutor(1) as writer:
        for shard in range(first, last):
            buffer = buffers[shard % len(buffers)]
            if len(stored) >= len(buffers):
                stored[-len(buffers)].result()  # wait until the shard in this buffer is stored
            start = shard * layout.shard_rows
            stop = min(start + layout.shard_rows, layout.rows)
            filled = 0
            for rows in _kept_pieces(encoding, start, stop, progress):
                buffer.rows[filled : filled + len(rows)] = rows
                filled += len(rows)
            stored.append(writer.submit(_store_shard, encoding, shard, buffer, filled))
        shards, digests, zeros = zip(*(future.result() for future in stored), strict=True)
    zero = np.concatenate(zeros)
    found = (len(zero), int(zero[0]) if len(zero) else -1)
    return Encoded(shards, b"".join(digests), found).to_bytes()


def _store_shard(
    encoding: Encoding, shard: int, buffer: ShardBuffer, count: int
) -> tuple[Shard, bytes, npt.NDArray[np.intp]]:
    """Store a filled shard; return its entry, its digests and the numbers of its zero rows."""
    key = f"{encoding.prefix}vectors/{shard_key(encoding.layout, shard)}"
    written = write_checked(encoding.store, key, buffer.encoded(count))
    rows = buffer.rows[:count]
    zero = shard * encoding.layout.shard_rows + np.flatnonzero(~rows.any(axis=1))
    return Shard(key, written.size, written.xxh3, count), block_digests(rows), zero


def scan_partition(encoding: Encoding, index: int, progress: Progress) -> bytes:
    """Return the numbers of the source rows in one partition that are left out, as NPY."""
    del progress  # only encoding, the second pass, reports progress
    rows = encoding.partition_shards * encoding.layout.shard_rows
    start, stop = index * rows, min((index + 1) * rows, encoding.sources.rows)
    found = [np.empty(0, np.int64)]
    for _, _, row, piece in _pieces(encoding.sources, start, stop):
        values, valid = _cast(piece, encoding.layout.dtype)
        if encoding.on_invalid == "drop-zero":
            valid &= values.any(axis=1)
        found.append(row + np.flatnonzero(~valid))
    return npy_bytes(np.concatenate(found))


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """Return an array in ``.npy`` format."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def encoded_partitions(encoding: Encoding) -> dict[int, Encoded]:
    """Return the records of the partitions that are encoded already.

    A record is valid only if all its shards exist and have the right size.
    """
    sizes = encoding.store.sizes(f"{encoding.prefix}vectors")
    records = set(encoding.store.keys(f"{RECORDS}/{encoding.key}"))
    found: dict[int, Encoded] = {}
    for index in range(encoding.partitions):
        if encoding.record_key(index) not in records:
            continue
        with contextlib.suppress(ValueError, KeyError, TypeError, FileNotFoundError):
            encoded = Encoded.from_bytes(encoding.store.read(encoding.record_key(index)))
            if all(sizes.get(shard.key) == shard.size for shard in encoded.shards):
                found[index] = encoded
    return found


def find_dropped(encoding: Encoding, run: Run) -> Encoding:
    """Find the rows that are left out, and return the encoding without them."""
    scanning = replace(encoding, key=f"{encoding.key}-scan")
    there = set(scanning.store.keys(f"{RECORDS}/{scanning.key}"))
    partitions = [i for i in range(scanning.partitions) if scanning.record_key(i) not in there]
    if partitions:
        run(Work(scanning, scan_partition), partitions, scanning.memory_bytes)
    found = [
        np.load(io.BytesIO(scanning.store.read(scanning.record_key(index))), allow_pickle=False)
        for index in range(scanning.partitions)
    ]
    dropped = np.concatenate(found)
    kept = replace(encoding.layout, rows=encoding.layout.rows - len(dropped))
    return replace(encoding, layout=kept, dropped=dropped)


def write_checked(store: ObjectStore, key: str, data: bytes | memoryview) -> StoredObject:
    """Store an object of a corpus, read it back and compare."""
    return StoredObject(key, len(data), store.write_checked(key, data))


def _kept_pieces(
    encoding: Encoding, start: int, stop: int, progress: Progress
) -> Iterator[npt.NDArray[Any]]:
    """Yield the kept rows from ``start`` up to ``stop`` in the stored dtype."""
    dropped = encoding.dropped
    total = encoding.sources.rows
    # The number of kept rows before each dropped row converts kept row numbers to source rows.
    before = dropped - np.arange(len(dropped))
    low, high = (int(row + np.searchsorted(before, row, side="right")) for row in (start, stop - 1))
    for source, at, row, piece in _pieces(encoding.sources, low, high + 1):
        values, valid = _cast(piece, encoding.layout.dtype)
        if len(dropped):
            kept = kept_rows(dropped, row, len(piece))
            values, valid = values[kept], valid[kept]
        if not valid.all():
            raise _invalid(source, piece, np.flatnonzero(~valid), at, row, encoding.layout.dtype)
        yield values
        if at + len(piece) == source.rows or (row + len(piece)) % (64 * _SCAN_ROWS) == 0:
            progress(row + len(piece), total)


def kept_rows(dropped: Int64Array, row: int, count: int) -> BoolArray:
    """Return a mask of the kept rows among ``count`` consecutive ones, starting at ``row``."""
    kept = np.ones(count, bool)
    kept[dropped[slice(*np.searchsorted(dropped, [row, row + count]))] - row] = False
    return kept


def _pieces(
    sources: Sources, start: int, stop: int
) -> Iterator[tuple[Source, int, int, npt.NDArray[Any]]]:
    """Yield source rows in pieces that fit the CPU's caches.

    Each comes with its source and the number of its first row, in the source and among all rows.
    """
    first = 0
    for source in sources.items:
        low, high = max(start - first, 0), min(stop - first, source.rows)
        if low < high:
            at = low
            for block in source.blocks(low, high):
                for cut in range(0, len(block), _SCAN_ROWS):
                    piece = block[cut : cut + _SCAN_ROWS]
                    yield source, at, first + at, piece
                    at += len(piece)
        first += source.rows


def _cast(piece: npt.NDArray[Any], dtype: str) -> tuple[npt.NDArray[Any], BoolArray]:
    """Return rows in the stored dtype, and a mask of those that it can hold."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        values = piece.astype(dtype, copy=False)
    return values, storable_rows(values, piece)


def storable_rows(values: npt.NDArray[Any], given: npt.NDArray[Any]) -> BoolArray:
    """Return a mask of the rows that are finite, and not vanishing, in the stored dtype."""
    finite = np.isfinite(values)
    storable = np.ones(len(values), bool) if finite.all() else finite.all(axis=1)
    if values.dtype != given.dtype:
        small = np.flatnonzero(np.abs(values).max(axis=1) < np.finfo(values.dtype).tiny)
        storable[small] = ~given[small].any(axis=1)
    return storable


def _invalid(
    source: Source,
    piece: npt.NDArray[Any],
    invalid: npt.NDArray[np.intp],
    at: int,
    row: int,
    dtype: str,
) -> BadInput:
    """Return the error for the first invalid row of a piece.

    ``at`` is the number of the piece's first row in its source, ``row`` that among all rows.
    """
    bad = int(invalid[0])
    absent = np.isnan(piece[bad]).all()
    what = "has no vector, or only NaN" if absent else invalid_reason(piece[bad], dtype)
    read = at + len(piece)
    more = f"; {invalid.size} such rows among the first {read:,}" if invalid.size > 1 else ""
    whole = f" (row {row + bad} of all sources)" if row > at else ""
    return BadInput(
        f"{source.path}: row {at + bad}{whole} {what}{more}; fix the source, or leave such rows "
        "out with --on-invalid drop, or with drop-zero, which also leaves out rows of zeros "
        "(latentscale ingest, or run SOURCE)"
    )


def invalid_reason(row: npt.NDArray[Any], dtype: str) -> str:
    """Return why a row can't be stored in a dtype."""
    if np.isnan(row).any():
        return "holds NaN"
    if np.isinf(row).any():
        return "holds infinity"
    large = np.abs(row).max() > np.finfo(dtype).max
    return f"holds a value too large for {dtype}" if large else f"is too small for {dtype}"
