"""The count of rows that occur more than once, by hashes of all rows.

Equal rows have equal hashes, so hashes are cut into groups by their first bits and counted group by
group: no task needs those of all rows.
"""

from __future__ import annotations

import math

from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import RESULT_BYTES, JobFacts, Role
from latentscale_pipeline.measures.duplicates.tasks import (
    DIGEST_BYTES,
    SHARDS_PER_TASK,
    count_duplicates,
    hash_rows,
)

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
    parts, shard = -(-corpus.shards // SHARDS_PER_TASK), corpus.shard_stored_bytes
    groups = -(-3 * DIGEST_BYTES * corpus.n // GROUP_BYTES)
    digests = DIGEST_BYTES * min(corpus.n, SHARDS_PER_TASK * corpus.shard_rows)
    # A shard is read, then decoded; digests grow in place, are copied, sorted, and made distinct.
    hashing = max(2 * shard + digests, 3 * digests) + digests // 4
    # The digests of a group, sorted, and those that differ.
    counting = (3 * DIGEST_BYTES + 2) * corpus.n // groups
    return Stage(
        name=stage_name(role),
        work=hash_rows,
        finalise=count_duplicates,
        partitions=parts,
        corpora=(role,),
        parameters={"role": role, "groups": groups},
        memory_bytes=max(hashing, counting),
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + DIGEST_BYTES * corpus.n,
            bytes_written=DIGEST_BYTES * corpus.n + RESULT_BYTES * (parts + 1),
            # Python's loop over rows, and a sort that compares digests byte by byte.
            elementwise_operations=corpus.n * (100 + 10 * math.log2(corpus.n + 1)),
        ),
    )
