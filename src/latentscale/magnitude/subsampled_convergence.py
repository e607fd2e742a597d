r"""The convergence scale where all pairs are too many, extrapolated from random subsets.

The magnitude functions of random subsets are evaluated on a grid around the expected scale, and
extrapolated to all points as in :mod:`latentscale.magnitude.subsamples`. The value is the scale at
which the extrapolated function reaches the target share. The ends of its interval are the scales at
which the ends of the function's interval reach the share. These lie far apart, or beyond the grid,
where near-duplicates determine the scale, because a small subset contains few close pairs.
"""

from __future__ import annotations

import math

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import Estimate
from latentscale.magnitude.function import NoConvergenceScale, convergence_scale
from latentscale.sampling.extrapolation import MIN_ODDS, Extrapolation
from latentscale.tiles.distances import Points

GRID_ROWS = 1200
"""Rows of the subset whose convergence scale is extrapolated to all points."""

GRID_SCALES = 17
"""Number of scales around the expected scale."""

GRID_REACH = 4.0
"""Factor by which the grid extends beyond the expected scale."""


def extrapolated_convergence_scale(extrapolation: Extrapolation, target: float = 0.95) -> Estimate:
    """Find where the extrapolated function reaches a share of the distinct points.

    Parameters
    ----------
    extrapolation : Extrapolation
        An extrapolation on scales that begin below the convergence scale and end above it.
    target : float
        Share of the points, as in :func:`latentscale.magnitude.function.convergence_scale`.

    Returns
    -------
    Estimate
        The scale. Its bracket ends where the upper and the lower ends of the intervals reach the
        share, and has room for the interpolation between scales.

    Raises
    ------
    NoConvergenceScale
        When the value or an end of its interval doesn't cross the share within the scales.
    ValueError
        If the target isn't a share above ``1/n`` and below 1.
    """
    n = extrapolation.points
    if not 1.0 / n < target < 1.0:
        raise ValueError(
            f"the magnitude of {n} distinct points lies between 1 and {n}, so the target share "
            f"must lie between 1/{n} and 1, got {target}"
        )
    positive = extrapolation.scales > 0
    scales = extrapolation.scales[positive]
    estimates = extrapolation.estimates[len(extrapolation.scales) - len(scales) :]
    value, early, late = (
        _crossing(scales, np.array([getattr(e, side) for e in estimates]) / n, target)
        for side in ("value", "upper", "lower")
    )
    away = _interpolation_error(scales, np.array([e.value for e in estimates]) / n, value)
    low, high = min(early, value) / away, max(late, value) * away
    return Estimate(value, low, high, "estimate", "subsample")


def _crossing(scales: Float64Array, shares: Float64Array, target: float) -> float:
    """Return where ascending shares first reach the target, by log odds against log scale."""
    rising = np.maximum.accumulate(shares)
    if not (len(scales) > 1 and rising[0] < target <= rising[-1]):
        raise NoConvergenceScale(
            f"the magnitude extrapolated from subsets, or an end of its interval, doesn't cross "
            f"{target} of the points within the scales evaluated; use larger subsets"
        )
    after = int(np.argmax(rising >= target))
    low, high, wanted = (
        math.log(share / (1.0 - share))
        for share in (rising[after - 1], min(rising[after], 1.0 - MIN_ODDS), target)
    )
    along = (wanted - low) / (high - low)
    before = float(scales[after - 1])
    return before * math.pow(float(scales[after]) / before, along)


def _interpolation_error(scales: Float64Array, shares: Float64Array, crossing: float) -> float:
    """Return the factor by which a crossing may be off, by the bend of the log odds around it."""
    after = min(max(int(np.searchsorted(scales, crossing)), 1), len(scales) - 1)
    odds = np.log(1.0 / np.clip(shares, MIN_ODDS, 1.0 - MIN_ODDS) - 1.0)
    slopes = np.diff(odds) / np.diff(np.log(scales))
    bends = np.abs(np.diff(slopes))[max(after - 2, 0) : after]
    width = math.log(scales[after] / scales[after - 1])
    along = math.log(crossing / scales[after - 1]) / width
    steepness = max(abs(float(slopes[after - 1])), MIN_ODDS)
    # A chord is off by half of the second derivative, times the distances from its two ends.
    away = 0.5 * along * (1.0 - along) * float(bends.max(initial=0.0)) / steepness
    return math.exp(width * min(max(away, 0.0), 1.0))


def convergence_grid(subset: Points, points: int, target: float = 0.95) -> Float64Array:
    """Choose scales around a set's convergence scale from a random subset.

    Parameters
    ----------
    subset : Points
        At least 16 distinct rows in random order, or all points.
    points : int
        Number of distinct points of the whole set.
    target : float
        Share of the points.

    Returns
    -------
    ndarray of float64, shape (GRID_SCALES,)
        A geometric grid around the prediction of a power law through the convergence scales of
        :data:`GRID_ROWS` rows and of a quarter as many.
    """
    most = min(len(subset), GRID_ROWS)

    def scale_of(rows: int) -> float:
        near = max(target, 1.5 / rows)
        return convergence_scale(subset.take(slice(0, rows)), target=near).value

    expected = scale_of(most)
    if points > most:
        few = most // 4
        power = math.log(expected / scale_of(few)) / math.log(most / few)
        expected *= math.pow(points / most, min(max(power, 0.0), 1.0))
    return expected * np.geomspace(1 / GRID_REACH, GRID_REACH, GRID_SCALES)
