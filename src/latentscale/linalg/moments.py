r"""Count, mean and scatter of rows.

The scatter :math:`\sum_i (x_i - \mu)(x_i - \mu)^\top` is taken about the mean of its own rows, and
two sets are joined by

.. math:: S = S_a + S_b + \frac{n_a n_b}{n_a + n_b} (\mu_a - \mu_b)(\mu_a - \mu_b)^\top

(Chan, Golub and LeVeque 1983). Nothing cancels, however far from the origin the rows lie. So a
corpus of any size can be processed block by block, and blocks can be merged in any order. The sum
of the unit rows is kept as well, for similarities.

Rounding
--------
Sums run over at most :data:`BLOCK_ROWS` rows one after the other, and then over blocks. Let
:math:`\epsilon_n` be the unit roundoff times that number of additions. The error of the sum of unit
rows is at most :math:`n \epsilon_n`. The error of a mean is at most :math:`\delta = \epsilon_n
\sqrt{\mu^2 + \sigma^2}`. A variance :math:`\sigma^2` contains the means of blocks, so its relative
error is at most :math:`\epsilon_n + 2 \delta / \sigma + (\delta / \sigma)^2`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from latentscale.array_types import Float64Array
from latentscale.tiles.distances import row_blocks

BLOCK_ROWS = 4096
"""Rows whose scatter is computed by one matrix product."""

UNIT_ROUNDOFF = 0.5 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Moments:
    """First and second moments of a set of rows.

    Attributes
    ----------
    count : int
        Number of rows.
    mean : ndarray of float64, shape (d,)
        Their mean.
    scatter : ndarray of float64, shape (d, d)
        Sum of the outer products of their deviations from the mean.
    directions : ndarray of float64, shape (d,)
        Sum of the rows scaled to unit length; rows of zeros add nothing.
    zero_rows : int
        How many rows are zero and have no direction.
    """

    count: int
    mean: Float64Array
    scatter: Float64Array
    directions: Float64Array
    zero_rows: int

    @property
    def dimension(self) -> int:
        """Number of coordinates of a row."""
        return len(self.mean)

    @property
    def mean_error(self) -> Float64Array:
        """Bound of the error of each coordinate of the mean."""
        variances = np.diagonal(self.scatter) / self.count
        share = longest_sum(self.count) * UNIT_ROUNDOFF
        return np.asarray(share * np.sqrt(self.mean**2 + variances))

    def covariance(self) -> Float64Array:
        """Return the unbiased covariance, shape (d, d).

        Raises
        ------
        ValueError
            With fewer than two rows.
        """
        if self.count < 2:
            raise ValueError(f"a covariance needs at least two rows, got {self.count}")
        return self.scatter / (self.count - 1)


def row_moments(vectors: ArrayLike) -> Moments:
    """Compute the moments of a block of rows.

    Parameters
    ----------
    vectors : array_like, shape (n, d)
        Finite; any float type, at least one row. Sums are in float64.

    Raises
    ------
    ValueError
        On a wrong rank, no rows, or numbers that aren't finite.

    Notes
    -----
    Costs ``2 n d²`` floating point operations and memory for ``d²`` numbers and 4096 rows.
    """
    rows = np.asarray(vectors)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"vectors must be a non-empty array of rank 2, got shape {rows.shape}")
    return merge_row_moments(
        _block_moments(rows[block]) for block in row_blocks(len(rows), BLOCK_ROWS)
    )


def merge_row_moments(parts: Iterable[Moments]) -> Moments:
    """Join the moments of disjoint sets of rows, in the order given.

    Raises
    ------
    ValueError
        If there are none, or dimensions differ.
    """
    listed = list(parts)
    if not listed:
        raise ValueError("no moments to join")
    return reduce(_join, listed)


def _block_moments(rows: np.ndarray[tuple[int, int], np.dtype[np.floating]]) -> Moments:
    block = np.asarray(rows, dtype=np.float64)
    # About a row, so that the mean of a constant column is that constant.
    mean = block[0] + (block - block[0]).mean(axis=0)
    deviations = block - mean
    # Correct for the rounding of the mean (Chan et al., eq. 1.7).
    rest = deviations.sum(axis=0)
    scatter = deviations.T @ deviations - np.outer(rest, rest) / len(block)
    if not np.isfinite(scatter).all():
        raise ValueError("rows must be finite, and their squares must not overflow")
    largest = np.abs(block).max(axis=1, keepdims=True)
    scaled = block / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    directions = (scaled / np.where(lengths > 0, lengths, 1.0)).sum(axis=0)
    return Moments(len(block), mean, scatter, directions, int((largest == 0).sum()))


def _join(a: Moments, b: Moments) -> Moments:
    if a.dimension != b.dimension:
        raise ValueError(f"moments of {a.dimension} and {b.dimension} dimensions can't be joined")
    count = a.count + b.count
    difference = b.mean - a.mean
    return Moments(
        count,
        a.mean + difference * (b.count / count),
        a.scatter + b.scatter + np.outer(difference, difference) * (a.count / count * b.count),
        a.directions + b.directions,
        a.zero_rows + b.zero_rows,
    )


def longest_sum(n: int) -> float:
    """Bound how many numbers are added one after the other in sums over ``n`` rows."""
    return min(n, BLOCK_ROWS) + n / BLOCK_ROWS + 16.0
