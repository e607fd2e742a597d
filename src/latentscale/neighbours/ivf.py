"""Overlapping cells of rows: their centres, their rows, and the division of large cells.

Centres are placed by bisecting k-means (Steinbach, Karypis & Kumar 2000): the largest group is
bisected until there are enough groups, then a few Lloyd iterations run over all of them. Every row
joins the cells of its ``overlap`` nearest centres.

A cell never holds more rows than a cap that depends on the shape of the corpus alone. So the work
and memory of a cell are bounded, and are the same on every machine. Overfull cells are divided
again. Equal rows, which no centre can separate, are divided into pieces.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import BoolArray, Float64Array, FloatArray, Int64Array
from latentscale.neighbours.exact import Neighbours, nearest
from latentscale.tiles.device import inner_products
from latentscale.tiles.distances import Metric, Points, row_blocks

LLOYD_ROUNDS = 8
ASSIGN_BLOCK = 4096
CENTRE_BLOCK = 8192
ASSIGN_ENTRIES = 1 << 22
"""Largest number of products of rows and centres held at a time."""


def cell_cap(n: int, d: int) -> int:
    """Return the largest number of rows that a cell may hold.

    Parameters
    ----------
    n, d : int
        Rows and dimensions of the corpus.

    Returns
    -------
    int
        As many float64 rows as fit in 128 MiB, within 4096 … 32768; more only where that would
        make over 10⁵ cells.
    """
    by_memory = min(max((1 << 24) // d, 4096), 32768)
    return max(by_memory, -(-n // 50_000))


def find_centres(
    sample: NDArray[np.floating], cells: int, generator: np.random.Generator
) -> Float64Array:
    """Place cell centres by bisecting k-means.

    Parameters
    ----------
    sample : ndarray of float, shape (s, d)
        Rows drawn at random from the corpus (unit rows for the cosine metric).
    cells : int
        Number of centres wanted, at least 1.
    generator : numpy.random.Generator
        Source of the starting rows.

    Returns
    -------
    ndarray of float64, shape (c, d)
        Means of groups of similar size; ``1 <= c <= cells``, and fewer when the sample has fewer
        distinct rows.

    Raises
    ------
    ValueError
        If the sample is empty or ``cells < 1``.

    Notes
    -----
    Costs about ``32 s d log2(cells) + 16 s d cells`` operations.
    """
    if cells < 1 or len(sample) == 0:
        raise ValueError(
            f"cannot place {cells} centres on {len(sample)} rows; both must be positive"
        )
    rows = np.asarray(sample, dtype=np.float64)
    # The largest group comes first; among groups of one size, the oldest.
    numbers = itertools.count()
    groups = [(-len(rows), next(numbers), np.arange(len(rows)))]
    finished: list[Int64Array] = []
    while groups and len(groups) + len(finished) < cells:
        *_, largest = heapq.heappop(groups)
        side = bisect_rows(rows[largest], generator)
        if side.all():
            finished.append(largest)
        else:
            for half in (largest[side], largest[~side]):
                heapq.heappush(groups, (-len(half), next(numbers), half))
    divided = finished + [group for *_, group in groups]
    centres = np.array([rows[group].mean(axis=0) for group in divided])
    return move_centres(rows, centres, LLOYD_ROUNDS)


def move_centres(rows: Float64Array, centres: Float64Array, rounds: int) -> Float64Array:
    """Move centres to the means of their nearest rows (Lloyd's algorithm), in place.

    Parameters
    ----------
    rows : ndarray of float64, shape (s, d)
        The rows.
    centres : ndarray of float64, shape (c, d)
        Where the centres begin. One that has no rows stays.
    rounds : int
        Iterations; each costs ``2 s c d`` operations.
    """
    for _ in range(rounds):
        owner = _nearest_centre(rows, centres)
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(len(centres) + 1))
        for cell in np.flatnonzero(np.diff(starts)):
            centres[cell] = rows[order[starts[cell] : starts[cell + 1]]].mean(axis=0)
    return centres


def _nearest_centre(rows: Float64Array, centres: Float64Array) -> Int64Array:
    half_squares = 0.5 * np.square(centres).sum(axis=1)
    owner = np.empty(len(rows), dtype=np.int64)
    size = min(len(rows), max(1, ASSIGN_ENTRIES // len(centres)))
    products = np.empty((size, len(centres)))
    for block in row_blocks(len(rows), size):
        tile = products[: block.stop - block.start]
        inner_products(rows[block], centres, tile)
        owner[block] = (half_squares - tile).argmin(axis=1)
    return owner


def assign(points: Points, centres: FloatArray, overlap: int) -> Int64Array:
    """Find the nearest centres of every row.

    Parameters
    ----------
    points : Points
        A block of ``m`` rows.
    centres : ndarray of float32 or float64, shape (c, d)
        Cell centres.
    overlap : int
        Number of cells of a row; all cells if there are fewer.

    Returns
    -------
    ndarray of int64, shape (m, min(overlap, c))
        Cell numbers, nearest centre first; equal rows get equal cells.
    """
    metric = centre_metric(points.metric)
    queries = Points(points.rows, points.squared_norms, metric)
    overlap = min(overlap, len(centres))
    found = Neighbours.none(len(points), overlap)
    for block in row_blocks(len(centres), CENTRE_BLOCK):
        found = nearest(
            queries,
            centre_points(centres[block], metric),
            overlap,
            query_ids=np.full(len(points), -1, dtype=np.int64),
            candidate_ids=np.arange(block.start, block.stop, dtype=np.int64),
            known=found,
        )
    return found.indices


def assign_by_blocks(points: Points, centres: FloatArray, overlap: int) -> Int64Array:
    """Find the nearest centres of any number of rows, block by block; see :func:`assign`."""
    blocks = row_blocks(len(points), ASSIGN_BLOCK)
    return np.concatenate([assign(points.take(block), centres, overlap) for block in blocks])


def centre_metric(metric: Metric) -> Metric:
    """Return the metric for rows and centres: means of unit rows aren't of unit length."""
    return "euclidean" if metric == "cosine" else metric


def centre_points(centres: FloatArray, metric: Metric) -> Points:
    """Prepare centres for tiles without scaling them."""
    rows: Float64Array = np.asarray(centres, dtype=np.float64)
    return Points(rows, np.einsum("ij,ij->i", rows, rows), metric)


def partition(
    points: Points, *, overlap: int, cap: int, generator: np.random.Generator
) -> list[Int64Array]:
    """Divide rows into overlapping cells of at most ``cap`` rows.

    Parameters
    ----------
    points : Points
        All ``n`` rows.
    overlap : int
        Cells of a row, at least 1.
    cap : int
        Most rows of a cell, at least 2.
    generator : numpy.random.Generator
        Source of the sample and the starting rows.

    Returns
    -------
    list of ndarray of int64
        Ascending row numbers of each cell; every row is in at least one.

    Raises
    ------
    ValueError
        If ``overlap < 1`` or ``cap < 2``.
    """
    if overlap < 1 or cap < 2:
        raise ValueError(f"overlap {overlap} must be at least 1 and the cell cap {cap} at least 2")
    n = len(points)
    if n <= cap:
        return [np.arange(n, dtype=np.int64)]
    # Cells are filled to half of the cap on average, so few of them overflow and need dividing.
    cells = -(-2 * overlap * n // cap)
    sample = generator.choice(n, size=min(n, 256 * cells), replace=False)
    centres = find_centres(points.rows[np.sort(sample)], cells, generator)
    owners = assign_by_blocks(points, centres, overlap)
    order = np.argsort(owners, axis=None, kind="stable")
    members = order // owners.shape[1]
    starts = np.searchsorted(owners.ravel()[order], np.arange(len(centres) + 1))
    divided: list[Int64Array] = []
    for cell in range(len(centres)):
        rows = members[starts[cell] : starts[cell + 1]]
        if len(rows):
            divided.extend(divide(points, rows, cap, generator))
    return divided


def bisect_rows(rows: Float64Array, generator: np.random.Generator) -> BoolArray:
    """Bisect rows by 2-means.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        At least one row.
    generator : numpy.random.Generator
        Source of the starting rows.

    Returns
    -------
    ndarray of bool, shape (n,)
        True for rows on the first side; all True when the rows are equal.
    """
    start = rows[generator.integers(len(rows))]
    farther = np.flatnonzero((rows != start).any(axis=1))
    if len(farther) == 0:
        return np.ones(len(rows), dtype=np.bool_)
    centres = np.stack([start, rows[generator.choice(farther)]])
    for _ in range(LLOYD_ROUNDS):
        # A row is nearer to the first centre if it is on that side of the plane halfway between
        # them.
        normal = centres[0] - centres[1]
        side = rows @ normal > 0.5 * (centres.sum(axis=0) @ normal)
        if side.all() or not side.any():
            side = (rows == start).all(axis=1)
        centres = np.stack([rows[side].mean(axis=0), rows[~side].mean(axis=0)])
    return np.asarray(side, dtype=np.bool_)


def divide(
    points: Points, rows: Int64Array, cap: int, generator: np.random.Generator
) -> Iterator[Int64Array]:
    """Divide one cell's rows until no piece exceeds the cap.

    Parameters
    ----------
    points : Points
        All rows.
    rows : ndarray of int64
        Numbers of the rows in the cell.
    cap : int
        Most rows of a piece.
    generator : numpy.random.Generator
        Source of the starting rows.

    Yields
    ------
    ndarray of int64
        The rows of a piece, in the given order.
    """
    if len(rows) <= cap:
        yield rows
        return
    side = bisect_rows(points.rows[rows], generator)
    if side.all():
        yield from np.array_split(rows, -(-len(rows) // cap))
        return
    yield from divide(points, rows[side], cap, generator)
    yield from divide(points, rows[~side], cap, generator)
