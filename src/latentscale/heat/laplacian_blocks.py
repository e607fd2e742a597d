r"""A Laplacian in blocks of rows, and the rows that the blocks exchange.

To multiply a block of rows of :math:`L` by a vector, only the entries of the vector at the block's
columns are needed. From another block these are the rows that are joined with rows of this block.
The graph is undirected, so the other block knows from its own rows which of them are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import NDArray

from latentscale.array_types import Float64Array, Int64Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array


PRODUCT_ROWS = 4096
"""Rows of L L that are held at once."""

PRODUCT_ENTRIES = 2**22
"""Multiply-adds of the rows of L L that are held at once, where several rows are."""


def laplacian_block(
    adjacency: csr_array[Any, Any],
    start: int,
    named: Int64Array,
    degrees: Float64Array,
    *,
    normalised: bool,
) -> csr_array[Any, Any]:
    """Form a block of rows of the Laplacian.

    Parameters
    ----------
    adjacency : csr_array, shape (m, n)
        The block's rows of the adjacency matrix, with an empty diagonal.
    start : int
        Its first vertex.
    named : ndarray of int64, shape (c,)
        The columns in which it has entries, ascending.
    degrees : ndarray of float64, shape (c,)
        The degrees of these vertices.
    normalised : bool
        Whether to form I - D^(-1/2) A D^(-1/2); otherwise D - A.

    Returns
    -------
    csr_array of float64, shape (m, n)
        Sorted column indices; the row of an isolated vertex is empty.
    """
    lengths = np.diff(adjacency.indptr)
    own = lengths.astype(np.float64)
    row = np.repeat(np.arange(len(own)), lengths)
    if normalised:
        theirs = degrees[np.searchsorted(named, adjacency.indices)]
        data = -1.0 / np.sqrt(own[row] * theirs)
        diagonal = (own > 0).astype(np.float64)
    else:
        data, diagonal = np.full(len(row), -1.0), own
    connected = np.flatnonzero(own > 0)
    rows = np.concatenate([row, connected])
    columns = np.concatenate([adjacency.indices.astype(np.int64), connected + start])
    entries = np.concatenate([data, diagonal[connected]])
    order = np.lexsort((columns, rows))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(own)))])
    return scipy.sparse.csr_array((entries[order], columns[order], indptr), shape=adjacency.shape)


def joined_rows(block: csr_array[Any, Any], first: int, last: int) -> Int64Array:
    """Find the rows of a block that are joined with the vertices ``first`` … ``last - 1``.

    Parameters
    ----------
    block : csr_array, shape (m, n)
        Rows of a Laplacian or of an adjacency matrix.
    first, last : int
        The range of another block's vertices.

    Returns
    -------
    ndarray of int64
        Ascending row numbers within the block.
    """
    inside = (block.indices >= first) & (block.indices < last)
    row = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    return np.unique(row[inside])


def block_moments(
    block: csr_array[Any, Any], start: int, named: Int64Array, rows: csr_array[Any, Any]
) -> Float64Array:
    """Compute a block's share of tr L^j for j = 0 … 4.

    Parameters
    ----------
    block : csr_array, shape (m, n)
        Rows of L.
    start : int
        The block's first vertex.
    named : ndarray of int64, shape (c,)
        The columns in which the block has entries, ascending.
    rows : csr_array, shape (c, n)
        The rows of L of these vertices.

    Returns
    -------
    ndarray of float64, shape (5,)
        The share; the shares of all blocks add up to the moments.
    """
    moments = first_moments(block, start)
    local = _with_columns(block, named)
    # A product of SciPy's takes memory, and time to clear it, for every column that there could be.
    met = np.union1d(named, rows.indices)
    rows = _with_columns(rows, met)
    block = _with_columns(block, met)
    for piece in _pieces(local, np.diff(rows.indptr)):
        product = local[piece] @ rows
        moments[3] += block[piece].multiply(product).sum()
        moments[4] += np.square(product.data).sum()
    return moments


def _with_columns(matrix: csr_array[Any, Any], columns: Int64Array) -> csr_array[Any, Any]:
    """Return a matrix with some of its columns, ascending, which have all of its entries."""
    indices = np.searchsorted(columns, matrix.indices)
    return scipy.sparse.csr_array(
        (matrix.data, indices, matrix.indptr), shape=(matrix.shape[0], len(columns))
    )


def _pieces(block: csr_array[Any, Any], lengths: NDArray[np.integer[Any]]) -> Iterator[slice]:
    """Cut the rows of a block so that the product of a piece with rows of ``lengths`` is small."""
    work = (
        scipy.sparse.csr_array((np.ones(block.nnz), block.indices, block.indptr), shape=block.shape)
        @ lengths
    )
    for first in range(0, block.shape[0], PRODUCT_ROWS):
        last = min(first + PRODUCT_ROWS, block.shape[0])
        before = np.concatenate([[0.0], np.cumsum(work[first:last])])
        while first < last:
            fitting = np.searchsorted(before, before[0] + PRODUCT_ENTRIES, side="right") - 1
            count = min(max(1, int(fitting)), last - first)
            yield slice(first, first + count)
            first, before = first + count, before[count:]


def first_moments(block: csr_array[Any, Any], start: int) -> Float64Array:
    """Compute a block's share of tr L^j for j = 0 … 2, and zeros for those of higher powers.

    Parameters
    ----------
    block, start
        As for :func:`block_moments`.

    Returns
    -------
    ndarray of float64, shape (5,)
    """
    moments = np.zeros(5)
    moments[0] = block.shape[0]
    row = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    moments[1] = block.data[block.indices == row + start].sum()
    moments[2] = np.square(block.data).sum()
    return moments
