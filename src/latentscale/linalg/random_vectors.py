"""Random vectors for the trace of a matrix: signs, or standard normal entries.

Vectors in memory come from a generator. The entries of vectors that fit in no single process are a
hash of a seed, the column and the row. So any part can be drawn by any process, and doesn't depend
on the division of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numba
import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.tiles.top_lists import mixed

Distribution = Literal["rademacher", "gaussian"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
"""Distribution of the entries of random vectors: signs, or standard normal."""

GRAIN = 2.0**-53
"""Spacing of the uniform numbers that are drawn."""

_STEP = np.uint64(0x9E3779B97F4A7C15)


def draw_vectors(
    distribution: Distribution, n: int, width: int, generator: np.random.Generator
) -> Float64Array:
    """Draw vectors of about unit length, shape (n, width): entries of variance 1 / n.

    Each vector consumes the same draws for every block width.
    """
    return _DRAWS[distribution](n, width, generator)


def hashed_vectors(
    distribution: Distribution, seed: int, start: int, stop: int, columns: range
) -> Float64Array:
    """Draw rows of some random vectors, with entries of variance 1.

    Parameters
    ----------
    distribution : {"rademacher", "gaussian"}
        Distribution of the entries.
    seed : int
        Not negative. An entry depends on it, its column and its row.
    start, stop : int
        The range of rows to draw.
    columns : range
        The numbers of the vectors.

    Returns
    -------
    ndarray of float64, shape (stop - start, len(columns))
    """
    return _HASHED_DRAWS[distribution](seed, start, stop, columns)


def _random_signs(n: int, width: int, generator: np.random.Generator) -> Float64Array:
    """Draw columns of ±1 / √n; each consumes the same draws for every block width."""
    octets = np.empty((width, -(-n // 8)), dtype=np.uint8)
    for column in octets:
        column[:] = np.frombuffer(generator.bytes(len(column)), dtype=np.uint8)
    signs = np.empty((n, width))
    _spread_signs(octets, 1.0 / np.sqrt(n), signs)
    return signs


def _random_normals(n: int, width: int, generator: np.random.Generator) -> Float64Array:
    """Draw columns of standard normal entries over √n, one after the other."""
    normals = np.empty((n, width))
    for column in range(width):
        normals[:, column] = generator.standard_normal(n)
    normals /= np.sqrt(n)
    return normals


_DRAWS: dict[Distribution, Callable[[int, int, np.random.Generator], Float64Array]] = {
    "rademacher": _random_signs,
    "gaussian": _random_normals,
}


@numba.njit(cache=True, nogil=True)
def _spread_signs(octets: NDArray[np.uint8], unit: float, signs: Float64Array) -> None:
    """Turn the bits of every column, the highest of an octet first, into ± ``unit``."""
    n, width = signs.shape
    for i in range(n):
        place, shift = i >> 3, 7 - (i & 7)
        for c in range(width):
            signs[i, c] = unit * (2.0 * ((octets[c, place] >> shift) & 1) - 1.0)


def hashed_signs(seed: int, start: int, stop: int, columns: range) -> Float64Array:
    """Draw part of some random vectors of signs.

    Parameters
    ----------
    seed : int
        Not negative. A sign depends on it, its column and its vertex.
    start, stop : int
        The range of vertices to draw.
    columns : range
        The numbers of the vectors.

    Returns
    -------
    ndarray of float64, shape (stop - start, len(columns))
        Of 1 and -1.
    """
    signs = np.empty((stop - start, len(columns)))
    _draw_signs(np.uint64(seed), start, columns.start, signs)
    return signs


def hashed_normals(seed: int, start: int, stop: int, columns: range) -> Float64Array:
    """Draw part of some random vectors of standard normal entries.

    Parameters
    ----------
    seed, start, stop, columns
        As for :func:`hashed_signs`.

    Returns
    -------
    ndarray of float64, shape (stop - start, len(columns))
    """
    normals = np.empty((stop - start, len(columns)))
    _draw_normals(np.uint64(seed), start, columns.start, normals)
    return normals


@numba.njit(cache=True, nogil=True)
def _column_hash(key: np.uint64, column: int) -> np.uint64:
    return mixed(mixed(key + _STEP) ^ np.uint64(column))


@numba.njit(cache=True, nogil=True)
def _entry_hash(hash_of_column: np.uint64, entry: int) -> np.uint64:
    return mixed(hash_of_column + np.uint64(entry) * _STEP)


@numba.njit(cache=True, nogil=True)
def _draw_normals(key: np.uint64, start: int, first: int, normals: Float64Array) -> None:
    m, width = normals.shape
    for column in range(width):
        hash_of_column = _column_hash(key, first + column)
        for i in range(m):
            # The Box–Muller transform of two uniform numbers of 53 bits, the first above 0.
            first_bits = _entry_hash(hash_of_column, 2 * (start + i)) >> np.uint64(11)
            second_bits = _entry_hash(hash_of_column, 2 * (start + i) + 1) >> np.uint64(11)
            uniform, angle = (first_bits + 1.0) * GRAIN, second_bits * GRAIN
            normals[i, column] = np.sqrt(-2.0 * np.log(uniform)) * np.cos(2.0 * np.pi * angle)


@numba.njit(cache=True, nogil=True)
def _draw_signs(key: np.uint64, start: int, first: int, signs: Float64Array) -> None:
    m, width = signs.shape
    for column in range(width):
        hash_of_column = _column_hash(key, first + column)
        word = -1
        bits = np.uint64(0)
        for i in range(m):
            vertex = start + i
            if vertex >> 6 != word:
                word = vertex >> 6
                bits = _entry_hash(hash_of_column, word)
            sign = (bits >> np.uint64(vertex & 63)) & np.uint64(1)
            signs[i, column] = 1.0 if sign else -1.0


_HASHED_DRAWS: dict[Distribution, Callable[[int, int, int, range], Float64Array]] = {
    "rademacher": hashed_signs,
    "gaussian": hashed_normals,
}
