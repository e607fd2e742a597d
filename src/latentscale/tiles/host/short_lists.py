"""Short lists of near candidates from tiles in single precision, on numba.

A short list holds the least separations that tiles have shown, without deciding any in float64. The
last one of a full list bounds all that were left out. Whoever decides the list's entries in float64
can therefore prove that nothing nearer is missing (:func:`decide_short_lists`).

Most pairs of a tile are in no list. So a fold compares :data:`SKIPPED` entries at a time with the
last ones of the lists, without a branch, and looks at single entries only if one of them is less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from latentscale.array_types import (
    BoolArray,
    Float32Array,
    Float64Array,
    FloatArray,
    Int32Array,
    Int64Array,
    UInt64Array,
)
from latentscale.tiles.host.separations import TileRows, inner_products, rounding_share
from latentscale.tiles.pairs import COSINE, EUCLIDEAN, four_squared_distances
from latentscale.tiles.top_lists import offer, pair_hash, query_hash

SKIPPED = 32
"""Entries of a tile that are skipped together."""

TILE_ROWS, TILE_COLUMNS = 128, 2048
"""Largest tile that is folded before the next: 1 MiB, which stays in a core's cache."""


@dataclass(frozen=True)
class ShortLists:
    """The least separations of each query, ascending.

    Attributes
    ----------
    near : ndarray of float32, shape (n, w)
        Separations, in one unit; infinite where fewer candidates were seen.
    ids : ndarray of int32, shape (n, w)
        Candidates; -1 where the separation is infinite.
    reach : ndarray of float64, shape (n,)
        Largest squared length that the query had in a tile. It bounds the errors.
    """

    near: Float32Array
    ids: Int32Array
    reach: Float64Array

    @classmethod
    def none(cls, rows: int, width: int) -> ShortLists:
        """Return empty lists: ``8 width + 8`` bytes a row."""
        return cls(
            np.full((rows, width), np.inf, dtype=np.float32),
            np.full((rows, width), -1, dtype=np.int32),
            np.zeros(rows),
        )

    def take(self, index: Int64Array) -> ShortLists:
        """Return copies of some lists."""
        return ShortLists(self.near[index], self.ids[index], self.reach[index])

    def put(self, index: Int64Array, lists: ShortLists) -> None:
        """Replace some lists."""
        self.near[index], self.ids[index] = lists.near, lists.ids
        self.reach[index] = lists.reach


def shortlist_pairs(lists: ShortLists, rows: TileRows, ids: Int64Array) -> None:
    """Offer all rows of a block to the lists of each other.

    Parameters
    ----------
    lists : ShortLists
        Lists of all rows; changed in place. A candidate that is in a list already stays once.
    rows : TileRows
        The block's ``m`` rows in single precision; not for Manhattan distances.
    ids : ndarray of int64, shape (m,)
        Their numbers, which are their places in ``lists``.

    Notes
    -----
    Costs about ``m² d`` operations: a pair is multiplied once, for both lists.
    """
    _fold_both_ways(lists, rows.matrix, rows.matrix, ids, rows.sizes, first_column=0)


def shortlist_across(
    lists: ShortLists,
    first: TileRows,
    second: TileRows,
    first_ids: Int64Array,
    second_ids: Int64Array,
) -> None:
    """Offer the rows of two blocks to the lists of the rows of the other block.

    Parameters
    ----------
    lists : ShortLists
        Lists of all rows; changed in place. A candidate that is in a list already stays once.
    first, second : TileRows
        ``m`` and ``n`` rows in single precision, none in both; not for Manhattan distances.
    first_ids, second_ids : ndarray of int64, shapes (m,) and (n,)
        Their numbers, which are their places in ``lists``.

    Notes
    -----
    Costs about ``2 m n d`` operations: a pair is multiplied once, for both lists.
    """
    ids = np.concatenate([first_ids, second_ids])
    sizes = np.concatenate([first.sizes, second.sizes])
    _fold_both_ways(lists, first.matrix, second.matrix, ids, sizes, first_column=len(first))


def _fold_both_ways(
    lists: ShortLists,
    rows: FloatArray,
    columns: FloatArray,
    ids: Int64Array,
    sizes: Float64Array,
    *,
    first_column: int,
) -> None:
    """Offer rows and columns to the lists of each other, tile by tile.

    ``ids`` and ``sizes`` are those of the rows, followed from ``first_column`` on by those of the
    columns. It is 0 where rows and columns are the same, and then half of the tiles are left out.
    """
    lists.reach[ids] = np.maximum(lists.reach[ids], sizes)
    lengths, limits = sizes.astype(np.float32), lists.near[ids, -1]
    m, n = len(rows), len(columns)
    products = np.empty(min(TILE_ROWS, m) * min(TILE_COLUMNS, n), dtype=np.float32)
    for top in range(0, m, TILE_ROWS):
        bottom = min(top + TILE_ROWS, m)
        for left in range(0 if first_column else top, n, TILE_COLUMNS):
            right = min(left + TILE_COLUMNS, n)
            tile = products[: (bottom - top) * (right - left)].reshape(bottom - top, right - left)
            inner_products(rows[top:bottom], columns[left:right], tile)
            _fold_pairs(lists.near, lists.ids, tile, top, first_column + left, lengths, ids, limits)


def shortlist_candidates(
    lists: ShortLists,
    queries: TileRows,
    candidates: TileRows,
    query_ids: Int64Array,
    candidate_ids: Int64Array,
) -> None:
    """Offer every candidate to every query's list.

    Parameters
    ----------
    lists : ShortLists
        Lists of the queries; changed in place. A candidate that is in a list already stays once.
    queries, candidates : TileRows
        ``m`` and ``n`` rows in single precision; not for Manhattan distances.
    query_ids, candidate_ids : ndarray of int64, shapes (m,) and (n,)
        Their numbers. A candidate with the query's own number is skipped.
    """
    np.maximum(lists.reach, queries.sizes, out=lists.reach)
    tile = np.empty((len(queries), len(candidates)), dtype=np.float32)
    inner_products(queries.matrix, candidates.matrix, tile)
    sizes = queries.sizes.astype(np.float32), candidates.sizes.astype(np.float32)
    _fold_candidates(lists.near, lists.ids, tile, *sizes, query_ids, candidate_ids)


def decide_short_lists(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    lists: ShortLists,
    queries: Float64Array,
    candidates: Float64Array,
    query_keys: UInt64Array,
    candidate_keys: UInt64Array,
    unit: float,
    *,
    cosine: bool,
) -> BoolArray:
    """Offer the candidates of short lists to sorted lists, with their distances in float64.

    Parameters
    ----------
    distances, ties, indices : ndarray, shape (n, k)
        The sorted lists, empty and shorter than the short ones; changed in place.
    lists : ShortLists
        ``n`` short lists.
    queries, candidates : ndarray of float64, shapes (n, d) and (m, d)
        The original rows.
    query_keys, candidate_keys : ndarray of uint64, shapes (n,) and (m,)
        Keys of the rows, which break ties.
    unit : float
        Unit of the separations of the short lists.
    cosine : bool
        Whether a distance is half the separation instead of its root.

    Returns
    -------
    ndarray of bool, shape (n,)
        Where a candidate that the tiles left out may come before the last of the sorted list.
        Elsewhere the sorted list is that of the nearest of all candidates seen.
    """
    dimension = queries.shape[1]
    return _decide(
        distances,
        ties,
        indices,
        lists.near,
        lists.ids,
        lists.reach,
        queries,
        candidates,
        query_keys,
        candidate_keys,
        unit,
        rounding_share(dimension, "single"),
        (dimension + 16) * float(np.finfo(np.float32).tiny),
        COSINE if cosine else EUCLIDEAN,
    )


@numba.njit(cache=True, nogil=True)
def _insert(near: Float32Array, ids: Int32Array, separation: np.float32, index: int) -> None:
    """Insert a candidate that is less than the last of a list, unless it is in the list."""
    for known in ids:
        if known == index:
            return
    place = len(near) - 1
    while place > 0 and near[place - 1] > separation:
        near[place] = near[place - 1]
        ids[place] = ids[place - 1]
        place -= 1
    near[place] = separation
    ids[place] = index


@numba.njit(cache=True, nogil=True)
def _fold_pairs(
    near: Float32Array,
    ids: Int32Array,
    tile: FloatArray,
    top: int,
    left: int,
    sizes: Float32Array,
    numbers: Int64Array,
    limits: Float32Array,
) -> None:
    """Fold a tile of products of a block's rows, as far as it is above the diagonal."""
    two = np.float32(2.0)
    columns, last = tile.shape[1], near.shape[1] - 1
    column_sizes, column_limits = sizes[left : left + columns], limits[left : left + columns]
    for i in range(tile.shape[0]):
        row, size, limit, own = tile[i], sizes[top + i], limits[top + i], numbers[top + i]
        first = max(top + i + 1 - left, 0)
        for start in range(first // SKIPPED * SKIPPED, columns, SKIPPED):
            stop = min(start + SKIPPED, columns)
            if stop - start == SKIPPED:
                products, lengths = row[start:stop], column_sizes[start:stop]
                bounds = column_limits[start:stop]
                count: Any = np.int32(0)
                for j in range(SKIPPED):
                    separation = (size + lengths[j]) - two * products[j]
                    count += np.int32((separation < limit) | (separation < bounds[j]))
                if count == 0:
                    continue
            for j in range(max(start, first), stop):
                separation = (size + column_sizes[j]) - two * row[j]
                if separation < limit:
                    _insert(near[own], ids[own], separation, numbers[left + j])
                    limit = near[own, last]
                if separation < column_limits[j]:
                    other = numbers[left + j]
                    _insert(near[other], ids[other], separation, own)
                    column_limits[j] = near[other, last]
        limits[top + i] = limit


@numba.njit(cache=True, nogil=True)
def _fold_candidates(
    near: Float32Array,
    ids: Int32Array,
    tile: FloatArray,
    query_sizes: Float32Array,
    candidate_sizes: Float32Array,
    query_ids: Int64Array,
    candidate_ids: Int64Array,
) -> None:
    two = np.float32(2.0)
    columns, last = tile.shape[1], near.shape[1] - 1
    for i in range(tile.shape[0]):
        row, size, limit = tile[i], query_sizes[i], near[i, last]
        for start in range(0, columns, SKIPPED):
            stop = min(start + SKIPPED, columns)
            if stop - start == SKIPPED:
                products, lengths = row[start:stop], candidate_sizes[start:stop]
                count: Any = np.int32(0)
                for j in range(SKIPPED):
                    separation = (size + lengths[j]) - two * products[j]
                    count += np.int32(separation < limit)
                if count == 0:
                    continue
            for j in range(start, stop):
                separation = (size + candidate_sizes[j]) - two * row[j]
                if separation < limit and candidate_ids[j] != query_ids[i]:
                    _insert(near[i], ids[i], separation, candidate_ids[j])
                    limit = near[i, last]


@numba.njit(cache=True, nogil=True)
def _decide(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    near: Float32Array,
    ids: Int32Array,
    reach: Float64Array,
    queries: Float64Array,
    candidates: Float64Array,
    query_keys: UInt64Array,
    candidate_keys: UInt64Array,
    unit: float,
    share: float,
    tiny: float,
    metric: int,
) -> BoolArray:
    open_lists = np.zeros(len(near), dtype=np.bool_)
    for i in range(len(near)):
        hash_of_query = query_hash(query_keys[i])
        count = 0
        while count < ids.shape[1] and ids[i, count] >= 0:
            count += 1
        for start in range(0, count, 4):
            squares = four_squared_distances(
                queries[i],
                candidates[ids[i, start]],
                candidates[ids[i, min(start + 1, count - 1)]],
                candidates[ids[i, min(start + 2, count - 1)]],
                candidates[ids[i, min(start + 3, count - 1)]],
            )
            for place in range(start, min(start + 4, count)):
                j, square = ids[i, place], squares[place - start]
                distance = 0.5 * square if metric == COSINE else np.sqrt(square)
                tie = pair_hash(hash_of_query, candidate_keys[j])
                offer(distances[i], ties[i], indices[i], distance, tie, j)
        bound = np.float64(near[i, -1])
        if bound == np.inf:
            continue  # nothing was left out
        farthest = distances[i, -1]
        separation = (2.0 * farthest if metric == COSINE else farthest * farthest) / unit
        # A candidate at this separation is at most this long about the tile's origin.
        length = 1.001 * (np.sqrt(reach[i]) + np.sqrt(separation))
        band = share * (reach[i] + length * length) + tiny
        open_lists[i] = not (separation + band < bound)
    return open_lists
