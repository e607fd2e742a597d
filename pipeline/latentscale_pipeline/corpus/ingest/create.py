"""From sources to a corpus, in partitions that any process can encode, and little memory.

An ingest has three steps. *Init* reads the headers and decides how the rows are cut, *encode*
writes the shards, partition by partition (:mod:`.encoding`), and *finalise* writes the manifest,
which makes them a corpus. Every shard is written whole, read back and compared. An ingest that was
interrupted at any moment goes on with the partitions that are missing when it is run again. Files
that no ingest wrote are never touched.

A corpus that is replaced stays whole and readable until the new one is. Both are in the same folder
meanwhile, and need room there: Zarr knows two ways to write the key of a shard, ``c/12/0`` and
``c.12.0``, and the new shards have the one that the old ones don't. Neither disks nor object stores
need more than replacing one object, the manifest. Readers of the old corpus are refused once its
shards are deleted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np

from latentscale_pipeline.corpus.corpus import (
    GROUP_KEY,
    OWNERSHIP,
    Corpus,
    is_unfinished,
    open_corpus,
)
from latentscale_pipeline.corpus.fingerprint import combine
from latentscale_pipeline.corpus.ingest.encoding import (
    RECORDS,
    Encoding,
    Run,
    run_serially,
)
from latentscale_pipeline.corpus.ingest.sidecars import DTYPES
from latentscale_pipeline.corpus.ingest.sources import Sources, open_sources, source_key
from latentscale_pipeline.corpus.ingest.writing import (
    DROPPED_KEYS,
    SHARD_BYTES,
    Piece,
    encode_piece,
    init_encoding,
    interfered,
    open_given,
    record_dropped,
    stored_dtype,
    taking_back,
    write_documents,
)
from latentscale_pipeline.corpus.manifest import (
    APPENDED,
    MANIFEST_KEY,
    SCHEMA,
    Manifest,
)
from latentscale_pipeline.corpus.shards import (
    Separator,
    group_attributes,
    group_document,
    plan_rows,
)
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.progress import Progress, silent
from latentscale_pipeline.storage.objects import ObjectStore


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
    run: Run = run_serially,
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
        Replace a corpus that is there already. It stays until the new one is whole.
    run : callable
        Encodes the partitions: one after another in this process, or elsewhere.
    progress : callable
        ``progress(rows read, rows in all)``.

    Returns
    -------
    Corpus

    Raises
    ------
    BadInput
        On anything wrong with the sources, the sidecars or the target: one line, and what was
        there stays.
    Incomplete
        When a store can't be reached: running it again goes on.
    """
    if on_invalid not in {"error", "drop"}:
        raise ValueError(f"on_invalid must be 'error' or 'drop', not {on_invalid!r}")
    files = {"ids": ids, "labels": labels, "weights": weights}
    opened, sidecars = open_given(sources, corpus_url, files, dict(columns or {}))
    store = ObjectStore(corpus_url)
    _check_target(store, opened, overwrite)
    before = _corpus_there(store)
    started = time.time()

    def take_back() -> None:
        there = _corpus_there(store)
        if there is not None or not store.exists(MANIFEST_KEY):
            _collect_garbage(store, None if there is None else there.manifest, started)

    with taking_back(take_back):
        group = {GROUP_KEY: group_document(OWNERSHIP)}
        if before is None:  # whose folder this is has to be known from the first object on
            write_documents(store, group)
        encoding = init_encoding(
            store,
            opened,
            _stored_dtype(opened, dtype),
            shard_bytes,
            separator=_free_separator(store, before),
        )
        piece = encode_piece(encoding, sidecars, on_invalid == "drop", run, progress)
        manifest = _finalise(encoding, piece, group, before)
        _collect_garbage(store, manifest, started)
    try:
        corpus = open_corpus(corpus_url)
        corpus.check_sizes()
    except BadInput as error:
        raise interfered(store) from error
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
        return plan_rows(self.sources.rows, row_bytes, SHARD_BYTES)[0]

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
        Says what encodes the partitions of given sources; see :func:`ingest`.

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
        run=run_serially if run_for is None else run_for(found.sources),
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
    return stored_dtype(source.dtype for source in sources.items)


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
    """Return whether an ingest wrote the group or the manifest here: one of them may be damaged."""
    with contextlib.suppress(FileNotFoundError):
        attributes = group_attributes(store.read(GROUP_KEY))
        if OWNERSHIP.items() <= attributes.items():
            return True
    return SCHEMA.encode() in store.read(MANIFEST_KEY)


def _corpus_there(store: ObjectStore) -> Corpus | None:
    """Open the corpus that is there; None without one, or without a manifest that can be read."""
    with contextlib.suppress(BadInput):
        return open_corpus(store.address)
    return None


def _free_separator(store: ObjectStore, before: Corpus | None) -> Separator:
    """Choose keys for the shards that no shard of the corpus that is there has."""
    if before is not None:
        taken = before.manifest.vectors.shards[0].key.startswith("vectors/c/")
    else:  # a manifest that can't be read may be restored, or be another version's
        taken = store.exists(MANIFEST_KEY) and "c" in store.folders("vectors")
    return "." if taken else "/"


def _finalise(
    encoding: Encoding, piece: Piece, group: dict[str, bytes], before: Corpus | None
) -> Manifest:
    """Replace the existing corpus by what was written.

    The new shards have keys of their own, but Zarr's documents have the same keys as before. So the
    manifest is replaced twice: by one that vouches for no document, while they are replaced, and by
    the whole one.
    """
    store = encoding.store
    manifest = Manifest(
        n=piece.rows,
        d=encoding.sources.d,
        vectors=piece.vectors,
        arrays=piece.arrays,
        documents=(),
        fingerprint=combine([piece.digests], piece.vectors.dtype, piece.rows, encoding.sources.d),
        zero_rows=piece.zero_rows,
        dropped=record_dropped(encoding, piece.dropped),
        sources=piece.sources,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=metadata.version("latentscale"),
    )
    if before is not None:
        if not before.is_current():
            raise interfered(store)
        store.write_checked(MANIFEST_KEY, manifest.to_bytes())
    documents = write_documents(store, {**group, **piece.documents})
    manifest = replace(manifest, documents=documents)
    store.write_checked(MANIFEST_KEY, manifest.to_bytes())
    return manifest


def _collect_garbage(store: ObjectStore, manifest: Manifest | None, started: float) -> None:
    """Delete objects that ingests have written here and the manifest doesn't list."""
    if manifest is None:
        for name in ("vectors", *DTYPES, APPENDED):
            store.remove_all(name)
        store.remove(GROUP_KEY)
    wanted = {stored.key for stored in manifest.objects()} if manifest else set()
    for name in ("vectors", *DTYPES, APPENDED):
        for key in store.keys(name):
            if key not in wanted:
                store.remove(key)
    for key in DROPPED_KEYS.values():
        if key not in wanted:
            store.remove(key)
    store.remove_all(RECORDS)
    # A partial file older than this ingest has no living writer: a shard takes seconds.
    store.collect_partial(older_than=time.time() - started)
