r"""Sums of the similarities of some rows to all rows of a corpus.

The similarity of two rows at scale t is :math:`e^{-t\,d(x, y)}`. Blocks of the corpus are added, so
a corpus of any size takes one pass, and memory for one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.tiles.device import Precision
from latentscale.tiles.distances import Points
from latentscale.tiles.exponential_products import (
    LOST_SIMILARITY,
    exponential_block_products,
    product_error,
)

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
    """

    sums: Float64Array
    errors: Float64Array
    rows: int

    def __add__(self, other: RowSums) -> RowSums:
        """Add the sums over other rows."""
        return RowSums(
            self.sums + other.sums,
            np.maximum(self.errors, other.errors),
            self.rows + other.rows,
        )


def sum_similarities(
    drawn: Points,
    block: Points,
    scales: Sequence[float],
    n: int,
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
    sums, _ = exponential_block_products(drawn, block, scales, *ones, precision=precision)
    return RowSums(sums, errors, len(block))


def _errors(
    drawn: Points, block: Points, scales: Sequence[float], precision: Precision, n: int
) -> Float64Array:
    """Bound the relative errors of sums over all blocks, by scale."""
    one, other = (product_error(points, scales, precision, rows=n) for points in (drawn, block))
    # A row is in the corpus, so a sum is at least 1, and what is lost of small terms is relative.
    return np.asarray(np.maximum(one, other) + 2.0 * LOST_SIMILARITY * n)
