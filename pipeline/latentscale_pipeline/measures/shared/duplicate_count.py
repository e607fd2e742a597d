"""The count of duplicate rows, by hashes of all rows, and their mean length.

Equal rows have equal hashes, so hashes are cut into groups by their first bits. One stage hashes
runs of shards, the next counts, a group a task: no task needs the hashes of all rows. Under the
cosine metric rows are equal that differ by a power of two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import xxhash
from numpy.typing import NDArray

from latentscale.duplicates.bottom_k import scale_by_power
from latentscale.tiles.distances import Metric, row_blocks
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import RESULT_BYTES, JobFacts, Role
from latentscale_pipeline.storage.artifacts import Output

SHARDS_PER_TASK = 16

DIGEST_BYTES = 16

GROUP_BYTES = 192 * 2**20
"""Memory of the hashes of a group, sorted."""

HASHES = "hashes"
"""Object with the hashes of a run of shards, a section for every group."""


def stage_name(role: Role, metric: Metric = "euclidean") -> str:
    """Name the stage that counts the duplicates of a corpus."""
    return f"duplicates-cosine-{role}" if metric == "cosine" else f"duplicates-{role}"


BLOCK_ENTRIES = 1 << 19
"""Coordinates of a shard that are converted at a time."""


def duplicates_stages(role: Role, facts: JobFacts, metric: Metric = "euclidean") -> list[Stage]:
    """Plan the count of the rows of a corpus that equal an earlier row; the last stage has it."""
    corpus = facts.corpora[role]
    name = stage_name(role, metric)
    parts, shard = -(-corpus.shards // SHARDS_PER_TASK), corpus.shard_stored_bytes
    groups = -(-3 * DIGEST_BYTES * corpus.n // GROUP_BYTES)
    digests = DIGEST_BYTES * min(corpus.n, SHARDS_PER_TASK * corpus.shard_rows)
    # A sort that compares digests byte by byte: half of it in runs, half in groups.
    sorting = 5 * corpus.n * math.log2(corpus.n + 1)
    hashing = Stage(
        name=name.replace("duplicates", "hashes", 1),
        temporary="result",
        lasting_parts=True,
        work=hash_rows,
        finalise=add_repeated,
        partitions=parts,
        corpora=(role,),
        parameters={"role": role, "groups": groups, "directions": metric == "cosine"},
        # A shard is read, then decoded; digests grow in place, are copied, sorted, and made
        # distinct. Blocks of rows are in float64, for directions three times.
        memory_bytes=max(2 * shard + digests, 3 * digests)
        + digests // 4
        + (32 if metric == "cosine" else 16) * max(BLOCK_ENTRIES, corpus.d),
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes,
            bytes_written=DIGEST_BYTES * corpus.n + RESULT_BYTES * (parts + 1),
            # Python's loop over rows, and their lengths.
            elementwise_operations=corpus.n * (100 + 2.0 * corpus.d) + sorting,
        ),
    )
    counting = Stage(
        name=name,
        work=count_group,
        finalise=add_counts,
        partitions=groups,
        needs=(hashing.name,),
        parameters={"hashes": hashing.name, "parts": parts},
        # The digests of a group, sorted, and those that differ.
        memory_bytes=(3 * DIGEST_BYTES + 2) * corpus.n // groups,
        cost_estimate=CostEstimate(
            bytes_read=DIGEST_BYTES * corpus.n,
            bytes_written=RESULT_BYTES * groups,
            result_bytes=RESULT_BYTES,
            elementwise_operations=sorting,
        ),
    )
    return [hashing, counting]


def hash_rows(inputs: Inputs) -> Output:
    """Hash the rows of a run of shards, and add up their lengths; 0 and -0 count as equal."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    first = inputs.index * SHARDS_PER_TASK
    digests, lengths = bytearray(), 0.0
    for shard in range(first, min(first + SHARDS_PER_TASK, corpus.shard_count)):
        rows = corpus.read_shard(shard)
        for block in row_blocks(len(rows), max(1, BLOCK_ENTRIES // corpus.d)):
            exact = rows[block].astype(np.float64)
            lengths += float(np.sqrt(np.einsum("ij,ij->i", exact, exact)).sum())
            directions = inputs.parameters["directions"]
            some = scale_by_power(exact) if directions else rows[block]
            for row in _without_negative_zeros(some):
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
        values={"repeated": len(hashes) - len(distinct), "lengths": lengths},
        sections={HASHES: _groups(distinct, edges)},
    )


def _without_negative_zeros(rows: NDArray[np.floating]) -> NDArray[np.unsignedinteger]:
    """Return the bits of rows, those of -0 as those of 0: sums of float16 are slow."""
    bits = rows.copy().view(f"u{rows.itemsize}")
    bits[bits == 1 << (8 * rows.itemsize - 1)] = 0
    return bits


def _groups(
    hashes: NDArray[np.void], edges: NDArray[np.intp]
) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    for group, (first, last) in enumerate(itertools.pairwise(edges)):
        yield str(group), hashes[first:last].view(np.uint8).reshape(-1, DIGEST_BYTES)


def add_repeated(inputs: Inputs) -> Output:
    """Add up the rows that equal an earlier row of the same run of shards, and the lengths."""
    return Output(
        values={
            "repeated": sum(part.values["repeated"] for part in inputs.parts),
            "lengths": math.fsum(part.values["lengths"] for part in inputs.parts),
        }
    )


def count_group(inputs: Inputs) -> Output:
    """Count the hashes of a group that another run of shards has, too."""
    hashed = inputs.results[inputs.parameters["hashes"]]
    runs = (hashed.partition(run) for run in range(inputs.parameters["parts"]))
    hashes = np.concatenate([run.section(HASHES, str(inputs.index)) for run in runs])
    repeated = len(hashes) - len(np.unique(hashes.view(f"V{DIGEST_BYTES}")))
    return Output(values={"repeated": repeated})


def add_counts(inputs: Inputs) -> Output:
    """Add up the counts of runs and of groups."""
    hashed = inputs.results[inputs.parameters["hashes"]]
    repeated = sum(count.values["repeated"] for count in (hashed, *inputs.parts))
    return Output(values={"duplicates": repeated, "lengths": hashed.values["lengths"]})
