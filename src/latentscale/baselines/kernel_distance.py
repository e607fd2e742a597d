r"""The kernel distance of two corpora (KID): an unbiased squared maximum mean discrepancy.

With the cubic kernel :math:`k(x, y) = (x \cdot y / d + 1)^3` (Bińkowski et al. 2018, section 4),

.. math::
   \mathrm{KID} = \frac{\sum_{i \ne j} k(x_i, x_j)}{n (n - 1)}
     + \frac{\sum_{i \ne j} k(y_i, y_j)}{m (m - 1)} - \frac{2 \sum_{ij} k(x_i, y_j)}{n m}

estimates the discrepancy of the two distributions without bias, so it may be negative. Published
code averages it over small random blocks. Here every pair is visited once, and the value is that of
all rows.

*Sampling error.* Rows are divided into groups, and the kernel is summed between every two groups.
These sums give the value without any one group of either corpus. The delete-one-group jackknife
turns those values into a standard error (Arvesen 1969 for functions of this kind). The mean of the
values inside the groups is the block estimate of published code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentscale.tiles.distances import Float64Array, row_blocks

BLOCK_ROWS = 1024
"""Rows of a tile: 8 MiB of kernel values."""

GROUPS = 20
"""Groups into which the rows of a corpus are divided."""

LEAST_ROWS = 2
"""Rows that a group needs to contain pairs of different rows."""


@dataclass(frozen=True)
class KernelDistance:
    """The kernel distance of two corpora.

    Attributes
    ----------
    value : float
        The unbiased estimate from all pairs, in the kernel's units (none).
    sampling_error : float or None
        Standard error over fresh samples; None where there are too few rows to divide into groups.
    block_value : float or None
        Mean of the unbiased estimates inside the groups, as published code computes it.
    groups : int
        Number of groups of each corpus.
    """

    value: float
    sampling_error: float | None
    block_value: float | None
    groups: int


def kernel_distance(first: ArrayLike, second: ArrayLike) -> KernelDistance:
    """Compute the kernel distance of two corpora.

    Parameters
    ----------
    first, second : array_like, shapes (n, d) and (m, d)
        At least two finite rows each. Row ``i`` goes into group ``i`` modulo the number of groups,
        so rows that are stored in some order spread evenly.

    Raises
    ------
    ValueError
        On wrong shapes, too few rows, or numbers that aren't finite.

    Notes
    -----
    Costs ``(n + m)² d`` floating point operations and memory for a tile and two blocks of rows.
    """
    x, y = np.asarray(first), np.asarray(second)
    for rows in (x, y):
        if rows.ndim != 2 or rows.shape[0] < LEAST_ROWS or rows.shape[1] == 0:
            raise ValueError(f"a kernel distance needs at least two rows, got shape {rows.shape}")
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"a kernel distance needs equal dimensions, got {x.shape[1]} and {y.shape[1]}"
        )
    groups = max(1, min(GROUPS, len(x) // LEAST_ROWS, len(y) // LEAST_ROWS))
    sums = _Sums(_within_sums(x, groups), _within_sums(y, groups), _group_sums(x, y, groups))
    sizes = tuple(np.bincount(np.arange(len(rows)) % groups) for rows in (x, y))
    value = _unbiased(sums, *sizes)
    if not math.isfinite(value):
        raise ValueError("rows must be finite, and their cubed products must not overflow")
    if groups < 2:
        return KernelDistance(value, None, None, groups)
    return KernelDistance(value, _jackknife(sums, *sizes), _block_mean(sums, *sizes), groups)


@dataclass(frozen=True)
class _Sums:
    """Sums of the kernel over pairs of different rows, for every pair of groups."""

    first: Float64Array
    second: Float64Array
    between: Float64Array

    def without(self, group: int, side: int) -> _Sums:
        """Return the value without a group of one corpus."""
        keep = np.arange(len(self.first)) != group
        if side == 0:
            return _Sums(self.first[np.ix_(keep, keep)], self.second, self.between[keep])
        return _Sums(self.first, self.second[np.ix_(keep, keep)], self.between[:, keep])


def _unbiased(sums: _Sums, n: NDArray[np.int64], m: NDArray[np.int64]) -> float:
    rows, columns = int(n.sum()), int(m.sum())
    return float(
        sums.first.sum() / (rows * (rows - 1))
        + sums.second.sum() / (columns * (columns - 1))
        - 2.0 * sums.between.sum() / (rows * columns)
    )


def _jackknife(sums: _Sums, n: NDArray[np.int64], m: NDArray[np.int64]) -> float:
    variance = 0.0
    groups = len(n)
    for side in (0, 1):
        left_out = np.array(
            [
                _unbiased(
                    sums.without(group, side),
                    np.delete(n, group) if side == 0 else n,
                    np.delete(m, group) if side == 1 else m,
                )
                for group in range(groups)
            ]
        )
        variance += (groups - 1) / groups * float(((left_out - left_out.mean()) ** 2).sum())
    return math.sqrt(variance)


def _block_mean(sums: _Sums, n: NDArray[np.int64], m: NDArray[np.int64]) -> float:
    inside = (
        np.diagonal(sums.first) / (n * (n - 1))
        + np.diagonal(sums.second) / (m * (m - 1))
        - 2.0 * np.diagonal(sums.between) / (n * m)
    )
    return float(inside.mean())


def _within_sums(rows: NDArray[np.floating], groups: int) -> Float64Array:
    sums = _group_sums(rows, rows, groups)
    own = np.zeros(groups)
    for block in row_blocks(len(rows), BLOCK_ROWS):
        part = np.asarray(rows[block], dtype=np.float64)
        kernel = (np.einsum("ij,ij->i", part, part) / part.shape[1] + 1.0) ** 3
        own += np.bincount(np.arange(block.start, block.stop) % groups, kernel, minlength=groups)
    sums[np.diag_indices(groups)] -= own
    return sums


def _group_sums(x: NDArray[np.floating], y: NDArray[np.floating], groups: int) -> Float64Array:
    sums = np.zeros((groups, groups))
    for rows in row_blocks(len(x), BLOCK_ROWS):
        left = np.asarray(x[rows], dtype=np.float64)
        dealt_left = _membership(rows, groups)
        for columns in row_blocks(len(y), BLOCK_ROWS):
            tile = left @ np.asarray(y[columns], dtype=np.float64).T
            tile /= left.shape[1]
            tile += 1.0
            tile *= tile * tile
            sums += dealt_left.T @ tile @ _membership(columns, groups)
    return sums


def _membership(rows: slice, groups: int) -> Float64Array:
    """Return the group of each row of a block, as a matrix of ones and zeros."""
    member = np.arange(rows.start, rows.stop)[:, None] % groups == np.arange(groups)
    ones: Float64Array = member.astype(np.float64)
    return ones
