"""From sources to a corpus, in parts that any process can do, and a few shards of memory.

Every shard is written whole, read back and compared. The Zarr group's document comes first and
says whose folder this is; the manifest comes last. So an ingest that was interrupted at any moment
leaves no corpus, and running it again goes on with the parts that are missing
(:mod:`.encoding`). Files that no ingest wrote are never touched.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from latentscale_pipeline.corpus import zarr_format
from latentscale_pipeline.corpus.corpus import (
    GROUP_KEY,
    OWNERSHIP,
    Corpus,
    is_unfinished,
    open_corpus,
)
from latentscale_pipeline.corpus.encoding import (
    RECORDS,
    Encoded,
    EncodePart,
    Encoding,
    Run,
    find_dropped,
    missing_parts,
    one_after_another,
    shards_of_a_part,
    write_checked,
)
from latentscale_pipeline.corpus.fingerprint import combine
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
from latentscale_pipeline.corpus.sidecars import DTYPES, Sidecar, column_sidecar, open_sidecar
from latentscale_pipeline.corpus.sources import Sources, open_sources, source_key
from latentscale_pipeline.errors import BadInput, Incomplete, StoreFull
from latentscale_pipeline.objects import ObjectStore
from latentscale_pipeline.progress import Progress, silent

SHARD_BYTES = 64 << 20
DROPPED_KEY = "dropped.npy"
LISTED_DROPPED_ROWS = 1000

_SIDECAR_ROWS = 1 << 18
_ATTEMPTS = 4


def ingest(
    sources: Sources | Sequence[str],
    corpus_url: str,
    *,
    ids: str | None = None,
    labels: str | None = None,
    weights: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_invalid: str = "error",
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    overwrite: bool = False,
    run: Run = one_after_another,
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
        Files with one value a source row: a column of any format, or text with one value a line.
    columns : mapping, optional
        Which column of these files it is; for a name without a file, which column of the sources.
    on_invalid : {"error", "drop"}
        What to do with a row that holds NaN or infinity, or a value too large for the stored dtype.
    dtype : {"float16", "float32"}, optional
        Stored dtype. Default: float16 if all sources are, else float32.
    shard_bytes : int
        About how many bytes a shard has. A few times as much memory is needed.
    overwrite : bool
        Replace a corpus that is there already.
    run : callable
        Does the parts of the work: one after another in this process, or elsewhere.
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
    columns = columns or {}
    given = {"ids": ids, "labels": labels, "weights": weights}
    inside = {name: column for name, column in columns.items() if given[name] is None}
    opened = (
        sources
        if isinstance(sources, Sources)
        else open_sources(sources, corpus_url, columns=inside)
    )
    sidecars = [
        column_sidecar(name, opened)
        if url is None
        else open_sidecar(name, url, opened.rows, columns.get(name))
        for name, url in given.items()
        if url is not None or name in opened.items[0].columns
    ]
    stored_dtype = _stored_dtype(opened, dtype)
    store = ObjectStore(corpus_url)
    _check_target(store, opened, overwrite)
    started = time.time()
    if overwrite:
        store.remove(MANIFEST_KEY)
    # From here until the manifest is written there is no corpus at the target.
    try:
        encoding = _encoding(store, opened, stored_dtype, shard_bytes)
        manifest = _write_rows(encoding, sidecars, on_invalid == "drop", run, progress)
        _sweep(store, manifest, started)
        store.write_checked(MANIFEST_KEY, manifest.to_bytes())
        store.remove_all(RECORDS)
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

    def checksum_of(self, name: str) -> str | None:
        """Tell that nothing is known of a row-aligned array: a source on the fly has vectors."""
        del name
        return None

    @property
    def source_bytes(self) -> int:
        """Size of the vectors as they are in the source."""
        return sum(source.rows * source.d * source.dtype.itemsize for source in self.sources.items)


def ensure_corpus(
    url: str,
    output_store_url: str,
    progress: Progress | None = None,
    run_for: Callable[[Sources], Run] | None = None,
) -> Corpus:
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
    run_for : callable, optional
        Says what does the parts of the work for given sources; see :func:`ingest`.

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
        run=one_after_another if run_for is None else run_for(found.sources),
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

    def __init__(self, store: ObjectStore, sidecar: Sidecar) -> None:
        shard_rows, chunk_rows = zarr_format.plan_rows(sidecar.rows, 8, 8 * _SIDECAR_ROWS)
        layout = zarr_format.Layout(sidecar.rows, (), DTYPES[sidecar.name], shard_rows, chunk_rows)
        self._array = _ArrayWriter(store, sidecar.name, layout)
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


def _encoding(
    store: ObjectStore, sources: Sources, dtype: np.dtype[Any], shard_bytes: int
) -> Encoding:
    row_bytes = sources.d * dtype.itemsize
    shard_rows, chunk_rows = zarr_format.plan_rows(sources.rows, row_bytes, shard_bytes)
    layout = zarr_format.Layout(sources.rows, (sources.d,), dtype.name, shard_rows, chunk_rows)
    part_shards = shards_of_a_part(sources, shard_rows * row_bytes)
    about = [sources.key, sources.rows, sources.d, dtype.name, shard_rows, chunk_rows, part_shards]
    key = xxhash.xxh3_64_hexdigest(json.dumps(about).encode())
    return Encoding(store, "vectors", sources, layout, key, part_shards, np.empty(0, np.int64))


def _write_rows(
    encoding: Encoding, sidecars: Sequence[Sidecar], drop: bool, run: Run, progress: Progress
) -> Manifest:
    store, sources = encoding.store, encoding.sources
    group = write_checked(store, GROUP_KEY, zarr_format.group_document(OWNERSHIP))
    if drop:
        encoding = find_dropped(encoding, run)
    if not encoding.layout.rows:
        raise BadInput(
            f"{sources.items[0].path}: none of the {sources.rows} rows is free of NaN and "
            "infinity, so there is nothing to store; check how the vectors were made"
        )
    encoded = _encode(encoding, run, progress)
    document = write_checked(
        store, f"{encoding.prefix}/{GROUP_KEY}", zarr_format.array_document(encoding.layout)
    )
    arrays, documents = _write_sidecars(encoding, sidecars)
    layout = encoding.layout
    firsts = [part.zero_rows[1] for part in encoded if part.zero_rows[0]]
    return Manifest(
        n=layout.rows,
        d=sources.d,
        vectors=StoredArray(
            layout.dtype,
            layout.shard_rows,
            layout.chunk_rows,
            tuple(shard for part in encoded for shard in part.shards),
        ),
        arrays=arrays,
        documents=(group, document, *documents),
        fingerprint=combine((p.digests for p in encoded), layout.dtype, layout.rows, sources.d),
        zero_rows=ZeroRows(
            sum(part.zero_rows[0] for part in encoded), firsts[0] if firsts else None
        ),
        dropped=_record_dropped(store, encoding.dropped.tolist()),
        sources=tuple(SourceRecord(s.path, s.rows, s.dtype.name) for s in sources.items),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=metadata.version("latentscale"),
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
        writer = _SidecarWriter(encoding.store, sidecar)
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


def _record_dropped(store: ObjectStore, dropped: list[int]) -> DroppedRows:
    all_rows = None
    if len(dropped) > LISTED_DROPPED_ROWS:
        file = io.BytesIO()
        np.save(file, np.array(dropped, np.int64))
        all_rows = write_checked(store, DROPPED_KEY, file.getvalue())
    return DroppedRows(len(dropped), tuple(dropped[:LISTED_DROPPED_ROWS]), all_rows)


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
    for name in ("vectors", *DTYPES, RECORDS):
        store.remove_all(name)
    for key in (DROPPED_KEY, GROUP_KEY):
        store.remove(key)
