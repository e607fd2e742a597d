r"""Very many cells, in regions.

To place ``c`` centres on ``s`` rows takes a product with every centre for every row and round, and
to find a row's nearest centres another ``c``. Where cells go into the tens of thousands that is
most of the work of a search. Here centres are placed in two levels instead, as in a vocabulary tree
(Nistér & Stewénius 2006): a region is what is nearest to one of about :math:`\sqrt c` region
centres, the cells of a region are placed among its own rows, and a row's cells are sought in its
:data:`SEARCHED_REGIONS` nearest regions, which takes about :math:`(1 + 8)\sqrt c` products.

The nearest centre of a row may be in none of the regions looked at. Then a cell of the row is a
little farther away, and fewer neighbours have a cell in common: who chooses the overlap by pilot
rows sees that and makes it good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentscale.cell_layout import order_centres
from latentscale.cells import (
    assign,
    assign_by_blocks,
    centre_metric,
    centre_points,
    find_centres,
)
from latentscale.distances import Float64Array, Points, row_blocks
from latentscale.neighbours import Neighbours, nearest

Int64Array = NDArray[np.int64]

SEARCHED_REGIONS = 8
"""Nearest regions of a row whose cells are looked at."""

MOST_UNDIVIDED = 1 << 12
"""Cells up to which there is one region."""

ASSIGN_ROWS, ASSIGN_COORDINATES = 1 << 14, 1 << 22
"""Rows that are assigned together at most: the more, the less often centres are made ready."""


@dataclass(frozen=True)
class CellRegions:
    """Cells, those of one region after another.

    Attributes
    ----------
    centres : ndarray of float64, shape (c, d)
        Of the cells; near ones follow each other.
    regions : ndarray of float64, shape (r, d)
        Centres of the regions.
    starts : ndarray of int64, shape (r + 1,)
        First cell of every region, and ``c``.
    """

    centres: Float64Array
    regions: Float64Array
    starts: Int64Array


def count_regions(cells: int) -> int:
    """Return how many regions so many cells are placed in.

    Parameters
    ----------
    cells : int
        Number of cells, at least 1.

    Returns
    -------
    int
        Their root; one where the cells are few.
    """
    return 1 if cells <= MOST_UNDIVIDED else round(math.sqrt(cells))


def place_regions(
    sample: Float64Array, cells: int, regions: int, generator: np.random.Generator
) -> CellRegions:
    """Place centres of cells region by region.

    Parameters
    ----------
    sample : ndarray of float64, shape (s, d)
        Rows drawn at random (unit rows for the cosine metric).
    cells, regions : int
        How many are wanted, each at least 1.
    generator : numpy.random.Generator
        Source of the starting rows.

    Returns
    -------
    CellRegions
        Every region has cells in proportion to its rows in the sample, rounded down, but at least
        one; fewer where a region has fewer distinct rows.

    Raises
    ------
    ValueError
        If the sample is empty, or a count isn't positive.

    Notes
    -----
    Costs about ``16 s d (r + c / r)`` operations.
    """
    if regions == 1:
        centres = _ordered(find_centres(sample, cells, generator), generator)
        return CellRegions(centres, centres.mean(axis=0)[None], np.array([0, len(centres)]))
    middle = _ordered(find_centres(sample, regions, generator), generator)
    owner = assign_by_blocks(centre_points(sample, "euclidean"), middle, 1)[:, 0]
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(middle))
    inhabited = np.flatnonzero(counts)
    placed = []
    for rows in np.split(order, np.cumsum(counts[inhabited])[:-1]):
        share = max(1, cells * len(rows) // len(sample))
        placed.append(_ordered(find_centres(sample[rows], share, generator), generator))
    starts = np.concatenate([[0], np.cumsum([len(centres) for centres in placed])])
    return CellRegions(np.concatenate(placed), middle[inhabited], starts)


def _ordered(centres: Float64Array, generator: np.random.Generator) -> Float64Array:
    return centres[order_centres(centres, generator)]


def assign_in_regions(points: Points, cells: CellRegions, overlap: int) -> Int64Array:
    """Find the nearest cells of every row in its nearest regions.

    Parameters
    ----------
    points : Points
        ``m`` rows.
    cells : CellRegions
        ``c`` cells.
    overlap : int
        Cells of a row; all of them where there are fewer.

    Returns
    -------
    ndarray of int64, shape (m, min(overlap, c))
        Cell numbers, nearest centre first; equal rows get equal cells. With at most
        :data:`SEARCHED_REGIONS` regions these are the nearest of all.
    """
    if len(cells.regions) == 1:
        return assign_by_blocks(points, cells.centres, overlap)
    size = max(1, min(ASSIGN_ROWS, ASSIGN_COORDINATES // points.dimension))
    blocks = row_blocks(len(points), size)
    return np.concatenate([_assign_block(points.take(block), cells, overlap) for block in blocks])


def _assign_block(points: Points, cells: CellRegions, overlap: int) -> Int64Array:
    metric = centre_metric(points.metric)
    overlap = min(overlap, len(cells.centres))
    queries = Points(points.rows, points.squared_norms, metric)
    near = assign(points, cells.regions, SEARCHED_REGIONS)
    found = Neighbours(
        np.full((len(points), overlap), -1, dtype=np.int64), np.full((len(points), overlap), np.inf)
    )
    order = np.argsort(near, axis=None, kind="stable")
    visits = np.searchsorted(near.ravel()[order], np.arange(len(cells.regions) + 1))
    for region in np.flatnonzero(np.diff(visits)):
        rows = order[visits[region] : visits[region + 1]] // near.shape[1]
        start, stop = cells.starts[region : region + 2]
        # Every row asks under one number, so that ties are broken alike.
        nobody = np.full(len(rows), -1, dtype=np.int64)
        best = nearest(
            queries.take(rows),
            centre_points(cells.centres[start:stop], metric),
            overlap,
            query_ids=nobody,
            candidate_ids=np.arange(start, stop, dtype=np.int64),
            seed=0,
            known=Neighbours(found.indices[rows], found.distances[rows]),
        )
        found.indices[rows], found.distances[rows] = best.indices, best.distances
    short = np.flatnonzero(found.indices[:, -1] < 0)
    if len(short):
        found.indices[short] = assign(points.take(short), cells.centres, overlap)
    return found.indices
