"""Tasks of hubness: find the neighbours of random rows among each other, and score these."""

from __future__ import annotations

import numpy as np

from latentscale.hubness.scores import count_occurrences, has_few_hubs, score_hubness
from latentscale.neighbours.exact import nearest
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import store_scored
from latentscale_pipeline.storage.artifacts import Output


def find_neighbours(inputs: Inputs) -> Output:
    """Find the nearest of all drawn rows to some of them."""
    p = inputs.parameters
    # With keys, equal rows draw their neighbours from one another evenly.
    points = as_points(inputs.results[p["drawn"]].array("vectors"), p["metric"]).keyed()
    places = np.arange(len(points), dtype=np.int64)
    first = inputs.index * p["queries"]
    some = slice(first, min(first + p["queries"], len(points)))
    found = nearest(
        points.take(some),
        points,
        p["length"],
        query_ids=places[some],
        candidate_ids=places,
    )
    return Output(arrays={"indices": found.indices})


def score_lists(inputs: Inputs) -> Output:
    """Join the lists, and compute the scores."""
    p = inputs.parameters
    lists = np.concatenate([part.array("indices") for part in inputs.parts])
    seed = int(inputs.generator().integers(2**62)) if p["errors"] else None
    n = inputs.corpora[p["role"]].n
    found = score_hubness(lists, p["k"], n, seed)
    counts = count_occurrences(lists, p["k"])
    return Output(
        values={
            "scores": {name: store_scored(each) for name, each in found.items()},
            "most": int(counts.max()),
            "few_hubs": p["errors"] and has_few_hubs(counts, p["k"]),
            # In classes of 0, 1, 2 to 3, 4 to 7 …: as many as bits in the count.
            "occurrences": np.bincount(np.frexp(counts)[1]).tolist(),
        },
        arrays={
            "occurrences": counts.astype(np.int32),
            "rows": inputs.results[p["drawn"]].array("rows"),
        },
    )
