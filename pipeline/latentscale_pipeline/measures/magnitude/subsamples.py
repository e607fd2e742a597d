"""Magnitude of corpora too large for all pairs, extrapolated from random subsets.

A task takes one replicate, a random subset of the distinct rows, divides it into pieces of equal
size and evaluates their magnitude functions. The final step combines them into a rarefaction curve
and extrapolates it to all rows. The convergence scale comes first, on a grid of scales chosen from
the first replicate; the function on the job's scales follows.
"""

from __future__ import annotations

import numpy as np

from latentscale.array_types import Float64Array, Int64Array
from latentscale.magnitude.dense import NoConvergenceScale
from latentscale.magnitude.nystrom import NystromMagnitude, nystrom_magnitude
from latentscale.magnitude.subsampled_convergence import (
    convergence_grid,
    extrapolated_convergence_scale,
)
from latentscale.magnitude.subsamples import (
    learning_scales,
    magnitude_brackets,
    subsample_magnitudes,
)
from latentscale.sampling.extrapolation import extrapolate
from latentscale.sampling.rarefaction import (
    HALVINGS,
    RarefactionCurve,
    SubsetScores,
    rarefaction_curve,
)
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import load_estimate, store_estimate
from latentscale_pipeline.measures.magnitude.distinct_sample import DistinctSample
from latentscale_pipeline.measures.magnitude.tasks import job_scales, without_scale
from latentscale_pipeline.measures.shared.distinct_rows import DistinctRows
from latentscale_pipeline.storage.artifacts import Artifact, Output

PIECES = 2**HALVINGS
"""Number of pieces of the smallest size."""

_SCORES = ("values", "lower", "upper")
"""Arrays of the scores of subsets."""


def subsample_about_convergence(inputs: Inputs) -> Output:
    """Evaluate the pieces of one replicate at scales around the convergence scale."""
    try:
        return _evaluate_pieces(inputs, None)
    except NoConvergenceScale as error:
        return Output(values={"reason": str(error)})


def subsample_function(inputs: Inputs) -> Output:
    """Evaluate the pieces of one replicate at the job's scales, and more if these are few."""
    scales = job_scales(inputs)
    return Output() if scales is None else _evaluate_pieces(inputs, learning_scales(scales))


def _evaluate_pieces(inputs: Inputs, scales: Float64Array | None) -> Output:
    """Evaluate pieces of one replicate and size, by default around the convergence scale."""
    sample = DistinctSample.of(inputs)
    replicate, halving = divmod(inputs.index, HALVINGS + 1)
    if scales is None:
        scales = convergence_grid(sample.read(0), len(sample), inputs.parameters["target"])
    points = sample.read(replicate)
    # Where the subset is all of the distinct rows, nothing is extrapolated.
    if len(points) == len(sample) and inputs.index > 0:
        return Output()
    found = subsample_magnitudes(
        points, scales, 2**halving, tolerance=inputs.parameters["tolerance"]
    )
    arrays = {name: getattr(found, name) for name in _SCORES}
    return Output(values={"size": found.size}, arrays={"scales": scales, **arrays})


def extrapolate_convergence(inputs: Inputs) -> Output:
    """Extrapolate the function and find where it reaches the target share."""
    sample = DistinctSample.of(inputs)
    if "reason" in inputs.parts[0].values:
        return Output(values={"reason": inputs.parts[0].values["reason"]})
    curve = _curve(inputs)
    try:
        estimate = extrapolated_convergence_scale(
            extrapolate(curve, len(sample)), inputs.parameters["target"]
        )
    except NoConvergenceScale as error:
        return Output(values={"reason": str(error)}, arrays=_curve_arrays(curve))
    return Output(values={"estimate": store_estimate(estimate)}, arrays=_curve_arrays(curve))


def extrapolate_function(inputs: Inputs) -> Output:
    """Extrapolate the function at the job's scales; add the Nyström estimates if there are any."""
    scales = job_scales(inputs)
    if scales is None:
        return without_scale(inputs)
    sample, name = DistinctSample.of(inputs), inputs.parameters["beside"]
    beside = None if name is None else _load_nystrom(inputs.results[name])
    curve = _curve(inputs)
    places = np.searchsorted(curve.scales, scales)
    brackets = magnitude_brackets(extrapolate(curve, len(sample)).at(places), beside)
    curve = curve.at(places)
    return Output(
        values={
            "estimates": [store_estimate(bracket.estimate) for bracket in brackets],
            "certified": [bracket.certified for bracket in brackets],
            "lower_by": [bracket.lower_by for bracket in brackets],
            "upper_by": [bracket.upper_by for bracket in brackets],
            "nystrom": None
            if beside is None
            else [store_estimate(estimate) for estimate in beside.estimates],
            "points": len(sample),
            "products": 0,
        },
        arrays={"scales": curve.scales, **_curve_arrays(curve)},
    )


def estimate_beside(inputs: Inputs) -> Output:
    """Estimate the function by Nyström landmarks and Vecchia neighbours, all rows in memory."""
    scales = job_scales(inputs)
    if scales is None:
        return without_scale(inputs)
    points = DistinctRows.of(inputs).read(slice(None))
    found = nystrom_magnitude(points, scales, generator=inputs.generator())
    return Output(
        values={
            "estimates": [store_estimate(estimate) for estimate in found.estimates],
            "points": found.points,
        },
        arrays={"scales": found.scales, "landmark_magnitudes": found.landmark_magnitudes},
    )


def _load_nystrom(artifact: Artifact) -> NystromMagnitude:
    return NystromMagnitude(
        scales=artifact.array("scales"),
        estimates=tuple(load_estimate(values) for values in artifact.values["estimates"]),
        landmark_magnitudes=artifact.array("landmark_magnitudes"),
        points=artifact.values["points"],
    )


def _curve(inputs: Inputs) -> RarefactionCurve:
    parts = [
        SubsetScores(part.values["size"], *map(part.array, _SCORES))
        for part in inputs.parts
        if "size" in part.values
    ]
    return rarefaction_curve(inputs.parts[0].array("scales"), parts)


def _curve_arrays(curve: RarefactionCurve) -> dict[str, Float64Array | Int64Array]:
    return {"rarefaction_sizes": curve.sizes, "rarefaction": curve.means}
