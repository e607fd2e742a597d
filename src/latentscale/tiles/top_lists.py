"""Sorted lists of nearest candidates.

A list is ordered by (distance, hash of the seed and both row ids, candidate id). So ties between
equal distances are broken at random, but in the same way in every run.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]


@numba.njit(cache=True, nogil=True)
def _mixed(word: np.uint64) -> np.uint64:
    # The output function of SplitMix64 (Steele, Lea & Flood 2014).
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def query_hash(key: np.uint64, query: int) -> np.uint64:
    """Return the hash of a query's id."""
    return _mixed(_mixed(key + np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(query))


@numba.njit(cache=True, nogil=True)
def pair_hash(hash_of_query: np.uint64, candidate: int) -> np.uint64:
    """Return the hash of a query's and a candidate's id."""
    return _mixed(hash_of_query + np.uint64(candidate) * np.uint64(0x9E3779B97F4A7C15))


@numba.njit(cache=True, nogil=True)
def offer(
    distances: Float64Array,
    hashes: UInt64Array,
    indices: Int64Array,
    distance: float,
    hash_of_pair: np.uint64,
    index: int,
) -> None:
    """Insert a candidate into one sorted list if it comes before the last entry."""
    place = len(distances)
    while place > 0:
        before = place - 1
        if distance > distances[before]:
            break
        if distance == distances[before]:
            if hash_of_pair > hashes[before]:
                break
            if hash_of_pair == hashes[before] and index >= indices[before] >= 0:
                break
        if place < len(distances):
            distances[place] = distances[before]
            hashes[place] = hashes[before]
            indices[place] = indices[before]
        place = before
    if place < len(distances):
        distances[place] = distance
        hashes[place] = hash_of_pair
        indices[place] = index
