"""Rows that occur more than once: counted by hashing every row, shard by shard."""

from __future__ import annotations

import numpy as np
import xxhash

from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.job.publishing import Output
from latentscale_pipeline.stages.measure import JobFacts, Role

SHARDS_PER_TASK = 16


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
        memory_bytes=corpus.shard_bytes + 64 * corpus.n,
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
