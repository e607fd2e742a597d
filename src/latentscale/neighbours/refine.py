"""Neighbours of neighbours: a search that finds most pairs separated by borders of cells."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from latentscale.neighbours.exact import Int64Array, Neighbours, empty_lists, hash_key
from latentscale.tiles.distances import METRICS, Float64Array, Points
from latentscale.tiles.pairs import exact_distance
from latentscale.tiles.top_lists import offer, pair_hash, query_hash


def refine(points: Points, found: Neighbours, *, seed: int) -> Neighbours:
    """Try the neighbours of every row's neighbours, in both directions.

    Parameters
    ----------
    points : Points
        All ``n`` rows.
    found : Neighbours
        Complete lists of ``k`` neighbours.
    seed : int
        Seed of the hash that breaks ties.

    Returns
    -------
    Neighbours
        Lists at least as near. The order of the rows doesn't affect them.

    Notes
    -----
    Costs about ``4 n k² d`` operations. For each row its own ``k`` neighbours are followed, and at
    most ``k`` of the rows that have it as a neighbour, drawn by the hash. So hubs cost no more than
    other rows.
    """
    n, k = found.indices.shape
    pointed = found.indices.ravel()
    order = np.argsort(pointed, kind="stable")
    starts = np.searchsorted(pointed[order], np.arange(n + 1))
    indices, distances, hashes = empty_lists(n, k)
    _join(
        distances,
        hashes,
        indices,
        found.distances,
        found.indices,
        order // k,
        starts,
        points.rows,
        METRICS.index(points.metric),
        hash_key(seed),
    )
    return Neighbours(indices, distances)


@numba.njit(cache=True, nogil=True)
def _try(
    i: int,
    j: int,
    hash_of_query: np.uint64,
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    rows: Float64Array,
    metric: int,
) -> None:
    """Offer row j to row i's list, unless it is in the list already."""
    if j == i:
        return
    for kept in indices[i]:
        if kept == j:
            return
    distance = exact_distance(rows[i], rows[j], metric)
    if distance <= distances[i, -1]:
        offer(distances[i], hashes[i], indices[i], distance, pair_hash(hash_of_query, j), j)


@numba.njit(cache=True, nogil=True)
def _join(
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    found_distances: Float64Array,
    found: Int64Array,
    pointing: Int64Array,
    starts: Int64Array,
    rows: Float64Array,
    metric: int,
    key: np.uint64,
) -> None:
    n, k = found.shape
    for i in range(n):
        hash_of_query = query_hash(key, i)
        for place in range(k):
            j = found[i, place]
            offer(
                distances[i],
                hashes[i],
                indices[i],
                found_distances[i, place],
                pair_hash(hash_of_query, j),
                j,
            )
        for j in found[i]:
            for second in found[j]:
                _try(i, second, hash_of_query, distances, hashes, indices, rows, metric)
        count = starts[i + 1] - starts[i]
        first = hash_of_query % np.uint64(max(count, 1))
        for place in range(min(count, k)):
            j = pointing[starts[i] + (np.int64(first) + place) % count]
            _try(i, j, hash_of_query, distances, hashes, indices, rows, metric)
            for second in found[j]:
                _try(i, second, hash_of_query, distances, hashes, indices, rows, metric)
