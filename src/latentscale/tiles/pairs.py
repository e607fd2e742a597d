"""One pair of rows at a time, in float64.

The distances of neighbours are sums over the coordinates in their order, which neither a compiler
nor a matrix product may change.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]

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
