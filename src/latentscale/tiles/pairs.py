"""One pair of rows at a time, in float64.

These distances are sums over the coordinates in their order, with no freedom left to a compiler or
a matrix product. Every decision that is close, and every neighbour's distance, is theirs.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]

EUCLIDEAN, COSINE, MANHATTAN = 0, 1, 2
"""Metrics, by their places in ``latentscale.tiles.distances.METRICS``."""


@numba.njit(cache=True, nogil=True)
def squared_distance(x: Float64Array, y: Float64Array) -> float:
    """Squared Euclidean distance, summed in the order of the coordinates."""
    total = 0.0
    for c in range(x.shape[0]):
        difference = x[c] - y[c]
        total += difference * difference
    return total


@numba.njit(cache=True, nogil=True)
def manhattan_distance(x: Float64Array, y: Float64Array) -> float:
    """Manhattan distance, summed in the order of the coordinates."""
    total = 0.0
    for c in range(x.shape[0]):
        total += abs(x[c] - y[c])
    return total


@numba.njit(cache=True, nogil=True)
def exact_distance(x: Float64Array, y: Float64Array, metric: int) -> float:
    """Measure one pair in float64; rows are unit vectors under the cosine metric."""
    if metric == MANHATTAN:
        return manhattan_distance(x, y)
    squared = squared_distance(x, y)
    return 0.5 * squared if metric == COSINE else np.sqrt(squared)
