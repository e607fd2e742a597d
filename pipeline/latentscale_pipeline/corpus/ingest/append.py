"""Append rows to a corpus as new shards; existing shards are never rewritten.

The new rows are written as a separate piece below ``appended/``. The last shard before it may be
short; it isn't filled up, because others may be reading it. The manifest is replaced last, and
until then the corpus is unchanged, even if the process is killed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata

import numpy as np

from latentscale_pipeline.corpus.corpus import GROUP_KEY, Corpus, open_corpus
from latentscale_pipeline.corpus.fingerprint import BLOCK_ROWS, Fingerprint
from latentscale_pipeline.corpus.ingest.encoding import (
    RECORDS,
    Encoding,
    Run,
    run_serially,
    write_checked,
)
from latentscale_pipeline.corpus.ingest.sidecars import MAY_BE_MISSING
from latentscale_pipeline.corpus.ingest.sources import COLUMNS, Sources
from latentscale_pipeline.corpus.ingest.write_lock import hold_write_lock
from latentscale_pipeline.corpus.ingest.writing import (
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
    write_documents,
)
from latentscale_pipeline.corpus.manifest import (
    APPENDED,
    MANIFEST_KEY,
    CountedRows,
    DroppedRows,
    Manifest,
    StoredObject,
)
from latentscale_pipeline.corpus.repeated_ids import MAX_ROWS, find_repeated_ids, hash_ids
from latentscale_pipeline.corpus.shards import group_document
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.progress import Progress, silent
from latentscale_pipeline.storage.objects import ObjectStore


def append(
    sources: Sources | Sequence[str],
    corpus_url: str,
    *,
    ids: str | None = None,
    labels: str | None = None,
    texts: str | None = None,
    weights: str | None = None,
    columns: Mapping[str, str] | None = None,
    on_invalid: str = "error",
    shard_bytes: int = SHARD_BYTES,
    run: Run = run_serially,
    progress: Progress = silent,
) -> Corpus:
    """Append the rows of sources to a corpus.

    The parameters are those of ``ingest``; the dtype is that of the corpus. If the corpus has ids,
    labels or weights, the new rows need them, too. The first append reads the complete corpus once,
    to compute its block digests; later ones read only the last incomplete block, and all ids, to
    count those that repeat.

    Raises
    ------
    BadInput
        If the sources are invalid or don't match the corpus, which stays unchanged.
    Incomplete
        If a store can't be reached, or another process writes the corpus. A repeated call
        continues.
    """
    open_corpus(corpus_url)  # nothing is written where there is none
    files = {"ids": ids, "labels": labels, "texts": texts, "weights": weights}
    with hold_write_lock(ObjectStore(corpus_url)):
        return _append(
            sources, corpus_url, files, dict(columns or {}), on_invalid, shard_bytes, run, progress
        )


def _append(
    sources: Sources | Sequence[str],
    corpus_url: str,
    files: dict[str, str | None],
    chosen: dict[str, str],
    on_invalid: str,
    shard_bytes: int,
    run: Run,
    progress: Progress,
) -> Corpus:
    before = open_corpus(corpus_url)
    before.check_sizes()
    asked = {*(name for name, file in files.items() if file), *chosen}
    opened, sidecars = open_given(sources, corpus_url, files, chosen)
    lacking = before.manifest.arrays.keys() - {sidecar.name for sidecar in sidecars} - asked
    if empty := _columns_without_values(opened, lacking):
        opened, sidecars = open_given(sources, corpus_url, files, chosen | empty)
    # What nobody asked for is taken only if the corpus has it.
    sidecars = [s for s in sidecars if s.name in asked or s.name in before.manifest.arrays]
    _check_fit(before, opened, {sidecar.name for sidecar in sidecars})
    store = ObjectStore(corpus_url)
    number = len(before.manifest.vectors.appended) + 1
    key = key_of_rows(opened, files, chosen)

    def planned(number: int) -> Encoding:
        prefix = f"{APPENDED}/{number}-{key}/"
        return plan_encoding(store, opened, before.dtype, shard_bytes, on_invalid, prefix)

    if _was_killed_afterwards(before, planned(number - 1)):
        store.remove_all(RECORDS)
        return before
    encoding = planned(number)
    prefix = encoding.prefix

    def take_back() -> None:
        if not _is_part(prefix, open_corpus(corpus_url)):
            store.remove_all(prefix.rstrip("/"))
            store.remove_all(RECORDS)

    with rollback_on_failure(take_back):
        remove_other_records(encoding)
        piece = encode_piece(encoding, sidecars, run, progress)
        document = group_document({})
        groups = {f"{prefix}{GROUP_KEY}": document}
        if number == 1:
            groups[f"{APPENDED}/{GROUP_KEY}"] = document
        documents = write_documents(store, {**groups, **piece.documents})
        _finalise(before, encoding, piece, documents)
    corpus = open_corpus(corpus_url)
    _collect_garbage(store, corpus)
    store.collect_partial()
    store.remove_all(RECORDS)  # last: they tell a repeated append that the rows are there
    return corpus


def _is_part(prefix: str, corpus: Corpus) -> bool:
    """Return whether a corpus has an appended piece, whose objects' keys start with ``prefix``."""
    return any(stored.key.startswith(prefix) for stored in corpus.manifest.objects())


def _was_killed_afterwards(corpus: Corpus, last: Encoding) -> bool:
    """Return whether the same rows were appended last, by a process that was killed right then.

    It left the records of what it had encoded, which an append removes at its end.
    """
    return last.key in last.store.folders(RECORDS) and _is_part(last.prefix, corpus)


def _columns_without_values(sources: Sources, names: Collection[str]) -> dict[str, str]:
    """Return columns with these names, all of whose values are missing, so that nothing is read."""
    fields = [
        {field.name for field in source.container.fields if field.unseen}
        for source in sources.items
    ]
    common = set.intersection(*fields)
    return {
        name: next(column for column in COLUMNS[name] if column in common)
        for name in MAY_BE_MISSING
        if name in names and common.intersection(COLUMNS[name])
    }


def _check_fit(corpus: Corpus, sources: Sources, gets: set[str]) -> None:
    if any(s.path == corpus.url or s.path.startswith(corpus.url + "/") for s in sources.items):
        raise BadInput(f"{corpus.url}: a corpus can't be appended to itself; copy it first")
    if sources.d != corpus.d:
        raise BadInput(
            f"{sources.items[0].path}: rows of {sources.d} dimensions, but {corpus.url} has "
            f"{corpus.d}; ingest them into a separate corpus"
        )
    has = set(corpus.manifest.arrays)
    for name in sorted(has ^ gets):
        raise BadInput(
            f"{corpus.url}: it has {name}, but the new rows have none; give them with --{name}"
            if name in has
            else f"{corpus.url}: it has no {name}, so none can be added; leave out --{name}"
        )


def _finalise(
    before: Corpus, encoding: Encoding, piece: Piece, documents: Sequence[StoredObject]
) -> None:
    """Replace the manifest with one that includes the new piece."""
    store = encoding.store
    old = before.manifest
    added = replace(
        old,
        n=old.n + piece.rows,
        vectors=old.vectors.grown(piece.vectors),
        arrays={name: array.grown(piece.arrays[name]) for name, array in old.arrays.items()},
        documents=(*old.documents, *documents),
        zero_rows=_zero_rows(old, piece),
        dropped=_dropped(before, encoding, piece),
        sources=(*old.sources, *piece.sources),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=metadata.version("latentscale"),
        repeated_ids=_repeated_ids(before, piece),
    )
    fingerprint = _fingerprint(before)
    for rows in replace(before, manifest=added).read_blocks("vectors", old.n, added.n):
        fingerprint.update(rows)
    digests = write_checked(store, f"{encoding.prefix}digests", fingerprint.whole_blocks())
    grown = replace(added, fingerprint=fingerprint.finish(), digests=digests)
    _replace_manifest(store, before, grown)


def _replace_manifest(store: ObjectStore, before: Corpus, grown: Manifest) -> None:
    """Store the new manifest, unless the old one isn't there any more."""
    if not before.is_current():
        raise interfered(store)
    store.write(MANIFEST_KEY, grown.to_bytes())


def _fingerprint(corpus: Corpus) -> Fingerprint:
    """Return the fingerprint of the existing rows, to be updated with the new ones."""
    digests = corpus.manifest.digests
    if digests is not None:
        rest = corpus.n % BLOCK_ROWS
        rows = [np.empty((0, corpus.d), corpus.dtype)]
        rows += corpus.read_blocks("vectors", corpus.n - rest, corpus.n)
        known = bytes(corpus.read_object(digests))
        return Fingerprint.after(known, np.concatenate(rows), corpus.dtype, corpus.d)
    fingerprint = Fingerprint(corpus.dtype, corpus.d)
    for block in corpus.read_blocks("vectors", 0, corpus.n):
        fingerprint.update(block)
    return fingerprint


def _zero_rows(old: Manifest, piece: Piece) -> CountedRows:
    known, added = old.zero_rows, piece.zero_rows
    first = known.first
    if first is None and added.first is not None:
        first = old.n + added.first
    return CountedRows(known.count + added.count, first)


def _repeated_ids(before: Corpus, piece: Piece) -> CountedRows | None:
    if not piece.id_hashes or before.n + piece.rows > MAX_ROWS:
        return None
    try:
        known = list(hash_ids(before.companion_blocks("ids")))
    except (BadInput, Incomplete):  # a count isn't worth the rows; verify tells what is damaged
        return None
    return find_repeated_ids([*known, *piece.id_hashes])


def _dropped(before: Corpus, encoding: Encoding, piece: Piece) -> DroppedRows:
    """Return the record of all dropped rows, numbered among all source rows of the corpus."""
    known = before.manifest.dropped
    if not len(piece.dropped):
        return known
    first = sum(source.rows for source in before.manifest.sources)
    dropped = np.concatenate([before.dropped_rows(), first + piece.dropped])
    return record_dropped(encoding, dropped)


def _collect_garbage(store: ObjectStore, corpus: Corpus) -> None:
    """Delete the objects of earlier appends that weren't completed."""
    wanted = {stored.key for stored in corpus.manifest.objects()}
    done = len(corpus.manifest.vectors.appended)
    for folder in store.folders(APPENDED):
        number = folder.partition("-")[0]
        unfinished = number.isdecimal() and int(number) <= done
        for key in store.keys(f"{APPENDED}/{folder}") if unfinished else ():
            if key not in wanted:
                store.remove(key)
