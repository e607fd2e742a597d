r"""The layout of the cells of a corpus larger than memory.

Centres are ordered by repeated bisection, so that near centres follow each other. Consecutive cells
then form *groups* that fit in memory. Rows in the order of their nearest cells have most of their
neighbours close by, which makes later passes over the graph faster.

A neighbour can only be found in a group that contains both rows. A few rows whose true neighbours
are known therefore predict how many cells a row has to join, so that it is in the groups of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array, Int64Array
from latentscale.neighbours.ivf import bisect_rows

GROUP_FILL = 0.8
"""Largest share of the rows that fit a group that it is expected to have."""

DEVIATIONS = 3.0
"""Standard errors of the rows of a group, as a sample tells them, for which there is room."""

FURTHER = 0.5
"""Searches that a further common group of two rows is worth: what is hard to find in one group is
often hard to find in another.
"""

CHEAP = 1.05
"""Factor on the groups in which a row is searched, up to which more neighbours are worth it."""


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
    copies : float
        Groups in which a row is searched, on average.
    """

    overlap: int
    group_of: Int64Array
    recall: float
    copies: float


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


def fitting_rows(most: int, sampled: int, n: int) -> float:
    """Return how many rows a group may be expected to have, so that it seldom has too many.

    Parameters
    ----------
    most : int
        Most rows of a group.
    sampled : int
        Rows of the sample by which cells are grouped.
    n : int
        Rows of the corpus.

    Returns
    -------
    float
        Infinite if all rows fit. Otherwise, where the sample is expected to have ``m`` rows of the
        group, their standard error is ``sqrt(m)``, and there is room for :data:`DEVIATIONS` of it.
    """
    if n <= most:
        return math.inf
    room = most * sampled / n
    root = (math.sqrt(DEVIATIONS**2 + 4.0 * room) - DEVIATIONS) / 2.0
    return min(GROUP_FILL * most, root**2 * n / sampled)


def group_cells(
    owners: NDArray[np.integer],
    cells: int,
    n: int,
    limit: float | Sequence[float],
    kinds: Int64Array | None = None,
) -> Int64Array:
    """Combine consecutive cells into groups of limited size, by the cells of a sample.

    Parameters
    ----------
    owners : ndarray of int, shape (s, overlap)
        The cells of each row of a sample, each once.
    cells : int
        Number of cells.
    n : int
        Rows of the corpus.
    limit : float or sequence of float
        Largest number of rows that a group is expected to have, of each kind; a larger cell is a
        group by itself. A row counts once in a group, however many of its cells are there.
    kinds : ndarray of int64, shape (s,), optional
        The kind of each row of the sample; by default there is one.

    Returns
    -------
    ndarray of int64, shape (cells,)
        The group of every cell, ascending from 0.

    Notes
    -----
    Memory is 32 bytes for each entry of ``owners``.
    """
    ascending = np.sort(owners.astype(np.int32, copy=False), axis=1)
    before = np.full_like(ascending, -1)
    before[:, 1:] = ascending[:, :-1]
    order = np.argsort(ascending, axis=None, kind="stable")
    starts = np.searchsorted(ascending.ravel()[order], np.arange(cells + 1))
    before = before.ravel()[order]
    limits, weight = np.atleast_1d(limit), n / len(owners)
    kind_of = np.zeros(len(owners), dtype=np.int64) if kinds is None else kinds
    kind_of = kind_of[order // owners.shape[1]]
    group_of = np.zeros(cells, dtype=np.int64)
    group, first, held = 0, 0, np.zeros(len(limits))
    for cell in range(cells):
        inside = slice(starts[cell], starts[cell + 1])
        # Rows with an earlier cell in this group have been counted.
        new = _count_kinds(kind_of[inside][before[inside] < first], weight, limits)
        if held.any() and (held + new > limits).any():
            group, first, held = group + 1, cell, np.zeros(len(limits))
            new = _count_kinds(kind_of[inside], weight, limits)
        group_of[cell] = group
        held += new
    return group_of


def _count_kinds(kinds: Int64Array, weight: float, limits: NDArray[np.generic]) -> Float64Array:
    return np.asarray(weight * np.bincount(kinds, minlength=len(limits)), dtype=np.float64)


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


def count_common_groups(owners: Int64Array, neighbour_owners: Int64Array) -> Int64Array:
    """Count the groups in which some rows are searched together with their neighbours.

    Parameters
    ----------
    owners : ndarray of int64, shape (q, o)
        The groups of some rows; one may be there several times.
    neighbour_owners : ndarray of int64, shape (q, k, o)
        The groups of their true neighbours.

    Returns
    -------
    ndarray of int64, shape (q, k)
    """
    ascending = np.sort(owners, axis=1)
    new = np.ones(ascending.shape, dtype=np.bool_)
    new[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    common = (ascending[:, None, :, None] == neighbour_owners[:, :, None, :]).any(axis=3)
    return np.asarray((common & new[:, None]).sum(axis=2), dtype=np.int64)


def missed_in_group(common: Int64Array, missed: float) -> float:
    r"""Return what the search of a group may miss, where rows are searched in several.

    Parameters
    ----------
    common : ndarray of int64
        Numbers of common groups of some rows and their true neighbours.
    missed : float
        Share of the neighbours with a common group that all searches together may miss, in (0, 1).

    Returns
    -------
    float
        A share :math:`m` of at least ``missed``. If a search misses it, a neighbour with :math:`c`
        common groups is missed in all of them with probability
        :math:`m^{1 + (c - 1) / 2}` (:data:`FURTHER`).
    """
    searches = 1.0 + FURTHER * (common[common > 0] - 1.0)
    low, high = missed, 1.0
    if not len(searches):
        return missed
    for _ in range(50):
        middle = (low + high) / 2.0
        fits = float(np.power(middle, searches).mean()) <= missed
        low, high = (middle, high) if fits else (low, middle)
    return low


def choose_groups(
    sample: NDArray[np.integer],
    owners: Int64Array,
    neighbour_owners: Int64Array,
    overlaps: Sequence[int],
    *,
    cells: int,
    n: int,
    limit: float | Sequence[float],
    recall: float,
    kinds: Int64Array | None = None,
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
    cells, n, limit, kinds
        As :func:`group_cells` takes them.
    recall : float
        Share of the neighbours that have to share a group with their row.

    Returns
    -------
    GroupedCells
        With the smallest overlap that reaches the recall, or a larger one that finds more and has
        rows searched in at most :data:`CHEAP` times as many groups; else with the largest recall.
    """
    tried: list[GroupedCells] = []
    for overlap in overlaps:
        group_of = group_cells(sample[:, :overlap], cells, n, limit, kinds)
        [shared] = shared_cell_recall(group_of[owners], group_of[neighbour_owners], [overlap])
        joined = np.sort(group_of[sample[:, :overlap]], axis=1)
        copies = 1.0 + float((joined[:, 1:] != joined[:, :-1]).sum()) / len(joined)
        tried.append(GroupedCells(min(overlap, cells), group_of, float(shared), copies))
    enough = next((found for found in tried if found.recall >= recall), None)
    cheap = [found for found in tried if enough and found.copies <= CHEAP * enough.copies]
    return max(cheap or tried, key=lambda found: found.recall)
