"""Ingest sources into a new corpus, in partitions that any process can encode, with little memory.

An ingest has three steps. *Init* reads the headers and chooses the shard size. *Encode* writes the
shards, partition by partition (:mod:`.encoding`). *Finalise* writes the manifest, which completes
the corpus. Every shard is read back and compared after it is written. An interrupted ingest that is
run again continues with the missing partitions. Files that no ingest wrote are never touched.

A corpus that is being replaced stays complete and readable until the new one is complete. Until
then both are in the same folder and need space there. Zarr has two forms of shard keys, ``c/12/0``
and ``c.12.0``; the new shards use the one that the old shards don't. So the replacement itself
replaces only single objects, which is atomic on disks and in object stores. Readers of the old
corpus get an error once its shards are deleted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
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
    ON_INVALID,
    RECORDS,
    Encoding,
    Run,
    run_serially,
)
from latentscale_pipeline.corpus.ingest.sidecars import DTYPES, suggesting_column
from latentscale_pipeline.corpus.ingest.sources import (
    FieldChoice,
    Sources,
    open_sources,
    source_key,
)
from latentscale_pipeline.corpus.ingest.write_lock import are_of_a_write_lock, hold_write_lock
from latentscale_pipeline.corpus.ingest.writing import (
    DROPPED_KEYS,
    SHARD_BYTES,
    Piece,
    encode_piece,
    interfered,
    key_of_rows,
    open_given,
    plan_encoding,
    record_dropped,
    remove_other_records,
    rollback_on_failure,
    stored_dtype,
    write_documents,
)
from latentscale_pipeline.corpus.manifest import (
    APPENDED,
    MANIFEST_KEY,
    SCHEMA,
    Manifest,
)
from latentscale_pipeline.corpus.repeated_ids import find_repeated_ids
from latentscale_pipeline.corpus.shards import (
    Separator,
    group_attributes,
    group_document,
    plan_rows,
)
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.progress import Echo, Progress, silent
from latentscale_pipeline.storage.canonical import digest
from latentscale_pipeline.storage.objects import ObjectStore


def ingest(
    sources: Sources | Sequence[str],
    corpus_url: str,
    *,
    ids: str | None = None,
    labels: str | None = None,
    texts: str | None = None,
    weights: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_invalid: str = "error",
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    overwrite: bool = False,
    run: Run = run_serially,
    progress: Progress = silent,
    source_name: str | None = None,
    left_out: Sequence[str] = (),
    wait: bool = False,
    echo: Echo | None = None,
) -> Corpus:
    """Write a corpus from sources.

    Parameters
    ----------
    sources : Sources or sequence of str
        The result of :func:`open_sources`, or its argument.
    corpus_url : str
        A path or fsspec URL where nothing exists yet, or where an ingest was interrupted.
    ids, labels, texts, weights : str, optional
        Files with one value per source row: a column in any format, or text with one value a line.
    columns : mapping, optional
        The column for ``ids``, ``labels``, ``texts`` or ``weights``: of its file or, without a
        file, of the sources.
    on_invalid : {"error", "drop", "drop-zero"}
        What to do with a row that holds NaN or infinity, or is out of the stored dtype's range: end
        with an error, or leave it out, and with ``drop-zero`` also rows that are all zero.
    dtype : {"float16", "float32"}, optional
        Stored dtype. Default: float16 if all sources are float16, else float32.
    shard_bytes : int
        Approximate size of a shard. The ingest needs a few times as much memory.
    overwrite : bool
        Replace an existing corpus. It stays until the new one is complete.
    run : callable
        Runs the partitions; by default one after another in this process.
    progress : callable
        ``progress(rows read, rows in all)``.
    source_name : str, optional
        What the manifest calls the sources instead of their paths, if these are temporary files.
    left_out : sequence of str
        Why the sources lack rows of a larger corpus.
    wait : bool
        Wait for another process that writes the corpus, and return what it has written.
    echo : callable, optional
        Called with a line when waiting begins.

    Returns
    -------
    Corpus

    Raises
    ------
    BadInput
        If the sources, what belongs to their rows, or the target are invalid. An existing corpus
        stays unchanged.
    Incomplete
        If a store can't be reached, or another process writes the corpus. A repeated call
        continues.
    """
    if on_invalid not in ON_INVALID:
        raise ValueError(f"on_invalid must be one of {', '.join(ON_INVALID)}, not {on_invalid!r}")
    files = {"ids": ids, "labels": labels, "texts": texts, "weights": weights}
    opened, sidecars = open_given(sources, corpus_url, files, dict(columns or {}))
    store = ObjectStore(corpus_url)
    planned = partial(
        plan_encoding,
        *(store, opened, _stored_dtype(opened, dtype), shard_bytes, on_invalid),
        beside=key_of_rows(opened, files, dict(columns or {})),
    )
    started, is_new = time.time(), not store.exists("")
    group = {GROUP_KEY: group_document(OWNERSHIP)}

    def prepare() -> bool:
        """Refuse a target that isn't free, mark it, and return whether rows are to be written."""
        if not overwrite and _was_killed_afterwards(planned()):
            return False
        _check_target(store, opened, overwrite)
        mark()
        return True

    def mark() -> None:
        """Mark the folder as ours, before anything else is there."""
        if not store.exists(MANIFEST_KEY):
            write_documents(store, group)

    if wait:
        _refuse_other_folders(store)
        mark()
    else:
        prepare()  # before the lock is written there, too

    def remove_folder() -> None:
        if is_new:
            store.remove_empty_folder()

    def take_back() -> None:
        there = _corpus_there(store)
        if there is not None or not store.exists(MANIFEST_KEY):
            _collect_garbage(store, None if there is None else there.manifest, started)

    with (
        rollback_on_failure(remove_folder),
        hold_write_lock(store, wait=wait, echo=echo),
        rollback_on_failure(take_back),
    ):
        if wait:
            with contextlib.suppress(BadInput):
                return _open_whole(corpus_url)
        if prepare():
            before = _corpus_there(store)
            encoding = planned(separator=_free_separator(store, before))
            remove_other_records(encoding)
            piece = encode_piece(encoding, sidecars, run, progress)
            if source_name is not None:
                named = tuple(replace(source, path=source_name) for source in piece.sources)
                piece = replace(piece, sources=named)
            manifest = _finalise(encoding, piece, group, before, tuple(left_out))
        else:
            manifest = open_corpus(corpus_url).manifest
        _collect_garbage(store, manifest, started)
    try:
        corpus = open_corpus(corpus_url)
        corpus.check_sizes()
    except BadInput as error:
        raise interfered(store) from error
    return corpus


UNREAD = "not read yet"
"""Stands for the checksum of what wasn't ingested yet."""


@dataclass(frozen=True)
class UningestedCorpus:
    """A corpus that doesn't exist yet; its properties are known from its source's headers.

    Attributes
    ----------
    url : str
        The source, without credentials.
    target : str
        Path or URL of the future corpus.
    sources : Sources
        The source, opened.
    fields : FieldChoice
        What is read of the source, and what is read from other files.
    excluded : tuple of str
        Keys of shards that are left out.
    """

    url: str
    target: str
    sources: Sources
    fields: FieldChoice = field(default_factory=FieldChoice)
    excluded: tuple[str, ...] = ()

    def without(self, shards: Collection[str]) -> UningestedCorpus:
        """Return the prospect without the rows of some shards; see ``Corpus.without``."""
        return replace(self, excluded=tuple(shards))

    @property
    def n(self) -> int:
        """Number of rows, without those of excluded shards."""
        return max(1, self.sources.rows - self.shard_rows * len(self.excluded))

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.sources.d

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype in which the vectors will be stored."""
        return _stored_dtype(self.sources, None)

    @property
    def shard_rows(self) -> int:
        """Rows of every shard except the last."""
        row_bytes = self.d * self.dtype.itemsize
        return plan_rows(self.sources.rows, row_bytes, SHARD_BYTES)[0]

    @property
    def shard_count(self) -> int:
        """Number of shards."""
        return -(-self.n // self.shard_rows)

    @property
    def zero_rows(self) -> int:
        """Zero: the rows haven't been read, so no row is known to be all zero."""
        return 0

    def checksum_of(self, name: str) -> str | None:
        """Return :data:`UNREAD` for what the corpus will have, and None for what it won't."""
        given = name in self.fields.files or name in self.sources.items[0].columns
        return UNREAD if given else None

    @property
    def source_bytes(self) -> int:
        """Size of the vectors in the source."""
        return sum(source.rows * source.d * source.dtype.itemsize for source in self.sources.items)


def ensure_corpus(
    source: str | Sequence[str],
    output_store_url: str,
    progress: Progress | None = None,
    run_for: Callable[[Sources], Run] | None = None,
    *,
    fields: FieldChoice | None = None,
    echo: Echo | None = None,
) -> Corpus:
    """Open a corpus, or ingest sources that aren't a corpus yet.

    Parameters
    ----------
    source : str or sequence of str
        A corpus, or any sources: files, globs, folders or Zarrs.
    output_store_url : str
        Folder in which ingested sources are kept, as ``corpora/<key>.zarr``. The key is a hash of
        path, size and modification time, so an unchanged source is ingested only once.
    progress : callable, optional
        ``progress(rows read, rows in all)``.
    run_for : callable, optional
        Returns the ``run`` argument of :func:`ingest` for given sources.
    fields : FieldChoice, optional
        What is read as vectors, ids, labels, texts and weights; by default what
        :func:`open_sources` takes by itself.
    echo : callable, optional
        Called with a line if another process ingests the same, which is waited for.

    Raises
    ------
    BadInput, Incomplete
        As :func:`ingest` and :func:`open_corpus`.
    """
    found = find_corpus(source, output_store_url, fields=fields)
    if isinstance(found, Corpus):
        return found
    files = found.fields.files
    return ingest(
        found.sources,
        found.target,
        ids=files.get("ids"),
        labels=files.get("labels"),
        texts=files.get("texts"),
        weights=files.get("weights"),
        columns=found.fields.columns,
        on_invalid=found.fields.on_invalid,
        overwrite=ObjectStore(found.target).exists(MANIFEST_KEY),
        run=run_serially if run_for is None else run_for(found.sources),
        progress=progress or silent,
        wait=True,
        echo=echo,
    )


def find_corpus(
    source: str | Sequence[str],
    output_store_url: str,
    *,
    fields: FieldChoice | None = None,
) -> Corpus | UningestedCorpus:
    """Return the corpus that :func:`ensure_corpus` would open, or a prospect of a new one.

    Reads manifests and headers only, and writes nothing.

    Raises
    ------
    BadInput, Incomplete
        As :func:`open_corpus` and :func:`open_sources`.
    """
    patterns = [source] if isinstance(source, str) else list(source)
    fields = fields or FieldChoice()
    store = ObjectStore(patterns[0])
    if len(patterns) == 1 and not fields and _holds_corpus(store):
        return open_corpus(patterns[0])
    key = source_key(patterns, output_store_url)
    if fields:
        files = {}
        for name, file in fields.files.items():
            with suggesting_column(name, file):
                files[name] = source_key([file], output_store_url)
        asked = {"vectors": fields.vectors, "columns": dict(fields.columns), "files": files}
        if fields.on_invalid != "error":
            asked["on_invalid"] = fields.on_invalid
        key = digest({"sources": key, **asked})[: len(key)]
    target = f"{output_store_url.rstrip('/')}/corpora/{key}.zarr"
    with contextlib.suppress(BadInput):
        return _open_whole(target)
    sources = open_sources(
        patterns, output_store_url, vectors=fields.vectors, columns=fields.inside
    )
    return UningestedCorpus(store.url, target, sources, fields)


def _holds_corpus(store: ObjectStore) -> bool:
    """Return whether there is a corpus, or an unfinished one, rather than a source of vectors."""
    try:
        return store.exists(MANIFEST_KEY) or is_unfinished(store)
    except BadInput:
        # Many stores refuse to say whether there is anything below a file that everyone may read.
        if store.is_local:
            raise
        return False


def _open_whole(target: str) -> Corpus:
    """Open a corpus whose objects all have their sizes."""
    corpus = open_corpus(target)
    corpus.check_sizes()
    return corpus


def _stored_dtype(sources: Sources, dtype: str | None) -> np.dtype[Any]:
    if dtype is not None:
        if dtype not in {"float16", "float32"}:
            raise ValueError(f"dtype must be 'float16' or 'float32', not {dtype!r}")
        return np.dtype(dtype)
    return stored_dtype(source.dtype for source in sources.items)


def _check_target(store: ObjectStore, sources: Sources, overwrite: bool) -> None:
    places = {source.path for source in sources.items}
    if any(place == store.url or place.startswith(store.url + "/") for place in places):
        raise BadInput(f"{store.url}: the corpus would overwrite its source; give another path")
    if store.exists(MANIFEST_KEY):
        if not overwrite:
            raise BadInput(
                f"{store.url}: there is a corpus already; give another path, or --overwrite"
            )
        if not _owned(store):
            raise BadInput(
                f"{store.url}: the {MANIFEST_KEY} there isn't a corpus manifest; give another path"
            )
    else:
        _refuse_other_folders(store)


def _refuse_other_folders(store: ObjectStore) -> None:
    if store.exists(MANIFEST_KEY) or not store.exists("") or is_unfinished(store):
        return
    if not are_of_a_write_lock(store.keys()):
        raise BadInput(
            f"{store.url}: it exists and isn't a corpus; give a path that doesn't exist yet"
        )


def _owned(store: ObjectStore) -> bool:
    """Return whether an ingest wrote the group or the manifest here.

    One is enough, because the other may be damaged.
    """
    with contextlib.suppress(FileNotFoundError):
        attributes = group_attributes(store.read(GROUP_KEY))
        if OWNERSHIP.items() <= attributes.items():
            return True
    return SCHEMA.encode() in store.read(MANIFEST_KEY)


def _corpus_there(store: ObjectStore) -> Corpus | None:
    """Open the existing corpus, or return None if there is none or its manifest can't be read."""
    with contextlib.suppress(BadInput):
        return open_corpus(store.address)
    return None


def _was_killed_afterwards(encoding: Encoding) -> bool:
    """Return whether the same rows were written by a process that was killed right then.

    It left the records of what it had encoded, which an ingest removes at its end. So does one that
    was killed while it replaced a corpus, whose shards have keys with another separator.
    """
    store = encoding.store
    there = _corpus_there(store) if encoding.key in store.folders(RECORDS) else None
    return there is not None and _separator(there) == encoding.layout.separator


def _free_separator(store: ObjectStore, before: Corpus | None) -> Separator:
    """Choose the separator of shard keys that the existing corpus doesn't use."""
    if before is not None:
        taken = _separator(before) == "/"
    else:  # keep shards of a manifest that can't be read: it may be restored, or be a newer one
        taken = store.exists(MANIFEST_KEY) and "c" in store.folders("vectors")
    return "." if taken else "/"


def _separator(corpus: Corpus) -> Separator:
    return "/" if corpus.manifest.vectors.shards[0].key.startswith("vectors/c/") else "."


def _finalise(
    encoding: Encoding,
    piece: Piece,
    group: dict[str, bytes],
    before: Corpus | None,
    left_out: tuple[str, ...],
) -> Manifest:
    """Write the metadata documents and the manifest, replacing those of an existing corpus.

    The new shards have new keys, but Zarr's documents have the same keys as before. So the manifest
    is replaced twice: first by one that lists no documents, while they are replaced, and then by
    the complete one.
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
        repeated_ids=find_repeated_ids(piece.id_hashes) if piece.id_hashes else None,
        left_out=left_out,
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
    """Delete the objects of ingests that the manifest doesn't list; all of them without one."""
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
    # A temporary file older than this ingest has no living writer: a shard takes seconds.
    store.collect_partial(older_than=time.time() - started)
