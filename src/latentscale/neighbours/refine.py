"""Neighbours of neighbours: a search that finds most pairs separated by borders of leaves.

A row's neighbours are likely to be neighbours of its neighbours (Dong, Moses & Li 2011). Rows are
joined in both directions: with their nearest neighbours, and with rows that have them as one. So
many rows point at a hub that only some of them are followed.

Two things keep a round cheap. Pairs that share a leaf have been compared already. And a pair at the
two ends of old edges was tried in an earlier round, so later rounds follow new edges only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import BoolArray, Float64Array, Int32Array, Int64Array, UInt64Array
from latentscale.neighbours.exact import Neighbours, keys_of
from latentscale.tiles.distances import METRICS, Points
from latentscale.tiles.pairs import exact_distance, quick_distance
from latentscale.tiles.top_lists import offer, pair_hash, query_hash

LeafNumbers = NDArray[np.uint16] | NDArray[np.uint32]

AT_ONCE = 8
"""Leaves of a row that are compared with those of another at a time."""

FOLLOWED = 10
"""Nearest neighbours of a row that are followed, and rows that point at it."""


def refine(
    points: Points,
    found: Neighbours,
    leaves: Sequence[Int64Array],
    rounds: int,
    *,
    tried: Int32Array | None = None,
    followed: int = FOLLOWED,
) -> Int32Array | None:
    """Try the neighbours of every row's neighbours, in both directions.

    Parameters
    ----------
    points : Points
        All ``n`` rows, at most 2³¹. Near rows should follow each other.
    found : Neighbours
        Lists of ``w`` neighbours; made nearer in place.
    leaves : sequence of ndarray of int64
        Rows whose pairs have all been compared.
    rounds : int
        Number of rounds.
    tried : ndarray of int32, shape (n, w), optional
        Lists that an earlier call returned. Paths along their entries aren't tried again.
    followed : int
        Edges of a row that are followed in each direction.

    Returns
    -------
    ndarray of int32, shape (n, w), or None
        Lists whose paths have now been tried; None if there was no round and none were given.

    Notes
    -----
    A round tries at most ``4 followed²`` rows for each row. Most share a leaf with it: with 10
    followed, distances of about 11 clustered rows are computed in the first round and 5 in the
    second, of sentence embeddings in 6 leaves 28 and 8. Memory is ``18 followed + 9 w`` bytes a
    row, and 4 for each leaf of a row.
    """
    n, w = found.indices.shape
    followed = min(followed, w)
    leaves_of = _leaves_of_rows(leaves, n)
    fresh = np.ones((n, w), dtype=np.bool_)
    if tried is not None:
        _mark_fresh(found.indices, tried, fresh)
    keys = keys_of(points)
    for _ in range(rounds):
        edges = np.full((n, 2 * followed), -1, dtype=np.int32)
        new = np.zeros((n, 2 * followed), dtype=np.bool_)
        join_both_ways(found.indices, fresh, keys, edges, new)
        tried = found.indices.astype(np.int32)
        _try_ends(
            found.distances,
            found.ties,
            found.indices,
            edges,
            new,
            leaves_of,
            points.rows,
            METRICS.index(points.metric),
            keys,
        )
        _mark_fresh(found.indices, tried, fresh)
    return tried


def _leaves_of_rows(leaves: Sequence[Int64Array], n: int) -> LeafNumbers:
    """Return the leaves of every row, in columns; a row's first leaf fills what is left."""
    rows = np.concatenate(leaves)
    kind = np.uint16 if len(leaves) < 1 << 16 else np.uint32
    owners = np.repeat(np.arange(len(leaves), dtype=kind), [len(leaf) for leaf in leaves])
    order = np.argsort(rows, kind="stable")
    rows, owners = rows[order], owners[order]
    counts = np.bincount(rows, minlength=n)
    starts = np.cumsum(counts) - counts
    width = -(-int(counts.max()) // AT_ONCE) * AT_ONCE
    table = np.empty((n, width), dtype=kind)
    table[:] = owners[starts, None]
    table[rows, np.arange(len(rows)) - starts[rows]] = owners
    return table


@numba.njit(cache=True, nogil=True)
def join_both_ways(
    indices: Int64Array, fresh: BoolArray, keys: UInt64Array, edges: Int32Array, new: BoolArray
) -> None:
    """Copy the first entries of every list, and after them rows that have the row in theirs.

    Of too many such rows, those with the least hashes stay. So it doesn't depend on their order.
    """
    n, followed = edges.shape[0], edges.shape[1] // 2
    draws = np.empty((n, followed), dtype=np.uint64)
    for i in range(n):
        for place in range(followed):
            edges[i, place] = indices[i, place]
            new[i, place] = fresh[i, place]
    for i in range(n):
        for place in range(followed):
            j = indices[i, place]
            if j < 0:
                break
            mutual = False
            for near in indices[j, :followed]:
                mutual = mutual or near == i
            if mutual:
                continue
            draw = pair_hash(query_hash(keys[j]), keys[i])
            at = followed
            while at > 0 and (edges[j, followed + at - 1] < 0 or draws[j, at - 1] > draw):
                at -= 1
                if at + 1 < followed:
                    edges[j, followed + at + 1] = edges[j, followed + at]
                    new[j, followed + at + 1] = new[j, followed + at]
                    draws[j, at + 1] = draws[j, at]
            if at < followed:
                edges[j, followed + at] = i
                new[j, followed + at] = fresh[i, place]
                draws[j, at] = draw


@numba.njit(cache=True, nogil=True)
def _try_ends(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    edges: Int32Array,
    new: BoolArray,
    leaves_of: LeafNumbers,
    rows: Float64Array,
    metric: int,
    keys: UInt64Array,
) -> None:
    """Offer the rows at the ends of one edge or two to every row's list, and the row to theirs."""
    n, last = len(indices), indices.shape[1] - 1
    tried_by = np.full(n, -1, dtype=np.int32)
    for i in range(n):
        tried_by[i] = i
        for j in indices[i]:
            if j >= 0:
                tried_by[j] = i
        for first in range(edges.shape[1]):
            j = edges[i, first]
            if j < 0:
                continue
            for second in range(-1, edges.shape[1]):
                end = j if second < 0 else edges[j, second]
                if end < 0 or tried_by[end] == i:
                    continue
                if not (new[i, first] or (second >= 0 and new[j, second])):
                    continue
                tried_by[end] = i
                if _share_leaf(leaves_of, i, end):
                    continue
                limit = max(distances[i, last], distances[end, last])
                if quick_distance(rows[i], rows[end], metric) > limit:
                    continue
                distance = exact_distance(rows[i], rows[end], metric)
                a, b = keys[i], keys[end]
                _offer_once(distances[i], ties[i], indices[i], distance, a, b, end)
                _offer_once(distances[end], ties[end], indices[end], distance, b, a, i)


@numba.njit(cache=True, nogil=True)
def _share_leaf(leaves_of: LeafNumbers, i: int, j: int) -> bool:
    # Loops of known length are turned into a few instructions on vectors.
    shared = False
    for first in range(0, leaves_of.shape[1], AT_ONCE):
        for second in range(0, leaves_of.shape[1], AT_ONCE):
            for a in range(AT_ONCE):
                for b in range(AT_ONCE):
                    shared |= leaves_of[i, first + a] == leaves_of[j, second + b]
    return shared


@numba.njit(cache=True, nogil=True)
def _offer_once(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    distance: float,
    key: np.uint64,
    other_key: np.uint64,
    other: int,
) -> None:
    """Offer a row to a list unless it is in the list already."""
    if distance > distances[-1]:
        return
    for known in indices:
        if known == other:
            return
    offer(distances, ties, indices, distance, pair_hash(query_hash(key), other_key), other)


@numba.njit(cache=True, nogil=True)
def _mark_fresh(indices: Int64Array, before: Int32Array, fresh: BoolArray) -> None:
    """Mark which entries of the lists weren't in them before."""
    for i in range(indices.shape[0]):
        for place in range(indices.shape[1]):
            fresh[i, place] = True
            for known in before[i]:
                if known == indices[i, place]:
                    fresh[i, place] = False
