r"""Choose rows one by one: those farthest from each other, or those least similar to each other.

*Farthest first* takes the row farthest from those taken before. After k rows every other row is
within a radius of a chosen one that is at most twice the smallest possible for k rows (Gonzalez,
Clustering to minimize the maximum intercluster distance, Theoretical Computer Science 38, 1985).

*Most diverse* takes the row x with the smallest :math:`\sum_j \langle x, x_j \rangle^2` over the
unit rows taken before. It raises :math:`k^2 / \sum_{ij} \langle x_i, x_j \rangle^2` most, the
effective number of k rows of order 2 (Pasarkar and Dieng, Cousins of the Vendi Score, 2024,
equation 8, with the inner product as similarity).

Both need the products of every chosen row with all. Those of several likely choices are computed at
once, as long as the next one is among them; the rows chosen are those of one by one, to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float32Array, Float64Array, Int64Array

Progress = Callable[[int], None]

BLOCK_BYTES = 64 * 2**20
"""Largest size of the products of several rows with all."""

BLOCK_ROWS = 64
"""Largest number of these rows."""


@dataclass(frozen=True)
class FarthestFirst:
    """Rows that lie far from each other, in the order in which they were chosen.

    Attributes
    ----------
    rows : ndarray of int64, shape (k,)
        Their numbers.
    distances : ndarray of float64, shape (k,)
        From each to the nearest one before it, never rising; infinity for the first.
    radius : float
        From the chosen rows to the row that is farthest from all of them.
    """

    rows: Int64Array
    distances: Float64Array
    radius: float


def farthest_first(
    points: Float32Array, count: int, *, progress: Progress | None = None
) -> FarthestFirst:
    """Choose rows that lie far from each other.

    Parameters
    ----------
    points : ndarray of float32, shape (n, d)
        Rows in memory, compared by their Euclidean distance; scaled to unit length, by the angle.
    count : int
        Number of rows, from 1 to n. The first is the one nearest to the mean of all.
    progress : callable, optional
        Called with the number of rows chosen so far.

    Returns
    -------
    FarthestFirst
        Distances are accurate to some 1e-3 of the largest from the mean, which is single precision.

    Raises
    ------
    ValueError
        If there are fewer rows than asked for.

    Notes
    -----
    The cost is at most n k d multiply-adds; memory is :data:`BLOCK_BYTES` and a copy of the rows.
    """
    points = _about_mean(points)
    products = _Products(points, count)
    squares = np.einsum("ij,ij->i", points, points)
    nearest = np.full(len(points), np.inf, dtype=np.float32)
    row = _most_central(points, squares)
    rows, distances = [row], [math.inf]
    for chosen in range(1, count + 1):
        beside = squares - 2.0 * products.of(row, -nearest)
        beside += squares[row]
        # A small distance may come out below 0, and that of a chosen row is -1.
        np.minimum(nearest, np.maximum(beside, 0.0, out=beside), out=nearest)
        # A row that is chosen is never the farthest, not even among equal ones.
        nearest[row] = -1.0
        if progress is not None:
            progress(chosen)
        if chosen < count:
            row = int(nearest.argmax())
            rows.append(row)
            distances.append(math.sqrt(max(float(nearest[row]), 0.0)))
    radius = math.sqrt(max(float(nearest.max()), 0.0))
    return FarthestFirst(np.array(rows, dtype=np.int64), np.array(distances), radius)


def most_diverse(
    points: Float32Array, count: int, *, progress: Progress | None = None
) -> Int64Array:
    """Choose rows that are little similar to each other.

    Parameters
    ----------
    points : ndarray of float32, shape (n, d)
        Rows of unit length in memory.
    count : int
        Number of rows, from 1 to n. The first is the one nearest to the mean of all.
    progress : callable, optional
        Called with the number of rows chosen so far.

    Returns
    -------
    ndarray of int64, shape (count,)
        The rows in the order in which they were chosen.

    Raises
    ------
    ValueError
        If there are fewer rows than asked for.

    Notes
    -----
    The cost is at most n k d multiply-adds; memory is :data:`BLOCK_BYTES` beside the rows.
    """
    products = _Products(points, count)
    similar = np.zeros(len(points))
    row = _most_central(points, np.einsum("ij,ij->i", points, points))
    rows = [row]
    for chosen in range(1, count + 1):
        similar += np.square(products.of(row, similar))
        similar[row] = np.inf
        if progress is not None:
            progress(chosen)
        if chosen < count:
            row = int(similar.argmin())
            rows.append(row)
    return np.array(rows, dtype=np.int64)


class _Products:
    """Inner products of rows that are chosen with all rows, for several likely ones at once."""

    def __init__(self, points: Float32Array, count: int) -> None:
        n = len(points)
        if not 1 <= count <= n:
            raise ValueError(f"count must be from 1 to the number of rows {n}, got {count}")
        self._points = points
        self._size = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (4 * n), n))
        self._places: dict[int, int] = {}
        self._found = np.empty((0, n), dtype=np.float32)

    def of(self, row: int, order: NDArray[np.floating]) -> Float32Array:
        """Return the products of a row; those first in ``order`` are likely to be next."""
        if row not in self._places:
            first = np.argpartition(order, self._size - 1)[: self._size]
            likely = [row, *(int(other) for other in first if other != row)][: self._size]
            self._places = {other: place for place, other in enumerate(likely)}
            self._found = self._points[likely] @ self._points.T
        found: Float32Array = self._found[self._places[row]]
        return found


def _about_mean(points: Float32Array) -> Float32Array:
    """Return rows with their mean as the origin, so that products don't cancel far from it."""
    centre, centred = points.mean(axis=0, dtype=np.float64), np.empty_like(points)
    step = max(1, BLOCK_BYTES // (8 * points.shape[1]))
    for start in range(0, len(points), step):
        centred[start : start + step] = points[start : start + step] - centre
    return centred


def _most_central(points: Float32Array, squares: Float32Array) -> int:
    centre = points.mean(axis=0, dtype=np.float64).astype(np.float32)
    return int((squares - 2.0 * (points @ centre)).argmin())
