"""Tasks of the conditional diversity: the scores of pairs of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.conditional.kernel_entropies import conditional_scores
from latentscale.conditional.schur_complement import schur_scores
from latentscale.sampling.median_distance import draw_pairs, median_distance
from latentscale.tiles.device import exponentials
from latentscale.tiles.distances import as_points, squared_tile
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import store_scored
from latentscale_pipeline.measures.shared.pairs import (
    ROLES,
    pairs_name,
    rows_name,
    too_few_found,
)
from latentscale_pipeline.storage.artifacts import Output

Float64Array = NDArray[np.float64]

STAGE = "conditional"

PARTS = 2
"""Tasks: the entropies of kernels, and the Schur complement."""


def score_part(inputs: Inputs) -> Output:
    """Compute the scores of one part."""
    paired = inputs.results[pairs_name(STAGE)]
    m, common = len(paired.array("corpus")), paired.values["common"]
    if m < inputs.parameters["least"]:
        raise too_few_found(paired, m)
    vectors = [inputs.results[rows_name(STAGE, role)].array("vectors") for role in ROLES]
    if inputs.index:
        scores = schur_scores(vectors[0], vectors[1], max(m, common))
        found = {name: store_scored(score) for name, score in (scores or {}).items()}
        return Output(values={"scores": found, "pairs": m})
    return _score_kernels(inputs, vectors, max(m, common))


def _score_kernels(inputs: Inputs, vectors: list[NDArray[Any]], common: int) -> Output:
    p, generator = inputs.parameters, inputs.generator()
    m = min(p["kernel_rows"], len(vectors[0]))
    chosen = np.sort(generator.choice(len(vectors[0]), m, replace=False))
    kernels, values = [], dict[str, Any]()
    for rows, name in zip(vectors, ("bandwidth", "reference_bandwidth"), strict=True):
        some, bandwidth = rows[chosen], None
        if p["kernel"] == "rbf":
            bandwidth = p[name]
            if bandwidth == "median":
                try:
                    bandwidth = median_distance(some, *draw_pairs(m, generator))
                except ValueError as error:
                    return Output(values={"reason": str(error), "kernel_pairs": m})
            values[name] = bandwidth
        kernels.append(_kernel(some, bandwidth))
    scores = conditional_scores(kernels[0], kernels[1], common)
    found = {name: store_scored(score) for name, score in scores.items()}
    return Output(values={"scores": found, "kernel_pairs": m, **values})


def _kernel(rows: NDArray[Any], bandwidth: float | None) -> Float64Array:
    """Return the kernel matrix of rows, with ones on the diagonal."""
    if bandwidth is None:
        unit = as_points(rows, "cosine").rows
        kernel = unit @ unit.T
    else:
        points = as_points(rows, "euclidean")
        points = points.about(points.rows.mean(axis=0))
        kernel = squared_tile(points, points)
        exponentials(kernel, -0.5 / bandwidth**2)
    np.fill_diagonal(kernel, 1.0)
    return np.asarray(0.5 * (kernel + kernel.T))


def join_scores(inputs: Inputs) -> Output:
    """Join the scores of both parts."""
    kernels, moments = (part.values for part in inputs.parts)
    scores = {**kernels.get("scores", {}), **moments["scores"]}
    return Output(values={**kernels, **moments, "scores": scores})
