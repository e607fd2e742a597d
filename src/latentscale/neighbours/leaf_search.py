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
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import BoolArray, Int64Array
from latentscale.neighbours.exact import Neighbours, merge, nearest
from latentscale.neighbours.leaves import decide
from latentscale.tiles.device import (
    ShortLists,
    TileRows,
    shortlist_across,
    shortlist_candidates,
    shortlist_pairs,
)
from latentscale.tiles.distances import Points, common_unit, row_blocks

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
    [found] = search_relations(points, leaves, k, [Relation(everyone, everyone)])
    return found


@dataclass(frozen=True)
class Relation:
    """Rows that look for their nearest, and those among which they look.

    Attributes
    ----------
    queries, candidates : ndarray of bool, shape (n,)
        The rows of both sets, which may overlap. No row is its own nearest.
    """

    queries: BoolArray
    candidates: BoolArray


def search_relations(
    points: Points, leaves: Sequence[Int64Array], k: int, relations: Sequence[Relation]
) -> list[Neighbours]:
    """Find the ``k`` nearest other candidates that share a leaf with each query.

    Parameters
    ----------
    points, leaves, k
        As for :func:`search_leaves`.
    relations : sequence of Relation
        Who looks for whom.

    Returns
    -------
    list of Neighbours
        For each relation, shape (n, k), padded with id -1 where a query's leaves have too few
        candidates, and for rows that aren't queries.

    Notes
    -----
    Where both sets are the same, a leaf with ``m`` of these rows costs about ``m² d`` operations.
    Otherwise ``q`` queries and ``c`` candidates cost ``2 q c d``; where they look for each other,
    in two relations, they cost this once. A leaf is read once for all relations.
    """
    turned = _turned(relations)
    searched = [place for place, earlier in enumerate(turned) if earlier is None]
    found: list[Neighbours | None] = [None for _ in relations]
    undecided = [relation.queries.copy() for relation in relations]
    if points.metric != "manhattan":
        # A leaf's rows about their mean are at most twice as long as the reach of all.
        unit = 2.0 * common_unit(points, points)
        lists = {place: ShortLists.none(len(points), k + SPARE) for place in searched}
        sets = distinct_sets(relations)
        for leaf in leaves:
            # Rows of a set follow each other, so that they are taken without a copy.
            ordered = leaf[np.lexsort([rows[leaf] for rows in sets])]
            rows = points.take(ordered)
            ready = rows.about(rows.rows.mean(axis=0)).tile_rows("single", unit)
            for place, short in lists.items():
                _shortlist(short, ready, ordered, relations[place], mutual=place in turned)
        for place, short in lists.items():
            near = Neighbours.none(len(points), k)
            open_rows = decide(near, short, points, points, unit**2)
            for own in (place, *(turn for turn, first in enumerate(turned) if first == place)):
                found[own] = _of_queries(near, relations[own].queries)
                undecided[own] &= open_rows
    decided = [Neighbours.none(len(points), k) if near is None else near for near in found]
    for relation, near, open_rows in zip(relations, decided, undecided, strict=True):
        if open_rows.any():
            _search_again(near, open_rows, points, leaves, relation.candidates)
    return decided


def _of_queries(near: Neighbours, queries: BoolArray) -> Neighbours:
    """Return the lists of the queries; those of other rows are empty."""
    if queries.all():
        return near
    found = Neighbours.none(*near.indices.shape)
    rows = np.flatnonzero(queries)
    found.put(rows, near.take(rows))
    return found


def _turned(relations: Sequence[Relation]) -> list[int | None]:
    """Return, for each relation, an earlier one whose candidates look for its queries, if any.

    No row is in both sets, so one list a row serves both relations.
    """
    turned: list[int | None] = []
    for place, relation in enumerate(relations):
        apart = not (relation.queries & relation.candidates).any()
        turned.append(
            next(
                (
                    earlier
                    for earlier, other in enumerate(relations[:place])
                    if apart
                    and turned[earlier] is None
                    and earlier not in turned
                    and np.array_equal(relation.queries, other.candidates)
                    and np.array_equal(relation.candidates, other.queries)
                ),
                None,
            )
        )
    return turned


def distinct_sets(relations: Sequence[Relation]) -> list[BoolArray]:
    """Return the sets of rows of some relations, each once."""
    seen: list[BoolArray] = []
    for relation in relations:
        for rows in (relation.queries, relation.candidates):
            if not any(np.array_equal(rows, other) for other in seen):
                seen.append(rows)
    return seen


def _shortlist(
    lists: ShortLists, ready: TileRows, numbers: Int64Array, relation: Relation, *, mutual: bool
) -> None:
    """Offer the rows of a leaf to the lists of others, or of each other."""
    chosen, offered = relation.queries[numbers], relation.candidates[numbers]
    if not (chosen.any() and offered.any()):
        return
    asked, among = _places(chosen), _places(offered)
    queries, ids = ready.take(asked), numbers[asked]
    if np.array_equal(chosen, offered):
        shortlist_pairs(lists, queries, ids)
        return
    candidates, candidate_ids = ready.take(among), numbers[among]
    if mutual:
        shortlist_across(lists, queries, candidates, ids, candidate_ids)
        return
    for block in row_blocks(len(ids), QUERIES):
        some = lists.take(ids[block])
        shortlist_candidates(some, queries.take(block), candidates, ids[block], candidate_ids)
        lists.put(ids[block], some)


def _places(chosen: BoolArray) -> slice | BoolArray:
    """Return some rows, at least one, as a slice if they follow each other."""
    places = np.flatnonzero(chosen)
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == len(places) else chosen


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
