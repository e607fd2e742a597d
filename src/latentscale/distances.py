r"""Distances between blocks of rows.

All pairwise measures (nearest neighbours, magnitude, kernel Vendi, GeomCA) visit the same object:
a *tile*, the distances between one block of rows and another. A tile costs one matrix product,

.. math:: d^2(x, y) = \|x\|^2 + \|y\|^2 - 2\,x \cdot y,

whose rounding error is a small multiple of machine epsilon times :math:`\|x\|^2 + \|y\|^2`. That
swamps the distance of near-duplicates, so squared distances below a small share of the norms are
computed again, coordinate by coordinate; equal rows then have distance exactly 0. The same is done
for every pair whose distance falls within the error band of a threshold (:func:`within`), so that
a decision never depends on how the matrix product happened to round.

Metrics
-------
``euclidean``
    :math:`\|x - y\|`.
``cosine``
    The cosine distance :math:`1 - \cos(x, y)`, half the squared Euclidean distance of the unit
    vectors. Rows of zeros have no direction and are refused.
``manhattan``
    :math:`\sum_i |x_i - y_i|`.

Arithmetic is in float64. A tile of ``m`` by ``n`` rows in ``d`` dimensions costs ``2 m n d``
floating point operations and ``8 m n`` bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

Metric = Literal["euclidean", "cosine", "manhattan"]
METRICS: tuple[Metric, ...] = get_args(Metric)

Float64Array = NDArray[np.float64]

RECOMPUTED_SHARE = 1e-6
"""Squared distances below this share of the norms are computed again without cancellation.

At this share the matrix product's relative error is about ``1e-16 / 1e-6 = 1e-10``.
"""

ERROR_BAND = 1e-13
"""Bound on a tile's error in squared distance, as a share of the squared norms.

The product of two rows of ``d`` coordinates errs by at most ``d`` roundings; blocked summation
keeps it near ``sqrt(d)`` of them. The band leaves two orders of magnitude above that.
"""


@dataclass(frozen=True)
class Points:
    """Rows made ready for pairwise work under a metric.

    Attributes
    ----------
    rows : ndarray of float64, shape (n, d)
        The vectors; scaled to unit length under the cosine metric.
    squared_norms : ndarray of float64, shape (n,)
        Squared lengths of ``rows``.
    metric : str
        The metric these rows are compared with.
    """

    rows: Float64Array
    squared_norms: Float64Array
    metric: Metric

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dimension(self) -> int:
        """Number of coordinates of a row."""
        return int(self.rows.shape[1])

    def take(self, index: slice | NDArray[np.integer[Any]]) -> Points:
        """Return the points selected by a slice (no copy) or an index array."""
        return Points(self.rows[index], self.squared_norms[index], self.metric)


def as_points(vectors: ArrayLike, metric: Metric) -> Points:
    """Check vectors and prepare them for distance tiles.

    Parameters
    ----------
    vectors : array_like, shape (n, d)
        Finite real numbers of any float or integer type; at least one row and one column.
    metric : {"euclidean", "cosine", "manhattan"}
        How rows are compared.

    Returns
    -------
    Points
        A float64 copy (no copy when it already is one and the metric doesn't rescale).

    Raises
    ------
    ValueError
        On an unknown metric, a wrong rank, an empty array, a row with NaN or infinity, or, for
        the cosine metric, a row of zeros.
    """
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; choose one of {', '.join(METRICS)}")
    rows = np.ascontiguousarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"vectors must be a non-empty array of rank 2, got shape {rows.shape}")
    squared_norms = np.einsum("ij,ij->i", rows, rows)
    if not np.isfinite(squared_norms).all():
        row = int(np.flatnonzero(~np.isfinite(squared_norms))[0])
        raise ValueError(f"row {row} has a NaN, an infinity or an overflowing length")
    if metric == "cosine":
        return _unit_points(rows)
    return Points(rows, squared_norms, metric)


def _unit_points(rows: Float64Array) -> Points:
    # Scaling by the largest coordinate first keeps very long and very short rows from
    # overflowing or vanishing when they are squared.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if (largest == 0).any():
        row = int(np.flatnonzero(largest[:, 0] == 0)[0])
        raise ValueError(f"row {row} is zero: it has no direction, so no cosine distance")
    unit = rows / largest
    unit /= np.sqrt(np.einsum("ij,ij->i", unit, unit))[:, None]
    return Points(unit, np.einsum("ij,ij->i", unit, unit), "cosine")


def distance_tile(a: Points, b: Points) -> Float64Array:
    """Distances between all rows of two blocks.

    Parameters
    ----------
    a, b : Points
        Blocks of ``m`` and ``n`` rows under the same metric.

    Returns
    -------
    ndarray of float64, shape (m, n)
        Non-negative distances; equal rows are at distance exactly 0.
    """
    if a.metric == "manhattan":
        return _manhattan(a.rows, b.rows)
    tile = squared_tile(a, b)
    if a.metric == "cosine":
        tile *= 0.5
        return tile
    np.sqrt(tile, out=tile)
    return tile


def squared_tile(a: Points, b: Points) -> Float64Array:
    """Squared Euclidean distances between all rows of two blocks (unit rows for cosine)."""
    _check_alike(a, b)
    tile: Float64Array = a.rows @ b.rows.T
    _finish_squared(tile, a.rows, b.rows, a.squared_norms, b.squared_norms, RECOMPUTED_SHARE)
    return tile


def within(a: Points, b: Points, threshold: float, *, strict: bool) -> NDArray[np.bool_]:
    """Decide which pairs of two blocks are at most (or less than) a distance apart.

    The decision compares the squared distance, in float64 and coordinate by coordinate where it
    is close, with the squared threshold; for Manhattan the distance with the threshold.

    Parameters
    ----------
    a, b : Points
        Blocks of ``m`` and ``n`` rows under the same metric.
    threshold : float
        The distance to compare with, in units of the metric.
    strict : bool
        True for ``d < threshold``, False for ``d <= threshold``.

    Returns
    -------
    ndarray of bool, shape (m, n)
    """
    if a.metric == "manhattan":
        distances = _manhattan(a.rows, b.rows)
        return distances < threshold if strict else distances <= threshold
    _check_alike(a, b)
    limit = threshold * threshold if a.metric == "euclidean" else 2.0 * threshold
    products = a.rows @ b.rows.T
    return _decide(products, a.rows, b.rows, a.squared_norms, b.squared_norms, limit, strict)


def row_blocks(n: int, size: int) -> Iterator[slice]:
    """Cut ``n`` rows into consecutive blocks of at most ``size``."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def block_pairs(n: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Pairs of row blocks with the first not after the second: each unordered pair once."""
    blocks = list(row_blocks(n, size))
    for i, first in enumerate(blocks):
        for second in blocks[i:]:
            yield first, second


def _check_alike(a: Points, b: Points) -> None:
    if a.metric != b.metric or a.dimension != b.dimension:
        raise ValueError(
            f"blocks differ: {a.metric} in {a.dimension} dimensions against "
            f"{b.metric} in {b.dimension}"
        )


@numba.njit(cache=True, nogil=True)
def _direct_squared(x: Float64Array, y: Float64Array) -> float:
    total = 0.0
    for c in range(x.shape[0]):
        difference = x[c] - y[c]
        total += difference * difference
    return total


@numba.njit(cache=True, nogil=True)
def _finish_squared(
    tile: Float64Array,
    a: Float64Array,
    b: Float64Array,
    a_norms: Float64Array,
    b_norms: Float64Array,
    share: float,
) -> None:
    for i in range(tile.shape[0]):
        for j in range(tile.shape[1]):
            norms = a_norms[i] + b_norms[j]
            squared = norms - 2.0 * tile[i, j]
            if squared <= share * norms:
                squared = _direct_squared(a[i], b[j])
            tile[i, j] = squared


@numba.njit(cache=True, nogil=True)
def _decide(
    products: Float64Array,
    a: Float64Array,
    b: Float64Array,
    a_norms: Float64Array,
    b_norms: Float64Array,
    limit: float,
    strict: bool,
) -> NDArray[np.bool_]:
    decision = np.empty(products.shape, dtype=np.bool_)
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            norms = a_norms[i] + b_norms[j]
            squared = norms - 2.0 * products[i, j]
            if abs(squared - limit) <= ERROR_BAND * norms:
                squared = _direct_squared(a[i], b[j])
            decision[i, j] = squared < limit if strict else squared <= limit
    return decision


@numba.njit(cache=True, nogil=True)
def _manhattan(a: Float64Array, b: Float64Array) -> Float64Array:
    tile = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = 0.0
            for c in range(a.shape[1]):
                total += abs(a[i, c] - b[j, c])
            tile[i, j] = total
    return tile
