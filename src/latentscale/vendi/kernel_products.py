"""Products of a kernel matrix with many vectors at once, without the matrix.

A tile of similarities serves every vector, so a visit of all pairs costs the distances, one
exponential a pair, and two multiply-adds a pair and vector. Each unordered pair of blocks is
visited once and used both ways (:class:`latentscale.tiles.exponential_products.DistanceTiles`). The
diagonal is exactly 1, and the implied matrix is exactly symmetric.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, cast

import numpy as np

from latentscale.array_types import Float64Array, FloatArray
from latentscale.tiles.device import exponentials
from latentscale.tiles.distances import Points, block_pairs, row_blocks
from latentscale.tiles.exponential_products import PANEL_ROWS, DistanceTiles
from latentscale.vendi.kernels import (
    Kernel,
    KernelFunction,
    SimilarityRounding,
    check_kernel,
    function_tile,
)

FUNCTION_ROWS = 512
"""Rows a side of the blocks that a kernel function gets."""


@dataclass(frozen=True)
class KernelSums:
    """The contribution of the pairs between two blocks of rows to the products.

    Attributes
    ----------
    products_a, products_b : ndarray of float64, shapes (m, s) and (n, s)
        Products with the other block's vectors.
    squares : float
        Sum of the squared similarities times both rows' masses, over both orders of every pair.
    squared_errors : float
        Bound of the same sum of their squared errors.
    least : float
        A lower bound of all similarities.
    """

    products_a: Float64Array
    products_b: Float64Array
    squares: float
    squared_errors: float
    least: float


def kernel_block_products(
    a: Points,
    b: Points,
    kernel: Kernel,
    bandwidth: float | None,
    vectors_a: Float64Array,
    vectors_b: Float64Array,
    *,
    masses_a: Float64Array | None = None,
    masses_b: Float64Array | None = None,
) -> KernelSums:
    """Multiply vectors by the similarities between two blocks of rows, both ways, in float64.

    Parameters
    ----------
    a, b : Points
        Blocks of ``m`` and ``n`` rows under the Euclidean metric, with the same origin among them,
        or none for a function. With ``b is a`` the pairs of one block are visited once and
        ``vectors_b`` isn't read.
    kernel : {"rbf", "laplacian"} or callable
        The similarity.
    bandwidth : float or None
        Positive; None for a function.
    vectors_a, vectors_b : ndarray of float64, shapes (m, s) and (n, s)
        The vectors' entries for the rows of either block.
    masses_a, masses_b : ndarray of float64, shapes (m,) and (n,), optional
        Needed for the squares and their errors, which are 0 without them.

    Returns
    -------
    KernelSums
        With ``b is a`` the second products are zeros, so adding both is always correct.

    Raises
    ------
    ValueError
        On a kernel that doesn't suit the points.
    """
    tiles = SimilarityTiles(a, kernel, bandwidth, others=None if b is a else b)
    return _products(tiles, vectors_a, vectors_b, masses_a, masses_b)


def kernel_products(
    tiles: SimilarityTiles,
    vectors: Float64Array,
    masses: Float64Array | None = None,
    *,
    single: bool = False,
) -> KernelSums:
    """Multiply vectors by all similarities of one block, which may be kept between calls.

    Parameters
    ----------
    tiles : SimilarityTiles
        Of one block of ``n`` rows.
    vectors : ndarray of float64, shape (n, s)
        The vectors.
    masses : ndarray of float64, shape (n,), optional
        Needed for the squares and their errors, which are 0 without them.
    single : bool
        Whether products with a tile are in single precision.

    Returns
    -------
    KernelSums
        With the products in ``products_a``.
    """
    return _products(tiles, vectors, vectors, masses, masses, single=single)


def kept_type(n: int, kept_bytes: int) -> type[np.floating[Any]] | None:
    """Return the type in which all tiles of ``n`` rows fit into some memory; None if they don't."""
    entries = 0.5 * n * (n + max(PANEL_ROWS, FUNCTION_ROWS))
    fitting = (kind for kind in (np.float64, np.float32) if kind().itemsize * entries <= kept_bytes)
    return next(fitting, None)


@dataclass(frozen=True)
class SimilarityTiles:
    """The similarities between two blocks of rows, or of one block with itself, by tiles.

    Attributes
    ----------
    points : Points
        ``m`` rows.
    kernel, bandwidth
        As in :func:`kernel_block_products`.
    kept_bytes : int
        Memory in which tiles are kept after the first visit: all of them if they fit, in single
        precision if they don't fit in double, none otherwise.
    others : Points or None
        ``n`` rows with the same origin; None stands for ``points`` themselves. Tiles between two
        blocks aren't kept.
    """

    points: Points
    kernel: Kernel
    bandwidth: float | None
    kept_bytes: int = 0
    others: Points | None = None
    kept: list[tuple[slice, slice, FloatArray]] = field(
        default_factory=list, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_kernel(self.points, self.kernel, self.bandwidth)

    def __iter__(self) -> Iterator[tuple[slice, slice, Float64Array]]:
        """Visit each pair of rows once; tiles are read only."""
        kind = kept_type(len(self.points), self.kept_bytes)
        if self.kept:
            for rows, columns, tile in self.kept:
                yield rows, columns, tile.astype(np.float64, copy=False)
            return
        found: list[tuple[slice, slice, FloatArray]] = []
        for rows, columns, tile in self._compute():
            if kind is not None and self.others is None:
                found.append((rows, columns, tile.astype(kind)))
                tile[...] = found[-1][2]
            yield rows, columns, tile
        self.kept.extend(found)

    def _compute(self) -> Iterator[tuple[slice, slice, Float64Array]]:
        if callable(self.kernel):
            yield from _function_tiles(self.points, self.others, self.kernel)
            return
        assert self.bandwidth is not None  # noqa: S101  (check_kernel has seen to it)
        rbf = self.kernel == "rbf"
        factor = -0.5 / self.bandwidth**2 if rbf else -1.0 / self.bandwidth
        for rows, columns, filled in DistanceTiles(self.points, self.others):
            # Its precision is double.
            tile = cast(Float64Array, filled[: rows.stop - rows.start])
            if not rbf:
                np.sqrt(tile, out=tile)
            exponentials(tile, factor)
            yield rows, columns, tile


def _products(
    tiles: SimilarityTiles,
    vectors_a: Float64Array,
    vectors_b: Float64Array,
    masses_a: Float64Array | None,
    masses_b: Float64Array | None,
    *,
    single: bool = False,
) -> KernelSums:
    a, itself = tiles.points, tiles.others is None
    b = a if tiles.others is None else tiles.others
    kernel, bandwidth = tiles.kernel, tiles.bandwidth
    products_a = np.zeros((len(a), vectors_a.shape[1]))
    products_b = np.zeros((len(b), vectors_a.shape[1]))
    kind: type[np.floating[Any]] = np.float32 if single else np.float64
    left = vectors_a.astype(kind, copy=False)
    right = left if itself else vectors_b.astype(kind, copy=False)
    masses = masses_a if itself else masses_b
    squares, squared_errors, least = 0.0, 0.0, math.inf if callable(kernel) else 0.0
    if masses_a is not None:
        rounding_a, rounding_b = (SimilarityRounding.of(side, kernel, bandwidth) for side in (a, b))
    for rows, columns, tile in tiles:
        if callable(kernel):
            least = min(least, float(tile.min()))
        factors = tile.astype(kind, copy=False)
        products_a[rows] += factors @ right[columns]
        twice = not (itself and rows == columns)
        if twice:
            target = products_a if itself else products_b
            target[columns] += factors.T @ left[rows]
        if masses_a is not None and masses is not None:
            found = rounding_a.take(rows).of_tile(
                tile,
                rounding_b.take(columns),
                (masses_a[rows], masses[columns]),
                diagonal=not twice,
            )
            squared_errors += (1 + twice) * found
            squares += (1 + twice) * float(masses_a[rows] @ (np.square(tile) @ masses[columns]))
    if tiles.kept and tiles.kept[0][2].dtype == np.float32:
        # Both errors may point the same way.
        kept = 2.0**-24 * math.sqrt(squares)
        squared_errors = (math.sqrt(squared_errors) + kept) ** 2
    return KernelSums(products_a, products_b, squares, squared_errors, least)


def _function_tiles(
    a: Points, b: Points | None, kernel: KernelFunction
) -> Iterator[tuple[slice, slice, Float64Array]]:
    pairs: Iterable[tuple[slice, slice]]
    if b is None:
        pairs = block_pairs(len(a), FUNCTION_ROWS)
    else:
        pairs = product(row_blocks(len(a), FUNCTION_ROWS), row_blocks(len(b), FUNCTION_ROWS))
    for rows, columns in pairs:
        tile = function_tile(a.take(rows), (a if b is None else b).take(columns), kernel)
        if b is None and rows == columns:
            np.fill_diagonal(tile, 1.0)
        yield rows, columns, tile
