r"""Sums of the similarities of some rows to all rows of a corpus.

The similarity of two rows at scale t is :math:`e^{-t\,d(x, y)}`. Blocks of the corpus are added, so
a corpus of any size takes one pass, and memory for one block.

The same similarities say of every other row how like it is to the rows that were drawn. Rows are
counted by that, in *strata* that double: those without a drawn row near them, of which random rows
know least, are the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Float64Array, Int64Array
from latentscale.tiles.device import Precision
from latentscale.tiles.distances import Points
from latentscale.tiles.exponential_products import (
    LOST_SIMILARITY,
    exponential_block_products,
    product_error,
)

STRATA = 40
"""Number of strata: sums below 1/2, below 1, below 2, and so on."""

SINGLE_ERROR = 2e-3
"""Largest relative error of a sum that single precision may have."""


@dataclass(frozen=True)
class RowSums:
    r"""Sums of the similarities of some rows to others, at several scales.

    Attributes
    ----------
    sums : ndarray of float64, shape (m, s)
        :math:`\sum_j e^{-t_k d(x_i, y_j)}`.
    errors : ndarray of float64, shape (s,)
        Bounds of their relative errors.
    rows : int
        Number of terms of a sum.
    drawn_sums : ndarray of float64, shape (m, s)
        The same sums over the other drawn rows alone.
    strata : ndarray of int64, shape (STRATA, s)
        Number of rows that weren't drawn, by the sum of their similarities to the drawn ones.
    """

    sums: Float64Array
    errors: Float64Array
    rows: int
    drawn_sums: Float64Array
    strata: Int64Array

    def __add__(self, other: RowSums) -> RowSums:
        """Add the sums over other rows."""
        return RowSums(
            self.sums + other.sums,
            np.maximum(self.errors, other.errors),
            self.rows + other.rows,
            self.drawn_sums + other.drawn_sums,
            self.strata + other.strata,
        )


def sum_similarities(
    drawn: Points,
    block: Points,
    scales: Sequence[float],
    n: int,
    places: Int64Array,
    *,
    precision: Precision = "double",
) -> RowSums:
    """Sum the similarities of drawn rows to the rows of a block.

    Parameters
    ----------
    drawn, block : Points
        ``m`` and ``b`` rows under the same metric with the same origin.
    scales : sequence of float
        Non-negative and distinct.
    n : int
        Rows of the whole corpus.
    places : ndarray of int64, shape (m,)
        Where each drawn row is in the block, at numbers from 0 to b - 1; any other number if it
        isn't there.
    precision : {"single", "double"}
        Arithmetic of distances and exponentials. Single precision is used only where its error is
        at most :data:`SINGLE_ERROR`; rows that are far from the origin enlarge it.

    Returns
    -------
    RowSums
        The bound of the error holds for sums over all blocks, once these are added.

    Notes
    -----
    Costs ``m b d`` multiplications and an exponential a pair for evenly spaced scales, otherwise
    one a scale.
    """
    errors = _errors(drawn, block, scales, precision, n)
    if precision == "single" and errors.max() > SINGLE_ERROR:
        precision = "double"
        errors = _errors(drawn, block, scales, precision, n)
    ones = (np.ones((len(points), len(scales))) for points in (drawn, block))
    sums, near = exponential_block_products(drawn, block, scales, *ones, precision=precision)
    here = (places >= 0) & (places < len(block))
    among = np.zeros_like(sums)
    among[here] = np.maximum(near[places[here]] - 1.0, 0.0)
    others = np.delete(stratum(near), places[here], axis=0)
    counted = [np.bincount(column, minlength=STRATA) for column in others.T]
    return RowSums(sums, errors, len(block), among, np.column_stack(counted))


def stratum(near: Float64Array) -> Int64Array:
    """Return the strata of rows by the sums of their similarities to drawn rows."""
    doubled = np.floor(np.log2(np.maximum(near, 0.25))) + 2
    return np.asarray(np.clip(doubled, 0, STRATA - 1), dtype=np.int64)


def _errors(
    drawn: Points, block: Points, scales: Sequence[float], precision: Precision, n: int
) -> Float64Array:
    """Bound the relative errors of sums over all blocks, by scale."""
    one, other = (product_error(points, scales, precision, rows=n) for points in (drawn, block))
    # A row is in the corpus, so a sum is at least 1, and what is lost of small terms is relative.
    return np.asarray(np.maximum(one, other) + 2.0 * LOST_SIMILARITY * n)
