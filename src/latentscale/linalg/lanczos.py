r"""The Lanczos recurrence of many vectors, in memory and by blocks of rows.

For a symmetric matrix :math:`L` and a unit vector :math:`v_1`, with :math:`\beta_0 v_0 = 0`,

.. math:: \beta_j v_{j+1} = L v_j - \beta_{j-1} v_{j-1} - \alpha_j v_j, \qquad
          \alpha_j = v_j^\top (L v_j - \beta_{j-1} v_{j-1}),

where :math:`\beta_j \ge 0` makes :math:`v_{j+1}` a unit vector. The :math:`\alpha` are the diagonal
of a tridiagonal matrix, the :math:`\beta` its off-diagonals (Golub & Meurant 2010, chapter 4).

A step needs two sums over the rows of a vector: :math:`\alpha`, and the squared length of the
right-hand side. :class:`Recurrence` holds what follows from these sums, however the rows are
distributed. Each of its columns is a separate run. The caller keeps the vectors and computes the
sums:

- :func:`run_lanczos` has a sparse matrix in memory. Large blocks of vectors don't fit the caches,
  so a step is bound by memory bandwidth: vectors are scaled to unit length where they are read, and
  a step reads or writes a block six times. Where little is left of a product, it is made orthogonal
  to the last two vectors again.
- :func:`take_off_before` and :func:`take_off_own` are the two halves of a step on dense rows, for
  vectors that are products of a kernel matrix (:mod:`latentscale.vendi.lanczos`) or are distributed
  over machines by blocks of rows (:mod:`latentscale.heat.row_blocks`).

The two ways round differently, so neither can use the other's sums without changing its bits. A
vector is made orthogonal to the last two only. The loss of orthogonality to earlier vectors shows
as repeated nodes of a quadrature, which share the weight of a single node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.linalg.sparse_products import SUMMED_ROWS, multiply_and_subtract

if TYPE_CHECKING:
    from scipy.sparse import csr_array


REORTHOGONALISATION_SHARE = 0.01
"""Share of a product's squared length. If less is left, it is made orthogonal once more."""


@dataclass(frozen=True)
class Recurrence:
    """Tridiagonal matrices of independent Lanczos runs, one for each column.

    Attributes
    ----------
    diagonal : ndarray of float64, shape (steps, c)
        The α so far.
    off_diagonal : ndarray of float64, shape (steps, c)
        The β so far; the last one lies outside the matrix. Between the two sums of a step there is
        one row fewer than in ``diagonal``.
    scale : ndarray of float64, shape (c,)
        The factor that gives the caller's present vectors unit length; 0 for a run that reached an
        invariant subspace and continues with zeros.
    """

    diagonal: Float64Array
    off_diagonal: Float64Array
    scale: Float64Array

    @classmethod
    def begin(cls, scale: Float64Array) -> Recurrence:
        """Return the start, with vectors that have unit length when multiplied by ``scale``."""
        none = np.empty((0, len(scale)))
        return cls(none, none, scale)

    @property
    def share(self) -> Float64Array:
        """The last α."""
        return np.asarray(self.diagonal[-1])

    @property
    def coupling(self) -> Float64Array:
        """The last β; zeros at the start."""
        if len(self.off_diagonal) == 0:
            return np.zeros(len(self.scale))
        return np.asarray(self.off_diagonal[-1])

    def take_shares(self, shares: Float64Array) -> Recurrence:
        """Take the α of a step."""
        return replace(self, diagonal=np.vstack([self.diagonal, shares]))

    def take_squares(self, squares: Float64Array, smallest: float | Float64Array) -> Recurrence:
        """Take the squared lengths of the remainders; end runs where only rounding is left.

        Parameters
        ----------
        squares : ndarray of float64, shape (c,)
            Squared lengths.
        smallest : float
            Length up to which a vector counts as rounding.
        """
        length = np.sqrt(squares)
        going = length > smallest
        return Recurrence(
            self.diagonal,
            np.vstack([self.off_diagonal, np.where(going, length, 0.0)]),
            np.where(going, 1.0 / np.where(going, length, 1.0), 0.0),
        )

    def arrays(self) -> dict[str, Float64Array]:
        """Return the arrays that :meth:`load` takes."""
        return {name: getattr(self, name) for name in ("diagonal", "off_diagonal", "scale")}

    @classmethod
    def load(cls, arrays: Mapping[str, NDArray[Any]]) -> Recurrence:
        """Restore it from :meth:`arrays`; other arrays are ignored."""
        return cls(arrays["diagonal"], arrays["off_diagonal"], arrays["scale"])


def take_off_before(
    product: Float64Array,
    vectors: Float64Array,
    before: Float64Array | None,
    coupling: Float64Array,
) -> Float64Array:
    """Compute the first half of a step on some rows: subtract β times the previous vectors.

    Parameters
    ----------
    product : ndarray of float64, shape (m, c)
        Rows of L times the vectors; overwritten.
    vectors, before : ndarray of float64, shape (m, c)
        Rows of the present vectors, of unit length, and of the previous ones; None at the start.
    coupling : ndarray of float64, shape (c,)
        The last β.

    Returns
    -------
    ndarray of float64, shape (c,)
        The rows' share of α.
    """
    if before is not None:
        product -= before * coupling
    return np.asarray(np.einsum("ij,ij->j", product, vectors))


def take_off_own(product: Float64Array, vectors: Float64Array, share: Float64Array) -> Float64Array:
    """Compute the second half of a step on some rows: subtract α times the vectors.

    Parameters
    ----------
    product : ndarray of float64, shape (m, c)
        From the first half; overwritten.
    vectors : ndarray of float64, shape (m, c)
        Rows of the present vectors.
    share : ndarray of float64, shape (c,)
        α.

    Returns
    -------
    ndarray of float64, shape (c,)
        The rows' share of the squared lengths.
    """
    product -= vectors * share
    return np.asarray(np.einsum("ij,ij->j", product, product))


def run_lanczos(
    laplacian: csr_array[Any, Any],
    start: Float64Array,
    scale: Float64Array,
    steps: int,
    smallest: float,
) -> Recurrence:
    """Run the recurrence from the columns of ``start * scale`` with a matrix in memory.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric.
    start : ndarray of float64, shape (n, c)
        Overwritten.
    scale : ndarray of float64, shape (c,)
        The reciprocals of its columns' lengths; 0 for columns to leave out.
    steps : int
        At least 1.
    smallest : float
        Length up to which a vector is rounding.
    """
    recurrence = Recurrence.begin(scale)
    previous, current, product = np.zeros_like(start), start, np.empty_like(start)
    previous_scale = np.zeros(len(scale))
    for _ in range(steps):
        scale, coupling = recurrence.scale, recurrence.coupling
        share = scale * multiply_and_subtract(
            laplacian.indptr,
            laplacian.indices,
            laplacian.data,
            current,
            scale,
            previous,
            coupling * previous_scale,
            product,
        )
        square, rest = _take_share(product, current, share * scale)
        if (square < REORTHOGONALISATION_SHARE * (np.square(share) + np.square(coupling))).any():
            # Twice is enough: the second time removes what rounding left of the last two.
            first, second = rest * scale, column_dots(product, previous) * previous_scale
            _take_shares(product, current, first * scale, previous, second * previous_scale)
            share += first
            square = column_dots(product, product)
        recurrence = recurrence.take_shares(share).take_squares(square, smallest)
        previous_scale = scale
        previous, current, product = current, product, previous
    return recurrence


@numba.njit(cache=True, nogil=True)
def _take_share(
    target: Float64Array, first: Float64Array, share: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Subtract multiples of a block; return squared lengths, and dot products with the block."""
    n, width = target.shape
    squares, rests = np.zeros(width), np.zeros(width)
    partial, partial_rest = np.zeros(width), np.zeros(width)
    for i in range(n):
        for c in range(width):
            left = target[i, c] - share[c] * first[i, c]
            target[i, c] = left
            partial[c] += left * left
            partial_rest[c] += left * first[i, c]
        if i % SUMMED_ROWS == 0 or i == n - 1:
            squares += partial
            rests += partial_rest
            partial[:] = 0.0
            partial_rest[:] = 0.0
    return squares, rests


@numba.njit(cache=True, nogil=True)
def _take_shares(
    target: Float64Array,
    first: Float64Array,
    first_share: Float64Array,
    second: Float64Array,
    second_share: Float64Array,
) -> None:
    """Subtract multiples of two blocks."""
    n, width = target.shape
    for i in range(n):
        for c in range(width):
            target[i, c] -= first_share[c] * first[i, c] + second_share[c] * second[i, c]


@numba.njit(cache=True, nogil=True)
def column_dots(a: Float64Array, b: Float64Array) -> Float64Array:
    """Return the dot products of columns, summed in blocks of rows."""
    n, width = a.shape
    totals, partial = np.zeros(width), np.zeros(width)
    for i in range(n):
        for c in range(width):
            partial[c] += a[i, c] * b[i, c]
        if i % SUMMED_ROWS == 0 or i == n - 1:
            totals += partial
            partial[:] = 0.0
    return totals
