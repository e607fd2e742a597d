r"""Vendi scores of random subsets, extrapolated to all rows.

A replicate is a random subset divided into 1, 2, 4, … equal pieces; every size contains the same
rows (:mod:`latentscale.sampling.rarefaction`). The scores of the pieces form a curve over the size.
It starts at the number of rows, while no two rows are similar, and ends at a constant, once every
kind of row occurs often. The magnitude's curve runs between the same extremes, so this one is
extrapolated in the same way (:mod:`latentscale.magnitude.subsamples`): the interval is the envelope
of several fits and a back-test.

Below order 1 the score of a subset has a bracket that can be wide itself, because rounding hides
the smallest eigenvalues (:func:`latentscale.vendi.scores.vendi_score`). The lower and the upper
ends of the subsets form curves, too. The interval reaches from the lower end of the one to the
upper end of the other.

Unlike the magnitude, the Vendi score of a subset isn't a bound: rows that are rare in the whole may
be over-represented in it.

Order ∞
-------
The score of order ∞ is :math:`n / \lambda_{\max}(K)`. The largest eigenvalue of a principal
submatrix is at most that of the matrix, so every subset ``S`` bounds the score from above. If the
rows are divided into subsets, the sum of their largest eigenvalues is at least that of the matrix.
So the mean over subsets of ``m`` rows bounds the score from below:

.. math:: \frac{m}{\mathrm E\, \lambda_{\max}(K_S)} \le \mathrm{VS}_\infty
          \le \frac{n}{\lambda_{\max}(K_S)} .

The interval never exceeds the upper bound, which is certain. Near the resolution of the data even
the largest subsets contain few similar rows. The largest eigenvalue then belongs to the few closest
rows of all, which are rarely in the same subset. So the curve can't be extrapolated, and the
interval reaches from one bound to the other. On seven kinds of data, 2400 rows and subsets of 480,
it contained the score in 407 of 407 cases with a mean below :data:`RESOLVED`; without this rule it
did in 279.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import Estimate
from latentscale.sampling.extrapolation import extrapolate
from latentscale.sampling.rarefaction import RarefactionCurve, SubsetScores, rarefaction_curve
from latentscale.tiles.distances import Points
from latentscale.vendi.kernels import Kernel
from latentscale.vendi.scores import kernel_spectrum, vendi_score

RESOLVED = 6.0
"""Mean largest eigenvalue of the largest subsets from which a curve is extrapolated."""


ROUNDING = 1e-9
"""Bound on the relative rounding of a subset's largest eigenvalue."""


@dataclass(frozen=True)
class SubsetBrackets:
    """Scores of equal pieces of one replicate, with the brackets of their rounding.

    Attributes
    ----------
    size : int
        Rows of a piece.
    values, lower, upper : ndarray of float64, shape (pieces, orders)
        The score of each piece at each order, and the ends of its bracket.
    """

    size: int
    values: Float64Array
    lower: Float64Array
    upper: Float64Array


def subsample_scores(
    points: Points, kernel: Kernel, bandwidth: float | None, orders: Sequence[float], pieces: int
) -> SubsetBrackets:
    """Compute the scores of equal pieces of a replicate.

    Parameters
    ----------
    points : Points
        The rows of the replicate in random order, with the kernel's metric.
    kernel, bandwidth
        As in :func:`latentscale.vendi.scores.kernel_spectrum`.
    orders : sequence of float
        Descending orders, so that scores ascend, as the extrapolation requires.
    pieces : int
        Number of consecutive pieces of equal size.

    Returns
    -------
    SubsetBrackets

    Raises
    ------
    ValueError
        If there are fewer rows than pieces.
    """
    if not 1 <= pieces <= len(points):
        raise ValueError(f"cannot divide {len(points)} rows into {pieces} pieces")
    size = len(points) // pieces
    lower, values, upper = np.empty((3, pieces, len(orders)))
    for piece in range(pieces):
        rows = points.take(slice(piece * size, (piece + 1) * size))
        spectrum = kernel_spectrum(rows, kernel, bandwidth)
        scores = [vendi_score(spectrum, order) for order in orders]
        lower[piece] = [score.lower for score in scores]
        values[piece] = [score.value for score in scores]
        upper[piece] = [score.upper for score in scores]
    return SubsetBrackets(size, values, lower, upper)


def score_curve(subsamples: Sequence[SubsetBrackets]) -> RarefactionCurve:
    """Combine the scores of all sizes and replicates into a curve, with orders in place of scales.

    The certain lower bound of every score is 1.
    """
    return _curve([(part.size, part.values) for part in subsamples])


def extrapolated_scores(
    subsamples: Sequence[SubsetBrackets], orders: Sequence[float], n: int
) -> tuple[Estimate, ...]:
    """Extrapolate the scores to all rows.

    Parameters
    ----------
    subsamples : sequence of SubsetBrackets
        Scores of all sizes and replicates.
    orders : sequence of float
        The orders of these scores, descending.
    n : int
        Rows of the corpus.

    Returns
    -------
    tuple of Estimate
        ``bounds`` "estimate", method "subsample".
    """
    estimates = tuple(
        replace(middle, lower=min(low.lower, middle.lower), upper=max(high.upper, middle.upper))
        for low, middle, high in zip(
            extrapolate(_curve([(part.size, part.lower) for part in subsamples]), n).estimates,
            extrapolate(score_curve(subsamples), n).estimates,
            extrapolate(_curve([(part.size, part.upper) for part in subsamples]), n).estimates,
            strict=True,
        )
    )
    return tuple(
        _bounded(estimate, [(part.size, part.values[:, k]) for part in subsamples], n)
        if math.isinf(order)
        else estimate
        for k, (order, estimate) in enumerate(zip(orders, estimates, strict=True))
    )


def _curve(scores: Sequence[tuple[int, Float64Array]]) -> RarefactionCurve:
    count = scores[0][1].shape[1] if scores else 0
    places = np.arange(1.0, count + 1.0)
    return rarefaction_curve(
        places, [SubsetScores(size, values, np.ones(count)) for size, values in scores]
    )


def _bounded(estimate: Estimate, scores: Sequence[tuple[int, Float64Array]], n: int) -> Estimate:
    """Bound the score of order infinity by the largest eigenvalues of the subsets."""
    rows = max(size for size, _ in scores)
    if rows == n:
        return estimate
    mean = float(np.mean(np.concatenate([size / part for size, part in scores if size == rows])))
    share = min(float(part.min()) / size for size, part in scores)
    highest = min((1.0 + ROUNDING) * share, 1.0) * n
    value = min(estimate.value, highest)
    lower, upper = min(estimate.lower, value), max(min(estimate.upper, highest), value)
    if mean < RESOLVED:
        value = max(value, min(rows / mean, highest))
        lower, upper = min(rows / mean, value), highest
    return replace(estimate, value=value, lower=lower, upper=upper)
