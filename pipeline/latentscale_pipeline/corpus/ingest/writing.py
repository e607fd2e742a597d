"""Write a piece of a corpus: vectors with their ids, labels and weights.

An ingest writes the first piece of a corpus, and every append adds one. A piece is a Zarr group
with the array ``vectors`` and the row-aligned arrays ``ids``, ``labels`` and ``weights``, as far as
they are given.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from latentscale.array_types import Int64Array, UInt64Array
from latentscale_pipeline.corpus.corpus import GROUP_KEY
from latentscale_pipeline.corpus.ingest.encoding import (
    RECORDS,
    Encoded,
    Encoding,
    Run,
    Work,
    encode_partition,
    encoded_partitions,
    find_dropped,
    kept_rows,
    npy_bytes,
    shards_per_partition,
    write_checked,
)
from latentscale_pipeline.corpus.ingest.sidecars import (
    DTYPES,
    Sidecar,
    column_sidecar,
    open_sidecar,
)
from latentscale_pipeline.corpus.ingest.sources import Sources, open_sources, source_key
from latentscale_pipeline.corpus.manifest import (
    COMPANION_ROWS,
    CountedRows,
    DroppedRows,
    Shard,
    SourceRecord,
    StoredArray,
    StoredObject,
)
from latentscale_pipeline.corpus.repeated_ids import MAX_ROWS, hash_ids
from latentscale_pipeline.corpus.shards import (
    Layout,
    Separator,
    array_document,
    encode_shard,
    plan_rows,
    shard_key,
)
from latentscale_pipeline.errors import BadInput, Incomplete, SourceChanged, StoreFull
from latentscale_pipeline.progress import Progress
from latentscale_pipeline.storage.objects import ObjectStore

SHARD_BYTES = 64 << 20
LISTED_DROPPED_ROWS = 1000

DROPPED_KEYS: dict[Separator, str] = {"/": "dropped.npy", ".": "dropped.2.npy"}
"""Keys of the list of dropped rows, by the separator in shard keys.

There are two, so that a corpus that is being replaced keeps its own list.
"""

_TEXT_ROWS = 1 << 16  # a text is much longer than a label
_ATTEMPTS = 4


@dataclass(frozen=True)
class Piece:
    """A piece whose shards are written.

    Attributes
    ----------
    vectors : StoredArray
        The shards of the vectors.
    arrays : dict
        The shards of ids, labels and weights, by name.
    documents : dict
        Zarr's metadata documents by their keys. They aren't stored yet, because they may replace
        those of an existing corpus.
    digests : bytes
        Digests of the vectors in blocks of 1024 rows; see :mod:`.fingerprint`.
    zero_rows : CountedRows
        Rows that are all zero.
    id_hashes : list of ndarray of uint64, or None
        Hashes of the ids; None without ids, or if there are too many rows to compare them.
    dropped : ndarray of int64
        Numbers of the source rows that were dropped.
    sources : tuple of SourceRecord
        The sources, in order.
    """

    vectors: StoredArray
    arrays: dict[str, StoredArray]
    documents: dict[str, bytes]
    digests: bytes
    zero_rows: CountedRows
    id_hashes: list[UInt64Array] | None
    dropped: Int64Array
    sources: tuple[SourceRecord, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(shard.rows for shard in self.vectors.shards)


def open_given(
    sources: Sources | Sequence[str],
    target: str,
    files: dict[str, str | None],
    columns: dict[str, str],
) -> tuple[Sources, list[Sidecar]]:
    """Open sources, and the files or columns with their ids, labels and weights.

    Parameters
    ----------
    sources : Sources or sequence of str
        The result of :func:`open_sources`, or its argument.
    target : str
        Path or URL of the corpus.
    files : dict
        For each of ``ids``, ``labels`` and ``weights`` a file, or None.
    columns : dict
        The column for each of these names: of its file or, without a file, of the sources.
    """
    if not isinstance(sources, Sources):
        given = [name for name, file in files.items() if file is not None]
        inside = {**columns, **dict.fromkeys(given, "")}
        sources = open_sources(sources, target, columns=inside)
    sidecars = [
        column_sidecar(name, sources)
        if url is None
        else open_sidecar(name, url, sources.rows, columns.get(name) or None)
        for name, url in files.items()
        if url is not None or name in sources.items[0].columns
    ]
    return sources, sidecars


def stored_dtype(dtypes: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype to store vectors in: float16 if all sources are float16, else float32."""
    halves = all(dtype.kind == "f" and dtype.itemsize == 2 for dtype in dtypes)
    return np.dtype(np.float16 if halves else np.float32)


@contextlib.contextmanager
def rollback_on_failure(take_back: Callable[[], None]) -> Iterator[None]:
    """Call ``take_back``, which removes what was written, if it can't be continued."""
    try:
        yield
    except (BadInput, StoreFull, SourceChanged):
        with contextlib.suppress(BadInput, Incomplete, OSError):
            take_back()
        raise


def plan_encoding(
    store: ObjectStore,
    sources: Sources,
    dtype: np.dtype[Any],
    shard_bytes: int,
    on_invalid: str,
    prefix: str = "",
    separator: Separator = "/",
    beside: str = "",
) -> Encoding:
    """Choose shard and partition sizes of a piece, and the keys of its objects.

    ``beside`` tells the values that belong to its rows from others.
    """
    row_bytes = sources.d * dtype.itemsize
    shard_rows, chunk_rows = plan_rows(sources.rows, row_bytes, shard_bytes)
    layout = Layout(sources.rows, (sources.d,), dtype.name, shard_rows, chunk_rows, separator)
    partition_shards = shards_per_partition(sources, shard_rows * row_bytes)
    about = [
        *(prefix, sources.key, sources.rows, sources.d, dtype.name),
        *(shard_rows, chunk_rows, partition_shards, separator, on_invalid),
        *([beside] if beside else []),
    ]
    key = xxhash.xxh3_64_hexdigest(json.dumps(about).encode())
    none = np.empty(0, np.int64)
    return Encoding(store, prefix, sources, layout, key, partition_shards, on_invalid, none)


def key_of_rows(
    sources: Sources, files: Mapping[str, str | None], columns: Mapping[str, str]
) -> str:
    """Return a hash of sources, with the files and columns that belong to their rows."""
    others = [[name, source_key([file])] for name, file in files.items() if file]
    about = [sources.key, *others, *sorted(columns.items())] if others else [sources.key]
    return xxhash.xxh3_64_hexdigest(json.dumps(about).encode())[:8]


def remove_other_records(encoding: Encoding) -> None:
    """Remove the records of other parameters, because their shards may have the same keys."""
    key = encoding.key
    for folder in encoding.store.folders(RECORDS):
        if folder not in {key, f"{key}-scan"} and not folder.startswith("run-"):
            encoding.store.remove_all(f"{RECORDS}/{folder}")


def encode_piece(
    encoding: Encoding, sidecars: Sequence[Sidecar], run: Run, progress: Progress
) -> Piece:
    """Write the vectors with their ids, labels and weights.

    Raises
    ------
    BadInput
        If the sources, or their ids, labels or weights, are invalid.
    Incomplete
        If another process interferes, or a store can't be reached.
    SourceChanged
        If a source, or what belongs to its rows, was changed since it was opened.
    """
    sources = encoding.sources
    if encoding.on_invalid != "error":
        encoding = find_dropped(encoding, run)
    if not encoding.layout.rows:
        zero = ", or are zero" if encoding.on_invalid == "drop-zero" else ""
        raise BadInput(
            f"{sources.items[0].path}: all {sources.rows} rows hold NaN, infinity or a value too "
            f"large for the stored dtype{zero}; check how the vectors were made"
        )
    encoded = _encode(encoding, run, progress)
    layout = encoding.layout
    documents = {f"{encoding.prefix}vectors/{GROUP_KEY}": array_document(layout)}
    arrays: dict[str, StoredArray] = {}
    id_hashes: list[UInt64Array] | None = None
    for sidecar in sidecars:
        values = _kept_values(encoding, sidecar)
        if sidecar.name == "ids" and layout.rows <= MAX_ROWS:
            values = _with_hashes(values, id_hashes := [])
        key = f"{encoding.prefix}{sidecar.name}/{GROUP_KEY}"
        arrays[sidecar.name], documents[key] = _write_sidecar(encoding, sidecar, values)
    for listing in (sources.listing, *(sidecar.listing for sidecar in sidecars)):
        if listing is not None:
            listing.refuse_changes()
    shards = tuple(shard for partition in encoded for shard in partition.shards)
    zeros = [partition.zero_rows for partition in encoded if partition.zero_rows[0]]
    return Piece(
        vectors=StoredArray(layout.dtype, layout.shard_rows, layout.chunk_rows, shards),
        arrays=arrays,
        documents=documents,
        digests=b"".join(partition.digests for partition in encoded),
        zero_rows=CountedRows(sum(count for count, _ in zeros), zeros[0][1] if zeros else None),
        id_hashes=id_hashes,
        dropped=encoding.dropped,
        sources=tuple(SourceRecord(s.path, s.rows, s.dtype.name) for s in sources.items),
    )


def _encode(encoding: Encoding, run: Run, progress: Progress) -> list[Encoded]:
    """Encode the missing partitions and return the records of all partitions."""
    for _ in range(_ATTEMPTS):
        found = encoded_partitions(encoding)
        missing = [index for index in range(encoding.partitions) if index not in found]
        if not missing:
            return [found[index] for index in range(encoding.partitions)]
        run(Work(encoding, encode_partition, progress), missing, encoding.memory_bytes)
    # Another ingest of the same sources may have ended meanwhile and deleted objects.
    raise interfered(encoding.store)


def interfered(store: ObjectStore) -> Incomplete:
    """Return the error for a corpus that another process changed during this ingest."""
    return Incomplete(
        f"{store.url}: another process changed it during the ingest; run the same command again "
        "once that process has ended"
    )


def _write_sidecar(
    encoding: Encoding, sidecar: Sidecar, kept: Iterable[npt.NDArray[Any]]
) -> tuple[StoredArray, bytes]:
    """Write ids, labels or weights of the kept rows; return the array and its metadata document."""
    rows = _TEXT_ROWS if sidecar.name == "texts" else COMPANION_ROWS
    shard_rows, chunk_rows = plan_rows(sidecar.rows, 8, 8 * rows)
    layout = replace(
        encoding.layout,
        row_shape=(),
        dtype=DTYPES[sidecar.name],
        shard_rows=shard_rows,
        chunk_rows=chunk_rows,
    )
    shards: list[Shard] = []
    all_zero = sidecar.name == "weights"
    for values in _regrouped(kept, shard_rows):
        key = f"{encoding.prefix}{sidecar.name}/{shard_key(layout, len(shards))}"
        written = write_checked(encoding.store, key, encode_shard(values, layout))
        shards.append(Shard(key, written.size, written.xxh3, len(values)))
        all_zero = all_zero and not values.any()
    if all_zero:
        raise BadInput(f"{sidecar.path}: all weights are zero; leave them out or fix them")
    return StoredArray(layout.dtype, shard_rows, chunk_rows, tuple(shards)), array_document(layout)


def _kept_values(encoding: Encoding, sidecar: Sidecar) -> Iterator[npt.NDArray[Any]]:
    row = 0
    for values in sidecar.blocks():
        yield values[kept_rows(encoding.dropped, row, len(values))]
        row += len(values)


def _with_hashes(
    ids: Iterator[npt.NDArray[Any]], hashes: list[UInt64Array]
) -> Iterator[npt.NDArray[Any]]:
    """Yield the ids, and append their hashes to a list."""
    for block in ids:
        hashes += hash_ids([block])
        yield block


def _regrouped(blocks: Iterable[npt.NDArray[Any]], rows: int) -> Iterator[npt.NDArray[Any]]:
    """Yield the values in blocks of ``rows`` rows; the last block may be shorter."""
    waiting: list[npt.NDArray[Any]] = []
    for block in blocks:
        waiting.append(block)
        while sum(map(len, waiting)) >= rows:
            joined = np.concatenate(waiting)
            yield joined[:rows]
            waiting = [joined[rows:]]
    if sum(map(len, waiting)):
        yield np.concatenate(waiting)


def write_documents(store: ObjectStore, documents: Mapping[str, bytes]) -> tuple[StoredObject, ...]:
    """Store Zarr's metadata documents."""
    return tuple(write_checked(store, key, data) for key, data in documents.items())


def record_dropped(encoding: Encoding, dropped: Int64Array) -> DroppedRows:
    """Return the record of dropped rows for the manifest; many are stored in an extra object."""
    all_rows = None
    if len(dropped) > LISTED_DROPPED_ROWS:
        key = f"{encoding.prefix}{DROPPED_KEYS[encoding.layout.separator]}"
        all_rows = write_checked(encoding.store, key, npy_bytes(dropped))
    return DroppedRows(len(dropped), tuple(dropped[:LISTED_DROPPED_ROWS].tolist()), all_rows)
