r"""Products of the similarity matrices :math:`e^{-tD}` with vectors, without the matrices.

The similarity matrix of a metric space at scale ``t`` has the entries
:math:`\zeta_{ij} = e^{-t\,d(x_i, x_j)}` (Limbeck et al. 2024, definitions 3.1 and 3.2). For ``n``
rows it has ``n²`` of them, at every scale others. Iterative solvers only multiply by it, so the
matrix is never stored: a product visits the distance tiles one after another, and one visit serves
*all* scales.

A tile is cheap once its distances are known:

* the matrix is symmetric, so each unordered pair of blocks is visited once and folded both ways;
* when the scales lie on a grid, :math:`t_k = t_0 + m_k \Delta` with whole :math:`m_k`, the
  exponentials are powers, :math:`e^{-t_k d} = e^{-t_0 d} (e^{-\Delta d})^{m_k}`, and one
  exponential a pair replaces one a pair and scale. Columns may be dropped from such a grid: a gap
  costs multiplications, no exponential. Other scales take an exponential each.

The rounding of a power is a few times ``m_k`` machine epsilons, relative. Distances are those of
:mod:`latentscale.distances`, so equal rows, and with them the diagonal, have similarity exactly 1.
Sums run in a fixed order: the same input gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentscale.distances import Float64Array, Points, block_pairs, distance_tile

Int64Array = NDArray[np.int64]

BLOCK_ROWS = 1024
"""Rows in a block. A tile of this size and its two exponentials take 24 MiB."""

STRIP = 128
"""Columns folded at a time, so that a strip's share of 20 vectors stays in the first caches."""

SPACING_TOLERANCE = 8 * np.finfo(np.float64).eps
"""How far a scale may lie from its grid, as a share of the largest scale."""

LARGEST_DIVISOR = 4
"""Into how many steps the smallest gap between two scales may be divided to find their grid."""


@dataclass(frozen=True)
class ScaleGrid:
    """Ascending scales as multiples of one step.

    Attributes
    ----------
    step : float
        The spacing of the grid.
    start : float
        The first scale whose exponential is taken; equal to ``step`` when 0 is on the grid.
    powers : ndarray of int64, shape (s,)
        How many further steps lead from each scale's predecessor (from ``start`` for the first) to
        it.
    """

    step: float
    start: float
    powers: Int64Array


def scale_grid(scales: Float64Array) -> ScaleGrid | None:
    """Find the grid that ascending scales lie on, or None when powers would not pay.

    Parameters
    ----------
    scales : ndarray of float64, shape (s,)
        Non-negative, ascending, distinct.
    """
    if len(scales) < 2:
        return None
    slack = SPACING_TOLERANCE * scales[-1]
    span = scales[-1] - scales[0]
    smallest_gap = np.diff(scales).min()
    for divisor in range(1, LARGEST_DIVISOR + 1):
        if span * divisor > (2 * len(scales) + 8) * smallest_gap:
            return None
        # The span holds many steps, so it gives the step more sharply than the smallest gap.
        step = span / round(span * divisor / smallest_gap)
        multiples = np.rint((scales - scales[0]) / step)
        if np.abs(scales[0] + multiples * step - scales).max() > slack:
            continue
        offset = round(scales[0] / step)
        if 1 <= offset <= len(scales) and abs(offset * step - scales[0]) <= slack:
            return ScaleGrid(step, step, _powers(multiples + offset - 1))
        return ScaleGrid(step, float(scales[0]), _powers(multiples))
    return None


def _powers(multiples: Float64Array) -> Int64Array:
    return np.diff(multiples, prepend=0.0).astype(np.int64)


@dataclass(frozen=True)
class DistanceTiles:
    """The distance tiles of a set of points, some of them kept between visits.

    Attributes
    ----------
    points : Points
        ``n`` rows under a metric.
    block_rows : int
        Rows in a block of a tile.
    kept_bytes : int
        Memory that kept tiles may take; all tiles take about ``4 n²`` bytes. The others are
        computed again on each visit, with the same result.
    """

    points: Points
    block_rows: int = BLOCK_ROWS
    kept_bytes: int = 0
    kept: list[Float64Array] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.block_rows < 1:
            raise ValueError(f"block_rows must be at least 1, got {self.block_rows}")

    def __iter__(self) -> Iterator[tuple[slice, slice, Float64Array]]:
        """Visit each unordered pair of blocks once, with its distances."""
        for index, (first, second) in enumerate(block_pairs(len(self.points), self.block_rows)):
            if index < len(self.kept):
                yield first, second, self.kept[index]
                continue
            tile = distance_tile(self.points.take(first), self.points.take(second))
            size = sum(kept.nbytes for kept in self.kept)
            if index == len(self.kept) and size + tile.nbytes <= self.kept_bytes:
                self.kept.append(tile)
            yield first, second, tile


def exponential_products(
    points: Points,
    scales: ArrayLike,
    blocks: ArrayLike,
    *,
    block_rows: int = BLOCK_ROWS,
    tiles: DistanceTiles | None = None,
) -> Float64Array:
    r"""Multiply a vector by the similarity matrix of every scale.

    Parameters
    ----------
    points : Points
        ``n`` rows under a metric.
    scales : array_like of float, shape (s,)
        Finite and non-negative, distinct, in any order; fastest when evenly spaced.
    blocks : array_like of float, shape (n, s)
        One vector a scale.
    block_rows : int
        Rows in a block of a tile.
    tiles : DistanceTiles, optional
        The tiles of these points, when several products are wanted; their block size counts then.

    Returns
    -------
    ndarray of float64, shape (n, s)
        Column ``k`` is :math:`e^{-t_k D} b_k`.

    Raises
    ------
    ValueError
        On scales that are negative, not finite or repeated, or a block of the wrong shape.

    Notes
    -----
    Costs ``n²/2`` distances, ``2 s n²`` multiply-adds and one or two exponentials a pair on a grid
    of scales, ``s`` otherwise; memory ``24 block_rows²`` bytes and thrice the block of vectors.
    """
    scales = np.asarray(scales, dtype=np.float64)
    vectors = np.asarray(blocks, dtype=np.float64)
    _check(points, scales, vectors)
    tiles = DistanceTiles(points, block_rows) if tiles is None else tiles
    if tiles.points is not points:
        raise ValueError("the tiles belong to other points")
    if len(scales) == 0:
        return np.empty_like(vectors)
    order = np.argsort(scales)
    ascending = scales[order]
    grid = scale_grid(ascending)
    columns = np.ascontiguousarray(vectors[:, order].T)
    sums = np.zeros_like(columns)
    # Fresh megabytes for each tile would cost as much as its exponentials.
    scratch = np.empty((2, min(tiles.block_rows, len(points)) ** 2))
    for first, second, distances in tiles:
        power, step = (buffer[: distances.size].reshape(distances.shape) for buffer in scratch)
        arguments = (
            np.ascontiguousarray(columns[:, first]),
            np.ascontiguousarray(columns[:, second]),
            sums[:, first],
            sums[:, second],
            first != second,
        )
        if grid is None:
            _fold_each(distances, power, ascending, *arguments)
        else:
            _fold_grid(distances, power, step, grid, *arguments)
    products = np.empty_like(vectors)
    products[:, order] = sums.T
    return products


def _check(points: Points, scales: Float64Array, vectors: Float64Array) -> None:
    if scales.ndim != 1 or not np.isfinite(scales).all() or (scales < 0).any():
        raise ValueError(f"scales must be a list of finite numbers of at least 0, got {scales}")
    if len(np.unique(scales)) != len(scales):
        raise ValueError(f"scales must be distinct, got {scales}")
    if vectors.shape != (len(points), len(scales)):
        raise ValueError(
            f"blocks must have one row a point and one column a scale, "
            f"{(len(points), len(scales))}, got {vectors.shape}"
        )


def _fold_grid(
    distances: Float64Array,
    power: Float64Array,
    step: Float64Array,
    grid: ScaleGrid,
    first: Float64Array,
    second: Float64Array,
    first_sums: Float64Array,
    second_sums: Float64Array,
    both_ways: bool,
) -> None:
    np.exp(np.multiply(distances, -grid.step, out=step), out=step)
    if grid.start == grid.step:
        power[:] = step
    else:
        np.exp(np.multiply(distances, -grid.start, out=power), out=power)
    _fold(power, step, grid.powers, first, second, first_sums, second_sums, both_ways)


def _fold_each(
    distances: Float64Array,
    similarities: Float64Array,
    scales: Float64Array,
    first: Float64Array,
    second: Float64Array,
    first_sums: Float64Array,
    second_sums: Float64Array,
    both_ways: bool,
) -> None:
    no_power = np.zeros(1, dtype=np.int64)
    for k, scale in enumerate(scales):
        np.exp(np.multiply(distances, -scale, out=similarities), out=similarities)
        one = slice(k, k + 1)
        _fold(
            similarities,
            similarities,
            no_power,
            first[one],
            second[one],
            first_sums[one],
            second_sums[one],
            both_ways,
        )


# Reassociation lets a sum over a strip use the whole vector unit; its order is then fixed when the
# function is compiled and doesn't depend on the data.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _fold(
    power: Float64Array,
    step: Float64Array,
    powers: Int64Array,
    first: Float64Array,
    second: Float64Array,
    first_sums: Float64Array,
    second_sums: Float64Array,
    both_ways: bool,
) -> None:
    rows, columns = power.shape
    paired = rows - rows % 4
    for start in range(0, columns, STRIP):
        stop = min(start + STRIP, columns)
        for i in range(0, paired, 4):
            p0, p1 = power[i, start:stop], power[i + 1, start:stop]
            p2, p3 = power[i + 2, start:stop], power[i + 3, start:stop]
            e0, e1 = step[i, start:stop], step[i + 1, start:stop]
            e2, e3 = step[i + 2, start:stop], step[i + 3, start:stop]
            for k in range(len(powers)):
                for _ in range(powers[k]):
                    for j in range(stop - start):
                        p0[j] *= e0[j]
                    for j in range(stop - start):
                        p1[j] *= e1[j]
                    for j in range(stop - start):
                        p2[j] *= e2[j]
                    for j in range(stop - start):
                        p3[j] *= e3[j]
                vector = second[k, start:stop]
                sum0, sum1, sum2, sum3 = 0.0, 0.0, 0.0, 0.0
                if both_ways:
                    v0, v1 = first[k, i], first[k, i + 1]
                    v2, v3 = first[k, i + 2], first[k, i + 3]
                    sums = second_sums[k, start:stop]
                    for j in range(stop - start):
                        sum0 += p0[j] * vector[j]
                        sum1 += p1[j] * vector[j]
                        sum2 += p2[j] * vector[j]
                        sum3 += p3[j] * vector[j]
                        sums[j] += (p0[j] * v0 + p1[j] * v1) + (p2[j] * v2 + p3[j] * v3)
                else:
                    for j in range(stop - start):
                        sum0 += p0[j] * vector[j]
                        sum1 += p1[j] * vector[j]
                        sum2 += p2[j] * vector[j]
                        sum3 += p3[j] * vector[j]
                first_sums[k, i] += sum0
                first_sums[k, i + 1] += sum1
                first_sums[k, i + 2] += sum2
                first_sums[k, i + 3] += sum3
        for i in range(paired, rows):
            p0, e0 = power[i, start:stop], step[i, start:stop]
            for k in range(len(powers)):
                for _ in range(powers[k]):
                    for j in range(stop - start):
                        p0[j] *= e0[j]
                vector = second[k, start:stop]
                sum0 = 0.0
                for j in range(stop - start):
                    sum0 += p0[j] * vector[j]
                first_sums[k, i] += sum0
                if both_ways:
                    v0 = first[k, i]
                    sums = second_sums[k, start:stop]
                    for j in range(stop - start):
                        sums[j] += p0[j] * v0
