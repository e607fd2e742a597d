r"""Sums of the similarities of some rows to all rows of a corpus.

The similarity of two rows at scale t is :math:`e^{-t\,d(x, y)}`. Blocks of the corpus are added, so
a corpus of any size takes one pass, and memory for one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentscale.tiles.device import Precision
from latentscale.tiles.distances import Float64Array, Points
from latentscale.tiles.exponential_products import (
    LOST_SIMILARITY,
    exponential_block_products,
    product_error,
)


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
    drawn: Points, block: Points, scales: Sequence[float], precision: Precision, n: int
) -> RowSums:
    """Sum the similarities of drawn rows to the rows of a block.

    Parameters
    ----------
    drawn, block : Points
        ``m`` and ``b`` rows under the same metric with the same origin.
    scales : sequence of float
        Non-negative and distinct.
    precision : {"single", "double"}
        Arithmetic of distances and exponentials.
    n : int
        Rows of the whole corpus.

    Returns
    -------
    RowSums
        The bound of the error holds for sums over all blocks, once these are added.

    Notes
    -----
    Costs ``m b d`` multiplications and an exponential a pair for evenly spaced scales, otherwise
    one a scale.
    """
    ones = (np.ones((len(points), len(scales))) for points in (drawn, block))
    sums, _ = exponential_block_products(drawn, block, scales, *ones, precision=precision)
    errors = [product_error(points, scales, precision, rows=n) for points in (drawn, block)]
    # A row is in the corpus, so a sum is at least 1, and what is lost of small terms is relative.
    return RowSums(sums, np.maximum(*errors) + 2.0 * LOST_SIMILARITY * n, len(block))
