r"""A large number of cells, in two levels.

To place ``c`` centres on ``s`` rows, each iteration takes a product of every row with every centre.
To find a row's nearest centres takes another ``c`` products. With tens of thousands of cells this
is most of the work of a search. Here centres are placed in two levels instead, as in a vocabulary
tree (Nistér & Stewénius 2006). A coarse cell consists of the rows nearest to one of about
:math:`\sqrt c` centres, and its cells are placed among its own rows. The cells of a row are
searched in its :data:`SEARCHED_COARSE_CELLS` nearest coarse cells, which takes about :math:`(1 +
8)\sqrt c` products.

The nearest centre of a row may be in none of the coarse cells searched. Then a cell of the row is a
little farther away, and fewer neighbours share a cell with it. A caller that chooses the overlap by
pilot rows measures this and compensates for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentscale.neighbours.cell_layout import order_centres
from latentscale.neighbours.exact import Neighbours, keys_of, nearest
from latentscale.neighbours.ivf import (
    assign,
    assign_by_blocks,
    centre_metric,
    centre_points,
    find_centres,
)
from latentscale.tiles.distances import Float64Array, Points, row_blocks

Int64Array = NDArray[np.int64]

SEARCHED_COARSE_CELLS = 8
"""Number of nearest coarse cells whose cells are searched for a row."""

MOST_UNDIVIDED = 1 << 12
"""Number of cells up to which there is one coarse cell."""

ASSIGN_ROWS, ASSIGN_COORDINATES = 1 << 14, 1 << 22
"""Largest number of rows assigned at a time; larger blocks prepare the centres less often."""


@dataclass(frozen=True)
class TwoLevelCells:
    """Cells, ordered by coarse cell.

    Attributes
    ----------
    centres : ndarray of float64, shape (c, d)
        Centres of the cells; near ones follow each other.
    coarse : ndarray of float64, shape (r, d)
        Centres of the coarse cells.
    starts : ndarray of int64, shape (r + 1,)
        The first cell of every coarse cell, followed by ``c``.
    """

    centres: Float64Array
    coarse: Float64Array
    starts: Int64Array


def count_coarse_cells(cells: int) -> int:
    """Return the number of coarse cells for a number of cells.

    Parameters
    ----------
    cells : int
        Number of cells, at least 1.

    Returns
    -------
    int
        The square root of that number; 1 where the cells are few.
    """
    return 1 if cells <= MOST_UNDIVIDED else round(math.sqrt(cells))


def place_two_level_cells(
    sample: Float64Array, cells: int, coarse: int, generator: np.random.Generator
) -> TwoLevelCells:
    """Place the centres of cells inside one coarse cell after another.

    Parameters
    ----------
    sample : ndarray of float64, shape (s, d)
        Rows drawn at random (unit rows for the cosine metric).
    cells, coarse : int
        Numbers of cells and coarse cells wanted, each at least 1.
    generator : numpy.random.Generator
        Source of the starting rows.

    Returns
    -------
    TwoLevelCells
        The number of cells of a coarse cell is in proportion to its rows in the sample, rounded
        down, but at least one. It is smaller if the coarse cell has fewer distinct rows.

    Raises
    ------
    ValueError
        If the sample is empty, or a count isn't positive.

    Notes
    -----
    Costs about ``16 s d (r + c / r)`` operations.
    """
    if coarse == 1:
        centres = _ordered(find_centres(sample, cells, generator), generator)
        return TwoLevelCells(centres, centres.mean(axis=0)[None], np.array([0, len(centres)]))
    middle = _ordered(find_centres(sample, coarse, generator), generator)
    owner = assign_by_blocks(centre_points(sample, "euclidean"), middle, 1)[:, 0]
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(middle))
    inhabited = np.flatnonzero(counts)
    placed = []
    for rows in np.split(order, np.cumsum(counts[inhabited])[:-1]):
        share = max(1, cells * len(rows) // len(sample))
        placed.append(_ordered(find_centres(sample[rows], share, generator), generator))
    starts = np.concatenate([[0], np.cumsum([len(centres) for centres in placed])])
    return TwoLevelCells(np.concatenate(placed), middle[inhabited], starts)


def _ordered(centres: Float64Array, generator: np.random.Generator) -> Float64Array:
    return centres[order_centres(centres, generator)]


def assign_two_level_cells(
    points: Points,
    cells: TwoLevelCells,
    overlap: int,
    *,
    searched: int | None = None,
    most_rows: int = ASSIGN_ROWS,
) -> Int64Array:
    """Find the nearest cells of every row in its nearest coarse cells.

    Parameters
    ----------
    points : Points
        ``m`` rows.
    cells : TwoLevelCells
        ``c`` cells.
    overlap : int
        Number of cells of a row; all cells if there are fewer.
    searched : int, optional
        Number of nearest coarse cells whose cells are searched for a row, by default
        :data:`SEARCHED_COARSE_CELLS`.
    most_rows : int
        Largest number of rows assigned at a time. The result doesn't depend on it.

    Returns
    -------
    ndarray of int64, shape (m, min(overlap, c))
        Cell numbers, nearest centre first; equal rows get equal cells. With at most ``searched``
        coarse cells these are the nearest of all cells.
    """
    if len(cells.coarse) == 1:
        return assign_by_blocks(points, cells.centres, overlap)
    searched = SEARCHED_COARSE_CELLS if searched is None else searched
    size = max(1, min(most_rows, ASSIGN_COORDINATES // points.dimension))
    return np.concatenate(
        [
            _assign_block(points.take(block), cells, overlap, searched)
            for block in row_blocks(len(points), size)
        ]
    )


def _assign_block(points: Points, cells: TwoLevelCells, overlap: int, searched: int) -> Int64Array:
    metric = centre_metric(points.metric)
    overlap = min(overlap, len(cells.centres))
    queries = Points(points.rows, points.squared_norms, metric, keys=keys_of(points))
    near = assign(points, cells.coarse, searched)
    found = Neighbours.none(len(points), overlap)
    order = np.argsort(near, axis=None, kind="stable")
    visits = np.searchsorted(near.ravel()[order], np.arange(len(cells.coarse) + 1))
    for owner in np.flatnonzero(np.diff(visits)):
        rows = order[visits[owner] : visits[owner + 1]] // near.shape[1]
        start, stop = cells.starts[owner : owner + 2]
        nobody = np.full(len(rows), -1, dtype=np.int64)
        best = nearest(
            queries.take(rows),
            centre_points(cells.centres[start:stop], metric),
            overlap,
            query_ids=nobody,
            candidate_ids=np.arange(start, stop, dtype=np.int64),
            known=found.take(rows),
        )
        found.put(rows, best)
    short = np.flatnonzero(found.indices[:, -1] < 0)
    if len(short):
        found.indices[short] = assign(points.take(short), cells.centres, overlap)
    return found.indices
