"""The rows of random subsets of a corpus's distinct rows, found in one pass that tasks share.

A task keeps the rows of its shards that may be among those with the smallest hashes
(:mod:`latentscale.duplicates.bottom_k`). The last one draws the subsets from the smallest of all:
some for the convergence scale, others for the function. The number of distinct rows comes from the
count of duplicates. So nothing that is held grows with the corpus.

Where near rows are merged, all rows have been compared already, and subsets are drawn from the rows
that remain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale.duplicates.bottom_k import hash_rows, largest_hash, smallest_hashes
from latentscale.sampling.rarefaction import draw_replicates
from latentscale.tiles.distances import Metric, Points, as_points, row_blocks
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    RESULT_BYTES,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.shared.distinct_rows import DistinctRows, distinct_stage
from latentscale_pipeline.measures.shared.duplicate_count import duplicates_stages
from latentscale_pipeline.measures.shared.random_rows import (
    read_in_order,
    reading_tasks,
    row_bytes,
    shards_of_task,
)
from latentscale_pipeline.storage.artifacts import Artifact, Output

REPLICATES = 2
"""Number of random subsets that are evaluated, each divided into pieces of every size."""

DRAWS = 2
"""The convergence scale and the function have subsets of their own."""

HASHING_BYTES = 32
"""Bytes for each coordinate of a row whose hash is computed."""

HASHED_ROWS = 4096
"""Rows that are turned into float64 at once."""

ORIGIN_ROWS = 1000
"""Rows whose median is the origin of tiles; a few far rows don't move it."""

HASH_OPERATIONS = 4
"""Elementwise operations to hash a coordinate."""

SUBSETS = "subsets"
"""Object with the rows of the subsets, one section each."""


def sample_name(role: Role) -> str:
    """Name the stage that draws the subsets of a corpus."""
    return f"subsets-{role}"


def sample_stages(
    role: Role, facts: JobFacts, metric: Metric, merged: float, rows: int
) -> list[Stage]:
    """Plan to draw the subsets of a corpus.

    Parameters
    ----------
    role, facts, metric
        The corpus, and how its rows are compared.
    merged : float
        Distance up to which rows are merged; above 0 all rows are compared first.
    rows : int
        Rows of a subset; all of the distinct ones if there are no more.
    """
    corpus = facts.corpora[role]
    size, stored = DRAWS * REPLICATES * rows, row_bytes(corpus)
    stage = Stage(
        name=sample_name(role),
        temporary="result",
        work=draw_merged_rows,
        corpora=(role,),
        parameters={"role": role, "metric": metric, "rows": rows},
        seed=facts.seed,
        memory_bytes=3 * size * (stored + 16) + 2 * corpus.shard_stored_bytes,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + size * stored,
            bytes_written=2 * size * stored + RESULT_BYTES,
            elementwise_operations=(CONVERSION_OPERATIONS + HASH_OPERATIONS)
            * float(corpus.n)
            * corpus.d,
        ),
    )
    # A block of rows in double precision, and what its hashes are computed from.
    hashing = HASHING_BYTES * min(HASHED_ROWS, corpus.shard_rows) * corpus.d
    if merged > 0:
        distinct = distinct_stage(role, metric, corpus, merged)
        # The numbers of all rows, twice.
        held = stage.memory_bytes + 32 * corpus.n
        return [distinct, replace(stage, needs=(distinct.name,), memory_bytes=held)]
    counting = duplicates_stages(role, facts, metric)
    counted = counting[-1]
    return [
        *counting,
        replace(
            stage,
            work=read_smallest,
            finalise=draw_smallest,
            partitions=reading_tasks(corpus),
            needs=(counted.name,),
            parameters={**stage.parameters, "counted": counted.name},
            memory_bytes=stage.memory_bytes + hashing,
        ),
    ]


def read_smallest(inputs: Inputs) -> Output:
    """Read the rows of some shards that may be among those with the smallest hashes."""
    p, corpus = inputs.parameters, inputs.corpora[inputs.parameters["role"]]
    seed = int(inputs.common_generator().integers(2**64, dtype=np.uint64))
    largest = largest_hash(_count_distinct(inputs), DRAWS * REPLICATES * p["rows"])
    hashes, vectors = np.empty(0, np.uint64), np.empty((0, corpus.d), corpus.dtype)
    for shard in shards_of_task(inputs, corpus):
        stored = corpus.read_shard(shard)
        for block in row_blocks(len(stored), HASHED_ROWS):
            found = hash_rows(stored[block].astype(np.float64), p["metric"], seed)
            small = found <= largest
            hashes = np.concatenate([hashes, found[small]])
            vectors = np.concatenate([vectors, stored[block][small]])
            # Copies end here, so a very common row takes no more memory than another.
            first = np.sort(smallest_hashes(hashes, len(hashes)))
            hashes, vectors = hashes[first], vectors[first]
    return Output(arrays={"hashes": hashes, "vectors": vectors})


def draw_smallest(inputs: Inputs) -> Output:
    """Draw the subsets from the rows with the smallest hashes of all."""
    hashes, vectors = (
        np.concatenate([part.array(name) for part in inputs.parts])
        for name in ("hashes", "vectors")
    )
    sample = smallest_hashes(hashes, DRAWS * REPLICATES * inputs.parameters["rows"])
    drawn = _draw_subsets(inputs, len(sample))
    return _subsets_output(_count_distinct(inputs), (vectors[sample[rows]] for rows in drawn))


def draw_merged_rows(inputs: Inputs) -> Output:
    """Draw the subsets from the rows that remain when near ones are merged."""
    distinct = DistinctRows.of(inputs)
    drawn = _draw_subsets(inputs, len(distinct))
    read = (read_in_order(distinct.corpus, distinct.rows[rows]) for rows in drawn)
    return _subsets_output(len(distinct), read)


def _count_distinct(inputs: Inputs) -> int:
    n = inputs.corpora[inputs.parameters["role"]].n
    return n - int(inputs.results[inputs.parameters["counted"]].values["duplicates"])


def _draw_subsets(inputs: Inputs, among: int) -> Int64Array:
    """Draw all subsets, disjoint if there are rows enough, otherwise at least in every draw.

    If a subset can hold all rows, every one does.
    """
    p, generator = inputs.parameters, inputs.common_generator()
    rows = min(p["rows"], among)
    if DRAWS * REPLICATES * rows <= among or rows == among:
        return draw_replicates(among, rows, DRAWS * REPLICATES, generator)
    return np.concatenate(
        [draw_replicates(among, rows, REPLICATES, generator) for _ in range(DRAWS)]
    )


def _subsets_output(distinct: int, subsets: Iterable[NDArray[Any]]) -> Output:
    named = ((str(number), rows) for number, rows in enumerate(subsets))
    return Output(values={"distinct": distinct}, sections={SUBSETS: named})


@dataclass(frozen=True)
class DistinctSample:
    """Random subsets of the distinct rows of a corpus.

    Attributes
    ----------
    artifact : Artifact
        Result of the stage that drew them.
    metric : str
        The metric that compares rows.
    draw : int
        Which of the draws.
    """

    artifact: Artifact
    metric: Metric
    draw: int

    @classmethod
    def of(cls, inputs: Inputs) -> DistinctSample:
        """Return the subsets of a task's corpus, metric and draw."""
        p = inputs.parameters
        return cls(inputs.results[sample_name(p["role"])], p["metric"], p["draw"])

    def __len__(self) -> int:
        """Return the number of distinct rows of the corpus."""
        return int(self.artifact.values["distinct"])

    def read(self, replicate: int) -> Points:
        """Read the rows of a subset, in random order, about their median."""
        number = self.draw * REPLICATES + replicate
        points = as_points(self.artifact.section(SUBSETS, str(number)), self.metric)
        return points.about(np.asarray(np.median(points.rows[:ORIGIN_ROWS], axis=0)))
