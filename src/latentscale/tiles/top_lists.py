"""Sorted lists of nearest candidates, and the keys of rows that break ties in them.

A list is ordered by (distance, hash of the keys of query and candidate, candidate id). A row's key
is a hash of its coordinates (:func:`content_keys`), so which of several equally distant candidates
come first depends on the rows, not on their order. Equal rows have equal coordinates. To tell them
apart, :func:`number_copies` gives the first, second, … copy of a row different keys. Which copy is
the first does depend on the order. But the set of keys doesn't, so another order of the rows only
exchanges equal rows: the graph stays the same.
"""

from __future__ import annotations

import numba
import numpy as np

from latentscale.array_types import Float64Array, Int64Array, UInt64Array

_STEP = np.uint64(0x9E3779B97F4A7C15)


@numba.njit(cache=True, nogil=True)
def mixed(word: np.uint64) -> np.uint64:
    """Return a hash of a word: the output function of SplitMix64 (Steele, Lea & Flood 2014)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def content_keys(rows: Float64Array) -> UInt64Array:
    """Hash the coordinates of every row.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)

    Returns
    -------
    ndarray of uint64, shape (n,)
        Equal for equal rows. Different rows have different keys, but for n² / 2⁶⁵ pairs.
    """
    return np.asarray(_hash_rows(np.ascontiguousarray(rows)))


@numba.njit(cache=True, nogil=True)
def _hash_rows(rows: Float64Array) -> UInt64Array:
    bits = rows.view(np.uint64)
    keys = np.empty(rows.shape[0], dtype=np.uint64)
    for i in range(rows.shape[0]):
        state = np.uint64(rows.shape[1])
        for c in range(rows.shape[1]):
            word = np.uint64(0) if rows[i, c] == 0.0 else bits[i, c]  # -0.0 equals 0.0
            state = (state ^ word) * np.uint64(0xFF51AFD7ED558CCD)
            state ^= state >> np.uint64(32)
        keys[i] = mixed(state)
    return keys


def number_copies(keys: UInt64Array) -> UInt64Array:
    """Give equal rows different keys.

    Parameters
    ----------
    keys : ndarray of uint64, shape (n,)
        From :func:`content_keys`, of all rows.

    Returns
    -------
    ndarray of uint64, shape (n,)
        The key of the first row of its content is unchanged; that of the j-th copy is a hash of
        the key and j. In any order of the rows the set of keys is the same.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    new = np.ones(len(keys), dtype=np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    place = np.arange(len(keys))
    copy = place - np.maximum.accumulate(np.where(new, place, 0))
    later = copy > 0
    numbered = keys.copy()
    numbered[order[later]] = _hash_copies(ordered[later], copy[later].astype(np.uint64))
    return numbered


@numba.njit(cache=True, nogil=True)
def _hash_copies(keys: UInt64Array, copies: UInt64Array) -> UInt64Array:
    hashed = np.empty_like(keys)
    for i in range(len(keys)):
        hashed[i] = mixed(keys[i] + copies[i] * _STEP)
    return hashed


def hash_numbers(numbers: Int64Array, seed: int) -> UInt64Array:
    """Hash row numbers; each bit of a hash divides them at random.

    Parameters
    ----------
    numbers : ndarray of int64
        Of any shape, which is that of the result.
    seed : int
        Not negative, below 2⁶⁴; another one gives other hashes.
    """
    flat = np.ascontiguousarray(numbers).reshape(-1).astype(np.uint64)
    hashed = _hash_copies(np.full(len(flat), seed, dtype=np.uint64), flat)
    return np.asarray(hashed).reshape(numbers.shape)


@numba.njit(cache=True, nogil=True)
def query_hash(key: np.uint64) -> np.uint64:
    """Return the hash of a query's key."""
    return mixed(key + _STEP)


@numba.njit(cache=True, nogil=True)
def pair_hash(hash_of_query: np.uint64, candidate_key: np.uint64) -> np.uint64:
    """Return the hash of a query's and a candidate's key, which differs from its reverse."""
    return mixed(hash_of_query ^ candidate_key)


@numba.njit(cache=True, nogil=True)
def offer(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    distance: float,
    tie: np.uint64,
    index: int,
) -> None:
    """Insert a candidate into one sorted list if it comes before the last entry."""
    place = len(distances)
    while place > 0:
        before = place - 1
        if distance > distances[before]:
            break
        if distance == distances[before]:
            if tie > ties[before]:
                break
            if tie == ties[before] and index >= indices[before] >= 0:
                break
        if place < len(distances):
            distances[place] = distances[before]
            ties[place] = ties[before]
            indices[place] = indices[before]
        place = before
    if place < len(distances):
        distances[place] = distance
        ties[place] = tie
        indices[place] = index
