r"""The layout of the cells of a corpus larger than memory.

Centres are ordered by repeated bisection, so that near centres follow each other. Consecutive cells
then form *groups* that fit in memory. Rows in the order of their nearest cells have most of their
neighbours close by, which makes later passes over the graph faster.

A neighbour can only be found in a cell that contains both rows. A few rows whose true neighbours
are known therefore predict how many cells a row has to join.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from latentscale.neighbours.ivf import bisect_rows
from latentscale.tiles.distances import Float64Array

Int64Array = NDArray[np.int64]


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


def group_cells(sizes: NDArray[np.floating], limit: float) -> Int64Array:
    """Combine consecutive cells into groups of limited size.

    Parameters
    ----------
    sizes : ndarray of float, shape (c,)
        Rows of every cell.
    limit : float
        Largest number of rows of a group; a larger cell is a group by itself.

    Returns
    -------
    ndarray of int64, shape (c,)
        The group of every cell, ascending from 0; at most ``2 sum(sizes) / limit + 1`` groups.
    """
    group_of = np.zeros(len(sizes), dtype=np.int64)
    group, held = 0, 0.0
    for cell, size in enumerate(sizes):
        if held > 0 and held + size > limit:
            group, held = group + 1, 0.0
        group_of[cell] = group
        held += float(size)
    return group_of


def expected_sizes(owners: Int64Array, cells: int, n: int) -> Float64Array:
    """Predict the number of rows of every cell from a sample.

    Parameters
    ----------
    owners : ndarray of int64, shape (s, overlap)
        The cells of each row of a sample.
    cells : int
        Number of cells.
    n : int
        Rows of the corpus.

    Returns
    -------
    ndarray of float64, shape (cells,)
        Predicted numbers of rows, which sum to ``n`` times the overlap.
    """
    counts = np.bincount(owners.ravel(), minlength=cells)
    return np.asarray(counts * (n / len(owners)), dtype=np.float64)


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
