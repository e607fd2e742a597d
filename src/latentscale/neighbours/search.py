"""Approximate nearest neighbours inside overlapping cells.

Neighbours are searched inside each cell (:mod:`latentscale.neighbours.ivf`), and a row's lists from
its cells are merged. A pair is missed only when no cell contains both rows, which is rarer the
larger the overlap, or when the search inside a cell misses it. Finally the neighbours of every
row's neighbours are tried (:mod:`latentscale.neighbours.refine`).

Inside a cell, equal rows are collapsed to one before the search and expanded after it. So a large
group of equal rows neither fills the candidate lists nor becomes a hub. Small cells are searched
exactly by tiles, large ones by descent (:mod:`latentscale.neighbours.descent`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from latentscale.neighbours.descent import nearest_neighbour_descent
from latentscale.neighbours.exact import Int64Array, Neighbours, keys_of, merge, nearest
from latentscale.neighbours.ivf import cell_cap, partition
from latentscale.neighbours.refine import refine
from latentscale.tiles.distances import Float64Array, Points
from latentscale.tiles.top_lists import UInt64Array, offer, pair_hash, query_hash

EXACT_WORK = 2e12
"""Multiplications (40 s on one core) up to which exact search beats compiling the descent."""

EXACT_CELL = 1 << 22
"""Coordinates (rows times dimensions) up to which a cell's exact search is as fast as a descent."""

REFINEMENTS = 2
"""Passes of :mod:`latentscale.neighbours.refine` over the merged lists; a third adds little."""


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
        Cells that each row joins (2 suits most data, 3 high intrinsic dimension).
    generator : numpy.random.Generator
        Source of the cells and of the descent's starting graphs.

    Returns
    -------
    Neighbours
        Shape (n, k), complete: rows with too few neighbours in their cells are searched exactly.

    Raises
    ------
    ValueError
        Unless ``1 <= k < n`` and ``overlap >= 1``.
    """
    n = len(points)
    if not 1 <= k < n:
        raise ValueError(f"k = {k} neighbours of {n} rows: k must be at least 1 and below {n}")
    cap = cell_cap(n, points.dimension)
    cells = partition(points, overlap=overlap, cap=cap, generator=generator)
    work = float(sum(len(cell) ** 2 for cell in cells)) * points.dimension
    descend = work > EXACT_WORK and points.metric in ("euclidean", "cosine")
    return search_cells(points.keyed(), cells, k, descend=descend, generator=generator)


def search_cells(
    points: Points,
    cells: Sequence[Int64Array],
    k: int,
    *,
    descend: bool,
    generator: np.random.Generator,
    refinements: int = REFINEMENTS,
) -> Neighbours:
    """Find nearly all of the ``k`` nearest other rows that share a cell with each row.

    Parameters
    ----------
    points : Points
        ``n`` rows, with keys.
    cells : sequence of ndarray of int64
        Ascending numbers of the rows in each cell; every row is in at least one.
    k : int
        Neighbours of a row, at least 1.
    descend : bool
        Whether to search large cells by descent, see :func:`cell_neighbours`.
    generator : numpy.random.Generator
        Source of the descent's starting graphs.
    refinements : int
        Passes of :func:`~latentscale.neighbours.refine.refine` over the merged lists.

    Returns
    -------
    Neighbours
        Shape (n, k), padded with id -1 only where ``n <= k``.

    Notes
    -----
    Memory holds all rows and lists, the rows of one cell, and the workspace of its search.
    """
    n = len(points)
    found = Neighbours.none(n, k)
    for cell in cells:
        near = cell_neighbours(points.take(cell), cell, k, descend=descend, generator=generator)
        found.put(cell, merge(found.take(cell), near, k))
    short = np.flatnonzero(found.indices[:, -1] < 0)
    if len(short):
        everyone = np.arange(n, dtype=np.int64)
        queries = points.take(short)
        found.put(short, nearest(queries, points, k, query_ids=short, candidate_ids=everyone))
    # A single cell has no borders, and lists of all rows can't improve.
    for _ in range(refinements if len(cells) > 1 and n > k else 0):
        found = refine(points, found)
    return found


def cell_neighbours(
    points: Points,
    ids: Int64Array,
    k: int,
    *,
    descend: bool,
    generator: np.random.Generator,
    exact_cell: int = EXACT_CELL,
) -> Neighbours:
    """Find the nearest other rows of every row of one cell.

    Parameters
    ----------
    points : Points
        The cell's ``m`` rows, with keys.
    ids : ndarray of int64, shape (m,)
        Their row numbers in the corpus.
    k : int
        Neighbours of a row, at least 1.
    descend : bool
        Whether to search cells of more than ``exact_cell`` distinct coordinates by descent;
        otherwise the search is exact.
    generator : numpy.random.Generator
        Source of the descent's starting graph.
    exact_cell : int
        Coordinates (rows times dimensions) up to which a cell is always searched exactly.

    Returns
    -------
    Neighbours
        Shape (m, k), padded with id -1 where the cell is too small.
    """
    first, group_of = _equal_rows(points)
    distinct = points.take(first)
    if descend and len(distinct) * points.dimension > exact_cell:
        graph = nearest_neighbour_descent(distinct, k, generator)
    else:
        numbers = np.arange(len(distinct), dtype=np.int64)
        graph = nearest(distinct, distinct, k, query_ids=numbers, candidate_ids=numbers)
    members = np.argsort(group_of, kind="stable")
    starts = np.searchsorted(group_of[members], np.arange(len(distinct) + 1))
    found = Neighbours.none(len(points), k)
    _expand(
        found.distances,
        found.ties,
        found.indices,
        graph.distances,
        graph.indices,
        group_of,
        members,
        starts,
        ids,
        keys_of(points),
    )
    return found


def _equal_rows(points: Points) -> tuple[Int64Array, Int64Array]:
    """Return the first row of each group of equal rows, and the group of every row."""
    # Adding 0 turns -0 into 0, so that equal rows have equal bytes.
    rows = np.ascontiguousarray(points.rows + 0.0)
    words = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()
    _, first, group_of = np.unique(words, return_index=True, return_inverse=True)
    return first.astype(np.int64), group_of.astype(np.int64)


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
    ids: Int64Array,
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
                    offer(distances[i], ties[i], indices[i], distance, tie, ids[row])
