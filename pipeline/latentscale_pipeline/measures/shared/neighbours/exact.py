"""Exact neighbours as a stage: each task compares a block of rows with all rows, shard by shard."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from latentscale.neighbours.certificate import Recall
from latentscale.neighbours.exact import Neighbours, nearest
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.shared.neighbours.settings import NeighbourSettings
from latentscale_pipeline.measures.shared.records import record_arrays
from latentscale_pipeline.storage.artifacts import Output

QUERY_ROWS = 8192
"""Rows whose exact neighbours one task finds."""


def exact_neighbours_stage(
    settings: NeighbourSettings, facts: JobFacts, role: Role, why: str
) -> Stage:
    """Plan the search of every row's neighbours among all rows."""
    corpus = facts.corpora[role]
    n, d, k = corpus.n, corpus.d, settings.k
    tasks, lists = -(-n // QUERY_ROWS), 16 * n * k
    searching = corpus.shard_bytes + min(QUERY_ROWS, n) * ((d + 1) * 8 + 3 * k * 24)
    return Stage(
        name=f"neighbours-{role}",
        passing=("distances",),
        work=find_exact_neighbours,
        finalise=join_neighbours,
        partitions=tasks,
        corpora=(role,),
        parameters={"role": role, "k": k, "metric": settings.metric},
        seed=facts.seed,
        # One task searches, another joins the lists.
        memory_bytes=max(searching + FEW_TILES_BYTES, 2 * lists),
        cost_estimate=CostEstimate(
            bytes_read=(tasks + 1) * corpus.stored_bytes + lists,
            bytes_written=2 * lists + (tasks + 1) * RESULT_BYTES,
            float32_multiply_adds=float(n) * float(n) * d,
            elementwise_operations=float(n) * float(n)
            + 2 * CONVERSION_OPERATIONS * (tasks + 1) * float(n) * d,
            method="exact",
            why=why,
        ),
    )


def find_exact_neighbours(inputs: Inputs) -> Output:
    """Find the neighbours of a block of rows among all rows, shard by shard."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    start = inputs.index * QUERY_ROWS
    query_ids = np.arange(start, min(start + QUERY_ROWS, corpus.n))
    queries = as_points(corpus.read_rows(start, start + len(query_ids)), p["metric"])
    best: Neighbours | None = None
    for shard in range(corpus.shard_count):
        rows = corpus.shard_range(shard)
        best = nearest(
            queries,
            as_points(corpus.read_shard(shard), p["metric"]),
            p["k"],
            query_ids=query_ids,
            candidate_ids=np.arange(rows.start, rows.stop),
            seed=inputs.tie_seed,
            known=best,
        )
    if best is None:
        raise BadInput(f"{corpus.url}: has no shards")
    return Output(arrays=record_arrays(best))


def join_neighbours(inputs: Inputs) -> Output:
    """Join the neighbour lists of all blocks."""
    arrays = {
        name: np.concatenate([part.array(name) for part in inputs.parts])
        for name in ("indices", "distances")
    }
    exact = Recall(value=1.0, lower=1.0, upper=1.0, sampled=len(arrays["indices"]))
    return Output(values={"method": "exact", "recall": asdict(exact)}, arrays=arrays)
