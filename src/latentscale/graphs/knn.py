"""The neighbour graph: two rows are joined when either is among the other's ``k`` nearest.

This is the OR construction of Tsitsulin et al. 2020, section 3.2; every edge has weight 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its submodules are imported when they are first used

from latentscale.array_types import Int64Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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


def symmetrise(indices: Int64Array) -> csr_array[Any, Any]:
    """Join every row with its neighbours, in both directions.

    Parameters
    ----------
    indices : ndarray of int64, shape (n, k)
        Row numbers of each row's neighbours. Repeated numbers count once; a row's own number is
        dropped.

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
    # SciPy's products are faster with 32-bit indices. It keeps the type that it is given.
    index_type = np.int32 if 2 * n * k < np.iinfo(np.int32).max else np.int64
    rows = np.repeat(np.arange(n, dtype=index_type), k)
    columns = indices.ravel().astype(index_type)
    other = rows != columns
    rows, columns = rows[other], columns[other]
    pairs = (np.concatenate([rows, columns]), np.concatenate([columns, rows]))
    adjacency = scipy.sparse.coo_array((np.ones(len(pairs[0])), pairs), shape=(n, n)).tocsr()
    adjacency.sum_duplicates()
    adjacency.data[:] = 1.0
    return adjacency


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
    components, _ = scipy.sparse.csgraph.connected_components(adjacency, directed=False)
    isolated = int((np.diff(adjacency.indptr) == 0).sum())
    return GraphSummary(int(adjacency.shape[0]), adjacency.nnz // 2, int(components), isolated)
