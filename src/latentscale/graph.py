r"""The neighbour graph and its normalised Laplacian.

Two rows are joined when either is among the other's ``k`` nearest neighbours (the OR construction
of Tsitsulin et al. 2020, section 3.2), every edge with weight 1. With :math:`D` the diagonal matrix
of degrees,

.. math:: L = I - D^{-1/2} A D^{-1/2},

whose eigenvalues lie in [0, 2], with one 0 for every connected component. A vertex without edges
is a component of its own: its row of :math:`L` is 0, so that its eigenvalue is 0 too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from scipy.sparse.csgraph import connected_components

PRODUCT_ENTRIES = 1 << 22
"""Entries of a row block of the product L L held at once (12 bytes each)."""


@dataclass(frozen=True)
class GraphSummary:
    """Counts that describe an undirected graph.

    Attributes
    ----------
    vertices, edges : int
        Numbers of vertices and of undirected edges.
    components : int
        Connected components, isolated vertices included.
    isolated : int
        Vertices without edges.
    """

    vertices: int
    edges: int
    components: int
    isolated: int


def symmetrise(indices: NDArray[np.int64]) -> csr_array[Any, Any]:
    """Join every row with its neighbours, in both directions.

    Parameters
    ----------
    indices : ndarray of int64, shape (n, k)
        Row numbers of each row's neighbours; repeated ones count once, a row's own is dropped.

    Returns
    -------
    csr_array of float64, shape (n, n)
        The symmetric adjacency matrix: ones, sorted column indices, an empty diagonal.

    Raises
    ------
    ValueError
        If the rank isn't 2 or a neighbour isn't a row number.
    """
    if indices.ndim != 2 or len(indices) == 0:
        raise ValueError(f"neighbour lists must have shape (n, k), got {indices.shape}")
    n, k = indices.shape
    if indices.size and (indices.min() < 0 or indices.max() >= n):
        row = int(np.flatnonzero(((indices < 0) | (indices >= n)).any(axis=1))[0])
        raise ValueError(f"row {row} has a neighbour outside 0 … {n - 1}; complete the lists first")
    rows = np.repeat(np.arange(n, dtype=np.int64), k)
    columns = indices.ravel()
    other = rows != columns
    rows, columns = rows[other], columns[other]
    pairs = (np.concatenate([rows, columns]), np.concatenate([columns, rows]))
    adjacency = coo_array((np.ones(len(pairs[0])), pairs), shape=(n, n)).tocsr()
    adjacency.sum_duplicates()
    adjacency.data[:] = 1.0
    return adjacency


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
    row_of = np.repeat(np.arange(len(degrees)), np.diff(adjacency.indptr))
    scaled = csr_array(
        (
            -adjacency.data * scale[row_of] * scale[adjacency.indices],
            adjacency.indices,
            adjacency.indptr,
        ),
        shape=adjacency.shape,
    )
    laplacian = csr_array(scaled + diags_array(connected.astype(np.float64)))
    laplacian.eliminate_zeros()
    laplacian.sort_indices()
    return laplacian


def summarise(adjacency: csr_array[Any, Any]) -> GraphSummary:
    """Count vertices, edges, components and isolated vertices.

    Parameters
    ----------
    adjacency : csr_array, shape (n, n)
        Symmetric, with an empty diagonal.

    Returns
    -------
    GraphSummary
    """
    components, _ = connected_components(adjacency, directed=False)
    isolated = int((np.diff(adjacency.indptr) == 0).sum())
    return GraphSummary(int(adjacency.shape[0]), adjacency.nnz // 2, int(components), isolated)


def exact_moments(laplacian: csr_array[Any, Any]) -> NDArray[np.float64]:
    """Compute tr L^j for j = 0 … 4 without randomness.

    Parameters
    ----------
    laplacian : csr_array, shape (n, n)
        A symmetric matrix with sorted indices.

    Returns
    -------
    ndarray of float64, shape (5,)
        n, tr L, tr L² = ‖L‖²_F, tr L³ = Σ L²∘L and tr L⁴ = ‖L²‖²_F.

    Notes
    -----
    One sparse product, Σ deg² operations, in row blocks of which one is held at a time.
    """
    moments = np.zeros(5)
    moments[0] = laplacian.shape[0]
    moments[1] = laplacian.diagonal().sum()
    moments[2] = np.square(laplacian.data).sum()
    for rows in _product_blocks(laplacian):
        block = laplacian[rows]
        product = block @ laplacian
        moments[3] += product.multiply(block).sum()
        moments[4] += np.square(product.data).sum()
    return moments


def _product_blocks(laplacian: csr_array[Any, Any]) -> Iterator[slice]:
    """Cut the rows so that each block of the product has few entries."""
    lengths = np.diff(laplacian.indptr).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths[laplacian.indices])])[laplacian.indptr]
    start, n = 0, len(lengths)
    while start < n:
        stop = int(np.searchsorted(ends, ends[start] + PRODUCT_ENTRIES, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        yield slice(start, stop)
        start = stop
