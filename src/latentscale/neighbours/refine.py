"""Neighbours of neighbours: a search that finds most pairs separated by borders of cells."""

from __future__ import annotations

import numba
import numpy as np

from latentscale.neighbours.exact import Int64Array, Neighbours, keys_of
from latentscale.tiles.distances import METRICS, Float64Array, Points
from latentscale.tiles.pairs import exact_distance
from latentscale.tiles.top_lists import UInt64Array, offer, pair_hash, query_hash


def refine(points: Points, found: Neighbours) -> Neighbours:
    """Try the neighbours of every row's neighbours, in both directions.

    Parameters
    ----------
    points : Points
        All ``n`` rows.
    found : Neighbours
        Complete lists of ``k`` neighbours.

    Returns
    -------
    Neighbours
        Lists at least as near.

    Notes
    -----
    Costs about ``4 n k² d`` operations. For each row its own ``k`` neighbours are followed, and at
    most ``k`` of the rows that have it as a neighbour, drawn by the keys. So hubs cost no more than
    other rows.
    """
    n, k = found.indices.shape
    pointed = found.indices.ravel()
    order = np.argsort(pointed, kind="stable")
    starts = np.searchsorted(pointed[order], np.arange(n + 1))
    lists = Neighbours.none(n, k)
    _join(
        lists.distances,
        lists.ties,
        lists.indices,
        found.distances,
        found.ties,
        found.indices,
        order // k,
        starts,
        points.rows,
        METRICS.index(points.metric),
        keys_of(points),
    )
    return lists


@numba.njit(cache=True, nogil=True)
def _try(
    i: int,
    j: int,
    hash_of_query: np.uint64,
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    rows: Float64Array,
    metric: int,
    keys: UInt64Array,
) -> None:
    """Offer row j to row i's list, unless it is in the list already."""
    if j == i:
        return
    for kept in indices[i]:
        if kept == j:
            return
    distance = exact_distance(rows[i], rows[j], metric)
    if distance <= distances[i, -1]:
        offer(distances[i], ties[i], indices[i], distance, pair_hash(hash_of_query, keys[j]), j)


@numba.njit(cache=True, nogil=True)
def _join(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    found_distances: Float64Array,
    found_ties: UInt64Array,
    found: Int64Array,
    pointing: Int64Array,
    starts: Int64Array,
    rows: Float64Array,
    metric: int,
    keys: UInt64Array,
) -> None:
    n, k = found.shape
    for i in range(n):
        hash_of_query = query_hash(keys[i])
        for place in range(k):
            j = found[i, place]
            offer(
                distances[i],
                ties[i],
                indices[i],
                found_distances[i, place],
                found_ties[i, place],
                j,
            )
        for j in found[i]:
            for second in found[j]:
                _try(i, second, hash_of_query, distances, ties, indices, rows, metric, keys)
        count = starts[i + 1] - starts[i]
        first = hash_of_query % np.uint64(max(count, 1))
        for place in range(min(count, k)):
            j = pointing[starts[i] + (np.int64(first) + place) % count]
            _try(i, j, hash_of_query, distances, ties, indices, rows, metric, keys)
            for second in found[j]:
                _try(i, second, hash_of_query, distances, ties, indices, rows, metric, keys)
