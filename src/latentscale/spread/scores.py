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

A few rows far from all others may hold most of the spread, and none of them be drawn. But the same
pairs say of *all* rows how like they are to the drawn ones, and so how many of each kind there are:
rows are divided into strata by that (:mod:`latentscale.spread.row_sums`). The rows of the lowest
strata, least like any drawn row, are estimated apart from all others if fewer than :data:`FEW` of
them were drawn. They have a wide bracket: a share of up to :data:`UNSEEN` / (k + 1) may be unlike
the k drawn ones (but for one case in 40), with terms between bounds that the stratum sets. If none
was drawn, nothing says whether they are like each other, and the value has the geometric mean of
both bounds.

Sampling error
--------------
Without row j the spread is smaller by

.. math:: D_j = \frac{1}{s_j}
          - \sum_{i \ne j} \frac{e^{-t d_{ij}}}{s_i (s_i - e^{-t d_{ij}})} ,

and n times the variance of :math:`D_j` is that over fresh samples (the jackknife). If only random
rows are known, the sum over i runs over them, which adds noise to every :math:`D_j`. The covariance
of two values for the same j from two halves of the rows has no such noise in it. Where it isn't
twice its own standard error, it is enlarged by as much, so an error is rather too large than 0.

Scales in units of one over the median distance move with it. Without row j the logarithm of the
median :math:`\sigma` grows by :math:`2 (F_j - 1/2) / ((n - 2) f)`, where :math:`F_j` is the share
of rows nearer to row j, and f the density of the logarithms of distances there. That times

.. math:: \frac{\partial E_0}{\partial \log \sigma}
          = -\sum_i \frac{1}{s_i^2} \sum_j t\, d_{ij}\, e^{-t d_{ij}}

is taken from :math:`D_j`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import CONFIDENT, Estimate
from latentscale.sampling.moving_median import JumpingMedian, density_at_median
from latentscale.sampling.subsets import allowance_for_few
from latentscale.spread.row_sums import STRATA, RowSums, stratum
from latentscale.tiles.distances import Points, distance_tile, row_blocks

TILE_ROWS = 1024
"""Rows of a tile of similarities."""

FEW = 8
"""Number of drawn rows from which the scatter of their terms tells that of others of their kind."""

UNSEEN = -math.log(0.025)
"""Largest number of cases of a kind of which none was seen, but for one case in 40."""

DENSITY_ROWS = 512
"""Rows whose distances to all others show their density at the median."""

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
    for column, error in enumerate(found.errors.tolist()):
        share = shares[:, column]
        rest = _undrawn(found, share, column) if m < n else _Rest(0.0, 0.0, 0.0, 0.0)
        value = float(share.sum()) + rest.value
        reach = value * (error + (m + 2.0) * EPSILON)
        reach += CONFIDENT * allowance_for_few(m - 1) * math.sqrt(rest.variance)
        estimates.append(
            Estimate(
                value,
                min(value, max(1.0, value - reach - rest.below)),
                max(value, min(float(n), value + reach + rest.above)),
                "exact" if m == n else "interval95",
                "row sums" if m == n else "row sums of random rows",
            )
        )
    return estimates


@dataclass(frozen=True)
class _Rest:
    """The terms of the rows that weren't drawn.

    Attributes
    ----------
    value, variance : float
        Their sum, and its variance over draws.
    below, above : float
        How far from that it may lie because of rows of kinds that weren't drawn.
    """

    value: float
    variance: float
    below: float
    above: float


def _undrawn(found: RowSums, share: Float64Array, column: int) -> _Rest:
    """Estimate the terms of the rows that weren't drawn, those unlike drawn rows apart."""
    n, m = found.rows, len(share)
    mine, counts = stratum(found.drawn_sums[:, column]), found.strata[:, column]
    drawn = np.bincount(mine, minlength=STRATA)
    sparse = np.cumsum(drawn) < FEW
    if np.count_nonzero(~sparse[mine]) < 2:  # too few rows were drawn to tell kinds apart
        sparse[:] = False
    rest, own = int(counts[~sparse].sum()), share[~sparse[mine]]
    value, below, above = rest * float(own.mean()), 0.0, 0.0
    variance = rest**2 * float(own.var(ddof=1)) * (1.0 / len(own) + 1.0 / rest) if rest else 0.0
    if not sparse[0]:
        # Without a drawn row near, a row may have a thousand others near it or none.
        few = share[mine == 0]
        above += int(counts[0]) * min(1.0, UNSEEN / (len(few) + 1)) * (1.0 - few.max(initial=0.0))
    for number in np.flatnonzero(sparse & (counts > 0)).tolist():
        few = share[mine == number]
        least, most = _bounds_of_terms(number, n, m)
        mean = float(few.mean()) if len(few) else math.sqrt(least * most)
        count = int(counts[number])
        unlike = count * min(1.0, UNSEEN / (len(few) + 1))
        value += count * mean
        below += unlike * max(mean - least, 0.0)
        above += unlike * max(most - mean, 0.0)
        if len(few) > 1:
            variance += count**2 * float(few.var(ddof=1)) * (1.0 / len(few) + 1.0 / count)
    return _Rest(value, variance, below, above)


def _bounds_of_terms(number: int, n: int, m: int) -> tuple[float, float]:
    """Return between what the terms of the rows of a stratum lie, but for one case in 40."""
    near = 0.0 if number == 0 else 2.0 ** (number - 2)
    upper = 2.0 ** (number - 1)
    # Of a sum of s, draws see s m / n on average, with the variance of a Poisson number at most.
    at_most = upper + UNSEEN + math.sqrt(2.0 * UNSEEN * upper)
    at_least = max(near - math.sqrt(2.0 * UNSEEN * near), 0.0)
    return 1.0 / (1.0 + at_most * n / m), 1.0 / max(1.0, near, at_least * n / m)


def sampling_errors(
    points: Points,
    found: RowSums,
    scales: Sequence[float],
    *,
    median: float | None = None,
    median_pairs: int | None = None,
) -> list[float | None]:
    """Compute the standard errors of the spread over fresh corpora of as many rows.

    Parameters
    ----------
    points : Points
        The ``m`` rows of the sums, in an order that has nothing to do with their content.
    found : RowSums
        Their sums over all n rows.
    scales : sequence of float
        The scales of the sums.
    median : float, optional
        The median distance of ``median_pairs`` pairs of the n rows, if the scales are in units of
        one over it, so that they move with the rows. Without it, they are held fixed.
    median_pairs : int, optional
        Number of these pairs; all if not given.

    Returns
    -------
    list of float or None
        One for each scale; None for fewer than :data:`MIN_ROWS` rows, where rows like none of
        these may hold most of the variance, and where the median jumps
        (:mod:`latentscale.sampling.moving_median`).

    Notes
    -----
    Costs ``m² d`` multiplications, and an exponential for each pair and scale.
    """
    n, m = found.rows, len(points)
    if m < MIN_ROWS:
        return [None] * len(scales)
    try:
        moves = None if median is None else _moves(points, n, median, median_pairs)
    except JumpingMedian:
        return [None] * len(scales)
    errors: list[float | None] = []
    for column, scale in enumerate(scales):
        sums = np.maximum(found.sums[:, column], 1.0)
        lost, slope = _lost_by_halves(points, sums, scale)
        own, of_pairs = 1.0 / sums, 0.0
        if moves is not None:
            slope *= n / m * (n - 1) / (m - 1)
            lost = lost + slope * moves.of_rows * (_others(m) / (n - 1))
            of_pairs = slope**2 * moves.of_pairs
        if m == n:
            variance = float(np.var(own - lost.sum(axis=0), ddof=1))
        else:
            variance = _covariance(own - (n - 1) * lost / _others(m))
        unseen = _unseen_variance(found, column) if m < n else 0.0
        known = unseen <= variance
        errors.append(math.sqrt(n * variance + of_pairs) if known else None)
    return errors


@dataclass(frozen=True)
class _Moves:
    """How the logarithm of a median distance moves.

    Attributes
    ----------
    of_rows : ndarray of float64, shape (m,)
        Its change without each row.
    of_pairs : float
        Its variance over the pairs drawn.
    """

    of_rows: Float64Array
    of_pairs: float


def _moves(points: Points, n: int, median: float, pairs: int | None) -> _Moves:
    m = len(points)
    near, logarithms = np.zeros(m), []
    for columns in row_blocks(m, TILE_ROWS):
        for rows in row_blocks(m, TILE_ROWS):
            distances = distance_tile(points.take(rows), points.take(columns)) / median
            if rows == columns:
                np.fill_diagonal(distances, np.inf)
            near[columns] += (distances < 1.0).sum(axis=0)
            if columns.start == 0:
                with np.errstate(divide="ignore"):
                    logarithms.append(np.log(distances[:, :DENSITY_ROWS].ravel()))
    found = np.concatenate(logarithms)
    nearer = near / (m - 1)
    density = density_at_median(found[found < np.inf], nearer, n)
    total = n * (n - 1) / 2
    drawn = 0.0 if pairs is None else max(0.0, 1.0 - pairs / total)
    return _Moves(
        2.0 / (n - 2) * (nearer - 0.5) / density,
        drawn * 0.25 / ((pairs or total) * density**2),
    )


def _unseen_variance(found: RowSums, column: int) -> float:
    """Return what rows like no drawn one may add to the variance of a row's effect."""
    seen = bool((stratum(found.drawn_sums[:, column]) == 0).any())
    return 0.0 if seen else float(found.strata[0, column]) / found.rows


def _covariance(halves: Float64Array) -> float:
    """Return the covariance of two values for each row, or more where that is unclear."""
    (first, both), (_, second) = np.cov(halves)
    noise = math.sqrt((first * second + both**2) / (halves.shape[1] - 1))
    return float(both if both > 2.0 * noise else max(both, 0.0) + 2.0 * noise)


def _lost_by_halves(points: Points, sums: Float64Array, scale: float) -> tuple[Float64Array, float]:
    """Return how much every row takes from the terms of the rows in each half, without its own.

    Also return the derivative of the sum of terms by the logarithm of the unit of scales.
    """
    lost, slope = np.zeros((2, len(points))), 0.0
    for columns in row_blocks(len(points), TILE_ROWS):
        for rows in row_blocks(len(points), TILE_ROWS):
            exponents = scale * distance_tile(points.take(rows), points.take(columns))
            near = np.exp(-exponents)
            if rows == columns:
                np.fill_diagonal(near, 0.0)
            own = sums[rows, None]
            slope -= float((exponents * near / own**2).sum())
            # A sum has its own row in it, beside the other.
            taken = near / (own * np.maximum(own - near, 1.0))
            for half in (0, 1):
                lost[half, columns] += taken[(half + rows.start) % 2 :: 2].sum(axis=0)
    return lost, slope


def _others(m: int) -> Float64Array:
    """Count the rows of each half other than a row itself."""
    halves = np.array([[(m + 1) // 2], [m // 2]], dtype=np.float64)
    own = np.arange(m) % 2 == np.array([[0], [1]])
    return np.asarray(halves - own)
