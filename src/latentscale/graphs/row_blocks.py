r"""The neighbour graph in blocks of consecutive vertices.

A block holds the rows of the adjacency matrix that belong to its vertices. They are formed from the
neighbour lists of the block and from the reversed edges of other blocks that lead into it.
Components are found within every block first. The edges between blocks then join components instead
of vertices, so no step needs all vertices at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its submodules are imported when they are first used

from latentscale.array_types import Int32Array, Int64Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def join_block(
    indices: Int64Array, start: int, turned: Sequence[Int64Array], n: int
) -> csr_array[Any, Any]:
    """Join the vertices of a block with their neighbours, in both directions.

    Parameters
    ----------
    indices : ndarray of int64, shape (m, k)
        Neighbours of the vertices ``start`` … ``start + m - 1``.
    start : int
        The block's first vertex.
    turned : sequence of ndarray of int64, shape (e, 2)
        Reversed edges: pairs (vertex of the block, vertex of another block that lists it).
    n : int
        Vertices of the whole graph.

    Returns
    -------
    csr_array of float64, shape (m, n)
        The block's rows of the symmetric adjacency matrix: ones, sorted column indices, an empty
        diagonal.

    Raises
    ------
    ValueError
        If a number isn't a vertex.

    Notes
    -----
    Holds about 100 bytes for every neighbour and reversed edge.
    """
    m, k = indices.shape
    index_type = np.int32 if n < np.iinfo(np.int32).max else np.int64
    own = np.repeat(np.arange(m, dtype=index_type), k)
    listed = indices.ravel()
    if listed.size and (listed.min() < 0 or listed.max() >= n):
        raise ValueError(f"a neighbour is outside 0 … {n - 1}; complete the lists first")
    inside = (listed >= start) & (listed < start + m)
    rows = [own, (listed[inside] - start).astype(index_type)]
    columns = [listed.astype(index_type), (own[inside] + start).astype(index_type)]
    for edges in turned:
        rows.append((edges[:, 0] - start).astype(index_type))
        columns.append(edges[:, 1].astype(index_type))
    row, column = np.concatenate(rows), np.concatenate(columns)
    other = row + index_type(start) != column
    row, column = row[other], column[other]
    block = scipy.sparse.coo_array((np.ones(len(row)), (row, column)), shape=(m, n)).tocsr()
    block.sum_duplicates()
    block.data[:] = 1.0
    return block


def block_components(block: csr_array[Any, Any], start: int) -> tuple[int, Int32Array]:
    """Find the components of a single block.

    Parameters
    ----------
    block : csr_array, shape (m, n)
        From :func:`join_block`.
    start : int
        Its first vertex.

    Returns
    -------
    tuple of int and ndarray of int32, shape (m,)
        Number of components; the component of every vertex.
    """
    m = block.shape[0]
    count, labels = scipy.sparse.csgraph.connected_components(
        block[:, start : start + m], directed=False
    )
    return int(count), labels.astype(np.int32)


def leaving_edges(block: csr_array[Any, Any], start: int, labels: Int32Array) -> Int64Array:
    """List the edges from the components of a block to vertices of later blocks.

    Parameters
    ----------
    block : csr_array, shape (m, n)
        From :func:`join_block`.
    start : int
        Its first vertex.
    labels : ndarray of int32, shape (m,)
        From :func:`block_components`.

    Returns
    -------
    ndarray of int64, shape (e, 2)
        Distinct pairs (vertex of a later block, component), ascending.
    """
    later = block.indices >= start + block.shape[0]
    component = np.repeat(labels, np.diff(block.indptr))[later]
    pairs = np.column_stack([block.indices[later].astype(np.int64), component.astype(np.int64)])
    return np.unique(pairs, axis=0) if len(pairs) else pairs


def count_components(counts: Sequence[int], joined: Int64Array) -> int:
    """Count the components of a graph from those of its blocks.

    Parameters
    ----------
    counts : sequence of int
        Number of components of every block.
    joined : ndarray of int64, shape (e, 2)
        Pairs of components that an edge joins, numbered consecutively over all blocks.

    Returns
    -------
    int
    """
    total = int(sum(counts))
    links = scipy.sparse.coo_array(
        (np.ones(len(joined)), (joined[:, 0], joined[:, 1])), shape=(total, total)
    )
    return int(scipy.sparse.csgraph.connected_components(links, directed=False)[0])
