"""Sorted lists of the nearest candidates from tiles, on numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from latentscale.array_types import Float64Array, FloatArray, Int64Array, UInt64Array
from latentscale.tiles.host.separations import (
    STRIP,
    Precision,
    TileRows,
    approximate_separations,
    rounding_share,
)
from latentscale.tiles.pairs import COSINE, EUCLIDEAN, MANHATTAN, exact_distance
from latentscale.tiles.top_lists import offer, pair_hash, query_hash

LONG = 32
"""Length of lists for which a bound is worth its search."""


def offer_near(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    queries: TileRows,
    candidates: TileRows,
    query_ids: Int64Array,
    candidate_ids: Int64Array,
    query_keys: UInt64Array,
    candidate_keys: UInt64Array,
    *,
    cosine: bool,
) -> None:
    """Offer every candidate to every query's list of the nearest.

    A candidate whose separation exceeds the last one of a list by more than the tile's error is
    skipped. The distances of the others are computed in float64 from their coordinates.

    Parameters
    ----------
    distances, ties, indices : ndarray, shape (m, k)
        The lists, sorted; changed in place.
    queries, candidates : TileRows
        ``m`` and ``n`` rows.
    query_ids, candidate_ids : ndarray of int64, shapes (m,) and (n,)
        A candidate with the query's own id is skipped.
    query_keys, candidate_keys : ndarray of uint64, shapes (m,) and (n,)
        Keys of the rows, which break ties.
    cosine : bool
        Whether a distance is half the separation instead of its root.
    """
    tile = np.empty((len(queries), len(candidates)), dtype=queries.matrix.dtype)
    approximate_separations(queries, candidates, tile)
    dimension = queries.exact.shape[1]
    precision: Precision = "single" if tile.dtype == np.float32 else "double"
    _fold_nearest(
        distances,
        ties,
        indices,
        tile,
        queries.sizes.astype(tile.dtype),
        candidates.sizes.astype(tile.dtype),
        tile.dtype.type(rounding_share(dimension, precision)),
        tile.dtype.type((dimension + 16) * np.finfo(tile.dtype).tiny),
        queries.separation_unit,
        queries.exact,
        candidates.exact,
        COSINE if cosine else MANHATTAN if queries.manhattan else EUCLIDEAN,
        query_ids,
        candidate_ids,
        query_keys,
        candidate_keys,
    )


@numba.njit(cache=True, nogil=True)
def _fold_nearest(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    tile: FloatArray,
    query_sizes: FloatArray,
    candidate_sizes: FloatArray,
    share: np.floating[Any],
    tiny: np.floating[Any],
    unit: float,
    queries: Float64Array,
    candidates: Float64Array,
    metric: int,
    query_ids: Int64Array,
    candidate_ids: Int64Array,
    query_keys: UInt64Array,
    candidate_keys: UInt64Array,
) -> None:
    last = distances.shape[1] - 1
    columns = tile.shape[1]
    for i in range(tile.shape[0]):
        row, size = tile[i], query_sizes[i]
        hash_of_query = query_hash(query_keys[i])
        separation = _separation_limit(distances[i, last], metric)
        limit = tile.dtype.type(separation / unit)
        # A long list that isn't full would take in many rows only to drop them again.
        bound = limit
        if last >= LONG and 2 * last < columns and np.isinf(separation):
            far = row + (share * (size + candidate_sizes) + tiny)
            bound = _smallest(far, last + 1)
            bound += share * bound
            limit = min(limit, bound)
        for start in range(0, columns, STRIP):
            stop = min(start + STRIP, columns)
            near, sizes = row[start:stop], candidate_sizes[start:stop]
            count: Any = np.int32(0)
            for j in range(len(near)):  # counts from 0, or the compiler adds branches
                count += np.int32(near[j] - (share * (size + sizes[j]) + tiny) <= limit)
            if count == 0:
                continue
            for j in range(start, stop):
                band = share * (size + candidate_sizes[j]) + tiny
                if row[j] - band > limit or candidate_ids[j] == query_ids[i]:
                    continue
                tie = pair_hash(hash_of_query, candidate_keys[j])
                if separation == 0.0 and tie > ties[i, last]:
                    continue  # no distance is below 0, so only the hash decides
                distance = exact_distance(queries[i], candidates[j], metric)
                offer(distances[i], ties[i], indices[i], distance, tie, candidate_ids[j])
                separation = _separation_limit(distances[i, last], metric)
                limit = min(bound, tile.dtype.type(separation / unit))


@numba.njit(cache=True, nogil=True)
def _smallest(values: FloatArray, place: int) -> Any:
    """Return the value that sorting would put at a place, and reorder the values (Hoare 1961).

    NumPy's function does the same, but takes six seconds to compile.
    """
    left, right = 0, len(values) - 1
    while left < right:
        middle = values[(left + right) // 2]
        i, j = left, right
        while i <= j:
            while values[i] < middle:
                i += 1
            while values[j] > middle:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            right = j
        elif place >= i:
            left = i
        else:
            break
    return values[place]


@numba.njit(cache=True, nogil=True)
def _separation_limit(distance: float, metric: int) -> float:
    # Rounded up, so that no candidate at exactly this distance is skipped.
    if metric == MANHATTAN:
        return distance
    squared = 2.0 * distance if metric == COSINE else distance * distance
    return squared * (1.0 + 1e-15)
