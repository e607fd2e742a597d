"""The count of duplicate rows, by hashes of all rows.

Equal rows have equal hashes, so hashes are cut into groups by their first bits and counted group by
group: no task needs those of all rows. Under the cosine metric rows are equal that differ by a
power of two.
"""

from __future__ import annotations

import math

import numpy as np
import xxhash

from latentscale.duplicates.bottom_k import scale_by_power
from latentscale.tiles.distances import Metric
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import RESULT_BYTES, JobFacts, Role
from latentscale_pipeline.storage.artifacts import Output

SHARDS_PER_TASK = 16

DIGEST_BYTES = 16

GROUP_BYTES = 192 * 2**20
"""Memory of the hashes of a group, sorted."""


def stage_name(role: Role, metric: Metric = "euclidean") -> str:
    """Name the stage of a corpus."""
    return f"duplicates-cosine-{role}" if metric == "cosine" else f"duplicates-{role}"


def duplicates_stage(role: Role, facts: JobFacts, metric: Metric = "euclidean") -> Stage:
    """Plan the count of the rows of a corpus that equal an earlier row."""
    corpus = facts.corpora[role]
    parts, shard = -(-corpus.shards // SHARDS_PER_TASK), corpus.shard_stored_bytes
    groups = -(-3 * DIGEST_BYTES * corpus.n // GROUP_BYTES)
    digests = DIGEST_BYTES * min(corpus.n, SHARDS_PER_TASK * corpus.shard_rows)
    # A shard is read, then decoded; digests grow in place, are copied, sorted, and made distinct.
    hashing = max(2 * shard + digests, 3 * digests) + digests // 4
    # The digests of a group, sorted, and those that differ.
    counting = (3 * DIGEST_BYTES + 2) * corpus.n // groups
    return Stage(
        name=stage_name(role, metric),
        work=hash_rows,
        finalise=count_duplicates,
        partitions=parts,
        corpora=(role,),
        parameters={"role": role, "groups": groups, "directions": metric == "cosine"},
        memory_bytes=max(hashing, counting),
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + DIGEST_BYTES * corpus.n,
            bytes_written=DIGEST_BYTES * corpus.n + RESULT_BYTES * (parts + 1),
            result_bytes=RESULT_BYTES,
            # Python's loop over rows, and a sort that compares digests byte by byte.
            elementwise_operations=corpus.n * (100 + 10 * math.log2(corpus.n + 1)),
        ),
    )


def hash_rows(inputs: Inputs) -> Output:
    """Hash the rows of a run of shards; 0 and -0 count as equal."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    first = inputs.index * SHARDS_PER_TASK
    digests = bytearray()
    for shard in range(first, min(first + SHARDS_PER_TASK, corpus.shard_count)):
        rows = corpus.read_shard(shard) + np.zeros((), dtype=corpus.dtype)
        if inputs.parameters["directions"]:
            rows = scale_by_power(rows.astype(np.float64))
        for row in rows:
            digests += xxhash.xxh3_128_digest(row)
    hashes = np.frombuffer(digests, dtype=f"V{DIGEST_BYTES}")
    # Repeats end here, so a very common row can't fill a group.
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
