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
from latentscale.tiles.device import ShortLists, shortlist_pairs
from latentscale.tiles.distances import Points, common_unit

SPARE = 3
"""Entries of a short list beyond those asked for, so that few rows are undecided."""


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
    found = Neighbours.none(len(points), k)
    undecided = np.ones(len(points), dtype=np.bool_)
    if points.metric != "manhattan":
        # A leaf's rows about their mean are at most twice as long as the reach of all.
        unit = 2.0 * common_unit(points, points)
        lists = ShortLists.none(len(points), k + SPARE)
        for leaf in leaves:
            rows = points.take(leaf)
            centred = rows.about(rows.rows.mean(axis=0))
            shortlist_pairs(lists, centred.tile_rows("single", unit), leaf)
        undecided = decide(found, lists, points, points, unit**2)
    if undecided.any():
        _search_again(found, undecided, points, leaves)
    return found


def _search_again(
    found: Neighbours, undecided: NDArray[np.bool_], points: Points, leaves: Sequence[Int64Array]
) -> None:
    """Replace the lists of undecided rows by those of an exact search in their leaves."""
    k = found.indices.shape[1]
    again = np.flatnonzero(undecided)
    found.put(again, Neighbours.none(len(again), k))
    for leaf in leaves:
        rows = leaf[undecided[leaf]]
        if len(rows):
            near = nearest(
                points.take(rows), points.take(leaf), k, query_ids=rows, candidate_ids=leaf
            )
            found.put(rows, merge(found.take(rows), near, k))
