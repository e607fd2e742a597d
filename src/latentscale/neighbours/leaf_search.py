"""Nearest neighbours among all pairs of every leaf.

The pairs of a leaf (:mod:`latentscale.neighbours.leaves`) come from one product in single
precision. A row's list is the same for all its leaves, so nothing is merged. Lists are longer than
asked for by :data:`SPARE` entries. Then float64 decides: of a list's entries the nearest are kept.
Where rounding could have left out one of them, which is rare, the row is searched again in its
leaves, exactly (:func:`latentscale.neighbours.exact.nearest`). So the result is that of an exact
search in every leaf, on every machine.

With the Manhattan metric, which has no product, all rows are searched exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from latentscale.neighbours.exact import Int64Array, Neighbours, merge, nearest
from latentscale.neighbours.leaves import decide
from latentscale.tiles.device import ShortLists, shortlist_candidates, shortlist_pairs
from latentscale.tiles.distances import Points, common_unit, row_blocks

BoolArray = NDArray[np.bool_]

SPARE = 3
"""Entries of a short list beyond those asked for, so that few rows are undecided."""

QUERIES = 128
"""Rows that are compared with other rows of a leaf at a time, where these differ."""


def search_leaves(points: Points, leaves: Sequence[Int64Array], k: int) -> Neighbours:
    """Find the ``k`` nearest other rows among those that share a leaf with each row.

    Parameters
    ----------
    points : Points
        ``n`` rows with keys, at most 2³¹.
    leaves : sequence of ndarray of int64
        Ascending row numbers of each leaf.
    k : int
        Neighbours of a row, at least 1.

    Returns
    -------
    Neighbours
        Shape (n, k), padded with id -1 where a row's leaves are too small.

    Notes
    -----
    A leaf of ``m`` rows costs about ``m² d`` operations in float32. Memory beyond the result is
    ``8 (k + 6)`` bytes a row and ``12 d + 512`` bytes for each row of the largest leaf.
    """
    everyone = np.ones(len(points), dtype=np.bool_)
    return search_leaves_among(points, leaves, k, queries=everyone, candidates=everyone)


def search_leaves_among(
    points: Points,
    leaves: Sequence[Int64Array],
    k: int,
    *,
    queries: BoolArray,
    candidates: BoolArray,
) -> Neighbours:
    """Find the ``k`` nearest other candidates that share a leaf with each query.

    Parameters
    ----------
    points, leaves, k
        As for :func:`search_leaves`.
    queries, candidates : ndarray of bool, shape (n,)
        The rows whose neighbours are found, and those that may be neighbours.

    Returns
    -------
    Neighbours
        Shape (n, k), padded with id -1 where a query's leaves have too few candidates, and for
        rows that aren't queries.

    Notes
    -----
    Where both sets are the same, a leaf with ``m`` of these rows costs about ``m² d`` operations;
    otherwise, with ``q`` queries and ``c`` candidates, ``2 q c d``.
    """
    found = Neighbours.none(len(points), k)
    undecided = queries.copy()
    if points.metric != "manhattan":
        # A leaf's rows about their mean are at most twice as long as the reach of all.
        unit = 2.0 * common_unit(points, points)
        lists = ShortLists.none(len(points), k + SPARE)
        same = np.array_equal(queries, candidates)
        for leaf in leaves:
            asked, offered = leaf[queries[leaf]], leaf[candidates[leaf]]
            if len(asked) and len(offered):
                _shortlist(lists, points, asked, None if same else offered, unit)
        undecided &= decide(found, lists, points, points, unit**2)
    if undecided.any():
        _search_again(found, undecided, points, leaves, candidates)
    return found


def _shortlist(
    lists: ShortLists, points: Points, asked: Int64Array, offered: Int64Array | None, unit: float
) -> None:
    """Offer rows of a leaf to the lists of others, or of each other."""
    rows = points.take(asked)
    origin = rows.rows.mean(axis=0)
    queries = rows.about(origin)
    if offered is None:
        shortlist_pairs(lists, queries.tile_rows("single", unit), asked)
        return
    candidates = points.take(offered).about(origin).tile_rows("single", unit)
    for block in row_blocks(len(asked), QUERIES):
        ids = asked[block]
        some = lists.take(ids)
        ready = queries.take(block).tile_rows("single", unit)
        shortlist_candidates(some, ready, candidates, ids, offered)
        lists.put(ids, some)


def _search_again(
    found: Neighbours,
    undecided: BoolArray,
    points: Points,
    leaves: Sequence[Int64Array],
    candidates: BoolArray,
) -> None:
    """Replace the lists of undecided rows by those of an exact search in their leaves."""
    k = found.indices.shape[1]
    again = np.flatnonzero(undecided)
    found.put(again, Neighbours.none(len(again), k))
    for leaf in leaves:
        rows, offered = leaf[undecided[leaf]], leaf[candidates[leaf]]
        if len(rows) and len(offered):
            near = nearest(
                points.take(rows), points.take(offered), k, query_ids=rows, candidate_ids=offered
            )
            found.put(rows, merge(found.take(rows), near, k))
