r"""The layout of the cells of a corpus larger than memory.

Centres are ordered by repeated bisection, so that near centres follow each other. Consecutive cells
then form *groups* that fit in memory. Rows in the order of their nearest cells have most of their
neighbours close by, which makes later passes over the graph faster.

A neighbour can only be found in a group that contains both rows. A few rows whose true neighbours
are known therefore predict how many cells a row has to join, so that it is in the groups of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentscale.neighbours.ivf import bisect_rows
from latentscale.tiles.distances import Float64Array

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class GroupedCells:
    """Cells in groups.

    Attributes
    ----------
    overlap : int
        Cells that a row joins; it is searched in the groups of all of them.
    group_of : ndarray of int64, shape (c,)
        The group of every cell, ascending from 0.
    recall : float
        Share of the neighbours of some rows that share a group with their row.
    """

    overlap: int
    group_of: Int64Array
    recall: float


def order_centres(
    centres: Float64Array, generator: np.random.Generator, *, undivided: int = 1
) -> Int64Array:
    """Order centres so that near ones follow each other.

    Parameters
    ----------
    centres : ndarray of float64, shape (c, d)
        Cell centres.
    generator : numpy.random.Generator
        Source of the starting rows of the bisections.
    undivided : int
        Number of centres that are near enough to follow each other in any order.

    Returns
    -------
    ndarray of int64, shape (c,)
        A permutation: the leaves of the tree of bisections, from left to right.
    """
    ordered: list[Int64Array] = []
    waiting = [np.arange(len(centres), dtype=np.int64)]
    while waiting:
        group = waiting.pop()
        if len(group) <= undivided:
            ordered.append(group)
            continue
        side = bisect_rows(centres[group], generator)
        if side.all():
            ordered.append(group)
        else:
            waiting += [group[~side], group[side]]
    return np.concatenate(ordered)


def group_cells(owners: NDArray[np.integer], cells: int, n: int, limit: float) -> Int64Array:
    """Combine consecutive cells into groups of limited size, by the cells of a sample.

    Parameters
    ----------
    owners : ndarray of int, shape (s, overlap)
        The cells of each row of a sample, each once.
    cells : int
        Number of cells.
    n : int
        Rows of the corpus.
    limit : float
        Largest number of rows that a group is expected to have; a larger cell is a group by
        itself. A row counts once in a group, however many of its cells are there.

    Returns
    -------
    ndarray of int64, shape (cells,)
        The group of every cell, ascending from 0.

    Notes
    -----
    Memory is 24 bytes for each entry of ``owners``.
    """
    ascending = np.sort(owners.astype(np.int32, copy=False), axis=1)
    before = np.full_like(ascending, -1)
    before[:, 1:] = ascending[:, :-1]
    order = np.argsort(ascending, axis=None, kind="stable")
    starts = np.searchsorted(ascending.ravel()[order], np.arange(cells + 1))
    before = before.ravel()[order]
    group_of = np.zeros(cells, dtype=np.int64)
    group, first, held = 0, 0, 0.0
    for cell in range(cells):
        earlier = before[starts[cell] : starts[cell + 1]]
        new = float(np.count_nonzero(earlier < first)) * n / len(owners)
        if held > 0 and held + new > limit:
            group, first, held = group + 1, cell, 0.0
            new = len(earlier) * n / len(owners)
        group_of[cell] = group
        held += new
    return group_of


def shared_cell_recall(
    owners: Int64Array, neighbour_owners: Int64Array, overlaps: Sequence[int]
) -> Float64Array:
    """Compute the share of neighbours that share a cell with their row, for several overlaps.

    Parameters
    ----------
    owners : ndarray of int64, shape (q, o)
        The nearest cells of some rows, nearest first.
    neighbour_owners : ndarray of int64, shape (q, k, o)
        The nearest cells of their true neighbours.
    overlaps : sequence of int
        Numbers of cells that a row joins, each at most ``o``.

    Returns
    -------
    ndarray of float64, shape (len(overlaps),)
    """
    shares = []
    for overlap in overlaps:
        own = owners[:, None, :overlap, None]
        theirs = neighbour_owners[:, :, None, :overlap]
        shares.append(float((own == theirs).any(axis=(2, 3)).mean()))
    return np.array(shares)


def choose_groups(
    sample: NDArray[np.integer],
    owners: Int64Array,
    neighbour_owners: Int64Array,
    overlaps: Sequence[int],
    *,
    cells: int,
    n: int,
    limit: float,
    recall: float,
) -> GroupedCells:
    """Choose how many cells a row joins, and which cells form groups.

    Parameters
    ----------
    sample : ndarray of int, shape (s, o)
        The nearest cells of the rows of a sample, nearest first.
    owners, neighbour_owners
        Those of some rows and of their true neighbours, as :func:`shared_cell_recall` takes them.
    overlaps : sequence of int
        Numbers of cells that a row may join, ascending.
    cells, n, limit
        As :func:`group_cells` takes them.
    recall : float
        Share of the neighbours that have to share a group with their row.

    Returns
    -------
    GroupedCells
        With the smallest overlap that reaches the recall, or else with the largest.
    """
    for overlap in overlaps:
        group_of = group_cells(sample[:, :overlap], cells, n, limit)
        [shared] = shared_cell_recall(group_of[owners], group_of[neighbour_owners], [overlap])
        found = GroupedCells(min(overlap, cells), group_of, float(shared))
        if shared >= recall:
            break
    return found
