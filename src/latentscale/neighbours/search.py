r"""Approximate nearest neighbours: leaves, then neighbours of neighbours.

Data flow, for rows that fit in memory:

1. Equal rows are collapsed to one. So a large group of them neither fills lists nor becomes a hub.
2. Rows are divided into small overlapping leaves (:mod:`latentscale.neighbours.leaves`), and put in
   the order of their leaves, so that near rows are near in memory.
3. All pairs of every leaf are compared in single precision; float64 decides
   (:mod:`latentscale.neighbours.leaf_search`).
4. The neighbours of every row's neighbours are tried (:mod:`latentscale.neighbours.refine`), with
   lists longer than asked for.
5. Where a recall is wanted, the true neighbours of a few random rows are found first. Steps 3 and 4
   end as soon as enough of them are in the lists. Until they are, rows are divided into other
   leaves, and these steps add to the lists. Step 4 waits for more leaves, if more can be, where it
   couldn't be the last one.
6. Neighbours of collapsed rows are expanded to all of them.

A pair is missed when its rows share no leaf, and neither has a neighbour that knows the other. So
the recall rises with the overlap and with the rounds.

Every distance that decides is a float64 sum over the coordinates in their order, and ties are
broken by hashes of the rows' contents. So the result depends on the rows and the generator alone:
not on the machine's matrix products, and not on threads, of which there is one.

The method follows PiPNN (Rubel et al., arXiv 2602.21247), which finds the edges of search graphs in
such leaves, and the local joins of NN-descent (Dong, Moses & Li 2011).

Costs
-----
For an overlap of :math:`o`, leaves of :math:`m` rows and :math:`n` rows of :math:`d` dimensions the
products take :math:`n o (m + 2 n / m) d` operations in single precision. They take about a third of
the time with 128 dimensions.

Memory beyond the rows is at most :func:`search_bytes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Literal

import numba
import numpy as np

from latentscale.array_types import BoolArray, Float64Array, Int64Array, UInt64Array
from latentscale.neighbours.certificate import recall_certificate
from latentscale.neighbours.descent import nearest_neighbour_descent
from latentscale.neighbours.exact import Neighbours, keys_of, merge, nearest
from latentscale.neighbours.ivf import cell_cap
from latentscale.neighbours.leaf_search import SPARE, search_leaves
from latentscale.neighbours.leaves import LEAF_ROWS, divide_into_leaves
from latentscale.neighbours.refine import FOLLOWED, refine
from latentscale.tiles.distances import Points, row_blocks
from latentscale.tiles.top_lists import content_keys, offer, pair_hash, query_hash

Method = Literal["leaves", "nndescent"]

ROUNDS = 2
"""Rounds of refinement; a third adds little."""

MAX_DIVISIONS = 6
"""Divisions into leaves, at most, where a recall is wanted."""

REFINED, FEW_MISSED = 4.0, 0.3
"""By how much refinement lowers the share of neighbours that are missed, and the share up to which
other leaves lower it by as much, so that refinement waits for them.
"""

CHECKED_ROWS = 400
"""Random rows whose true neighbours tell the recall."""

MERGED_ROWS = 1 << 14
"""Rows whose lists of two divisions are merged at a time."""

SPARE_NEIGHBOURS = 5
"""Neighbours beyond those asked for that lists hold while they are refined."""


def approximate_neighbours(
    points: Points, k: int, *, overlap: int, generator: np.random.Generator
) -> Neighbours:
    """Find nearly all of the ``k`` nearest other rows of every row.

    Parameters
    ----------
    points : Points
        All ``n`` rows.
    k : int
        Neighbours of a row, ``1 <= k < n``.
    overlap : int
        Leaves that each row joins (3 suits most data, 6 high intrinsic dimension).
    generator : numpy.random.Generator
        Source of the leaves.

    Returns
    -------
    Neighbours
        Shape (n, k), complete: rows with too few neighbours in their leaves are searched exactly.

    Raises
    ------
    ValueError
        Unless ``1 <= k < n`` and ``overlap >= 1``.
    """
    n = len(points)
    if not 1 <= k < n:
        raise ValueError(f"k = {k} neighbours of {n} rows: k must be at least 1 and below {n}")
    if overlap < 1:
        raise ValueError(f"overlap {overlap} must be at least 1")
    return search_rows(points.keyed(), k, overlap=overlap, generator=generator)


def search_rows(
    points: Points,
    k: int,
    *,
    overlap: int,
    generator: np.random.Generator,
    rounds: int = ROUNDS,
    recall: float | None = None,
    leaf_rows: int | None = None,
    method: Method = "leaves",
) -> Neighbours:
    """Find nearly all of the ``k`` nearest other rows of every row, of any number of rows.

    Parameters
    ----------
    points : Points
        ``n`` rows, with keys; at most 2³¹.
    k : int
        Neighbours of a row, at least 1.
    overlap : int
        Leaves of a division that each row joins, at least 1.
    generator : numpy.random.Generator
        Source of the leaves, and of the rows whose recall is checked.
    rounds : int
        Rounds of refinement after a division.
    recall : float, optional
        Share of true neighbours at which no further division is made; at most
        :data:`MAX_DIVISIONS` are. By default there is one.
    leaf_rows : int, optional
        Average rows of a leaf. By default, all rows are one leaf up to
        :func:`~latentscale.neighbours.ivf.cell_cap`, and the search is exact. More rows form
        leaves of :data:`~latentscale.neighbours.leaves.LEAF_ROWS`, or more for very long lists.
    method : {"leaves", "nndescent"}
        With ``nndescent``, rows that don't fit one leaf are searched by
        :func:`~latentscale.neighbours.descent.nearest_neighbour_descent` instead. Overlap, rounds
        and recall then have no effect. It doesn't take the Manhattan metric.

    Returns
    -------
    Neighbours
        Shape (n, k), padded with id -1 only where ``n <= k``.
    """
    first, group_of = collapse_equal(points)
    distinct = points if len(first) == len(points) else points.take(first)
    width = max(k + SPARE_NEIGHBOURS, FOLLOWED)
    if leaf_rows is None:
        fits = len(first) <= cell_cap(len(first), points.dimension)
        leaf_rows = len(first) if fits else max(LEAF_ROWS, 4 * width)
    few = len(first) <= 2 * leaf_rows
    if few:
        graph = search_leaves(distinct, [np.arange(len(first))], k)
    elif method == "nndescent":
        graph = nearest_neighbour_descent(distinct, k, generator)
    else:
        leaves = divide_into_leaves(
            distinct, overlap=overlap, generator=generator, leaf_rows=leaf_rows
        )
        order = order_of_leaves(leaves)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        leaves, group_of = [np.sort(place[leaf]) for leaf in leaves], place[group_of]
        distinct = points.take(first[order])
        more = (
            divide_into_leaves(distinct, overlap=overlap, generator=stream, leaf_rows=leaf_rows)
            for stream in generator.spawn(MAX_DIVISIONS - 1 if recall else 0)
        )
        check = _missed_share(distinct, k, generator) if recall else lambda _: math.inf
        graph = Neighbours.none(len(distinct), width)
        _search_divisions(graph, distinct, chain([leaves], more), rounds, check, recall or 1.0)
        graph = graph.cut(k)
    del distinct
    found = _expand_equal(graph, points, group_of)
    short = np.flatnonzero(found.indices[:, -1] < 0)
    if len(short) and not few:
        everyone = np.arange(len(points), dtype=np.int64)
        queries = points.take(short)
        found.put(short, nearest(queries, points, k, query_ids=short, candidate_ids=everyone))
    return found


def _search_divisions(
    graph: Neighbours,
    points: Points,
    divisions: Iterable[list[Int64Array]],
    rounds: int,
    check: Callable[[Neighbours], float],
    recall: float,
) -> None:
    """Add what is found in one division after another to the lists, until these are good.

    ``check`` tells which share of the neighbours lists miss; infinite where nobody asks.
    """
    width, tried, allowed = graph.indices.shape[1], None, 1.0 - recall
    for number, leaves in enumerate(divisions, 1):
        found = search_leaves(points, leaves, width)
        for block in row_blocks(len(points), MERGED_ROWS):
            graph.put(block, merge(graph.take(block), found.take(block), width))
        del found
        missed = check(graph)
        if missed <= allowed:
            return
        if number < MAX_DIVISIONS and REFINED * allowed < missed <= FEW_MISSED:
            continue
        for _ in range(rounds):
            tried = refine(points, graph, leaves, 1, tried=tried)
            if check(graph) <= allowed:
                return


def _missed_share(
    points: Points, k: int, generator: np.random.Generator
) -> Callable[[Neighbours], float]:
    """Return a function that tells which share of the neighbours of random rows lists miss."""
    n = len(points)
    [stream] = generator.spawn(1)
    drawn = np.sort(stream.choice(n, min(n, CHECKED_ROWS), replace=False))
    everyone = np.arange(n, dtype=np.int64)
    true = nearest(points.take(drawn), points, k, query_ids=drawn, candidate_ids=everyone)
    return lambda lists: 1.0 - recall_certificate(lists.distances[drawn, :k], true.distances).value


def search_bytes(n: int, d: int, k: int, overlap: int) -> int:
    """Bound the memory of :func:`search_rows`, beyond its rows and its result.

    Parameters
    ----------
    n, d : int
        Rows and dimensions.
    k, overlap : int
        Neighbours and leaves of a row.

    Returns
    -------
    int
        Bytes: an ordered copy of the rows, lists of two divisions in double precision and one in
        single with what refinement marks in them, the leaves of every row, and one leaf in both
        precisions. It is enough for
        ``nndescent``, too.
    """
    width = max(k + SPARE_NEIGHBOURS, FOLLOWED)
    lists = 64 * (width + SPARE) + 18 * FOLLOWED
    largest = min(n, max(cell_cap(n, d), 2 * LEAF_ROWS, 8 * width))
    return n * (8 * (d + 2) + lists + 40 * overlap + 64) + largest * (12 * d + 64) + (1 << 21)


def order_of_leaves(leaves: list[Int64Array]) -> Int64Array:
    """Return the rows by the first leaf of each."""
    rows, first = np.unique(np.concatenate(leaves), return_index=True)
    return np.asarray(rows[np.argsort(first)], dtype=np.int64)


def collapse_equal(points: Points) -> tuple[Int64Array, Int64Array]:
    """Return the first row of each group of equal rows, ascending, and the group of every row."""
    _, found, inverse = np.unique(content_keys(points.rows), return_index=True, return_inverse=True)
    first_of = found[inverse]
    # Rows with one key are equal, unless their hashes collide. Then they stay by themselves.
    alone = ~_equal_rows(points.rows, first_of)
    first_of[alone] = np.flatnonzero(alone)
    first, group_of = np.unique(first_of, return_inverse=True)
    return first.astype(np.int64), group_of.astype(np.int64)


@numba.njit(cache=True, nogil=True)
def _equal_rows(rows: Float64Array, others: Int64Array) -> BoolArray:
    """Tell which rows equal the row with another number."""
    equal = np.ones(len(rows), dtype=np.bool_)
    for i in range(len(rows)):
        if others[i] != i:
            equal[i] = (rows[i] == rows[others[i]]).all()
    return equal


def _expand_equal(graph: Neighbours, points: Points, group_of: Int64Array) -> Neighbours:
    """Turn neighbours among groups of equal rows into neighbours among all rows.

    If more groups are at a list's last distance than fit, the hashes of their first rows decide.
    """
    members = np.argsort(group_of, kind="stable")
    starts = np.searchsorted(group_of[members], np.arange(len(graph) + 1))
    found = Neighbours.none(len(points), graph.indices.shape[1])
    _expand(
        found.distances,
        found.ties,
        found.indices,
        graph.distances,
        graph.indices,
        group_of,
        members,
        starts,
        keys_of(points),
    )
    return found


@numba.njit(cache=True, nogil=True)
def _expand(
    distances: Float64Array,
    ties: UInt64Array,
    indices: Int64Array,
    group_distances: Float64Array,
    group_neighbours: Int64Array,
    group_of: Int64Array,
    members: Int64Array,
    starts: Int64Array,
    keys: UInt64Array,
) -> None:
    """Turn neighbours among groups of equal rows into neighbours among rows."""
    last = distances.shape[1] - 1
    for i in range(len(group_of)):
        group = group_of[i]
        hash_of_query = query_hash(keys[i])
        for near in range(-1, group_neighbours.shape[1]):
            other = group if near < 0 else group_neighbours[group, near]
            distance = 0.0 if near < 0 else group_distances[group, near]
            if other < 0 or distance > distances[i, last]:
                break
            for place in range(starts[other], starts[other + 1]):
                row = members[place]
                if row != i:
                    tie = pair_hash(hash_of_query, keys[row])
                    offer(distances[i], ties[i], indices[i], distance, tie, row)
