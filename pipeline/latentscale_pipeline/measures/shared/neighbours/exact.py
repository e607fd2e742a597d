"""Exact neighbours as a stage: each task compares a block of rows with all rows, shard by shard."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from latentscale.array_types import UInt64Array
from latentscale.neighbours.certificate import Recall
from latentscale.neighbours.exact import Neighbours, nearest
from latentscale.tiles.distances import Metric, as_points
from latentscale.tiles.top_lists import content_keys, number_copies
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.shared.neighbours.settings import NeighbourSettings
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
    keys = 48 * n
    searching = keys + corpus.shard_bytes + min(QUERY_ROWS, n) * ((d + 1) * 8 + 3 * (k + 1) * 32)
    return Stage(
        name=f"neighbours-{role}",
        work=find_exact_neighbours,
        finalise=join_neighbours,
        partitions=tasks,
        corpora=(role,),
        parameters={"role": role, "k": k, "metric": settings.metric},
        # One task searches, another joins the lists.
        memory_bytes=max(searching + FEW_TILES_BYTES, 2 * lists),
        cost_estimate=CostEstimate(
            bytes_read=(2 * tasks + 1) * corpus.stored_bytes + lists,
            bytes_written=2 * lists + (tasks + 1) * RESULT_BYTES,
            exchanged_bytes=lists,
            result_bytes=lists + RESULT_BYTES,
            kept_bytes=lists + RESULT_BYTES,
            float32_multiply_adds=float(n) * float(n) * d,
            elementwise_operations=float(n) * float(n)
            + 3 * CONVERSION_OPERATIONS * (tasks + 1) * float(n) * d,
            method="exact",
            why=why,
        ),
    )


def find_exact_neighbours(inputs: Inputs) -> Output:
    """Find the neighbours of a block of rows among all rows, shard by shard."""
    p = inputs.parameters
    corpus, k = inputs.corpora[p["role"]], p["k"]
    start = inputs.index * QUERY_ROWS
    stop = min(start + QUERY_ROWS, corpus.n)
    keys = _read_keys(corpus, p["metric"])
    queries = as_points(corpus.read_rows(start, stop), p["metric"]).keyed(keys[start:stop])
    # One more than is wanted shows which lists end in a tie.
    best = Neighbours.none(len(queries), k + 1)
    for shard in range(corpus.shard_count):
        rows = corpus.shard_range(shard)
        best = nearest(
            queries,
            as_points(corpus.read_shard(shard), p["metric"]).keyed(keys[rows]),
            k + 1,
            query_ids=np.arange(start, stop),
            candidate_ids=np.arange(rows.start, rows.stop),
            known=best,
        )
    found = best.cut(k)
    return Output(
        values={"tied": int(best.tied(k).sum())},
        arrays={"indices": found.indices, "distances": found.distances},
    )


def _read_keys(corpus: Corpus, metric: Metric) -> UInt64Array:
    """Return the keys of all rows, which break ties and tell equal rows apart."""
    keys = [
        content_keys(as_points(corpus.read_shard(shard), metric).rows)
        for shard in range(corpus.shard_count)
    ]
    return number_copies(np.concatenate(keys))


def join_neighbours(inputs: Inputs) -> Output:
    """Join the neighbour lists of all blocks."""
    arrays = {
        name: np.concatenate([part.array(name) for part in inputs.parts])
        for name in ("indices", "distances")
    }
    n = len(arrays["indices"])
    exact = Recall(value=1.0, lower=1.0, upper=1.0, sampled=n)
    tied = sum(part.values["tied"] for part in inputs.parts) / n
    return Output({"method": "exact", "recall": asdict(exact), "tied": tied}, arrays)
