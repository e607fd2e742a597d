r"""Sampling errors of what a magnitude function shows, by the delete-one jackknife.

By the inverse of a matrix in blocks, the magnitude without point i is

.. math:: \mathrm{Mag} - v_i w_i^2, \qquad v_i = 1 / (K^{-1})_{ii},

with w the weights, which sum to the magnitude. :math:`v_i` is the conditional variance of a
Gaussian field of covariance K at point i, given its values at all other points. It depends mostly
on the nearest of them (Vecchia 1988), so :data:`NEIGHBOURS` of them give it: closely at the scales
that an area mostly consists of, and too large at small ones. A point that several rows share stays
if one of them is left out.

The variance of an area over fresh samples is n - 1 times that of the areas without a row (Efron &
Stein, The jackknife estimate of variance, 1981). Falls of few rows far from all others may hold
most of it. So the rows of the largest weights are all taken, and of the others a random sample.

The convergence scale is where the magnitude reaches a share :math:`\theta` of the points. Without
point i it moves, to first order, by :math:`(v_i w_i^2 - \theta) / \mathrm{Mag}'(t)`.

Over 100 samples of 300 rows and 60 of 1000 (clusters, normal distributions, sentence embeddings of
384 dimensions) the error of the area was 0.96 to 1.13 times its standard deviation, and over 60
samples of 300 rows that of the convergence scale 0.92 to 1.14 times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Float64Array, FloatArray, Int64Array
from latentscale.magnitude.vecchia import distances_among
from latentscale.neighbours.exact import Neighbours, nearest
from latentscale.tiles.distances import Points

LARGEST, DRAWN = 128, 128
"""Points of the largest weights, and random other points, that are left out one at a time."""

NEIGHBOURS = 32
"""Nearest points that stand for all others."""

REACH = 1.03
"""Largest convergence scale, in units of the last scale, beyond which the function isn't known."""

COARSE = 1.0
"""Largest fall of a logarithm between two scales that is taken to be linear."""

SMALLEST = 1e-12
"""Smallest share of the points that a magnitude is taken to be below their number."""

NUGGET = 1e-12
"""Added to every point's similarity to itself, as points may be too near to each other to tell."""


def error_bytes(d: int) -> int:
    """Return the memory of the points that are left out and of their neighbours."""
    side = NEIGHBOURS + 1
    return (LARGEST + DRAWN) * side * 8 * (d + 4 * side)


@dataclass(frozen=True)
class LeftOut:
    """What leaving out single rows changes, of chosen rows that stand for all.

    Attributes
    ----------
    scales : ndarray of float64, shape (s,)
        The scales of the function, which ascend.
    falls : ndarray of float64, shape (c, s)
        By how much the magnitude falls without each chosen row.
    represented : ndarray of float64, shape (c,)
        Rows that each stands for.
    points, shared : int
        Number of distinct points, and of rows that share one with others: without one of them
        nothing changes.
    """

    scales: Float64Array
    falls: Float64Array
    represented: Float64Array
    points: int
    shared: int

    def area_error(self) -> float | None:
        """Return the sampling error of the area under the function, its scales held fixed.

        None if every point is there several times, so that leaving out a row shows nothing.
        """
        return self._error(np.asarray(np.trapezoid(self.falls, self.scales, axis=1)))

    def scale_error(self, magnitudes: Float64Array, target: float) -> float | None:
        """Return the sampling error of the convergence scale.

        Parameters
        ----------
        magnitudes : ndarray of float64, shape (s,)
            The function.
        target : float
            The share of the points that the magnitude reaches there.

        Returns
        -------
        float or None
            None if the function has too few scales there, or ends too far below this share, or if
            every point is there several times.
        """
        if len(self.scales) < 3:
            return None
        # What is missing of the number of points falls almost exponentially.
        missing = np.log(np.maximum(self.points - magnitudes, SMALLEST * self.points))
        scale = self._where(missing, math.log((1.0 - target) * self.points))
        if scale is None:
            return None
        falls = np.gradient(missing, self.scales, edge_order=2)
        slope = -(1.0 - target) * self.points * float(_between(self.scales, falls, scale))
        if slope <= 0.0:
            return None
        return self._error((_between(self.scales, self.falls, scale) - target) / slope)

    def _where(self, missing: Float64Array, reached: float) -> float | None:
        """Return the scale at which values that fall reach one, or None if that isn't known."""
        below = np.flatnonzero(missing <= reached)
        place = int(below[0]) if len(below) else len(missing) - 1
        if place == 0:
            return None
        (start, stop), (high, low) = self.scales[place - 1 :][:2], missing[place - 1 :][:2]
        if not 0.0 < high - low <= COARSE:
            return None
        scale = float(start + (high - reached) / (high - low) * (stop - start))
        return scale if scale <= REACH * self.scales[-1] else None

    def _error(self, changes: Float64Array) -> float | None:
        if self.points > 1 and not len(changes):
            return None
        rows = float(self.represented.sum()) + self.shared
        mean = float(self.represented @ changes) / rows
        squares = float(self.represented @ np.square(changes - mean)) + self.shared * mean**2
        return math.sqrt((rows - 1) / rows * squares)


def leave_rows_out(
    scales: Float64Array,
    weights: FloatArray,
    sizes: Int64Array,
    read_groups: Callable[[], Iterator[Points]],
    read: Callable[[Int64Array], Points],
    generator: np.random.Generator,
) -> LeftOut:
    """Compute by how much the magnitude of points falls where single rows are left out.

    Parameters
    ----------
    scales : ndarray of float64, shape (s,)
        Ascending; the magnitude at 0 is always 1.
    weights : ndarray, shape (m, p)
        The weights of the distinct points at the p positive scales.
    sizes : ndarray of int64, shape (m,)
        Rows that each point stands for.
    read_groups, read : callable
        Read all points group by group, and those at ascending positions.
    generator : numpy.random.Generator
        Draws points.

    Returns
    -------
    LeftOut
        The falls, from which errors over fresh samples of as many rows follow.

    Notes
    -----
    Costs the distances of 256 points to all others, and 256 small systems a scale.
    """
    single = np.flatnonzero(sizes == 1)
    bounds = np.trapezoid(
        _from_zero(scales, np.square(weights[single], dtype=np.float64)), scales, axis=1
    )
    order = single[np.argsort(-bounds, kind="stable")]
    largest, others = order[:LARGEST], order[LARGEST:]
    drawn = generator.choice(others, min(DRAWN, len(others)), replace=False)
    chosen = np.concatenate([largest, drawn])
    represented = np.repeat([1.0, len(others) / max(len(drawn), 1)], [len(largest), len(drawn)])
    place = np.argsort(chosen)
    chosen, represented = chosen[place], represented[place]
    falls = np.square(weights[chosen], dtype=np.float64)
    if len(chosen):
        falls *= _conditional_variances(scales[scales > 0], chosen, read_groups, read)
    shared = int(sizes.sum()) - len(single)
    return LeftOut(scales, _from_zero(scales, falls), represented, len(sizes), shared)


def _from_zero(scales: Float64Array, values: Float64Array) -> Float64Array:
    """Return rows of values at the positive scales as values at all scales; they are 0 at 0."""
    held = np.zeros((len(values), len(scales)))
    held[:, scales > 0] = values
    return held


def _between(scales: Float64Array, values: Float64Array, at: float) -> Float64Array:
    """Return values, whose last axis is that of the scales, on the lines through them."""
    place = int(np.clip(np.searchsorted(scales, at) - 1, 0, len(scales) - 2))
    share = (at - scales[place]) / (scales[place + 1] - scales[place])
    return np.asarray((1.0 - share) * values[..., place] + share * values[..., place + 1])


def _conditional_variances(
    scales: Float64Array,
    chosen: Int64Array,
    read_groups: Callable[[], Iterator[Points]],
    read: Callable[[Int64Array], Points],
) -> Float64Array:
    """Return the conditional variances of some points at every scale, shape (points, scales)."""
    neighbours = _nearest_points(chosen, read_groups, read(chosen)).indices
    lists = np.column_stack([chosen, neighbours])
    involved = np.unique(lists[lists >= 0])
    positions = np.where(lists >= 0, np.searchsorted(involved, lists), -1)
    distances = distances_among(read(involved), positions)
    missing = lists < 0
    distances[missing] = np.inf
    distances.swapaxes(1, 2)[missing] = np.inf
    side = np.arange(lists.shape[1])
    distances[:, side, side] = 0.0
    own = np.zeros((lists.shape[1], 1))
    own[0] = 1.0
    found = np.empty((len(chosen), len(scales)))
    for k, scale in enumerate(scales.tolist()):
        similarities = np.exp(-scale * distances)
        similarities[:, side, side] += NUGGET
        inverse = np.linalg.solve(similarities, own)[:, 0, 0]
        # The diagonal of an inverse is at least 1, but for rounding.
        found[:, k] = 1.0 / np.maximum(inverse, 1.0)
    return found


def _nearest_points(
    chosen: Int64Array, read_groups: Callable[[], Iterator[Points]], points: Points
) -> Neighbours:
    found, start = Neighbours.none(len(chosen), NEIGHBOURS), 0
    for group in read_groups():
        ids = np.arange(start, start + len(group), dtype=np.int64)
        found = nearest(points, group, NEIGHBOURS, query_ids=chosen, candidate_ids=ids, known=found)
        start += len(group)
    return found
