"""Count the rows that a job's corpus gained and lost since a baseline, by their ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.errors import LatentscaleError
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.views.formatting import counted

MOST_ROWS = 10_000_000
"""Rows of a corpus up to which ids are read."""


@dataclass(frozen=True)
class RowChanges:
    """Numbers of ids of two corpora.

    Attributes
    ----------
    added, removed, kept : int
        Ids that only the job has, that only the baseline has, and that both have.
    """

    added: int
    removed: int
    kept: int

    def __str__(self) -> str:
        added, removed = counted(self.added, "row"), f"{self.removed:,} removed"
        return f"{added} added, {removed}, {self.kept:,} kept, by their ids"


def count_changes(job: FinishedJob, baseline: FinishedJob) -> RowChanges | None:
    """Compare the ids of two jobs' corpora; 8 bytes of each are in memory.

    Returns
    -------
    RowChanges or None
        None if a corpus has no ids, or one twice, or more than :data:`MOST_ROWS` rows, or isn't on
        this machine as the job measured it.
    """
    corpora = [_open(each) for each in (job, baseline)]
    if any(corpus is None for corpus in corpora):
        return None
    ours, theirs = (_hashes(corpus) for corpus in corpora if corpus is not None)
    if ours is None or theirs is None:
        return None
    kept = len(np.intersect1d(ours, theirs, assume_unique=True))
    return RowChanges(len(ours) - kept, len(theirs) - kept, kept)


def _open(job: FinishedJob) -> Corpus | None:
    known = job.corpora.get("corpus")
    if known is None or known.uri is None or known.n > MOST_ROWS or known.excluded_shards:
        return None
    try:
        if not ObjectStore(known.uri).is_local:
            return None
        corpus = open_corpus(known.uri)
    except (LatentscaleError, OSError):
        return None
    there = corpus.fingerprint == known.fingerprint and "ids" in corpus.manifest.arrays
    return corpus if there else None


def _hashes(corpus: Corpus) -> npt.NDArray[np.uint64] | None:
    try:
        blocks = [
            np.fromiter(
                (xxhash.xxh3_64_intdigest(str(one).encode()) for one in block),
                dtype=np.uint64,
                count=len(block),
            )
            for block in corpus.companion_blocks("ids")
        ]
    except (LatentscaleError, OSError):
        return None
    hashes = np.unique(np.concatenate(blocks))
    return hashes if len(hashes) == corpus.n else None
