"""One pair of rows at a time, in float64.

The distances of neighbours are sums over the coordinates in their order, which neither a compiler
nor a matrix product may change.
"""

from __future__ import annotations

import numba
import numpy as np

from latentscale.array_types import Float64Array

EUCLIDEAN, COSINE, MANHATTAN = 0, 1, 2
"""Metrics, as their positions in ``latentscale.tiles.distances.METRICS``."""


@numba.njit(cache=True, nogil=True)
def squared_distance(x: Float64Array, y: Float64Array) -> float:
    """Return the squared Euclidean distance, summed in the order of the coordinates."""
    total = 0.0
    for c in range(x.shape[0]):
        difference = x[c] - y[c]
        total += difference * difference
    return total


@numba.njit(cache=True, nogil=True)
def manhattan_distance(x: Float64Array, y: Float64Array) -> float:
    """Return the Manhattan distance, summed in the order of the coordinates."""
    total = 0.0
    for c in range(x.shape[0]):
        total += abs(x[c] - y[c])
    return total


@numba.njit(cache=True, nogil=True)
def exact_distance(x: Float64Array, y: Float64Array, metric: int) -> float:
    """Return the distance of one pair in float64; rows are unit vectors under the cosine metric."""
    if metric == MANHATTAN:
        return manhattan_distance(x, y)
    squared = squared_distance(x, y)
    return 0.5 * squared if metric == COSINE else np.sqrt(squared)


# Sums in any order are six times as fast.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def any_order_squared(x: Float64Array, y: Float64Array) -> float:
    """Return the squared Euclidean distance, summed in any order."""
    total = 0.0
    for c in range(x.shape[0]):
        difference = x[c] - y[c]
        total += difference * difference
    return total


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def any_order_manhattan(x: Float64Array, y: Float64Array) -> float:
    """Return the Manhattan distance, summed in any order."""
    total = 0.0
    for c in range(x.shape[0]):
        total += abs(x[c] - y[c])
    return total


@numba.njit(cache=True, nogil=True)
def four_squared_distances(
    x: Float64Array, a: Float64Array, b: Float64Array, c: Float64Array, d: Float64Array
) -> tuple[float, float, float, float]:
    """Return :func:`squared_distance` of one row to four, in the time of one.

    A sum in the order of the coordinates waits for every addition; four sums wait together.
    """
    to_a = to_b = to_c = to_d = 0.0
    for i in range(x.shape[0]):
        value = x[i]
        to_a += (value - a[i]) * (value - a[i])
        to_b += (value - b[i]) * (value - b[i])
        to_c += (value - c[i]) * (value - c[i])
        to_d += (value - d[i]) * (value - d[i])
    return to_a, to_b, to_c, to_d


@numba.njit(cache=True, nogil=True)
def quick_distance(x: Float64Array, y: Float64Array, metric: int) -> float:
    """Return a lower bound on :func:`exact_distance`, tight up to rounding, six times as fast.

    Sums of positive numbers in any two orders differ by at most ``2 d`` units of roundoff.
    """
    total = any_order_manhattan(x, y) if metric == MANHATTAN else any_order_squared(x, y)
    total *= 1.0 - 2.0**-51 * (x.shape[0] + 8)
    if metric == EUCLIDEAN:
        return float(np.sqrt(total))
    if metric == COSINE:
        return float(0.5 * total)
    return float(total)
