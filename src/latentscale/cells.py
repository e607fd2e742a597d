r"""Approximate nearest neighbours by overlapping cells.

Rows are grouped by centres (bisecting k-means, Steinbach, Karypis & Kumar 2000: the largest group
is cut in two until there are enough; then a few rounds of Lloyd's over all), and every row joins
the cells of its ``overlap`` nearest centres. Neighbours are sought inside each cell, and a row's
lists from its cells are merged. A pair is missed only when no cell holds both rows, or when the
search inside a cell misses it; the first grows rarer with the overlap. Last, the neighbours of
every row's neighbours are tried, which finds most pairs that a border between cells kept apart.

A cell never holds more rows than a cap that depends on the corpus's shape alone, so that the work
and memory of a cell are bounded and the same whichever machine does it. Overfull cells are divided
again; equal rows, which no centre can tell apart, are cut into pieces.

Inside a cell, equal rows are collapsed to one before the search and expanded after it, so that a
heap of them neither crowds out the search's candidate lists nor becomes a hub. Small cells are
searched exactly by tiles; large ones by nearest neighbour descent (Dong, Moses & Li 2011) as
pynndescent implements it, which compiles for tens of seconds in every process and so pays only
beyond a certain amount of work. Its distances, in float32, are computed again in float64.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import warnings
from collections.abc import Iterator, Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from latentscale.backend import inner_products
from latentscale.distances import METRICS, Float64Array, Metric, Points, row_blocks
from latentscale.neighbour_lists import offer, pair_hash, query_hash
from latentscale.neighbours import (
    Int64Array,
    Neighbours,
    _empty,
    _hash_key,
    merge,
    nearest,
)
from latentscale.pairs import exact_distance

LLOYD_ROUNDS = 8
ASSIGN_BLOCK = 4096
ASSIGN_ENTRIES = 1 << 22
"""Products of sampled rows with centres that are held at once."""

EXACT_WORK = 2e12
"""Multiplications (40 s on one core) up to which exact search beats compiling the descent."""

EXACT_CELL = 1 << 22
"""Coordinates (rows times dimensions) up to which a cell's exact search is as fast as a descent."""

DESCENT_NEIGHBOURS = 32
"""Least list length inside a descent: shorter lists converge to worse graphs.

On 20000 sentence embeddings, the recall of 5 neighbours is 0.962 with lists of 16, 0.987 with 24
and 0.995 with 32.
"""

REFINEMENTS = 2
"""Rounds of :func:`refine` over the merged lists; a third gains little."""

_descent_turn = threading.Lock()
"""pynndescent's parallel functions abort the process when two threads call them."""


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


def approximate_neighbours(
    points: Points, k: int, *, overlap: int, generator: np.random.Generator, seed: int
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
    seed : int
        Seed of the hash that breaks ties.

    Returns
    -------
    Neighbours
        Shape (n, k), complete: rows that their cells left short are searched exactly.

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
    return search_cells(points, cells, k, descend=descend, generator=generator, seed=seed)


def search_cells(
    points: Points,
    cells: Sequence[Int64Array],
    k: int,
    *,
    descend: bool,
    generator: np.random.Generator,
    seed: int,
    refinements: int = REFINEMENTS,
) -> Neighbours:
    """Find nearly all of the ``k`` nearest of rows that cells have in common.

    Parameters
    ----------
    points : Points
        ``n`` rows.
    cells : sequence of ndarray of int64
        Ascending numbers of the rows in each cell; every row is in at least one.
    k : int
        Neighbours of a row, at least 1.
    descend : bool
        Search large cells by descent, see :func:`cell_neighbours`.
    generator : numpy.random.Generator
        Source of the descent's starting graphs.
    seed : int
        Seed of the hash that breaks ties.
    refinements : int
        Rounds of :func:`refine` over the merged lists.

    Returns
    -------
    Neighbours
        Shape (n, k), padded with id -1 only where ``n <= k``.

    Notes
    -----
    Holds the rows of one cell, and what its search takes, beside all rows and lists.
    """
    n = len(points)
    indices, distances, _ = _empty(n, k)
    for cell in cells:
        found = cell_neighbours(
            points.take(cell), cell, k, descend=descend, generator=generator, seed=seed
        )
        known = Neighbours(indices[cell], distances[cell])
        joined = merge(known, found, k, query_ids=cell, seed=seed)
        indices[cell], distances[cell] = joined.indices, joined.distances
    short = np.flatnonzero(indices[:, -1] < 0)
    if len(short):
        exact = nearest(
            points.take(short),
            points,
            k,
            query_ids=short,
            candidate_ids=np.arange(n, dtype=np.int64),
            seed=seed,
        )
        indices[short], distances[short] = exact.indices, exact.distances
    found = Neighbours(indices, distances)
    # One cell has no borders to mend, and lists of all rows nothing to gain.
    for _ in range(refinements if len(cells) > 1 and n > k else 0):
        found = refine(points, found, seed=seed)
    return found


def refine(points: Points, found: Neighbours, *, seed: int) -> Neighbours:
    """Try the neighbours of every row's neighbours, in either direction.

    Parameters
    ----------
    points : Points
        All ``n`` rows.
    found : Neighbours
        Complete lists of ``k`` neighbours.
    seed : int
        Seed of the hash that breaks ties.

    Returns
    -------
    Neighbours
        Lists at least as near; their order of rows changes nothing.

    Notes
    -----
    Costs about ``4 n k² d`` operations. Of the rows that point to one row, its own ``k`` and at
    most ``k`` others drawn by the hash are followed, so that hubs cost no more than others.
    """
    n, k = found.indices.shape
    pointed = found.indices.ravel()
    order = np.argsort(pointed, kind="stable")
    starts = np.searchsorted(pointed[order], np.arange(n + 1))
    indices, distances, hashes = _empty(n, k)
    _join(
        distances,
        hashes,
        indices,
        found.distances,
        found.indices,
        order // k,
        starts,
        points.rows,
        METRICS.index(points.metric),
        _hash_key(seed),
    )
    return Neighbours(indices, distances)


def cell_neighbours(
    points: Points,
    ids: Int64Array,
    k: int,
    *,
    descend: bool,
    generator: np.random.Generator,
    seed: int,
) -> Neighbours:
    """Find the nearest other rows of every row of one cell.

    Parameters
    ----------
    points : Points
        The cell's ``m`` rows.
    ids : ndarray of int64, shape (m,)
        Their row numbers in the corpus.
    k : int
        Neighbours of a row, at least 1.
    descend : bool
        Search cells of over 2²² distinct coordinates by descent; exactly otherwise.
    generator : numpy.random.Generator
        Source of the descent's starting graph.
    seed : int
        Seed of the hash that breaks ties.

    Returns
    -------
    Neighbours
        Shape (m, k), padded with id -1 where the cell is too small.
    """
    first, group_of = _equal_rows(points)
    distinct = points.take(first)
    if descend and len(distinct) * points.dimension > EXACT_CELL:
        graph = _descend(distinct, k, generator, seed)
    else:
        numbers = np.arange(len(distinct), dtype=np.int64)
        graph = nearest(distinct, distinct, k, query_ids=numbers, candidate_ids=numbers, seed=seed)
    members = np.argsort(group_of, kind="stable")
    starts = np.searchsorted(group_of[members], np.arange(len(distinct) + 1))
    indices, distances, hashes = _empty(len(points), k)
    _expand(
        distances,
        hashes,
        indices,
        graph.distances,
        graph.indices,
        group_of,
        members,
        starts,
        ids,
        _hash_key(seed),
    )
    return Neighbours(indices, distances)


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


def _equal_rows(points: Points) -> tuple[Int64Array, Int64Array]:
    """First row of each group of equal rows, and every row's group."""
    # Adding 0 turns -0 into 0, so that equal rows have equal bytes.
    rows = np.ascontiguousarray(points.rows + 0.0)
    words = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel()
    _, first, group_of = np.unique(words, return_index=True, return_inverse=True)
    return first.astype(np.int64), group_of.astype(np.int64)


def _descend(points: Points, k: int, generator: np.random.Generator, seed: int) -> Neighbours:
    """Nearest neighbour descent among distinct rows, with distances in float64."""
    from pynndescent import NNDescent

    asked = min(max(k + 1, DESCENT_NEIGHBOURS), len(points) - 1)
    with _descent_turn, warnings.catch_warnings():
        # A list left short is completed by exact search, so the warning adds nothing.
        warnings.filterwarnings("ignore", message="Failed to correctly find n_neighbors")
        descent = NNDescent(
            points.rows.astype(np.float32),
            metric="euclidean",
            n_neighbors=asked,
            n_jobs=1,
            random_state=np.random.RandomState(int(generator.integers(1 << 31))),
        )
        found = np.ascontiguousarray(descent.neighbor_graph[0], dtype=np.int64)
    numbers = np.arange(len(points), dtype=np.int64)
    found[found == numbers[:, None]] = -1
    indices, distances, hashes = _empty(len(points), k)
    metric = METRICS.index(points.metric)
    _measure(distances, hashes, indices, points.rows, found, metric, _hash_key(seed))
    return Neighbours(indices, distances)


@numba.njit(cache=True, nogil=True)
def _measure(
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    rows: Float64Array,
    found: Int64Array,
    metric: int,
    key: np.uint64,
) -> None:
    for i in range(found.shape[0]):
        hash_of_query = query_hash(key, i)
        for j in found[i]:
            if j < 0:
                continue
            distance = exact_distance(rows[i], rows[j], metric)
            offer(distances[i], hashes[i], indices[i], distance, pair_hash(hash_of_query, j), j)


@numba.njit(cache=True, nogil=True)
def _try(
    i: int,
    j: int,
    hash_of_query: np.uint64,
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    rows: Float64Array,
    metric: int,
) -> None:
    """Offer row j to row i's list, unless it is there."""
    if j == i:
        return
    for kept in indices[i]:
        if kept == j:
            return
    distance = exact_distance(rows[i], rows[j], metric)
    if distance <= distances[i, -1]:
        offer(distances[i], hashes[i], indices[i], distance, pair_hash(hash_of_query, j), j)


@numba.njit(cache=True, nogil=True)
def _join(
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    found_distances: Float64Array,
    found: Int64Array,
    pointing: Int64Array,
    starts: Int64Array,
    rows: Float64Array,
    metric: int,
    key: np.uint64,
) -> None:
    n, k = found.shape
    for i in range(n):
        hash_of_query = query_hash(key, i)
        for place in range(k):
            j = found[i, place]
            offer(
                distances[i],
                hashes[i],
                indices[i],
                found_distances[i, place],
                pair_hash(hash_of_query, j),
                j,
            )
        for j in found[i]:
            for second in found[j]:
                _try(i, second, hash_of_query, distances, hashes, indices, rows, metric)
        count = starts[i + 1] - starts[i]
        first = hash_of_query % np.uint64(max(count, 1))
        for place in range(min(count, k)):
            j = pointing[starts[i] + (np.int64(first) + place) % count]
            _try(i, j, hash_of_query, distances, hashes, indices, rows, metric)
            for second in found[j]:
                _try(i, second, hash_of_query, distances, hashes, indices, rows, metric)


@numba.njit(cache=True, nogil=True)
def _expand(
    distances: Float64Array,
    hashes: NDArray[np.uint64],
    indices: Int64Array,
    group_distances: Float64Array,
    group_neighbours: Int64Array,
    group_of: Int64Array,
    members: Int64Array,
    starts: Int64Array,
    ids: Int64Array,
    key: np.uint64,
) -> None:
    """Turn neighbours among groups of equal rows into neighbours among rows."""
    last = distances.shape[1] - 1
    for i in range(len(group_of)):
        group = group_of[i]
        hash_of_query = query_hash(key, ids[i])
        for near in range(-1, group_neighbours.shape[1]):
            other = group if near < 0 else group_neighbours[group, near]
            distance = 0.0 if near < 0 else group_distances[group, near]
            if other < 0 or distance > distances[i, last]:
                break
            for place in range(starts[other], starts[other + 1]):
                row = members[place]
                if row != i:
                    hash_of_pair = pair_hash(hash_of_query, ids[row])
                    offer(distances[i], hashes[i], indices[i], distance, hash_of_pair, ids[row])
