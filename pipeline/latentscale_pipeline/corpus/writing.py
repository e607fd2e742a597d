"""A piece of a corpus: vectors, and what accompanies them, as they are written together.

A corpus is one piece when it is ingested, and gets another one with every append. A piece is a
Zarr group of its own kind: ``vectors`` and, row for row, ``ids``, ``labels`` and ``weights``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from latentscale_pipeline.corpus import zarr_format
from latentscale_pipeline.corpus.corpus import GROUP_KEY
from latentscale_pipeline.corpus.encoding import (
    Encoded,
    EncodePart,
    Encoding,
    Run,
    find_dropped,
    missing_parts,
    shards_of_a_part,
    write_checked,
)
from latentscale_pipeline.corpus.manifest import (
    DroppedRows,
    Shard,
    SourceRecord,
    StoredArray,
    StoredObject,
)
from latentscale_pipeline.corpus.sidecars import DTYPES, Sidecar, column_sidecar, open_sidecar
from latentscale_pipeline.corpus.sources import Sources, open_sources
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.objects import ObjectStore
from latentscale_pipeline.progress import Progress

SHARD_BYTES = 64 << 20
DROPPED_KEY = "dropped.npy"
LISTED_DROPPED_ROWS = 1000

_SIDECAR_ROWS = 1 << 18
_ATTEMPTS = 4


@dataclass(frozen=True)
class Given:
    """What goes into a piece, opened: sources and their companions."""

    sources: Sources
    sidecars: tuple[Sidecar, ...]


@dataclass(frozen=True)
class Piece:
    """What was written of a piece.

    Attributes
    ----------
    vectors : StoredArray
        The vectors' shards.
    arrays : dict
        Those of ids, labels and weights.
    documents : tuple of StoredObject
        Zarr's metadata documents.
    digests : bytes
        Of the vectors in blocks of 1024 rows; see :mod:`.fingerprint`.
    zero_rows : tuple of int
        How many rows are all zero, and the number of the first (-1 if there is none).
    dropped : ndarray of int64
        Numbers of the source rows that were left out.
    sources : tuple of SourceRecord
        What was read, in order.
    """

    vectors: StoredArray
    arrays: dict[str, StoredArray]
    documents: tuple[StoredObject, ...]
    digests: bytes
    zero_rows: tuple[int, int]
    dropped: npt.NDArray[np.int64]
    sources: tuple[SourceRecord, ...]

    @property
    def rows(self) -> int:
        """Rows that were written."""
        return sum(shard.rows for shard in self.vectors.shards)


def open_given(
    sources: Sources | Sequence[str],
    target: str,
    files: dict[str, str | None],
    columns: dict[str, str],
) -> Given:
    """Open sources and, for each name, the file or the column that accompanies them.

    Parameters
    ----------
    sources : Sources or sequence of str
        What :func:`open_sources` returns, or its argument.
    target : str
        Where the corpus is.
    files : dict
        For ``ids``, ``labels`` and ``weights``: a file, or None.
    columns : dict
        Which column of these files it is; for a name without a file, which column of the sources.
    """
    if not isinstance(sources, Sources):
        inside = {name: column for name, column in columns.items() if files[name] is None}
        sources = open_sources(sources, target, columns=inside)
    sidecars = [
        column_sidecar(name, sources)
        if url is None
        else open_sidecar(name, url, sources.rows, columns.get(name))
        for name, url in files.items()
        if url is not None or name in sources.items[0].columns
    ]
    return Given(sources, tuple(sidecars))


def plan_encoding(
    store: ObjectStore,
    sources: Sources,
    dtype: np.dtype[Any],
    shard_bytes: int,
    prefix: str = "",
) -> Encoding:
    """Decide how the vectors of a piece are cut."""
    row_bytes = sources.d * dtype.itemsize
    shard_rows, chunk_rows = zarr_format.plan_rows(sources.rows, row_bytes, shard_bytes)
    layout = zarr_format.Layout(sources.rows, (sources.d,), dtype.name, shard_rows, chunk_rows)
    part_shards = shards_of_a_part(sources, shard_rows * row_bytes)
    about = [
        *(prefix, sources.key, sources.rows, sources.d, dtype.name),
        *(shard_rows, chunk_rows, part_shards),
    ]
    key = xxhash.xxh3_64_hexdigest(json.dumps(about).encode())
    return Encoding(store, prefix, sources, layout, key, part_shards, np.empty(0, np.int64))


def write_piece(
    encoding: Encoding, sidecars: Sequence[Sidecar], drop: bool, run: Run, progress: Progress
) -> Piece:
    """Write the vectors and their companions.

    Raises
    ------
    BadInput
        On anything wrong with the sources or the sidecars.
    Incomplete
        When another process interferes, or a store can't be reached.
    """
    sources = encoding.sources
    if drop:
        encoding = find_dropped(encoding, run)
    if not encoding.layout.rows:
        raise BadInput(
            f"{sources.items[0].path}: none of the {sources.rows} rows is free of NaN and "
            "infinity, so there is nothing to store; check how the vectors were made"
        )
    encoded = _encode(encoding, run, progress)
    key = f"{encoding.prefix}vectors/{GROUP_KEY}"
    document = write_checked(encoding.store, key, zarr_format.array_document(encoding.layout))
    arrays, documents = _write_sidecars(encoding, sidecars)
    layout = encoding.layout
    shards = tuple(shard for part in encoded for shard in part.shards)
    firsts = [part.zero_rows[1] for part in encoded if part.zero_rows[0]]
    return Piece(
        vectors=StoredArray(layout.dtype, layout.shard_rows, layout.chunk_rows, shards),
        arrays=arrays,
        documents=(document, *documents),
        digests=b"".join(part.digests for part in encoded),
        zero_rows=(sum(part.zero_rows[0] for part in encoded), firsts[0] if firsts else -1),
        dropped=encoding.dropped,
        sources=tuple(SourceRecord(s.path, s.rows, s.dtype.name) for s in sources.items),
    )


def _encode(encoding: Encoding, run: Run, progress: Progress) -> list[Encoded]:
    """Encode the parts that are missing and return the records of all."""
    for _ in range(_ATTEMPTS):
        found, missing = missing_parts(encoding)
        if not missing:
            return [found[index] for index in range(encoding.parts)]
        run(EncodePart(encoding, progress), missing, encoding.memory_bytes)
    # Another ingest of the same sources may end, and sweep, while this one is at work.
    raise Incomplete(
        f"{encoding.store.url}: another process changed it during ingest; run the same command "
        "again once that has ended"
    )


def _write_sidecars(
    encoding: Encoding, sidecars: Sequence[Sidecar]
) -> tuple[dict[str, StoredArray], list[StoredObject]]:
    """Write ids, labels and weights of the rows that are kept."""
    dropped, arrays, documents = encoding.dropped, {}, []
    for sidecar in sidecars:
        writer = _SidecarWriter(encoding.store, encoding.prefix, sidecar)
        row = 0
        for values in sidecar.blocks():
            kept = np.ones(len(values), bool)
            left_out = slice(*np.searchsorted(dropped, [row, row + len(values)]))
            kept[dropped[left_out] - row] = False
            writer.add(values[kept])
            row += len(values)
        arrays[sidecar.name], document = writer.finish()
        documents.append(document)
    return arrays, documents


def record_dropped(
    store: ObjectStore, dropped: npt.NDArray[np.int64], prefix: str = ""
) -> DroppedRows:
    """Store the numbers of rows that were left out, in the manifest or beside it."""
    all_rows = None
    if len(dropped) > LISTED_DROPPED_ROWS:
        file = io.BytesIO()
        np.save(file, dropped)
        all_rows = write_checked(store, f"{prefix}{DROPPED_KEY}", file.getvalue())
    return DroppedRows(len(dropped), tuple(dropped[:LISTED_DROPPED_ROWS].tolist()), all_rows)


@dataclass
class _ArrayWriter:
    """Writes one array shard by shard from rows that arrive in pieces."""

    store: ObjectStore
    name: str
    layout: zarr_format.Layout
    shards: list[Shard] = field(default_factory=list)

    def write(self, rows: npt.NDArray[Any]) -> None:
        data = zarr_format.encode_shard(rows, self.layout)
        key = f"{self.name}/{zarr_format.shard_key(self.layout, len(self.shards))}"
        written = write_checked(self.store, key, data)
        self.shards.append(Shard(key, written.size, written.xxh3, len(rows)))

    def finish(self) -> tuple[StoredArray, StoredObject]:
        rows = sum(shard.rows for shard in self.shards)
        layout = zarr_format.Layout(
            rows,
            self.layout.row_shape,
            self.layout.dtype,
            self.layout.shard_rows,
            self.layout.chunk_rows,
        )
        document = write_checked(
            self.store, f"{self.name}/{GROUP_KEY}", zarr_format.array_document(layout)
        )
        stored = StoredArray(layout.dtype, layout.shard_rows, layout.chunk_rows, tuple(self.shards))
        return stored, document


class _SidecarWriter:
    """Writes the kept values of one sidecar."""

    def __init__(self, store: ObjectStore, prefix: str, sidecar: Sidecar) -> None:
        shard_rows, chunk_rows = zarr_format.plan_rows(sidecar.rows, 8, 8 * _SIDECAR_ROWS)
        layout = zarr_format.Layout(sidecar.rows, (), DTYPES[sidecar.name], shard_rows, chunk_rows)
        self._array = _ArrayWriter(store, f"{prefix}{sidecar.name}", layout)
        self._sidecar = sidecar
        self._kept: list[npt.NDArray[Any]] = []
        self._positive = False

    def add(self, values: npt.NDArray[Any]) -> None:
        """Take the next values."""
        self._positive = self._positive or self._sidecar.name != "weights" or bool(values.any())
        self._kept.append(values)
        shard_rows = self._array.layout.shard_rows
        while sum(map(len, self._kept)) >= shard_rows:
            waiting = np.concatenate(self._kept)
            self._array.write(waiting[:shard_rows])
            self._kept = [waiting[shard_rows:]]

    def finish(self) -> tuple[StoredArray, StoredObject]:
        if not self._positive:
            raise BadInput(
                f"{self._sidecar.path}: all weights are zero; leave them out or mend them"
            )
        waiting = np.concatenate(self._kept)
        if len(waiting):
            self._array.write(waiting)
        return self._array.finish()
