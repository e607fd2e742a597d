"""Extrapolation of a rarefaction curve to all rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Float64Array, Int64Array
from latentscale.estimate import Estimate
from latentscale.sampling.rarefaction import RarefactionCurve

MIN_SIZES = 4
"""Number of sizes that a value and its back-test need."""


SAFETY = 1.5
"""Factor on the error of the back-test."""


SPREAD_PIECES = 8
"""Subsets of one size from whose spread the error of the draw is estimated."""


STEPS = 32
"""Midpoint steps of the integration from the largest size to all points."""


MAX_SLOPE = 1.25
"""Steepest slope allowed. A set that grows at a constant score has slope 1."""


FEW_LOST = 20.0
"""Points of the largest subsets up to which those that don't count come from a few near pairs."""


LEAST_LOST = 0.2
"""Points that are taken not to count where fewer do: subsets may have no near pair by chance."""


MIN_ODDS = 1e-12
"""Odds below which differences are rounding, because nearly all points count."""


MAX_EXPONENT = 700.0
"""Log odds at which the score of any number of points is 0."""


@dataclass(frozen=True)
class Extrapolation:
    """A rarefaction curve extrapolated to all points.

    Attributes
    ----------
    scales : ndarray of float64, shape (s,)
        Ascending scales.
    points : int
        Number of distinct points.
    estimates : tuple of Estimate
        The score of all points at each scale, ``bounds`` "estimate", method "subsample".
    certified : ndarray of float64, shape (s,)
        Certified lower bound at each scale.
    """

    scales: Float64Array
    points: int
    estimates: tuple[Estimate, ...]
    certified: Float64Array

    def at(self, places: Int64Array) -> Extrapolation:
        """Return what is known at some of the scales, by their places."""
        estimates = tuple(self.estimates[place] for place in places.tolist())
        return Extrapolation(self.scales[places], self.points, estimates, self.certified[places])


def extrapolate(curve: RarefactionCurve, points: int) -> Extrapolation:
    """Extrapolate a rarefaction curve to all points.

    Parameters
    ----------
    curve : RarefactionCurve
        A curve of at least :data:`MIN_SIZES` sizes, unless its largest subset holds all points.
    points : int
        Number of distinct points, at least the largest size.

    Returns
    -------
    Extrapolation
        Exact at scale 0. Where the largest subset holds all points, its own mean and bounds.

    Raises
    ------
    ValueError
        On too few sizes or points.
    """
    if len(curve.sizes) < MIN_SIZES and curve.sizes[-1] < points:
        raise ValueError(
            f"an extrapolation and its back-test need {MIN_SIZES} sizes of subsets, got "
            f"{len(curve.sizes)}: {curve.sizes.tolist()}"
        )
    if points < curve.sizes[-1]:
        raise ValueError(
            f"the largest subset has {curve.sizes[-1]} rows, more than the {points} points"
        )
    positive = curve.scales > 0
    values = tuple(part[:, positive] for part in curve.values)
    if curve.sizes[-1] == points:
        found = _of_all_points(curve, points)
    else:
        odds = _log_odds_interval(curve.sizes, values, points)
        found = tuple(
            _clipped(points, float(certified), *ends)
            for certified, *ends in zip(curve.lower[positive], *odds, strict=True)
        )
    estimates = (Estimate.exact(1.0, "definition"),) * int((~positive).sum()) + found
    certified = np.where(positive, np.minimum(curve.lower, points), 1.0)
    return Extrapolation(curve.scales, points, estimates, certified)


def _of_all_points(curve: RarefactionCurve, points: int) -> tuple[Estimate, ...]:
    """Return the scores of subsets that hold all points, at the positive scales."""
    means = curve.values[-1].mean(axis=0)
    lower, upper = (means, means) if curve.upper is None else (curve.lower, curve.upper)
    ends = np.clip([np.minimum(lower, means), means, np.maximum(upper, means)], 1.0, points)
    return tuple(
        Estimate(float(value), float(low), float(high), "estimate", "subsample")
        for low, value, high in ends[:, curve.scales > 0].T
    )


def _log_odds_interval(
    sizes: Int64Array, values: tuple[Float64Array, ...], points: int
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Extrapolate log odds to all points: value, and ends of the interval, shapes (s,)."""
    logs, target = np.log(sizes), math.log(points)
    single = tuple(_odds(size, part) for size, part in zip(sizes, values, strict=True))
    odds = np.log([part.mean(axis=0) for part in single])
    steps = (target - logs[-1]) / (logs[-1] - logs[-2])
    value = _continue(logs, odds, target, drifting=True)
    misses = [
        np.abs(_continue(logs[:-1], odds[:-1], logs[-1], drifting=drifting) - odds[-1])
        for drifting in (True, False)
    ]
    back_test = _with_scale_below(np.max(misses, axis=0))
    seen = sizes[-1] * len(single[-1])
    # More rows than there are: the subsets were drawn independently, and overlap.
    share = (seen if seen <= points else sizes[-1]) / points
    draw = math.sqrt(1.0 - share) * _standard_error(single, int(sizes[-1]))
    width = np.hypot(SAFETY * max(steps, 1.0) * back_test, 2.0 * draw)
    ends = (
        value - width,
        value + width,
        _continue(logs, odds, target, drifting=False),
        _polynomial(logs[-2:], odds[-2:], target),
        _polynomial(logs[-3:], odds[-3:], target),
    )
    slack = 2.0 * draw
    steepest = odds[-1] + MAX_SLOPE * (target - logs[-1]) + slack
    ends = np.clip(ends, odds[-1] - slack, steepest)
    # The score is assumed to rise with the scale, and so are the ends of its interval.
    highest = np.minimum.accumulate(np.max(ends, axis=0))
    lowest = np.maximum.accumulate(np.min(ends, axis=0)[::-1])[::-1]
    return value, np.minimum(lowest, value), np.maximum(highest, value)


def _odds(size: int, values: Float64Array) -> Float64Array:
    """Return m / Mag - 1, which rises as points become more alike."""
    odds: Float64Array = np.maximum(size / values - 1.0, MIN_ODDS)
    return odds


def _continue(
    logs: Float64Array, odds: Float64Array, target: float, *, drifting: bool
) -> Float64Array:
    """Integrate the slope, a function of the log odds, from the last size to a larger one."""
    late = _slopes(logs[-2:], odds[-2:])
    early = _slopes(logs[-3:-1], odds[-3:-1])

    def slope(at: Float64Array) -> Float64Array:
        now = np.interp(at, *late)
        moved = 2.0 * now - np.interp(at, *early) if drifting else now
        return np.clip(moved, 0.0, MAX_SLOPE)

    at: Float64Array = odds[-1].copy()
    step = (target - logs[-1]) / STEPS
    for _ in range(STEPS):
        at += step * slope(at + 0.5 * step * slope(at))
    return at


def _slopes(logs: Float64Array, odds: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return slopes between two sizes at all scales, sorted by the log odds halfway between."""
    slopes = (odds[1] - odds[0]) / (logs[1] - logs[0])
    halfway = odds.mean(axis=0)
    order = np.argsort(halfway, kind="stable")
    return halfway[order], slopes[order]


def _polynomial(logs: Float64Array, odds: Float64Array, target: float) -> Float64Array:
    """Evaluate the polynomial through all of a few sizes, at every scale (Lagrange's form)."""
    weights = [
        math.prod((target - other) / (log - other) for other in np.delete(logs, k))
        for k, log in enumerate(logs)
    ]
    value: Float64Array = np.asarray(weights) @ odds
    return value


def _with_scale_below(errors: Float64Array) -> Float64Array:
    """Raise the error of each scale to at least that of the scale below.

    The error may change its sign between two scales, and be small there by chance. The scale below
    is used because a growing set looks like a smaller one at a smaller scale. The odds of the scale
    above come from a few close pairs and are noisy.
    """
    raised = errors.copy()
    raised[1:] = np.maximum(errors[1:], errors[:-1])
    return raised


def _standard_error(odds: tuple[Float64Array, ...], size: int) -> Float64Array:
    """Estimate the draw's standard error in log odds, from the largest subsets of many.

    All sizes see the same rows, so the error of the mean is about the same at every size. Where
    few of the ``size`` points of the largest don't count, they come from a few near pairs, of which
    small subsets have none: none costs more than a point, so the error of their number is at most
    that of a Poisson variable.
    """
    largest = odds[-1]
    # The odds are those of the share that doesn't count.
    lost = (size * largest / (1.0 + largest)).sum(axis=0)
    counted = np.where(lost <= FEW_LOST, 1.0 / np.maximum(lost, LEAST_LOST), 0.0)
    many = [part for part in odds if len(part) >= SPREAD_PIECES]
    spread = many[-1] if many else max(odds, key=len)
    if len(spread) == 1:
        return np.asarray(np.sqrt(counted))
    error: Float64Array = spread.std(axis=0, ddof=1) / spread.mean(axis=0)
    return np.asarray(np.sqrt(np.maximum(error**2 / len(spread), counted)))


def _clipped(points: int, certified: float, value: float, low: float, high: float) -> Estimate:
    """Turn log odds into an estimate between the certified lower bound and the number of points."""
    floor = min(max(certified, 1.0), float(points))
    middle, lower, upper = (
        min(max(_of_odds(points, odds), floor), float(points)) for odds in (value, high, low)
    )
    return Estimate(middle, lower, upper, "estimate", "subsample")


def _of_odds(points: int, odds: float) -> float:
    return points / (1.0 + math.exp(min(odds, MAX_EXPONENT)))
