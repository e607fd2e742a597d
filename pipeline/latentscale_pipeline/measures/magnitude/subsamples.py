"""Magnitude beyond the budget for all pairs: random subsets, their rarefaction, its extrapolation.

A task takes one replicate, a random subset of the distinct rows, divides it into equal pieces of
one size and evaluates their magnitude functions. Combining gathers the rarefaction curve and
follows it to all rows. The convergence scale is sought first, on a grid of scales that the first
replicate places; the function on the job's scales comes after it.

Memory of a task: one replicate in both precisions, and the solver's arrays. The rows of a replicate
follow from ``budget.pairs`` and the dimension, never from the cluster.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from latentscale.linalg.conjugate_gradients import step_bytes
from latentscale.magnitude.dense import NoConvergenceScale
from latentscale.magnitude.function import KEPT_BYTES
from latentscale.magnitude.nystrom import LANDMARKS, NystromMagnitude, nystrom_magnitude
from latentscale.magnitude.subsampled_convergence import (
    convergence_grid,
    extrapolated_convergence_scale,
)
from latentscale.magnitude.subsamples import magnitude_brackets, subsample_magnitudes
from latentscale.sampling.extrapolation import extrapolate
from latentscale.sampling.rarefaction import (
    HALVINGS,
    RarefactionCurve,
    SubsampleMagnitudes,
    draw_replicates,
    rarefaction_curve,
)
from latentscale.tiles.distances import Points
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.engine.task import FINALISE
from latentscale_pipeline.measures.base import (
    RESULT_BYTES,
    TILE_BYTES,
    CorpusFacts,
    load_estimate,
    store_estimate,
)
from latentscale_pipeline.measures.shared.distinct_rows import DistinctRows
from latentscale_pipeline.measures.shared.pair_sums import pair_operations
from latentscale_pipeline.storage.artifacts import Artifact, Output

Float64Array = NDArray[np.float64]

REPLICATES = 2
"""Random subsets, each divided into pieces of all sizes."""

PIECES = 2**HALVINGS
"""Pieces of the smallest size."""

PRODUCTS = 40
"""Passes over all pairs of a replicate that its functions take, on two sets of scales."""

REPLICATE_BYTES = 256 * 2**20
"""Memory that the rows of a replicate may take in both precisions."""

LEAST_ROWS = 64 * PIECES
"""Rows of a replicate below which its smallest pieces would say nothing."""


def replicate_rows(facts: CorpusFacts, pairs: float) -> int:
    """Choose the rows of a replicate: half the budget, in bounded memory."""
    budgeted = math.isqrt(int(pairs / (PRODUCTS * REPLICATES)))
    fitting = REPLICATE_BYTES // (12 * (facts.d + 1))
    rows = max(LEAST_ROWS, min(budgeted, fitting, facts.n // REPLICATES))
    return int(rows - rows % PIECES)


def subsample_memory(facts: CorpusFacts, rows: int, scales: int) -> int:
    """Memory of one task."""
    held = rows * (facts.d * 20 + 8) + step_bytes(rows, scales, scales, facts.d)
    return held + min(KEPT_BYTES, 2 * rows**2) + 32 * rows * scales + facts.shard_bytes + TILE_BYTES


def subsample_cost(facts: CorpusFacts, rows: int, scales: int) -> CostEstimate:
    """Work of all tasks: pieces of every size of each replicate."""
    # Pieces of half the size have half as many pairs in all.
    pairs = REPLICATES * float(rows) ** 2
    return CostEstimate(
        bytes_read=(partitions() + 1) * (facts.stored_bytes + 16 * facts.n),
        bytes_written=partitions() * (24 * scales * PIECES + RESULT_BYTES),
        float32_multiply_adds=pairs * facts.d,
        elementwise_operations=0.8 * PRODUCTS * pairs * pair_operations(scales),
        method="subsample",
    )


def landmarks_cost(facts: CorpusFacts, scales: int) -> CostEstimate:
    """Work of the estimate by landmarks: a factor a scale, and every row against it."""
    n, m = float(facts.n), float(LANDMARKS)
    return CostEstimate(
        bytes_read=facts.stored_bytes + 16 * facts.n,
        bytes_written=16 * scales + 2 * RESULT_BYTES,
        float64_multiply_adds=n * m * facts.d + scales * (m**3 / 6 + n * m**2 / 2),
        elementwise_operations=4 * n * m * scales,
        method="nystrom",
    )


def partitions() -> int:
    """Count the tasks: one for each replicate and size."""
    return REPLICATES * (HALVINGS + 1)


def evaluate_pieces(inputs: Inputs, distinct: DistinctRows, scales: Float64Array | None) -> Output:
    """Evaluate the pieces of one replicate and size.

    Parameters
    ----------
    inputs : Inputs
        Of a partition.
    distinct : DistinctRows
        The rows to draw from.
    scales : ndarray or None
        Where to evaluate; None for a grid about the convergence scale.
    """
    replicate, halving = divmod(inputs.index, HALVINGS + 1)
    drawn = _draw(inputs, distinct)
    if scales is None:
        first = _read(distinct, drawn[0])
        scales = convergence_grid(first, len(distinct), inputs.parameters["target"])
    points = _read(distinct, drawn[replicate])
    found = subsample_magnitudes(
        points, scales, 2**halving, tolerance=inputs.parameters["tolerance"]
    )
    return Output(
        values={"size": found.size},
        arrays={"scales": scales, "values": found.values, "lower": found.lower},
    )


def conclude_convergence(inputs: Inputs, distinct: DistinctRows) -> Output:
    """Extrapolate the function and find where it reaches the target share."""
    curve = _curve(inputs)
    try:
        estimate = extrapolated_convergence_scale(
            extrapolate(curve, len(distinct)), inputs.parameters["target"]
        )
    except NoConvergenceScale as error:
        return Output(values={"reason": str(error)}, arrays=_curve_arrays(curve))
    return Output(values={"estimate": store_estimate(estimate)}, arrays=_curve_arrays(curve))


def conclude_function(
    inputs: Inputs, distinct: DistinctRows, beside: NystromMagnitude | None
) -> Output:
    """Extrapolate the function on the job's scales; landmarks' estimates stand beside it."""
    curve = _curve(inputs)
    brackets = magnitude_brackets(extrapolate(curve, len(distinct)), beside)
    return Output(
        values={
            "estimates": [store_estimate(bracket.estimate) for bracket in brackets],
            "certified": [bracket.certified for bracket in brackets],
            "lower_by": [bracket.lower_by for bracket in brackets],
            "upper_by": [bracket.upper_by for bracket in brackets],
            "nystrom": None
            if beside is None
            else [store_estimate(estimate) for estimate in beside.estimates],
            "points": len(distinct),
            "products": 0,
        },
        arrays={"scales": curve.scales, **_curve_arrays(curve)},
    )


def estimate_by_landmarks(
    inputs: Inputs, distinct: DistinctRows, scales: Float64Array
) -> NystromMagnitude:
    """Estimate the function from landmarks and Vecchia neighbours, all rows in memory."""
    points = distinct.read(slice(0, len(distinct)))
    return nystrom_magnitude(points, scales, generator=inputs.generator())


def landmarks_memory(facts: CorpusFacts, scales: int) -> int:
    """Memory of the estimate by landmarks."""
    return 3 * facts.points_bytes + 8 * LANDMARKS**2 * (scales + 4) + 4 * TILE_BYTES


def load_nystrom(artifact: Artifact) -> NystromMagnitude:
    """Restore the estimate by landmarks from what its stage published."""
    return NystromMagnitude(
        scales=artifact.array("scales"),
        estimates=tuple(load_estimate(values) for values in artifact.values["estimates"]),
        landmark_magnitudes=artifact.array("landmark_magnitudes"),
        points=artifact.values["points"],
    )


def store_nystrom(found: NystromMagnitude) -> Output:
    """Turn the estimate by landmarks into a stage's output."""
    return Output(
        values={
            "estimates": [store_estimate(estimate) for estimate in found.estimates],
            "points": found.points,
        },
        arrays={"scales": found.scales, "landmark_magnitudes": found.landmark_magnitudes},
    )


def _draw(inputs: Inputs, distinct: DistinctRows) -> NDArray[np.int64]:
    """Draw all replicates, the same ones in every task."""
    rows = min(inputs.parameters["rows"], len(distinct))
    generator = replace(inputs, index=FINALISE).generator()
    return draw_replicates(len(distinct), rows - rows % PIECES, REPLICATES, generator)


def _read(distinct: DistinctRows, rows: NDArray[np.int64]) -> Points:
    """Read distinct rows in the order in which they were drawn."""
    order = np.argsort(rows)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return distinct.read_chosen(rows[order]).take(back)


def _curve(inputs: Inputs) -> RarefactionCurve:
    parts = [
        SubsampleMagnitudes(part.values["size"], part.array("values"), part.array("lower"))
        for part in inputs.parts
    ]
    return rarefaction_curve(inputs.parts[0].array("scales"), parts)


def _curve_arrays(curve: RarefactionCurve) -> dict[str, Float64Array | NDArray[np.int64]]:
    return {"rarefaction_sizes": curve.sizes, "rarefaction": curve.means}
