"""Zarr's metadata documents of a corpus: checked, and written anew from the manifest.

The pipeline reads shards by the manifest alone, so a job doesn't need them. Every other Zarr reader
does.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from latentscale_pipeline.corpus.corpus import GROUP_KEY, OWNERSHIP, Corpus, CorruptShard
from latentscale_pipeline.corpus.manifest import APPENDED, Manifest, StoredObject
from latentscale_pipeline.corpus.shards import Layout, Separator, array_document, group_document
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.storage.objects import ObjectStore


def find_damaged_document(corpus: Corpus) -> str | None:
    """Return a line that names a damaged metadata document and how to restore it.

    Documents of appended rows aren't looked at: there may be hundreds.
    """
    for stored in corpus.manifest.documents:
        if not stored.key.startswith(f"{APPENDED}/"):
            try:
                corpus.read_object(stored)
            except CorruptShard as damage:
                where = str(damage).partition(";")[0]
                return (
                    f"{where}, so other tools can't open the corpus; the job doesn't need it; "
                    f"write it anew with latentscale verify {shlex.quote(corpus.url)} --restore"
                )
    return None


def restore_documents(corpus: Corpus) -> tuple[str, ...]:
    """Write the damaged metadata documents of a corpus anew; they follow from its manifest.

    Returns
    -------
    tuple of str
        Keys of the documents that were written.

    Raises
    ------
    BadInput
        If a document that this version would write differs from the one in the manifest.
    """
    damaged = [stored for stored in corpus.manifest.documents if _is_damaged(corpus, stored)]
    made = dict(_documents(corpus.manifest)) if damaged else {}
    store = ObjectStore(corpus.address)
    for stored in damaged:
        data = made.get(stored.key, b"")
        if stored.difference(data):
            raise BadInput(
                f"{store.locate(stored.key)}: version {corpus.manifest.version} wrote it, and this "
                "version can't write the same; restore this file, or ingest the corpus again with "
                "--overwrite"
            )
        store.write_checked(stored.key, data)
    return tuple(stored.key for stored in damaged)


def _is_damaged(corpus: Corpus, stored: StoredObject) -> bool:
    try:
        corpus.read_object(stored)
    except CorruptShard:
        return True
    return False


def _documents(manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """Yield the metadata documents of all groups and arrays of a corpus, by key."""
    yield GROUP_KEY, group_document(OWNERSHIP)
    for name in ("vectors", *manifest.arrays):
        array = manifest.array(name)
        ends = [*(cut.first for cut in array.appended), len(array.shards)]
        for cut, end in zip(array.cuts, ends, strict=True):
            shards = array.shards[cut.first : end]
            place, inside, _ = shards[0].key.rpartition(f"{name}/c")
            separator: Separator = "." if shards[0].key[len(place + inside)] == "." else "/"
            rows = sum(shard.rows for shard in shards)
            row_shape = (manifest.d,) if name == "vectors" else ()
            layout = Layout(rows, row_shape, array.dtype, cut.shard_rows, cut.chunk_rows, separator)
            yield f"{place}{name}/{GROUP_KEY}", array_document(layout)
            if place:
                yield f"{APPENDED}/{GROUP_KEY}", group_document({})
                yield f"{place}{GROUP_KEY}", group_document({})
