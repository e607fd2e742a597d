r"""Laplacians of a graph, their null spaces and moments.

With :math:`A` the adjacency matrix and :math:`D` the diagonal matrix of degrees,

.. math:: L = I - D^{-1/2} A D^{-1/2},

whose eigenvalues lie in [0, 2], with one 0 for every connected component. A vertex without edges is
a component of its own: its row of :math:`L` is 0, and so is its eigenvalue. The unnormalised
Laplacian is :math:`D - A`; its eigenvalues reach twice the largest degree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import NDArray

from latentscale.array_types import BoolArray, Float64Array, Int32Array
from latentscale.linalg.null_space import NullSpace

if TYPE_CHECKING:
    from scipy.sparse import csr_array

EPSILON = float(np.finfo(np.float64).eps)


def normalised_laplacian(adjacency: csr_array[Any, Any]) -> csr_array[Any, Any]:
    """Form L = I - D^(-1/2) A D^(-1/2) (Tsitsulin et al. 2020, section 3.1).

    Parameters
    ----------
    adjacency : csr_array, shape (n, n)
        Symmetric, with non-negative entries and an empty diagonal.

    Returns
    -------
    csr_array of float64, shape (n, n)
        Sorted column indices; the row of an isolated vertex is empty.
    """
    degrees = np.asarray(adjacency.sum(axis=1), dtype=np.float64)
    connected = degrees > 0
    scale = np.zeros_like(degrees)
    scale[connected] = 1.0 / np.sqrt(degrees[connected])
    return _laplacian(adjacency, scale, connected.astype(np.float64))


def unnormalised_laplacian(adjacency: csr_array[Any, Any]) -> csr_array[Any, Any]:
    """Form L = D - A.

    Parameters
    ----------
    adjacency : csr_array, shape (n, n)
        Symmetric, with non-negative entries and an empty diagonal.

    Returns
    -------
    csr_array of float64, shape (n, n)
        Sorted column indices; the row of an isolated vertex is empty.
    """
    degrees = np.asarray(adjacency.sum(axis=1), dtype=np.float64)
    return _laplacian(adjacency, np.ones_like(degrees), degrees)


def _laplacian(
    adjacency: csr_array[Any, Any], scale: Float64Array, diagonal: Float64Array
) -> csr_array[Any, Any]:
    """Form diag(diagonal) - diag(scale) A diag(scale), without storing zeros on the diagonal."""
    if not adjacency.has_sorted_indices:
        adjacency = adjacency.sorted_indices()
    old = adjacency.indptr
    added = np.concatenate([[0], np.cumsum(diagonal > 0)])
    # SciPy's products are faster with 32-bit indices. Both index arrays need the same type.
    long = old[-1] + added[-1] >= np.iinfo(np.int32).max
    indptr = (old + added).astype(np.int64 if long else np.int32)
    indices = np.empty(indptr[-1], dtype=indptr.dtype)
    data = np.empty(indptr[-1])
    _assemble(old, adjacency.indices, adjacency.data, scale, diagonal, indptr, indices, data)
    return scipy.sparse.csr_array((data, indices, indptr), shape=adjacency.shape)


@numba.njit(cache=True, nogil=True)
def _assemble(
    old_indptr: NDArray[Any],
    old_indices: NDArray[Any],
    old_data: NDArray[Any],
    scale: Float64Array,
    diagonal: Float64Array,
    indptr: NDArray[Any],
    indices: NDArray[Any],
    data: Float64Array,
) -> None:
    for i in range(len(scale)):
        place = indptr[i]
        waiting = diagonal[i] > 0
        for entry in range(old_indptr[i], old_indptr[i + 1]):
            j = old_indices[entry]
            if waiting and j > i:
                indices[place], data[place] = i, diagonal[i]
                place += 1
                waiting = False
            indices[place], data[place] = j, -old_data[entry] * scale[i] * scale[j]
            place += 1
        if waiting:
            indices[place], data[place] = i, diagonal[i]


def find_null_space(laplacian: csr_array[Any, Any]) -> NullSpace:
    """Find the known null space of a matrix: at most one vector for every connected component.

    For D - A this is the constant vector, for the normalised Laplacian the root of the degrees.
    Each guess is checked by a product with the matrix, so nothing is claimed of any other matrix.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        A symmetric matrix.

    Returns
    -------
    NullSpace

    Notes
    -----
    Two products with one vector, and some 40 bytes a vertex.
    """
    n = laplacian.shape[0]
    # The pattern is symmetric, so its components are the strong ones. Finding those needs no
    # transpose.
    components, labels = scipy.sparse.csgraph.connected_components(
        laplacian, directed=True, connection="strong"
    )
    degrees = np.diff(laplacian.indptr) - (laplacian.diagonal() != 0)
    vector = np.zeros(n)
    for guess in (np.sqrt(np.maximum(degrees, 0.0)), np.ones(n)):
        mapped_to_zero = np.ones(components, dtype=np.bool_)
        _find_residuals(
            laplacian.indptr, laplacian.indices, laplacian.data, guess, labels, mapped_to_zero
        )
        lengths = np.sqrt(np.bincount(labels, np.square(guess), minlength=components))
        mapped_to_zero &= lengths > 0
        scale = np.where(mapped_to_zero, 1.0 / np.where(lengths > 0, lengths, 1.0), 0.0)
        inside = mapped_to_zero[labels]
        vector[inside] = guess[inside] * scale[labels[inside]]
    dimension = round(float(np.square(vector).sum()))
    return NullSpace(labels.astype(np.int32, copy=False), vector, int(components), dimension)


@numba.njit(cache=True, nogil=True)
def _find_residuals(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    data: Float64Array,
    guess: Float64Array,
    labels: Int32Array,
    mapped_to_zero: BoolArray,
) -> None:
    """Mark the components in which the product with a vector exceeds rounding."""
    for i in range(len(indptr) - 1):
        total, size = 0.0, 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            term = data[entry] * guess[indices[entry]]
            total += term
            size += abs(term)
        # A sum of many terms, as at a hub, is rounded more.
        if abs(total) > max(1e-12, EPSILON * (indptr[i + 1] - indptr[i])) * size:
            mapped_to_zero[labels[i]] = False


def product_work(matrix: csr_array[Any, Any]) -> int:
    """Count the multiply-adds of L L: Σ deg², which is large for graphs with hubs.

    Parameters
    ----------
    matrix : csr_array, shape (n, n)
        A symmetric matrix.

    Returns
    -------
    int
    """
    return int(np.square(np.diff(matrix.indptr).astype(np.int64)).sum())


def few_moments(laplacian: csr_array[Any, Any], rows: slice | None = None) -> Float64Array:
    """Compute tr L^j for j = 0 … 2, which needs no product of matrices.

    Parameters
    ----------
    laplacian, rows
        As for :func:`exact_moments`.

    Returns
    -------
    ndarray of float64, shape (5,)
        n, tr L, tr L², and zeros.
    """
    first, last, _ = (rows or slice(None)).indices(laplacian.shape[0])
    held = slice(laplacian.indptr[first], laplacian.indptr[last])
    moments = np.zeros(5)
    moments[0] = last - first
    moments[1] = laplacian.diagonal()[first:last].sum()
    moments[2] = np.square(laplacian.data[held]).sum()
    return moments


def exact_moments(laplacian: csr_array[Any, Any], rows: slice | None = None) -> Float64Array:
    """Compute tr L^j for j = 0 … 4 without randomness.

    Parameters
    ----------
    laplacian : csr_array, shape (n, n)
        A symmetric matrix.
    rows : slice or None
        Rows whose share is computed; None means all rows. Shares add up to the moments.

    Returns
    -------
    ndarray of float64, shape (5,)
        n, tr L, tr L² = ‖L‖²_F, tr L³ = Σ L²∘L and tr L⁴ = ‖L²‖²_F.

    Notes
    -----
    Forms the sparse product L L row by row: Σ deg² operations and 40 bytes a vertex.
    """
    first, last, _ = (rows or slice(None)).indices(laplacian.shape[0])
    cubes, fourths = _product_sums(laplacian.indptr, laplacian.indices, laplacian.data, first, last)
    moments = few_moments(laplacian, rows)
    moments[3:] = cubes.sum(), fourths.sum()
    return moments


@numba.njit(cache=True, nogil=True)
def _product_sums(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    data: Float64Array,
    first: int,
    last: int,
) -> tuple[Float64Array, Float64Array]:
    """Return the row sums of L²∘L and of L²∘L², from one row of the product at a time."""
    n = len(indptr) - 1
    cubes, fourths = np.zeros(last - first), np.zeros(last - first)
    product = np.zeros(n)
    last_row = np.full(n, -1, dtype=np.int64)
    filled = np.empty(n, dtype=np.int64)
    for i in range(first, last):
        count = 0
        for a in range(indptr[i], indptr[i + 1]):
            middle = indices[a]
            for b in range(indptr[middle], indptr[middle + 1]):
                column = indices[b]
                if last_row[column] != i:
                    last_row[column] = i
                    filled[count] = column
                    count += 1
                product[column] += data[a] * data[b]
        for a in range(indptr[i], indptr[i + 1]):
            cubes[i - first] += data[a] * product[indices[a]]
        for c in range(count):
            fourths[i - first] += product[filled[c]] ** 2
            product[filled[c]] = 0.0
    return cubes, fourths
