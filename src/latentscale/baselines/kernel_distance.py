r"""The kernel distance of two corpora (KID): an unbiased squared maximum mean discrepancy.

With the cubic kernel :math:`k(x, y) = (x \cdot y / d + 1)^3` (Bińkowski et al. 2018, section 4),

.. math::
   \mathrm{KID} = \frac{\sum_{i \ne j} k(x_i, x_j)}{n (n - 1)}
     + \frac{\sum_{i \ne j} k(y_i, y_j)}{m (m - 1)} - \frac{2 \sum_{ij} k(x_i, y_j)}{n m}

estimates the discrepancy of the two distributions without bias, so it may be negative. Published
code averages it over small random blocks. Here every pair is visited once, and the value is that of
all rows.

Far from the origin the three terms are large and nearly equal, and their difference would be
rounding. So the kernel is replaced by one that has the same distance. Let c be any vector, :math:`A
= |c|^2/d + 1`, and for rows :math:`x = c + x'`, :math:`y = c + y'` let :math:`u = c \cdot x'/d`,
:math:`v = c \cdot y'/d`, :math:`g = x' \cdot y'/d` and :math:`w = u + v + g`. Then :math:`k = (A +
w)^3`, and what depends on one of the two rows alone adds nothing to KID. Without it remains

.. math:: h(x, y) = 3 A^2 g + 3 A (w^2 - u^2 - v^2) + (w^3 - u^3 - v^3),

where nothing large is left, with c among the rows. The error of h is at most :math:`\gamma` times
the same expression in lengths, whose mean over pairs follows from the means of the powers of the
rows' lengths.

*Sampling error.* Rows are divided into groups, and the kernel is summed between every two groups.
These sums give the value without any one group of either corpus. The delete-one-group jackknife
turns those values into a standard error (Arvesen 1969 for functions of this kind), enlarged for few
groups so that 1.96 times one equals Student's interval. The mean of the values inside the groups is
the block estimate of published code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentscale.array_types import Float64Array, Int64Array
from latentscale.sampling.subsets import allowance_for_few
from latentscale.tiles.distances import row_blocks

BLOCK_ROWS = 1024
"""Rows of a tile: 8 MiB of kernel values."""

GROUPS = 20
"""Groups into which the rows of a corpus are divided."""

MIN_ROWS = 2
"""Rows that a group needs to contain pairs of different rows."""

MEDIAN_ROWS = 1000
"""Rows of each corpus whose median is the centre."""

UNIT_ROUNDOFF = 0.5 * float(np.finfo(np.float64).eps)


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
    rounding : float
        Bound of the error of ``value``.
    """

    value: float
    sampling_error: float | None
    block_value: float | None
    groups: int
    rounding: float


def kernel_distance(first: ArrayLike, second: ArrayLike) -> KernelDistance:
    """Compute the kernel distance of two corpora.

    Parameters
    ----------
    first, second : array_like, shapes (n, d) and (m, d)
        At least two finite rows each, in random order: row ``i`` goes into group ``i`` modulo the
        number of groups. Where rows are stored by kind, every group has as many of each kind, and
        the sampling error lacks what chance makes of the kinds' shares.

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
        if rows.ndim != 2 or rows.shape[0] < MIN_ROWS or rows.shape[1] == 0:
            raise ValueError(f"a kernel distance needs at least two rows, got shape {rows.shape}")
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"a kernel distance needs equal dimensions, got {x.shape[1]} and {y.shape[1]}"
        )
    groups = max(1, min(GROUPS, len(x) // MIN_ROWS, len(y) // MIN_ROWS))
    centre = _middle(x, y)
    sums = _Sums(
        _group_sums(x, x, centre, groups, within=True),
        _group_sums(y, y, centre, groups, within=True),
        _group_sums(x, y, centre, groups, within=False),
    )
    sizes = tuple(np.bincount(np.arange(len(rows)) % groups) for rows in (x, y))
    value, rounding = _unbiased(sums, *sizes), _rounding(x, y, centre)
    error = _jackknife(sums, *sizes) if groups > 1 else 0.0
    if not math.isfinite(value + rounding + error):
        raise ValueError("rows must be finite, and their cubed products must not overflow")
    if groups < 2:
        return KernelDistance(value, None, None, groups, rounding)
    block_value = _block_mean(sums, *sizes)
    return KernelDistance(value, error, block_value, groups, rounding)


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


def _unbiased(sums: _Sums, n: Int64Array, m: Int64Array) -> float:
    rows, columns = int(n.sum()), int(m.sum())
    return float(
        sums.first.sum() / (rows * (rows - 1))
        + sums.second.sum() / (columns * (columns - 1))
        - 2.0 * sums.between.sum() / (rows * columns)
    )


def _jackknife(sums: _Sums, n: Int64Array, m: Int64Array) -> float:
    spread = 0.0
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
        # Relative to the largest, because squares of large values overflow.
        gaps = left_out - left_out.mean()
        unit = float(np.abs(gaps).max()) or 1.0
        spread = math.hypot(spread, unit * float(np.linalg.norm(gaps / unit)))
    return allowance_for_few(groups - 1) * spread * math.sqrt((groups - 1) / groups)


def _block_mean(sums: _Sums, n: Int64Array, m: Int64Array) -> float:
    inside = (
        np.diagonal(sums.first) / (n * (n - 1))
        + np.diagonal(sums.second) / (m * (m - 1))
        - 2.0 * np.diagonal(sums.between) / (n * m)
    )
    return float(inside.mean())


def _middle(x: NDArray[np.floating], y: NDArray[np.floating]) -> Float64Array:
    """Return a point among the rows that a few far ones don't move."""
    few = [rows[:: -(-len(rows) // MEDIAN_ROWS)].astype(np.float64) for rows in (x, y)]
    return np.asarray(np.median(np.concatenate(few), axis=0))


def _group_sums(
    x: NDArray[np.floating],
    y: NDArray[np.floating],
    centre: Float64Array,
    groups: int,
    *,
    within: bool,
) -> Float64Array:
    """Sum h over the pairs of rows of every two groups; within a set, of different rows."""
    sums = np.zeros((groups, groups))
    for rows in row_blocks(len(x), BLOCK_ROWS):
        left = x[rows] - centre
        dealt_left = _membership(rows, groups)
        for columns in row_blocks(len(y), BLOCK_ROWS):
            tile = _kernel_tile(left, y[columns] - centre, centre)
            if within and rows == columns:
                np.fill_diagonal(tile, 0.0)
            sums += dealt_left.T @ tile @ _membership(columns, groups)
    return sums


def _kernel_tile(x: Float64Array, y: Float64Array, centre: Float64Array) -> Float64Array:
    """Compute h between rows about the centre."""
    d = len(centre)
    a = float(centre @ centre) / d + 1.0
    tile = x @ y.T
    tile /= d
    _reduce_kernel(tile, x @ centre / d, y @ centre / d, a)
    return tile


@numba.njit(cache=True, nogil=True)
def _reduce_kernel(tile: Float64Array, u: Float64Array, v: Float64Array, a: float) -> None:
    """Replace g by h, without what cancels in w² - u² - v² and w³ - u³ - v³."""
    for i in range(tile.shape[0]):
        for j in range(tile.shape[1]):
            g, own = tile[i, j], u[i] + v[j]
            near = a + own
            constant = u[i] * v[j] * (6.0 * a + 3.0 * own)
            tile[i, j] = constant + g * (3.0 * near * near + g * (3.0 * near + g))


def _rounding(x: NDArray[np.floating], y: NDArray[np.floating], centre: Float64Array) -> float:
    """Bound the rounding of the value by the means of h in lengths."""
    d = len(centre)
    share = (d + 2.0 * BLOCK_ROWS + (len(x) + len(y)) / BLOCK_ROWS + 64.0) * UNIT_ROUNDOFF
    c = math.sqrt(float(centre @ centre) / d)
    a = c * c + 1.0
    # Coefficients of r^i s^j for lengths r and s over the root of d.
    terms = {
        (1, 1): 3.0 * a * a + 6.0 * a * c * c,
        (1, 2): 3.0 * c**3 + 6.0 * a * c,
        (1, 3): 3.0 * c * c,
        (2, 2): 6.0 * c * c + 3.0 * a,
        (2, 3): 3.0 * c,
        (3, 3): 1.0,
    }
    p, q = _powers(x, centre), _powers(y, centre)
    p_sums, q_sums = p.sum(axis=1), q.sum(axis=1)
    total = 0.0
    for (i, j), factor in terms.items():
        ways = {(i, j), (j, i)}
        for powers in (p, q):
            n = powers.shape[1]
            total += factor * len(ways) * _sum_of_pairs(powers[i], powers[j]) / (n * (n - 1.0))
        between = sum(p_sums[a] * q_sums[b] for a, b in ways)
        total += 2.0 * factor * between / (p.shape[1] * q.shape[1])
    return share * total


def _powers(rows: NDArray[np.floating], centre: Float64Array) -> Float64Array:
    """Return the powers 0 to 3 of the rows' distances from the centre, over the root of d."""
    lengths = np.empty(len(rows))
    for block in row_blocks(len(rows), BLOCK_ROWS):
        moved = rows[block] - centre
        lengths[block] = np.sqrt(np.einsum("ij,ij->i", moved, moved) / len(centre))
    return np.asarray(lengths ** np.arange(4.0)[:, None])


def _sum_of_pairs(a: Float64Array, b: Float64Array) -> float:
    """Sum the products of two rows' numbers over pairs of different rows, without a difference."""
    before, after = np.zeros(len(b)), np.zeros(len(b))
    before[1:] = np.cumsum(b[:-1])
    after[:-1] = np.cumsum(b[:0:-1])[::-1]
    return float(a @ (before + after))


def _membership(rows: slice, groups: int) -> Float64Array:
    """Return the group of each row of a block, as a matrix of ones and zeros."""
    member = np.arange(rows.start, rows.stop)[:, None] % groups == np.arange(groups)
    ones: Float64Array = member.astype(np.float64)
    return ones
