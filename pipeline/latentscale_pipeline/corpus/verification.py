"""Verify a corpus: every object against the manifest, the vectors against the fingerprint."""

from __future__ import annotations

from dataclasses import dataclass

from latentscale_pipeline.corpus.corpus import Corpus, CorruptShard
from latentscale_pipeline.corpus.fingerprint import Fingerprint
from latentscale_pipeline.corpus.shards import decode_shard
from latentscale_pipeline.progress import Progress, silent


@dataclass(frozen=True)
class Verification:
    """Numbers of objects and bytes read, and one line for each problem."""

    objects: int
    size: int
    problems: tuple[str, ...]


def verify(corpus: Corpus, progress: Progress = silent) -> Verification:
    """Read every object of a corpus and compare it with the manifest.

    If no object differs, the fingerprint is recomputed from the rows, too.

    Parameters
    ----------
    corpus : Corpus
    progress : callable
        ``progress(objects read, objects in all)``.
    """
    objects = corpus.manifest.objects()
    shards = {shard.key: i for i, shard in enumerate(corpus.manifest.vectors.shards)}
    problems: list[str] = []
    fingerprint = Fingerprint(corpus.dtype, corpus.d)
    size = 0
    for done, stored in enumerate(objects, start=1):
        try:
            data = corpus.read_object(stored)
        except CorruptShard as error:
            problems.append(str(error))
        else:
            size += len(data)
            if stored.key in shards:
                shard = shards[stored.key]
                layout = corpus.manifest.layout("vectors", shard)
                rows = corpus.manifest.vectors.shards[shard].rows
                fingerprint.update(decode_shard(data, rows, layout))
        progress(done, len(objects))
    if not problems and fingerprint.finish() != corpus.manifest.fingerprint:
        problems.append(
            f"{corpus.url}: the rows don't match the manifest's fingerprint; ingest the corpus "
            "again"
        )
    return Verification(len(objects), size, tuple(problems))
