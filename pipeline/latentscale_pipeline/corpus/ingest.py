"""From sources to a corpus, in one pass and a few shards of memory.

Every shard is written whole, read back and compared. The Zarr group's document comes first and
says whose folder this is; the manifest comes last. So an ingest that was interrupted at any moment
leaves no corpus, and running it again replaces what it left. Files that no ingest wrote are never
touched.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus import zarr_format
from latentscale_pipeline.corpus.corpus import (
    GROUP_KEY,
    OWNERSHIP,
    Corpus,
    is_unfinished,
    open_corpus,
)
from latentscale_pipeline.corpus.fingerprint import Fingerprint
from latentscale_pipeline.corpus.manifest import (
    MANIFEST_KEY,
    SCHEMA,
    DroppedRows,
    Manifest,
    Shard,
    SourceRecord,
    StoredArray,
    StoredObject,
    ZeroRows,
)
from latentscale_pipeline.corpus.sidecars import DTYPES, Sidecar, open_sidecar, take
from latentscale_pipeline.corpus.sources import Source, Sources, open_sources, source_key
from latentscale_pipeline.errors import BadInput, Incomplete, StoreFull
from latentscale_pipeline.objects import ObjectStore
from latentscale_pipeline.progress import Progress, silent

SHARD_BYTES = 64 << 20
DROPPED_KEY = "dropped.npy"
LISTED_DROPPED_ROWS = 1000

_SIDECAR_ROWS = 1 << 18
_SCAN_ROWS = 1024


def ingest(
    sources: Sources | Sequence[str],
    corpus_url: str,
    *,
    ids: str | None = None,
    labels: str | None = None,
    weights: str | None = None,
    on_invalid: str = "error",
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Corpus:
    """Write a corpus from sources.

    Parameters
    ----------
    sources : Sources or sequence of str
        What :func:`open_sources` returns, or its argument.
    corpus_url : str
        A path or fsspec URL where there is nothing yet, or what an interrupted ingest left.
    ids, labels, weights : str, optional
        Files with one value a source row: ``.npy``, or text with one value a line.
    on_invalid : {"error", "drop"}
        What to do with a row that holds NaN or infinity, or a value too large for the stored dtype.
    dtype : {"float16", "float32"}, optional
        Stored dtype. Default: float16 if all sources are, else float32.
    shard_bytes : int
        About how many bytes a shard has. A few times as much memory is needed.
    overwrite : bool
        Replace a corpus that is there already.
    progress : callable
        ``progress(rows read, rows in all)``.

    Returns
    -------
    Corpus

    Raises
    ------
    BadInput
        On anything wrong with the sources, the sidecars or the target: one line, and no corpus.
    Incomplete
        When a store can't be reached: running it again goes on.
    """
    if on_invalid not in {"error", "drop"}:
        raise ValueError(f"on_invalid must be 'error' or 'drop', not {on_invalid!r}")
    opened = sources if isinstance(sources, Sources) else open_sources(sources, corpus_url)
    given = {"ids": ids, "labels": labels, "weights": weights}
    sidecars = [
        open_sidecar(name, url, opened.rows) for name, url in given.items() if url is not None
    ]
    stored_dtype = _stored_dtype(opened, dtype)
    store = ObjectStore(corpus_url)
    _check_target(store, opened, overwrite)
    started = time.time()
    if overwrite:
        store.remove(MANIFEST_KEY)
    # From here until the manifest is written there is no corpus at the target.
    try:
        manifest = _write_rows(
            store, opened, sidecars, stored_dtype, on_invalid == "drop", shard_bytes, progress
        )
        _sweep(store, manifest, started)
        store.write_checked(MANIFEST_KEY, manifest.to_bytes())
    except (BadInput, StoreFull) as error:
        with contextlib.suppress(BadInput, Incomplete, OSError):
            _remove(store)
        if isinstance(error, StoreFull):  # it took the space back: there is nothing to resume
            raise BadInput(str(error)) from error
        raise
    try:
        corpus = open_corpus(corpus_url)
        corpus.check_sizes()
    except BadInput as error:
        raise Incomplete(
            f"{store.url}: another process changed it during ingest; run the same command again "
            "once that has ended"
        ) from error
    return corpus


@dataclass(frozen=True)
class Prospect:
    """A corpus that isn't there yet: what an ingest of its source will make, by the headers.

    Attributes
    ----------
    url : str
        The source, without credentials.
    target : str
        Where the corpus will be.
    sources : Sources
        What will be read.
    excluded : tuple of str
        Keys of shards that are left out.
    """

    url: str
    target: str
    sources: Sources
    excluded: tuple[str, ...] = ()

    def without(self, shards: Collection[str]) -> Prospect:
        """Return what will be there without the rows of some shards; see ``Corpus.without``."""
        return replace(self, excluded=tuple(shards))

    @property
    def n(self) -> int:
        """Rows, those of excluded shards left out."""
        return max(1, self.sources.rows - self.shard_rows * len(self.excluded))

    @property
    def d(self) -> int:
        """Dimensions."""
        return self.sources.d

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the vectors as they will be stored."""
        return _stored_dtype(self.sources, None)

    @property
    def shard_rows(self) -> int:
        """Rows of every shard but the last."""
        row_bytes = self.d * self.dtype.itemsize
        return zarr_format.plan_rows(self.sources.rows, row_bytes, SHARD_BYTES)[0]

    @property
    def shard_count(self) -> int:
        """How many shards will hold these rows."""
        return -(-self.n // self.shard_rows)

    @property
    def zero_rows(self) -> int:
        """How many rows are known to be zero: reading all of them tells, so none is."""
        return 0

    @property
    def source_bytes(self) -> int:
        """Size of the vectors as they are in the source."""
        return sum(source.rows * source.d * source.dtype.itemsize for source in self.sources.items)


def ensure_corpus(url: str, output_store_url: str, progress: Progress | None = None) -> Corpus:
    """Open a corpus, or make one of a source that isn't a corpus yet.

    Parameters
    ----------
    url : str
        A corpus, or any single source: a file, glob, folder or Zarr.
    output_store_url : str
        Where the corpora of such sources are kept: ``corpora/<key>.zarr`` below it. The key hashes
        path, size and modification time, so a source that hasn't changed is ingested once.
    progress : callable, optional
        ``progress(rows read, rows in all)``.

    Raises
    ------
    BadInput, Incomplete
        As :func:`ingest` and :func:`open_corpus`.
    """
    found = find_corpus(url, output_store_url)
    if isinstance(found, Corpus):
        return found
    return ingest(
        found.sources,
        found.target,
        overwrite=ObjectStore(found.target).exists(MANIFEST_KEY),
        progress=progress or silent,
    )


def find_corpus(url: str, output_store_url: str) -> Corpus | Prospect:
    """Open what :func:`ensure_corpus` would open, or describe what it would make.

    Reads manifests and headers only, and writes nothing.

    Raises
    ------
    BadInput, Incomplete
        As :func:`open_corpus`, and :func:`open_sources`.
    """
    store = ObjectStore(url)
    if store.exists(MANIFEST_KEY) or is_unfinished(store):
        return open_corpus(url)
    key = source_key([url], output_store_url)
    target = f"{output_store_url.rstrip('/')}/corpora/{key}.zarr"
    with contextlib.suppress(BadInput):
        corpus = open_corpus(target)
        corpus.check_sizes()
        return corpus
    return Prospect(store.url, target, open_sources([url], output_store_url))


def _stored_dtype(sources: Sources, dtype: str | None) -> np.dtype[Any]:
    if dtype is not None:
        if dtype not in {"float16", "float32"}:
            raise ValueError(f"dtype must be 'float16' or 'float32', not {dtype!r}")
        return np.dtype(dtype)
    halves = all(s.dtype.kind == "f" and s.dtype.itemsize == 2 for s in sources.items)
    return np.dtype(np.float16 if halves else np.float32)


def _check_target(store: ObjectStore, sources: Sources, overwrite: bool) -> None:
    places = {source.path for source in sources.items}
    if any(place == store.url or place.startswith(store.url + "/") for place in places):
        raise BadInput(f"{store.url}: the corpus would replace its own source; give another path")
    if store.exists(MANIFEST_KEY):
        if not overwrite:
            raise BadInput(
                f"{store.url}: there is a corpus already; give another path, or --overwrite"
            )
        if not _owned(store):
            raise BadInput(
                f"{store.url}: there is a {MANIFEST_KEY} that no ingest wrote; give another path"
            )
    elif store.exists("") and not is_unfinished(store) and store.keys():
        raise BadInput(
            f"{store.url}: it exists and is not a corpus; give a path where there is nothing yet"
        )


def _owned(store: ObjectStore) -> bool:
    """Tell whether an ingest wrote the group or the manifest here: one of them may be damaged."""
    with contextlib.suppress(FileNotFoundError):
        attributes = zarr_format.group_attributes(store.read(GROUP_KEY))
        if OWNERSHIP.items() <= attributes.items():
            return True
    return SCHEMA.encode() in store.read(MANIFEST_KEY)


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
        written = _write_checked(self.store, key, data)
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
        document = _write_checked(
            self.store, f"{self.name}/{GROUP_KEY}", zarr_format.array_document(layout)
        )
        stored = StoredArray(layout.dtype, layout.shard_rows, layout.chunk_rows, tuple(self.shards))
        return stored, document


class _SidecarWriter:
    """Writes the kept values of one sidecar."""

    def __init__(self, store: ObjectStore, sidecar: Sidecar) -> None:
        shard_rows, chunk_rows = zarr_format.plan_rows(sidecar.rows, 8, 8 * _SIDECAR_ROWS)
        layout = zarr_format.Layout(sidecar.rows, (), DTYPES[sidecar.name], shard_rows, chunk_rows)
        self._array = _ArrayWriter(store, sidecar.name, layout)
        self._sidecar = sidecar
        self._take = take(sidecar)
        self._kept: list[npt.NDArray[Any]] = []
        self._positive = False

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Read as many values as there are rows and keep those of the kept rows."""
        values = self._take(len(kept))[kept]
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


class _VectorWriter:
    """Fills shards with valid rows; counts zero rows and hashes what it writes."""

    def __init__(
        self, store: ObjectStore, sources: Sources, dtype: np.dtype[Any], shard_bytes: int
    ) -> None:
        shard_rows, chunk_rows = zarr_format.plan_rows(
            sources.rows, sources.d * dtype.itemsize, shard_bytes
        )
        layout = zarr_format.Layout(sources.rows, (sources.d,), dtype.name, shard_rows, chunk_rows)
        self._array = _ArrayWriter(store, "vectors", layout)
        self._buffer = np.empty((shard_rows, sources.d), dtype)
        self._filled = 0
        self._fingerprint = Fingerprint(dtype, sources.d)
        self.n = 0
        self.zero_count = 0
        self.first_zero: int | None = None

    def add(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Take the next source rows (at most 1024) and return which of them were valid."""
        if self._filled + len(rows) > len(self._buffer):
            room = len(self._buffer) - self._filled
            return np.concatenate([self.add(rows[:room]), self.add(rows[room:])])
        taken = self._buffer[self._filled : self._filled + len(rows)]
        with np.errstate(over="ignore", invalid="ignore"):
            taken[...] = rows
        valid = np.asarray(np.isfinite(taken).all(axis=1))
        if not valid.all():
            kept = taken[valid]
            taken = taken[: len(kept)]
            taken[...] = kept
        self._note_zeros(taken)
        self._filled += len(taken)
        self.n += len(taken)
        if self._filled == len(self._buffer):
            self._flush()
        return valid

    def finish(self) -> tuple[StoredArray, StoredObject, str]:
        """Write the last shard and the array's document."""
        if self._filled:
            self._flush()
        return *self._array.finish(), self._fingerprint.finish()

    def _note_zeros(self, rows: npt.NDArray[Any]) -> None:
        zeros = np.flatnonzero(~rows.any(axis=1))
        if zeros.size and self.first_zero is None:
            self.first_zero = self.n + int(zeros[0])
        self.zero_count += zeros.size

    def _flush(self) -> None:
        rows = self._buffer[: self._filled]
        self._fingerprint.update(rows)
        self._array.write(rows)
        self._filled = 0


def _write_rows(
    store: ObjectStore,
    sources: Sources,
    sidecars: Sequence[Sidecar],
    dtype: np.dtype[Any],
    drop: bool,
    shard_bytes: int,
    progress: Progress,
) -> Manifest:
    group = _write_checked(store, GROUP_KEY, zarr_format.group_document(OWNERSHIP))
    vectors = _VectorWriter(store, sources, dtype, shard_bytes)
    companions = {sidecar.name: _SidecarWriter(store, sidecar) for sidecar in sidecars}
    dropped: list[int] = []
    before = 0
    for source in sources.items:
        row = 0
        for block in source.blocks():
            for start in range(0, len(block), _SCAN_ROWS):
                piece = block[start : start + _SCAN_ROWS]
                valid = vectors.add(piece)
                invalid = np.flatnonzero(~valid)
                if invalid.size and not drop:
                    raise _invalid(source, piece, invalid, row, before, dtype)
                dropped.extend((before + row + invalid).tolist())
                for companion in companions.values():
                    companion.keep(valid)
                row += len(piece)
            progress(before + row, sources.rows)
        before += row
    if not vectors.n:
        raise BadInput(
            f"{sources.items[0].path}: none of the {sources.rows} rows is free of NaN and "
            "infinity, so there is nothing to store; check how the vectors were made"
        )
    stored, document, fingerprint = vectors.finish()
    arrays, documents = _finish(companions)
    return Manifest(
        n=vectors.n,
        d=sources.d,
        vectors=stored,
        arrays=arrays,
        documents=(group, document, *documents),
        fingerprint=fingerprint,
        zero_rows=ZeroRows(vectors.zero_count, vectors.first_zero),
        dropped=_record_dropped(store, dropped),
        sources=tuple(SourceRecord(s.path, s.rows, s.dtype.name) for s in sources.items),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=metadata.version("latentscale"),
    )


def _finish(
    companions: Mapping[str, _SidecarWriter],
) -> tuple[dict[str, StoredArray], list[StoredObject]]:
    arrays = {}
    documents = []
    for name, companion in companions.items():
        arrays[name], document = companion.finish()
        documents.append(document)
    return arrays, documents


def _invalid(
    source: Source,
    piece: npt.NDArray[Any],
    invalid: npt.NDArray[np.intp],
    row: int,
    before: int,
    dtype: np.dtype[Any],
) -> BadInput:
    """Explain the first invalid row of a piece that begins at a row of its source."""
    values = piece[invalid[0]]
    if np.isnan(values).any():
        what = "holds NaN"
    elif np.isinf(values).any():
        what = "holds infinity"
    else:
        what = f"holds a value too large for {dtype.name}"
    at = row + int(invalid[0])
    more = (
        f"; {invalid.size} such rows up to row {row + len(piece) - 1}" if invalid.size > 1 else ""
    )
    whole = f" (row {before + at} of all sources)" if before else ""
    return BadInput(
        f"{source.path}: row {at}{whole} {what}{more}; mend the source, or leave such rows out "
        "with --on-invalid drop"
    )


def _record_dropped(store: ObjectStore, dropped: list[int]) -> DroppedRows:
    all_rows = None
    if len(dropped) > LISTED_DROPPED_ROWS:
        file = io.BytesIO()
        np.save(file, np.array(dropped, np.int64))
        all_rows = _write_checked(store, DROPPED_KEY, file.getvalue())
    return DroppedRows(len(dropped), tuple(dropped[:LISTED_DROPPED_ROWS]), all_rows)


def _write_checked(store: ObjectStore, key: str, data: bytes) -> StoredObject:
    store.write_checked(key, data)
    return StoredObject.of(key, data)


def _sweep(store: ObjectStore, manifest: Manifest, started: float) -> None:
    """Delete what earlier ingests left here and this one didn't replace."""
    wanted = {stored.key for stored in manifest.objects()}
    for name in ("vectors", *DTYPES):
        for key in store.keys(name):
            if key not in wanted:
                store.remove(key)
    if DROPPED_KEY not in wanted:
        store.remove(DROPPED_KEY)
    # A partial file older than this ingest has no living writer: a shard takes seconds.
    store.sweep_partial(older_than=time.time() - started)


def _remove(store: ObjectStore) -> None:
    for name in ("vectors", *DTYPES):
        store.remove_all(name)
    for key in (DROPPED_KEY, GROUP_KEY):
        store.remove(key)
