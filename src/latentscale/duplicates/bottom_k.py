r"""Random samples of the distinct rows of a set too large to be compared with itself.

Every row has a hash of its content and of a seed, so equal rows have equal hashes. The rows with
the :math:`m` smallest of all different hashes are a random sample of the distinct rows without
repetition: the bottom-k sketch (Cohen & Kaplan 2007). Samples of parts of the set are merged by
keeping the smallest hashes. The sample doesn't depend on the parts, and up to copies not on the
order of the rows.

Under the cosine metric a row is divided by the power of two of its largest coordinate before it is
hashed. So of rows of equal direction those are merged that differ by a power of two. Others, which
are equal up to the rounding of their coordinates, are near-duplicates: they may both be drawn.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from latentscale.array_types import Float64Array, Int64Array, UInt64Array
from latentscale.tiles.distances import Metric
from latentscale.tiles.top_lists import content_keys, mixed

DEVIATIONS = 6.0
"""Standard deviations by which more rows are taken from parts than are expected to be needed."""


def hash_rows(rows: Float64Array, metric: Metric, seed: int) -> UInt64Array:
    """Hash the content of every row.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        Finite rows; none of zeros under the cosine metric.
    metric : str
        What makes rows equal: their values, or under ``cosine`` their values up to a power of two.
    seed : int
        In [0, 2⁶⁴): chooses one of the orders in which rows can come.

    Returns
    -------
    ndarray of uint64, shape (n,)
        Uniform over all numbers of 64 bits, and independent for rows that differ.
    """
    if metric == "cosine":
        rows = scale_by_power(rows)
    return np.asarray(_seeded(content_keys(rows), np.uint64(seed)))


def scale_by_power(rows: Float64Array) -> Float64Array:
    """Divide every row by the power of two that brings its largest coordinate into [1/2, 1)."""
    _, exponents = np.frexp(np.abs(rows).max(axis=1))
    scaled: Float64Array = np.ldexp(rows, -exponents[:, None])
    return scaled


@numba.njit(cache=True, nogil=True)
def _seeded(keys: UInt64Array, seed: np.uint64) -> UInt64Array:
    hashes = np.empty_like(keys)
    for i in range(len(keys)):
        hashes[i] = mixed(keys[i] ^ seed)
    return hashes


def largest_hash(distinct: int, rows: int) -> np.uint64:
    """Return a hash below which nearly certainly at least ``rows`` of the distinct rows lie.

    Parts of a set keep no rows above it. With :data:`DEVIATIONS` standard deviations more than
    needed, too few remain once in 10⁹ samples.
    """
    share = (rows + DEVIATIONS * math.sqrt(rows) + DEVIATIONS**2) / distinct
    return np.uint64(2**64 - 1) if share >= 1 else np.uint64(int(share * 2**64))


def smallest_hashes(hashes: UInt64Array, rows: int) -> Int64Array:
    """Return the positions of the smallest different hashes, in the order of these.

    Parameters
    ----------
    hashes : ndarray of uint64, shape (n,)
        From :func:`hash_rows`.
    rows : int
        Number of positions, fewer if there are fewer different hashes.

    Returns
    -------
    ndarray of int64
        The first position of each. Their order is random: any part of them is a sample too.
    """
    _, first = np.unique(hashes, return_index=True)
    positions: Int64Array = first[:rows]
    return positions
