"""Rows that occur more than once: counted by hashing every row, shard by shard.

Equal rows have equal hashes, so hashes are cut into groups by their first bits and counted group by
group: no task needs those of all rows.
"""

from __future__ import annotations

import math

import numpy as np
import xxhash

from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.job.publishing import Output
from latentscale_pipeline.stages.measure import RESULT_BYTES, CorpusFacts, JobFacts, Role

SHARDS_PER_TASK = 16

DIGEST_BYTES = 16

GROUP_BYTES = 192 * 2**20
"""Memory of the hashes of a group, sorted."""


def plan_duplicates(facts: JobFacts) -> list[Stage]:
    """Plan the count of duplicate rows of every corpus."""
    return [_stage(role, facts) for role in facts.corpora]


def stage_name(role: Role) -> str:
    """Name the stage of a corpus."""
    return f"duplicates-{role}"


def _stage(role: Role, facts: JobFacts) -> Stage:
    corpus = facts.corpora[role]
    return Stage(
        name=stage_name(role),
        work=hash_rows,
        finalise=count_duplicates,
        partitions=-(-corpus.shards // SHARDS_PER_TASK),
        corpora=(role,),
        parameters={"role": role, "groups": _groups(corpus)},
        memory_bytes=_memory(corpus),
        effort=_effort(corpus),
    )


def _groups(corpus: CorpusFacts) -> int:
    return -(-3 * DIGEST_BYTES * corpus.n // GROUP_BYTES)


def _memory(corpus: CorpusFacts) -> int:
    """Bytes of a task that hashes shards, or of the one that counts, whichever holds more."""
    digests = DIGEST_BYTES * min(corpus.n, SHARDS_PER_TASK * corpus.shard_rows)
    shard = corpus.shard_stored_bytes
    # A shard is read, then decoded; digests grow in place, are copied, sorted, and made distinct.
    hashing = max(2 * shard + digests, 3 * digests) + digests // 4
    # The digests of a group, sorted, and those that differ.
    counting = (3 * DIGEST_BYTES + 2) * corpus.n // _groups(corpus)
    return max(hashing, counting)


def _effort(corpus: CorpusFacts) -> Effort:
    digests = DIGEST_BYTES * corpus.n
    return Effort(
        bytes_read=corpus.stored_bytes + digests,
        bytes_written=digests + RESULT_BYTES * (-(-corpus.shards // SHARDS_PER_TASK) + 1),
        # Python's loop over rows, and a sort that compares digests byte by byte.
        folds=corpus.n * (100 + 10 * math.log2(corpus.n + 1)),
    )


def hash_rows(inputs: Inputs) -> Output:
    """Hash the rows of a run of shards; 0 and -0 count as equal."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    first = inputs.index * SHARDS_PER_TASK
    digests = bytearray()
    for shard in range(first, min(first + SHARDS_PER_TASK, corpus.shard_count)):
        rows = corpus.read_shard(shard) + np.zeros((), dtype=corpus.dtype)
        for row in rows:
            digests += xxhash.xxh3_128_digest(row)
    hashes = np.frombuffer(digests, dtype=f"V{DIGEST_BYTES}")
    # Of a row that fills the corpus no more than one hash leaves a part.
    distinct = np.unique(hashes)
    groups = inputs.parameters["groups"]
    # The first 32 bits, big-endian, as a fraction of all.
    begins = distinct.view(">u4")[:: DIGEST_BYTES // 4].astype(np.float64)
    group_of = np.floor(begins * (groups / 2.0**32))
    edges = np.searchsorted(group_of, np.arange(groups + 1))
    return Output(
        values={"repeated": len(hashes) - len(distinct)},
        arrays={
            _group(group): distinct[edges[group] : edges[group + 1]]
            .view(np.uint8)
            .reshape(-1, DIGEST_BYTES)
            for group in range(groups)
        },
    )


def _group(group: int) -> str:
    return f"hashes_{group:05d}"


def count_duplicates(inputs: Inputs) -> Output:
    """Count the rows that equal an earlier row, one group of hashes after the other."""
    duplicates = sum(part.values["repeated"] for part in inputs.parts)
    for group in range(inputs.parameters["groups"]):
        hashes = np.concatenate([part.array(_group(group)) for part in inputs.parts])
        duplicates += len(hashes) - len(np.unique(hashes.view(f"V{DIGEST_BYTES}")))
    return Output(values={"duplicates": duplicates})
