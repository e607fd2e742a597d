"""Vecchia neighbours: the nearest earlier rows of every row, in some order of the rows.

A point's increment to the points before it depends mostly on the nearest of them. So both an
estimate of the magnitude (:mod:`latentscale.magnitude.nystrom`) and a preconditioner
(:mod:`latentscale.magnitude.preconditioning`) use a few such neighbours of every point
(Vecchia 1988).
"""

from __future__ import annotations

import numba
import numpy as np

from latentscale.array_types import Float64Array, Int64Array, UInt64Array
from latentscale.neighbours.exact import Neighbours, keys_of, merge, nearest
from latentscale.tiles.distances import METRICS, Points, distance_tile, row_blocks
from latentscale.tiles.pairs import exact_distance
from latentscale.tiles.top_lists import offer, pair_hash, query_hash

BLOCK_ROWS = 256
"""Points whose Vecchia neighbours are searched together."""


def vecchia_neighbours(points: Points, k: int, *, block_rows: int = BLOCK_ROWS) -> Neighbours:
    """Find the ``k`` nearest earlier rows of every row.

    Parameters
    ----------
    points : Points
        ``n`` rows, in order.
    k : int
        Vecchia neighbours of a row, at least 1.
    block_rows : int
        Rows whose Vecchia neighbours are searched together. The result doesn't depend on it.

    Returns
    -------
    Neighbours
        Shape (n, k), nearest first. Row ``i`` has ``min(i, k)`` neighbours, padded with -1.

    Notes
    -----
    Visits ``n² / 2`` pairs in blocks.
    """
    ids = np.arange(len(points), dtype=np.int64)
    found = []
    for rows in row_blocks(len(points), block_rows):
        block = points.take(rows)
        own = _neighbours_inside(block, k, rows.start)
        if rows.start > 0:
            before = slice(0, rows.start)
            earlier = nearest(
                block,
                points.take(before),
                k,
                query_ids=ids[rows],
                candidate_ids=ids[before],
            )
            own = merge(earlier, own, k)
        found.append(own)
    return Neighbours(
        np.concatenate([part.indices for part in found]),
        np.concatenate([part.distances for part in found]),
        np.concatenate([part.ties for part in found]),
    )


def _neighbours_inside(block: Points, k: int, start: int) -> Neighbours:
    """Find the nearest earlier rows within a block whose first row has number ``start``."""
    found = Neighbours.none(len(block), k)
    tile = distance_tile(block, block)
    _offer_earlier(found.distances, found.ties, found.indices, tile, keys_of(block), start)
    return found


@numba.njit(cache=True, nogil=True)
def _offer_earlier(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    tile: Float64Array,
    keys: UInt64Array,
    start: int,
) -> None:
    last = distances.shape[1] - 1
    for i in range(tile.shape[0]):
        hash_of_query = query_hash(keys[i])
        for j in range(i):
            if tile[i, j] <= distances[i, last]:
                tie = pair_hash(hash_of_query, keys[j])
                offer(distances[i], ties[i], indices[i], tile[i, j], tie, start + j)


def distances_among(points: Points, lists: Int64Array) -> Float64Array:
    """Compute the distances between the members of each list.

    Parameters
    ----------
    points : Points
    lists : ndarray of int64, shape (q, c)
        Row numbers; -1 for no row.

    Returns
    -------
    ndarray of float64, shape (q, c, c)
        Distances; 0 where a row is missing.
    """
    distances = np.zeros((*lists.shape, lists.shape[1]))
    _measure_lists(points.rows, lists, METRICS.index(points.metric), distances)
    return distances


@numba.njit(cache=True, nogil=True)
def _measure_lists(
    rows: Float64Array, lists: Int64Array, metric: int, distances: Float64Array
) -> None:
    for q in range(lists.shape[0]):
        for i in range(lists.shape[1]):
            for j in range(i):
                first, second = lists[q, i], lists[q, j]
                if first >= 0 and second >= 0:
                    distance = exact_distance(rows[first], rows[second], metric)
                    distances[q, i, j] = distance
                    distances[q, j, i] = distance
