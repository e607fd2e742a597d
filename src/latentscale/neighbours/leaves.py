r"""Leaves: small overlapping groups of near rows, whose pairs are all compared.

A few rows drawn at random lead a leaf each, and every row joins the leaves of its ``overlap``
nearest leaders. A leaf that is too large is divided again in the same way, but without overlap. So
a row is in ``overlap`` leaves, or in fewer where there are fewer leaders. PiPNN builds search
graphs from such leaves (Rubel et al., arXiv 2602.21247).

The overlap comes where leaves are as small as they become. Overlapping at coarse levels and
dividing without overlap below would put more borders between neighbours.

Costs
-----
With leaves of :math:`m` rows on average, :math:`n` rows have :math:`o n / m` leaders for an overlap
of :math:`o`. To find a row's leaders takes :math:`o n / m` products, and to compare it in its
leaves :math:`o m / 2`, because a pair's product serves both rows. Up to :math:`n = m^2 / 2`, half a
million rows, finding the leaders costs less.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latentscale.array_types import BoolArray, Int64Array
from latentscale.neighbours.exact import Neighbours, keys_of, nearest
from latentscale.tiles.device import ShortLists, decide_short_lists, shortlist_candidates
from latentscale.tiles.distances import Points, common_unit, row_blocks

LEAF_ROWS = 1024
"""Average rows of a leaf; the most are twice as many."""

STALLED = 0.9
"""Share of a leaf's rows that may join one leader before leaders are given up."""

QUERIES = 1024
"""Rows whose leaders are found at a time."""

SPARE_LEADERS = 2
"""Leaders shortlisted beyond the overlap, so that rounding leaves few rows undecided."""


def divide_into_leaves(
    points: Points,
    *,
    overlap: int,
    generator: np.random.Generator,
    leaf_rows: int = LEAF_ROWS,
) -> list[Int64Array]:
    """Divide rows into overlapping leaves.

    Parameters
    ----------
    points : Points
        ``n`` distinct rows.
    overlap : int
        Leaves that a row joins, at least 1.
    generator : numpy.random.Generator
        Source of the leaders.
    leaf_rows : int
        Average rows of a leaf, at least 1; the most are twice as many.

    Returns
    -------
    list of ndarray of int64
        Ascending numbers of the rows in each leaf, at most ``2 leaf_rows``. Every row is in at
        least one leaf and at most ``overlap`` leaves. All rows form one leaf if they fit.

    Notes
    -----
    Memory is the leaders, ``12 d`` bytes each, a tile of ``4096`` bytes for each leader, and ``16
    overlap n`` bytes.
    """
    rows = np.arange(len(points), dtype=np.int64)
    return list(_divide(points, rows, overlap, generator, leaf_rows))


def _divide(
    points: Points,
    rows: Int64Array,
    overlap: int,
    generator: np.random.Generator,
    leaf_rows: int,
) -> Iterator[Int64Array]:
    """Yield the leaves of some points, whose row numbers are given."""
    n = len(points)
    if n <= 2 * leaf_rows:
        yield rows
        return
    count = -(-overlap * n // leaf_rows)
    leaders = np.sort(generator.permutation(n)[:count])
    owners = nearest_leaders(points, points.take(leaders), min(overlap, count))
    order = np.argsort(owners, axis=None, kind="stable")
    members = np.split(
        order // owners.shape[1], np.cumsum(np.bincount(owners.ravel(), minlength=count))[:-1]
    )
    for inside in members:
        if len(inside) <= 2 * leaf_rows:
            # Every leader is in its own leaf, unless others are equal to it.
            yield from ([rows[inside]] if len(inside) else [])
        elif len(inside) > STALLED * n:
            yield from np.array_split(rows[inside], -(-len(inside) // (2 * leaf_rows)))
        else:
            yield from _divide(points.take(inside), rows[inside], 1, generator, leaf_rows)


def nearest_leaders(points: Points, leaders: Points, count: int) -> Int64Array:
    """Find the nearest leaders of every row.

    Parameters
    ----------
    points, leaders : Points
        ``n`` rows and their leaders.
    count : int
        Leaders of a row, at most as many as there are.

    Returns
    -------
    ndarray of int64, shape (n, count)
        Numbers of the leaders, nearest first, as float64 decides.
    """
    numbers = np.arange(len(leaders), dtype=np.int64)
    found = Neighbours.none(len(points), count)
    origin = points.rows.mean(axis=0)
    centred, heads = points.about(origin), leaders.about(origin)
    unit = common_unit(centred, heads)
    ready = heads.tile_rows("single", unit)
    for block in row_blocks(len(points), QUERIES):
        part = points.take(block)
        undecided = np.ones(len(part), dtype=np.bool_)
        if points.metric != "manhattan":
            lists = ShortLists.none(len(part), count + SPARE_LEADERS)
            nobody = np.full(len(part), -1, dtype=np.int64)
            rows = centred.take(block).tile_rows("single", unit)
            shortlist_candidates(lists, rows, ready, nobody, numbers)
            undecided = decide(found.take(block), lists, part, leaders, unit**2)
        again = np.flatnonzero(undecided)
        if len(again):
            nobody = np.full(len(again), -1, dtype=np.int64)
            found.put(
                again + block.start,
                nearest(part.take(again), leaders, count, query_ids=nobody, candidate_ids=numbers),
            )
    return found.indices


def decide(
    lists: Neighbours, short: ShortLists, queries: Points, candidates: Points, unit: float
) -> BoolArray:
    """Put what is nearest in short lists into empty lists; return where this isn't decided."""
    return decide_short_lists(
        lists.distances,
        lists.ties,
        lists.indices,
        short,
        queries.rows,
        candidates.rows,
        keys_of(queries),
        keys_of(candidates),
        unit,
        cosine=queries.metric == "cosine",
    )
