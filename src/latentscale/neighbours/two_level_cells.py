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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array, FloatArray, Int64Array
from latentscale.neighbours.cell_layout import order_centres
from latentscale.neighbours.exact import Neighbours, keys_of, nearest
from latentscale.neighbours.ivf import (
    ASSIGN_BLOCK,
    assign,
    assign_by_blocks,
    centre_metric,
    centre_points,
    find_centres,
    move_centres,
)
from latentscale.tiles.distances import Metric, Points, as_points, row_blocks

SEARCHED_COARSE_CELLS = 8
"""Number of nearest coarse cells whose cells are searched for a row."""

MAX_UNDIVIDED = 1 << 9
"""Number of cells up to which there is one coarse cell."""

MAX_COMPARED = 1 << 12
"""Number of cells up to which a row is compared with all of them, which then takes less time."""

COARSE_ROWS = 64
"""Rows of the sample for each coarse centre."""

PLACING_ROUNDS = 4
"""Iterations of Lloyd's algorithm inside a coarse cell."""

UNORDERED = 16
"""Cells of a coarse cell that may follow each other in any order."""

COARSE_SHARE = 8
"""Rows of a coarse cell that cells are placed among, as a multiple of the average."""

ASSIGN_ROWS, ASSIGN_COORDINATES = 1 << 14, 1 << 22
"""Largest number of rows assigned at a time; larger blocks prepare the centres less often."""


@dataclass(frozen=True)
class TwoLevelCells:
    """Cells, ordered by coarse cell.

    Attributes
    ----------
    centres : ndarray of float32 or float64, shape (c, d)
        Centres of the cells; near ones follow each other.
    coarse : ndarray of float64, shape (r, d)
        Centres of the coarse cells.
    starts : ndarray of int64, shape (r + 1,)
        The first cell of every coarse cell, followed by ``c``.
    """

    centres: FloatArray
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
    return 1 if cells <= MAX_UNDIVIDED else round(math.sqrt(cells))


def place_two_level_cells(
    sample: NDArray[Any], metric: Metric, cells: int, coarse: int, generator: np.random.Generator
) -> TwoLevelCells:
    """Place the centres of cells inside one coarse cell after another.

    Parameters
    ----------
    sample : ndarray, shape (s, d)
        Rows drawn at random, as :func:`~latentscale.tiles.distances.as_points` takes them.
    metric : str
        How rows are compared; centres are means of unit rows under the cosine metric.
    cells, coarse : int
        Numbers of cells and coarse cells wanted, each at least 1.
    generator : numpy.random.Generator
        Source of the starting rows.

    Returns
    -------
    TwoLevelCells
        The number of cells of a coarse cell is in proportion to its rows in the sample, rounded
        down, but at least one. It is smaller if the coarse cell has fewer distinct rows, or more
        than :data:`COARSE_SHARE` times as many rows as others.

    Raises
    ------
    ValueError
        If the sample is empty, or a count isn't positive.

    Notes
    -----
    Costs about ``16 s d (r + c / r)`` operations. With several coarse cells the sample isn't
    copied. Its rows are turned into float64 by blocks or by coarse cells, and the centres have the
    precision of float32 if the sample hasn't more.
    """
    if coarse == 1:
        centres = _ordered(
            find_centres(as_points(sample, metric).rows, cells, generator), generator
        )
        return TwoLevelCells(centres, centres.mean(axis=0)[None], np.array([0, len(centres)]))
    few = np.sort(generator.permutation(len(sample))[: COARSE_ROWS * coarse])
    middle = find_centres(as_points(sample[few], metric).rows, coarse, generator)
    middle = _ordered(middle, generator)
    owner = np.concatenate(
        [
            assign(as_points(sample[block], metric), middle, 1)[:, 0]
            for block in row_blocks(len(sample), ASSIGN_BLOCK)
        ]
    )
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(middle))
    inhabited = np.flatnonzero(counts)
    placed = np.empty(
        (max(cells, len(inhabited)), sample.shape[1]),
        np.float32 if sample.dtype.itemsize <= np.dtype(np.float32).itemsize else np.float64,
    )
    starts = [0]
    for rows in np.split(order, np.cumsum(counts[inhabited])[:-1]):
        # Only equal rows, which need one centre, make a coarse cell much larger than others.
        rows = rows[: COARSE_SHARE * len(sample) // coarse]
        share = max(1, cells * len(rows) // len(sample))
        inside = _place_among(as_points(sample[rows], metric).rows, share, generator)
        starts.append(starts[-1] + len(inside))
        placed[starts[-2] : starts[-1]] = inside[
            order_centres(inside, generator, undivided=UNORDERED)
        ]
    return TwoLevelCells(placed[: starts[-1]], middle[inhabited], np.array(starts))


def _place_among(rows: Float64Array, cells: int, generator: np.random.Generator) -> Float64Array:
    """Place centres on random rows first: so many that bisections would take longer."""
    start = np.sort(generator.permutation(len(rows))[:cells])
    return move_centres(rows, np.unique(rows[start], axis=0), PLACING_ROUNDS)


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
        Number of nearest coarse cells whose cells are searched for a row. By default all are up to
        :data:`MAX_COMPARED` cells, and :data:`SEARCHED_COARSE_CELLS` beyond.
    most_rows : int
        Largest number of rows assigned at a time. The result doesn't depend on it.

    Returns
    -------
    ndarray of int64, shape (m, min(overlap, c))
        Cell numbers, nearest centre first; equal rows get equal cells. With at most ``searched``
        coarse cells these are the nearest of all cells.
    """
    everywhere = searched is None and len(cells.centres) <= MAX_COMPARED
    if len(cells.coarse) == 1 or everywhere:
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
