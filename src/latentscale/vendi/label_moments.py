r"""Spectra of the rows of every label, from one pass over rows in any order.

The cosine kernel's spectrum of :math:`m` rows in d dimensions follows from their d by d second
moment or from their m by m inner products. For labels with few rows the rows themselves are kept.
For the others a symmetric moment is kept in packed form, which takes half the memory of a square
one and is filled by the same fast products (LAPACK's rectangular full packed format). A label costs
no more than :math:`4 d (d + 1)` bytes, so a thousand labels of 384 dimensions fit in 600 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import NDArray

from latentscale.array_types import Float64Array, Int64Array
from latentscale.tiles.distances import row_blocks
from latentscale.vendi.scores import Spectrum, moment_spectrum, spectrum_of_rows
from latentscale.vendi.second_moments import BLOCK_ROWS, SecondMoment, unit_block


def label_bytes(rows: int, dimension: int, itemsize: int) -> int:
    """Return the memory of a label's sums during the pass over the rows.

    Parameters
    ----------
    rows, dimension : int
        Rows of the label, and their dimension.
    itemsize : int
        Bytes of a stored coordinate.
    """
    return min(rows * dimension * itemsize, 4 * dimension * (dimension + 1))


class LabelledMoments:
    """Second moments or rows of several labels.

    Parameters
    ----------
    counts : ndarray of int64, shape (k,)
        Number of rows of each label. All of these rows must be added.
    dimension : int
        Dimension of the rows.
    dtype : dtype
        Type of the rows.
    """

    def __init__(self, counts: Int64Array, dimension: int, dtype: np.dtype[Any]) -> None:
        self._counts = counts
        self._dimension = dimension
        packed = 4 * dimension * (dimension + 1)
        few = counts * dimension * dtype.itemsize <= packed
        self._starts = np.where(few, np.cumsum(np.where(few, counts, 0)) - counts, -1)
        self._rows = np.empty((int(counts[few].sum()), dimension), dtype)
        self._masses = np.empty(len(self._rows))
        self._filled = np.zeros(len(counts), dtype=np.int64)
        self._totals = np.zeros(len(counts))
        self._places = np.where(few, -1, np.cumsum(~few) - 1)
        self._moments = np.zeros((int((~few).sum()), dimension * (dimension + 1) // 2))

    def add(
        self, rows: NDArray[Any], labels: Int64Array, weights: Float64Array | None = None
    ) -> None:
        """Add rows with their labels.

        Parameters
        ----------
        rows : ndarray, shape (m, d)
            Rows of the type ``dtype``, finite and not zero.
        labels : ndarray of int64, shape (m,)
            Numbers of labels; rows with a negative number are skipped.
        weights : ndarray of float64, shape (m,), optional
            As in :func:`latentscale.vendi.second_moments.second_moment`.

        Raises
        ------
        ValueError
            On a row without a direction.
        """
        order = np.argsort(labels, kind="stable")
        order = order[np.searchsorted(labels[order], 0) :]
        found, starts = np.unique(labels[order], return_index=True)
        for label, start, stop in zip(found, starts, [*starts[1:], len(order)], strict=True):
            chosen = order[start:stop]
            masses = np.ones(len(chosen)) if weights is None else weights[chosen]
            self._totals[label] += masses.sum()
            if self._places[label] >= 0:
                self._add_products(int(self._places[label]), rows, chosen, masses)
            else:
                first = int(self._starts[label] + self._filled[label])
                self._rows[first : first + len(chosen)] = rows[chosen]
                self._masses[first : first + len(chosen)] = masses
            self._filled[label] += len(chosen)

    def spectra(self) -> Iterator[Spectrum | None]:
        """Yield the spectrum of every label in order; None where all weights are 0."""
        for label, count in enumerate(self._counts.tolist()):
            if self._totals[label] <= 0:
                yield None
            elif self._places[label] >= 0:
                packed = self._moments[self._places[label]]
                matrix, _ = scipy.linalg.lapack.dtfttr(self._dimension, packed)
                matrix += np.triu(matrix, 1).T
                yield moment_spectrum(SecondMoment(float(self._totals[label]), matrix), count)
            else:
                held = slice(int(self._starts[label]), int(self._starts[label]) + count)
                unit = unit_block(self._rows[held], self._masses[held])
                yield spectrum_of_rows(unit, float(self._totals[label]))

    def _add_products(
        self, place: int, rows: NDArray[Any], chosen: Int64Array, masses: Float64Array
    ) -> None:
        for block in row_blocks(len(chosen), BLOCK_ROWS):
            unit = unit_block(rows[chosen[block]], masses[block])
            self._moments[place] = scipy.linalg.lapack.dsfrk(
                self._dimension, len(unit), 1.0, unit.T, 1.0, self._moments[place], overwrite_c=1
            )
