"""Tasks of the alignment: neighbours of the same items by both models, and their scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentscale.alignment.common_neighbours import (
    average_overlap,
    count_common,
    score_neighbours,
)
from latentscale.alignment.linear_cka import MIN_ROWS, linear_cka
from latentscale.array_types import Int64Array
from latentscale.neighbours.exact import nearest
from latentscale.tiles.distances import as_points
from latentscale.tiles.top_lists import hash_numbers
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import Role, store_scored
from latentscale_pipeline.measures.shared.pairs import (
    ROLES,
    pairs_name,
    rows_name,
    too_few_found,
)
from latentscale_pipeline.storage.artifacts import Artifact, Output

STAGE = "alignment"


def find_neighbours(inputs: Inputs) -> Output:
    """Find the nearest items of some, by both models."""
    return Output(arrays={role: _nearest(inputs, role) for role in ROLES})


def _nearest(inputs: Inputs, role: Role) -> Int64Array:
    p = inputs.parameters
    vectors = inputs.results[rows_name(STAGE, role)].array("vectors")
    places = np.arange(len(vectors), dtype=np.int64)
    some = slice(inputs.index * p["queries"], (inputs.index + 1) * p["queries"])
    if len(vectors) <= p["k"] or not len(places[some]):
        return np.empty((0, 0), np.int64)
    # Equal distances are ordered by the numbers of the pairs, in both models alike. Those of
    # cosines are hardly ever equal in their last digits, except between equal rows.
    points = as_points(vectors, p["metric"]).keyed(hash_numbers(places, 0))
    return nearest(
        points.take(some),
        points,
        min(p["length"], len(points) - 1),
        query_ids=places[some],
        candidate_ids=places,
    ).indices


def score_pairs(inputs: Inputs) -> Output:
    """Join the lists, and compute the scores."""
    p = inputs.parameters
    paired = inputs.results[pairs_name(STAGE)]
    rows = [paired.array(role) for role in ROLES]
    m = len(rows[0])
    if m < max(p["k"] + 1, MIN_ROWS):
        raise too_few_found(paired, m)
    first, second = (_join(inputs.parts, role) for role in ROLES)
    seed = int(inputs.generator().integers(2**62))
    common = paired.values["common"]
    x, y = (inputs.results[rows_name(STAGE, role)].array("vectors") for role in ROLES)
    kernels = linear_cka(x, y, max(m, common))
    neighbours = score_neighbours(first, second, p["k"], max(m, common), seed)
    counts = count_common(first[:, : p["k"]], second[:, : p["k"]]).astype(np.int32)
    overlaps = average_overlap(first, second).astype(np.float32)
    order = np.argsort(rows[1])
    return Output(
        values={
            "scores": {
                name: None if each is None else store_scored(each)
                for name, each in {**kernels, **neighbours}.items()
            },
            "pairs": m,
            "overlaps": np.bincount(counts, minlength=p["k"] + 1).tolist(),
        },
        arrays={
            "corpus_rows": rows[0],
            "corpus_common": counts,
            "corpus_overlap": overlaps,
            "reference_rows": rows[1][order],
            "reference_common": counts[order],
            "reference_overlap": overlaps[order],
        },
    )


def _join(parts: Sequence[Artifact], role: Role) -> Int64Array:
    """Return the lists of all items; the last parts are empty if pairs are fewer than planned."""
    lists = [part.array(role) for part in parts]
    return np.concatenate([each for each in lists if len(each)])
