"""Rows that occur more than once: counted by hashing every row, shard by shard."""

from __future__ import annotations

import math

import numpy as np
import xxhash

from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.job.publishing import Output
from latentscale_pipeline.stages.measure import RESULT_BYTES, CorpusFacts, JobFacts, Role

SHARDS_PER_TASK = 16

DIGEST_BYTES = 16


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
        parameters={"role": role},
        memory_bytes=_memory(corpus),
        effort=_effort(corpus),
    )


def _memory(corpus: CorpusFacts) -> int:
    """Bytes of a task that hashes shards, or of the one that counts, whichever holds more."""
    digests = DIGEST_BYTES * min(corpus.n, SHARDS_PER_TASK * corpus.shard_rows)
    shard = corpus.shard_stored_bytes
    # A shard is read, then decoded; digests grow in place, are copied once, and are published.
    hashing = max(2 * shard + digests, shard + 2 * digests) + digests // 4
    # All digests, sorted, and those that differ.
    return max(hashing, 3 * DIGEST_BYTES * corpus.n + 2 * corpus.n)


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
    return Output(arrays={"hashes": np.frombuffer(bytes(digests), dtype=np.uint8).reshape(-1, 16)})


def count_duplicates(inputs: Inputs) -> Output:
    """Count the rows that equal an earlier row."""
    hashes = np.concatenate([part.array("hashes") for part in inputs.parts])
    distinct = len(np.unique(hashes.view("V16")))
    return Output(values={"duplicates": len(hashes) - distinct})
