"""Overlapping cells of rows: centres, which cells a row is in, and their division.

Rows are grouped by centres (bisecting k-means, Steinbach, Karypis & Kumar 2000: the largest group
is cut in two until there are enough; then a few iterations of Lloyd's over all), and every row
joins the cells of its ``overlap`` nearest centres.

A cell never holds more rows than a cap that depends on the corpus's shape alone, so that the work
and memory of a cell are bounded and the same whichever machine does it. Overfull cells are divided
again; equal rows, which no centre can tell apart, are cut into pieces.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from latentscale.neighbours.exact import Int64Array, nearest
from latentscale.tiles.device import inner_products
from latentscale.tiles.distances import Float64Array, Metric, Points, row_blocks

LLOYD_ROUNDS = 8
ASSIGN_BLOCK = 4096
ASSIGN_ENTRIES = 1 << 22
"""Products of sampled rows with centres that are held at once."""


def cell_cap(n: int, d: int) -> int:
    """Most rows that a cell may hold.

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
        Means of groups of like size, ``1 <= c <= cells``: fewer when the sample has fewer
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
    # The largest first; of groups of one size the one that was made first.
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
    for _ in range(LLOYD_ROUNDS):
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


def assign(points: Points, centres: Float64Array, overlap: int) -> Int64Array:
    """Find the nearest centres of every row.

    Parameters
    ----------
    points : Points
        A block of ``m`` rows.
    centres : ndarray of float64, shape (c, d)
        Cell centres.
    overlap : int
        Cells of a row; all of them where there are fewer.

    Returns
    -------
    ndarray of int64, shape (m, min(overlap, c))
        Cell numbers, nearest centre first; equal rows get equal cells.
    """
    metric = centre_metric(points.metric)
    found = nearest(
        Points(points.rows, points.squared_norms, metric),
        centre_points(centres, metric),
        min(overlap, len(centres)),
        query_ids=np.full(len(points), -1, dtype=np.int64),
        candidate_ids=np.arange(len(centres), dtype=np.int64),
        seed=0,
    )
    return found.indices


def assign_by_blocks(points: Points, centres: Float64Array, overlap: int) -> Int64Array:
    """Do what :func:`assign` does for any number of rows, a block after the other."""
    blocks = row_blocks(len(points), ASSIGN_BLOCK)
    return np.concatenate([assign(points.take(block), centres, overlap) for block in blocks])


def centre_metric(metric: Metric) -> Metric:
    """Return what rows and centres are compared under: means of unit rows have another length."""
    return "euclidean" if metric == "cosine" else metric


def centre_points(centres: Float64Array, metric: Metric) -> Points:
    """Make centres ready for tiles, as they are."""
    return Points(centres, np.einsum("ij,ij->i", centres, centres), metric)


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
    # Filled to half of the cap on average, few cells overflow and need dividing.
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


def bisect_rows(rows: Float64Array, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Cut rows in two by 2-means.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        At least one row.
    generator : numpy.random.Generator
        Source of the starting rows.

    Returns
    -------
    ndarray of bool, shape (n,)
        Which rows are on the first side; all of them when they are equal.
    """
    start = rows[generator.integers(len(rows))]
    farther = np.flatnonzero((rows != start).any(axis=1))
    if len(farther) == 0:
        return np.ones(len(rows), dtype=np.bool_)
    centres = np.stack([start, rows[generator.choice(farther)]])
    for _ in range(LLOYD_ROUNDS):
        # Nearer to the first of two centres: on its side of the plane halfway.
        normal = centres[0] - centres[1]
        side = rows @ normal > 0.5 * (centres.sum(axis=0) @ normal)
        if side.all() or not side.any():
            side = (rows == start).all(axis=1)
        centres = np.stack([rows[side].mean(axis=0), rows[~side].mean(axis=0)])
    return np.asarray(side, dtype=np.bool_)


def divide(
    points: Points, rows: Int64Array, cap: int, generator: np.random.Generator
) -> Iterator[Int64Array]:
    """Cut one cell's rows until no piece exceeds the cap.

    Parameters
    ----------
    points : Points
        All rows.
    rows : ndarray of int64
        Numbers of those in the cell.
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
