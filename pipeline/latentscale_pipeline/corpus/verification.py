"""Every byte of a corpus against its manifest, and its vectors against the fingerprint."""

from __future__ import annotations

from dataclasses import dataclass

from latentscale_pipeline.corpus import zarr_format
from latentscale_pipeline.corpus.corpus import Corpus, CorruptShard
from latentscale_pipeline.corpus.fingerprint import block_digests, combine
from latentscale_pipeline.progress import Progress, silent


@dataclass(frozen=True)
class Verification:
    """What was found: objects and bytes that were read, and one line for each that is bad."""

    objects: int
    size: int
    problems: tuple[str, ...]


def verify(corpus: Corpus, progress: Progress = silent) -> Verification:
    """Read every object of a corpus and compare it with the manifest.

    When all of them are as they should be, the fingerprint is recomputed from the rows as well.

    Parameters
    ----------
    corpus : Corpus
    progress : callable
        ``progress(objects read, objects in all)``.
    """
    objects = corpus.manifest.objects()
    shards = {shard.key: shard for shard in corpus.manifest.vectors.shards}
    layout = corpus.manifest.layout("vectors")
    problems: list[str] = []
    digests: list[bytes] = []
    size = 0
    for done, stored in enumerate(objects, start=1):
        try:
            data = corpus.read_object(stored)
        except CorruptShard as error:
            problems.append(str(error))
        else:
            size += len(data)
            if stored.key in shards:
                rows = zarr_format.decode_shard(data, shards[stored.key].rows, layout)
                digests.append(block_digests(rows))
        progress(done, len(objects))
    if not problems and combine(digests, corpus.dtype, corpus.n, corpus.d) != corpus.fingerprint:
        problems.append(
            f"{corpus.url}: the rows don't give the manifest's fingerprint; ingest the corpus again"
        )
    return Verification(len(objects), size, tuple(problems))
