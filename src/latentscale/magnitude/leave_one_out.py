r"""The sampling error of the area under a magnitude function, by the delete-one jackknife.

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

Over 100 samples of 300 rows and 60 of 1000 (clusters, normal distributions, sentence embeddings of
384 dimensions) the error of the area was 0.96 to 1.13 times its standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from latentscale.array_types import Float64Array, FloatArray, Int64Array
from latentscale.magnitude.vecchia import distances_among
from latentscale.neighbours.exact import Neighbours, nearest
from latentscale.tiles.distances import Points

LARGEST, DRAWN = 128, 128
"""Points of the largest weights, and random other points, that are left out one at a time."""

NEIGHBOURS = 32
"""Nearest points that stand for all others."""


NUGGET = 1e-12
"""Added to every point's similarity to itself, as points may be too near to each other to tell."""


def error_bytes(d: int) -> int:
    """Return the memory of the points that are left out and of their neighbours."""
    side = NEIGHBOURS + 1
    return (LARGEST + DRAWN) * side * 8 * (d + 4 * side)


def area_error(
    scales: Float64Array,
    weights: FloatArray,
    sizes: Int64Array,
    read_groups: Callable[[], Iterator[Points]],
    read: Callable[[Int64Array], Points],
    generator: np.random.Generator,
) -> float:
    """Compute the sampling error of the area under a magnitude function, its scales held fixed.

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
    float
        The standard error over fresh samples of as many rows from the same source.

    Notes
    -----
    Costs the distances of 256 points to all others, and 256 small systems a scale.
    """
    rows, single = int(sizes.sum()), np.flatnonzero(sizes == 1)
    if len(single) == 0:
        return 0.0
    bounds = _areas(scales, np.square(weights[single], dtype=np.float64))
    order = single[np.argsort(-bounds, kind="stable")]
    largest, others = order[:LARGEST], order[LARGEST:]
    drawn = generator.choice(others, min(DRAWN, len(others)), replace=False)
    chosen = np.concatenate([largest, drawn])
    represented = np.repeat([1.0, len(others) / max(len(drawn), 1)], [len(largest), len(drawn)])
    place = np.argsort(chosen)
    chosen, represented = chosen[place], represented[place]
    variances = _conditional_variances(scales[scales > 0], chosen, read_groups, read)
    falls = _areas(scales, variances * np.square(weights[chosen], dtype=np.float64))
    mean = float(represented @ falls) / rows
    squares = float(represented @ np.square(falls - mean)) + (rows - len(single)) * mean**2
    return math.sqrt((rows - 1) / rows * squares)


def _areas(scales: Float64Array, values: Float64Array) -> Float64Array:
    """Integrate rows of values at the positive scales, which are 0 at scale 0."""
    held = np.zeros((len(values), len(scales)))
    held[:, scales > 0] = values
    return np.asarray(np.trapezoid(held, scales, axis=1))


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
