r"""Calibration of density and coverage whose single contributions are clipped.

Salvy, Talbot & Thirion (Enhanced generative model evaluation with clipped density and coverage,
ICLR 2026, arXiv 2507.01761) clip what one row contributes, so that a few rows can't raise a mean,
and calibrate both means so that each reads as a share of good rows.

Clipped coverage before calibration is the mean over the reference's balls of :math:`\min(j, k) /
k`, with j the number of evaluated rows in a ball. If all M evaluated rows come from the reference's
source, j has a beta-binomial distribution with the parameters M, k and n - k, whatever the source
(section 4.2 there). :func:`expected_filling` is the mean for m good rows; its inverse turns the
observed mean into a share of good rows (:func:`share_of_good_rows`).
"""

from __future__ import annotations

import numpy as np

from latentscale.array_types import Float64Array

ROUNDING = 1e-11
"""Relative rounding of a share of good rows, generously."""


def expected_filling(good: Float64Array, n: int, k: int) -> Float64Array:
    r"""Return the mean of min(j, k) / k if so many rows come from the reference's source.

    Parameters
    ----------
    good : ndarray of float64
        Numbers of rows, not negative.
    n, k : int
        Rows of the reference, and the neighbour to which a ball reaches; ``1 <= k < n``.

    Notes
    -----
    :math:`\min(j, k)` is the number of t from 1 to k with :math:`j \ge t`, so only the k smallest
    counts need a probability.
    """
    m = np.asarray(good, dtype=np.float64)
    others = n - k
    chance = np.ones_like(m)  # of a ball with ``count`` rows
    for i in range(k):
        chance *= (others + i) / (others + m + i)
    filled, below = np.zeros_like(m), np.zeros_like(m)
    for count in range(k):
        below += chance
        filled += np.maximum(1.0 - below, 0.0)
        rows = m - count
        chance *= rows * (k + count) / ((count + 1.0) * np.maximum(others + rows - 1.0, 1.0))
        chance = np.maximum(chance, 0.0)  # no more rows than there are lie in a ball
    return np.asarray(filled / k)


def share_of_good_rows(filling: float, m: int, n: int, k: int) -> float:
    """Return which share of ``m`` rows gives a mean filling if the others lie in no ball.

    Between whole numbers of rows the expectation is interpolated. (The authors take the next
    number, and divide by m + 1.) Rounding changes the share by less than :data:`ROUNDING` of it.
    """
    good = np.arange(m + 1, dtype=np.float64)
    return float(np.interp(filling, expected_filling(good, n, k), good)) / m
