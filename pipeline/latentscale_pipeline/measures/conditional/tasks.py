"""Tasks of the conditional diversity: the scores of pairs of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.conditional.kernel_entropies import conditional_scores
from latentscale.conditional.schur_complement import schur_scores
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

STAGE = "conditional"

FEW_PAIRS = 10
"""Pairs below which ids are taken for ids of different things."""

PARTS = 2
"""Tasks: the entropies of kernels, and the Schur complement."""


def score_part(inputs: Inputs) -> Output:
    """Compute the scores of one part."""
    paired = inputs.results[pairs_name(STAGE)]
    m, common = len(paired.array("corpus")), paired.values["common"]
    least = inputs.parameters["least"]
    if m < min(least, FEW_PAIRS):
        raise too_few_found(paired, m)
    if m < least:
        reason = f"ids found {m} pairs, and {least} are needed"
        return Output(values={"scores": {}, "pairs": m, "reason": reason})
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
    given = [p["bandwidth"], p["reference_bandwidth"]] if p["kernel"] == "rbf" else [None, None]
    (outputs, width), (prompts, other) = (
        _kernel(rows[chosen], asked) for rows, asked in zip(vectors, given, strict=True)
    )
    moving = [
        asked == "median" and found is not None
        for asked, found in zip(given, (width, other), strict=True)
    ]
    scores, by_chance = conditional_scores(
        outputs, prompts, common, generator, medians=(moving[0], moving[1])
    )
    return Output(
        values={
            "scores": {name: store_scored(score) for name, score in scores.items()},
            "kernel_pairs": m,
            "bandwidth": width,
            "reference_bandwidth": other,
            "by_chance": by_chance,
        }
    )


def _kernel(rows: NDArray[Any], bandwidth: float | str | None) -> tuple[Float64Array, float | None]:
    """Return the kernel matrix of rows, with ones on the diagonal, and its bandwidth.

    The median is that of the distances of rows that differ: there may be few prompts, each with
    many outputs.
    """
    if bandwidth is None:
        unit = as_points(rows, "cosine").rows
        kernel = unit @ unit.T
        np.fill_diagonal(kernel, 1.0)
        return kernel, None
    points = as_points(rows, "euclidean")
    points = points.about(points.rows.mean(axis=0))
    kernel = squared_tile(points, points)
    if bandwidth == "median":
        squares = kernel[np.triu_indices(len(kernel), 1)]
        squares = squares[squares > 0.0]
        if not len(squares):
            return np.ones_like(kernel), None
        bandwidth = math.sqrt(float(np.median(squares)))
    width = float(bandwidth)
    exponentials(kernel, -0.5 / width**2)
    np.fill_diagonal(kernel, 1.0)
    return np.asarray(0.5 * (kernel + kernel.T)), width


def join_scores(inputs: Inputs) -> Output:
    """Join the scores of both parts."""
    kernels, moments = (part.values for part in inputs.parts)
    scores = {**kernels.get("scores", {}), **moments["scores"]}
    return Output(values={**kernels, **moments, "scores": scores})
