r"""The spread of a metric space, a size that needs no solver.

At scale t the similarity of two rows is :math:`e^{-t d}`, and the *spread* (Willerton, Spread: a
measure of the size of metric spaces, IJCGA 2015) adds up how little each row is like the others,

.. math:: E_0(t) = \sum_i \frac{1}{s_i}, \qquad s_i = \sum_j e^{-t\,d(x_i, x_j)} .

It lies between 1 (all rows equal) and the number of distinct rows (all far apart). Copies of all
rows alike change nothing; copies of some give these more weight. It is the diversity of order 0 of
Leinster and Cobbold for even weights.

*DCScore* (Zhu et al., Measuring diversity in synthetic datasets, ICML 2025) is the trace of the
softmax of the rows of a matrix of cosines over a temperature :math:`\tau`, which is the spread
under the cosine distance at :math:`t = 1 / \tau`.

Random rows
-----------
The mean of :math:`1/s_i` over random rows, times n, is unbiased if :math:`s_i` is a sum over all
rows. So m rows of n cost ``m n`` pairs and give an interval.

Sampling error
--------------
Without row j the spread is smaller by

.. math:: D_j = \frac{1}{s_j}
          - \sum_{i \ne j} \frac{e^{-t d_{ij}}}{s_i (s_i - e^{-t d_{ij}})} ,

and n times the variance of :math:`D_j` is that over fresh samples (the jackknife). If only random
rows are known, the sum over i runs over them, which adds noise to every :math:`D_j`. The covariance
of two values for the same j from two halves of the rows has no such noise in it. Where it isn't
twice its own standard error, it is enlarged by as much, so an error is rather too large than 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import CONFIDENT, Estimate
from latentscale.sampling.subsets import allowance_for_few
from latentscale.spread.row_sums import RowSums
from latentscale.tiles.distances import Points, distance_tile, row_blocks

TILE_ROWS = 1024
"""Rows of a tile of similarities."""

MIN_ROWS = 20
"""Fewest rows that have a sampling error."""

EPSILON = float(np.finfo(np.float64).eps)


def spread(found: RowSums) -> list[Estimate]:
    """Compute the spread at every scale.

    Parameters
    ----------
    found : RowSums
        The sums of all rows of the corpus, or of two or more random ones, over all its rows.

    Returns
    -------
    list of Estimate
        Exact for all rows, up to rounding; otherwise with a 95 % interval.
    """
    n, m = found.rows, len(found.sums)
    shares = 1.0 / np.maximum(found.sums, 1.0)
    estimates = []
    for share, error in zip(shares.T, found.errors.tolist(), strict=True):
        value = n * float(share.mean())
        reach = value * (error + (m + 2.0) * EPSILON)
        if m < n:
            deviation = float(share.std(ddof=1)) * math.sqrt((1.0 - m / n) / m)
            reach += CONFIDENT * allowance_for_few(m - 1) * n * deviation
        estimates.append(
            Estimate(
                value,
                min(value, max(1.0, value - reach)),
                max(value, min(float(n), value + reach)),
                "exact" if m == n else "interval95",
                "row sums" if m == n else "row sums of random rows",
            )
        )
    return estimates


def sampling_errors(points: Points, found: RowSums, scales: Sequence[float]) -> list[float | None]:
    """Compute the standard errors of the spread over fresh corpora of as many rows.

    Parameters
    ----------
    points : Points
        The ``m`` rows of the sums, in an order that has nothing to do with their content.
    found : RowSums
        Their sums over all n rows.
    scales : sequence of float
        The scales of the sums.

    Returns
    -------
    list of float or None
        One for each scale; None for fewer than :data:`MIN_ROWS` rows.

    Notes
    -----
    Costs ``m² d`` multiplications, and an exponential for each pair and scale.
    """
    n, m = found.rows, len(points)
    if m < MIN_ROWS:
        return [None] * len(scales)
    errors: list[float | None] = []
    for column, scale in enumerate(scales):
        sums = np.maximum(found.sums[:, column], 1.0)
        lost = _lost_by_halves(points, sums, scale)
        own = 1.0 / sums
        if m == n:
            variance = float(np.var(own - lost.sum(axis=0), ddof=1))
        else:
            variance = _covariance(own - (n - 1) * lost / _others(m))
        errors.append(math.sqrt(n * variance))
    return errors


def _covariance(halves: Float64Array) -> float:
    """Return the covariance of two values for each row, or more where that is unclear."""
    (first, both), (_, second) = np.cov(halves)
    noise = math.sqrt((first * second + both**2) / (halves.shape[1] - 1))
    return float(both if both > 2.0 * noise else max(both, 0.0) + 2.0 * noise)


def _lost_by_halves(points: Points, sums: Float64Array, scale: float) -> Float64Array:
    """Return how much every row takes from the terms of the rows in each half, without its own."""
    lost = np.zeros((2, len(points)))
    for columns in row_blocks(len(points), TILE_ROWS):
        for rows in row_blocks(len(points), TILE_ROWS):
            near = np.exp(-scale * distance_tile(points.take(rows), points.take(columns)))
            if rows == columns:
                np.fill_diagonal(near, 0.0)
            own = sums[rows, None]
            # A sum has its own row in it, beside the other.
            taken = near / (own * np.maximum(own - near, 1.0))
            for half in (0, 1):
                lost[half, columns] += taken[(half + rows.start) % 2 :: 2].sum(axis=0)
    return lost


def _others(m: int) -> Float64Array:
    """Count the rows of each half other than a row itself."""
    halves = np.array([[(m + 1) // 2], [m // 2]], dtype=np.float64)
    own = np.arange(m) % 2 == np.array([[0], [1]])
    return np.asarray(halves - own)
