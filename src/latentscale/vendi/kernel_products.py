"""Products of a kernel matrix with many vectors at once, by tiles.

A tile of similarities serves every vector, so a visit of all pairs costs the distances, one
exponential a pair, and two multiply-adds a pair and vector. Each unordered pair of blocks is
visited once and used both ways (:class:`latentscale.tiles.exponential_products.DistanceTiles`). The
diagonal is exactly 1, and the implied matrix is exactly symmetric. Where tiles are kept, a later
visit costs the products alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, cast

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


class Tile(NamedTuple):
    """Rows of one block, rows of the other, and their similarities."""

    rows: slice
    columns: slice
    similarities: FloatArray


def kept_type(n: int, kept_bytes: int) -> type[np.floating[Any]] | None:
    """Return the type in which all tiles of ``n`` rows fit into some memory; None if they don't."""
    fitting = (kind for kind in (np.float64, np.float32) if tiles_bytes(n, kind) <= kept_bytes)
    return next(fitting, None)


def tiles_bytes(n: int, kind: type[np.floating[Any]]) -> int:
    """Return about the size of all tiles of ``n`` rows."""
    return kind().itemsize * n * (n + max(PANEL_ROWS, FUNCTION_ROWS)) // 2


@dataclass(frozen=True)
class SimilarityTiles:
    """The similarities between two blocks of rows, or of one block with itself, by tiles.

    Attributes
    ----------
    points : Points
        ``m`` rows under the Euclidean metric, with an origin among them, or none for a function.
    kernel : {"rbf", "laplacian"} or callable
        The similarity.
    bandwidth : float or None
        Positive; None for a function.
    others : Points or None
        ``n`` rows with the same origin; None stands for ``points`` themselves.
    kind : type
        Single or double precision, to which similarities are rounded. They are computed in double.
    keep : bool
        Whether :func:`sum_squares` keeps the tiles for later visits.

    Raises
    ------
    ValueError
        On a kernel that doesn't suit the points.
    """

    points: Points
    kernel: Kernel
    bandwidth: float | None
    others: Points | None = None
    kind: type[np.floating[Any]] = np.float64
    keep: bool = False
    kept: list[Tile] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        check_kernel(self.points, self.kernel, self.bandwidth)

    def __iter__(self) -> Iterator[Tile]:
        """Visit each pair of rows once. Tiles are valid until the next one, and read only."""
        if self.kept:
            yield from self.kept
            return
        for rows, columns, tile in self.compute():
            yield Tile(rows, columns, tile.astype(self.kind, copy=False))

    def compute(self) -> Iterator[tuple[slice, slice, Float64Array]]:
        """Compute every tile, in double precision."""
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


def multiply_tiles(
    tiles: Iterable[Tile],
    vectors_a: Float64Array,
    vectors_b: Float64Array | None = None,
    *,
    single: bool = False,
) -> tuple[Float64Array, Float64Array]:
    """Multiply vectors by all similarities between two blocks of rows, both ways.

    Parameters
    ----------
    tiles : iterable of (slice, slice, ndarray)
        Each pair of rows once, as from :class:`SimilarityTiles`.
    vectors_a, vectors_b : ndarray of float64, shapes (m, s) and (n, s)
        The vectors' entries for the rows of either block. None stands for one block with itself.
    single : bool
        Whether products with a tile are in single precision; their sums are in double.

    Returns
    -------
    tuple of ndarray of float64, shapes (m, s) and (n, s)
        Products with the other block's vectors. For one block with itself the second are zeros, so
        adding both is always correct.
    """
    itself = vectors_b is None
    kind: type[np.floating[Any]] = np.float32 if single else np.float64
    # Products of wide arrays with few rows are faster than those of their transposes.
    left = np.ascontiguousarray(vectors_a.T, dtype=kind)
    right = left if vectors_b is None else np.ascontiguousarray(vectors_b.T, dtype=kind)
    products_a, products_b = np.zeros(left.shape), np.zeros(right.shape)
    target = products_a if itself else products_b
    for rows, columns, tile in tiles:
        factors = tile.astype(kind, copy=False)
        products_a[:, rows] += right[:, columns] @ factors.T
        if not (itself and rows == columns):
            target[:, columns] += left[:, rows] @ factors
    return products_a.T, products_b.T


@dataclass(frozen=True)
class SimilaritySquares:
    """Sums over the pairs between two blocks of rows, in both orders.

    Attributes
    ----------
    squares : float
        Of the squared similarities times both rows' masses.
    squared_errors : float
        A bound of the same sum of their squared errors.
    rounded_squares, rounded_errors : float
        The same of similarities that are rounded to the precision of tiles.
    least : float
        A lower bound of all similarities.
    """

    squares: float
    squared_errors: float
    rounded_squares: float
    rounded_errors: float
    least: float


def sum_squares(
    tiles: SimilarityTiles, masses_a: Float64Array, masses_b: Float64Array | None = None
) -> SimilaritySquares:
    """Add squared similarities times the masses of both rows, and keep the tiles if asked.

    Parameters
    ----------
    tiles : SimilarityTiles
        The similarities.
    masses_a, masses_b : ndarray of float64, shapes (m,) and (n,)
        Non-negative; None for one block with itself.
    """
    a, itself = tiles.points, tiles.others is None
    b = a if tiles.others is None else tiles.others
    masses = masses_a if masses_b is None else masses_b
    rounding_a, rounding_b = (
        SimilarityRounding.of(side, tiles.kernel, tiles.bandwidth) for side in (a, b)
    )
    squares, squared_errors, least = 0.0, 0.0, math.inf if callable(tiles.kernel) else 0.0
    rounded_squares = 0.0
    kept: list[Tile] = []
    for rows, columns, tile in tiles.compute():
        if callable(tiles.kernel):
            least = min(least, float(tile.min()))
        both = 1 if itself and rows == columns else 2
        found = rounding_a.take(rows).of_tile(
            tile,
            rounding_b.take(columns),
            (masses_a[rows], masses[columns]),
            diagonal=both == 1,
        )
        squared_errors += both * found
        squares += both * float(masses_a[rows] @ (np.square(tile) @ masses[columns]))
        if tiles.keep or tiles.kind is np.float32:
            rounded = tile.astype(tiles.kind)
        if tiles.keep:
            kept.append(Tile(rows, columns, rounded))
        if tiles.kind is np.float32:
            np.square(rounded, out=tile, dtype=np.float64)
            rounded_squares += both * float(masses_a[rows] @ (tile @ masses[columns]))
    tiles.kept[:] = kept
    if tiles.kind is np.float64:
        return SimilaritySquares(squares, squared_errors, squares, squared_errors, least)
    # Both errors may point the same way.
    rounded_errors = (math.sqrt(squared_errors) + 2.0**-24 * math.sqrt(squares)) ** 2
    return SimilaritySquares(squares, squared_errors, rounded_squares, rounded_errors, least)
