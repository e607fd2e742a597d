r"""A preconditioner for similarity matrices, from landmarks and Vecchia neighbours.

Where points lie close together compared with the scale, the similarity matrix ``K`` has few large
eigenvalues, and conjugate gradients take a step for each of them, about :math:`\sqrt n` on data of
low intrinsic dimension. Two approximations that complement each other remove nearly all of these
steps: the adaptive factorised Nyström preconditioner of Zhao, Xu, Huang, Chow and Xi (2024).

*Landmarks* ``L``, ``m`` random rows, represent the coarse shape. What they leave unexplained of the
other rows is the Schur complement :math:`S = K - K_{\cdot L} K_{LL}^{-1} K_{L\cdot}` (the error of
Nyström's method, Williams and Seeger 2001).

*Vecchia neighbours* represent the neighbourhood of a row. In a random order of the rows, a row of
the inverse Cholesky factor of ``S`` is nearly zero except at the row's few Vecchia neighbours
(Vecchia 1988). The best factor ``G`` with that pattern needs one small system for each row
(Kolotilina and Yeremin 1993): its row ``i`` is the last row of the inverse Cholesky factor of ``S``
restricted to row ``i`` and its Vecchia neighbours.

With :math:`s = r - K_{\cdot L} c` and :math:`c = K_{LL}^{-1} r_L`,

.. math:: M^{-1} r = \begin{pmatrix} c - K_{LL}^{-1} K_{L\cdot}\, y \\ y \end{pmatrix},
          \qquad y = G^\top G\, s,

so applying it takes two visits to the ``n m`` pairs of rows and landmarks, and nothing of that size
is stored. The vector ``s`` is the residual after ``c`` has been added to the solution at the
landmarks.

On clustered rows of intrinsic dimension 8, with a landmark for every 50 rows and ten Vecchia
neighbours for each row, an accuracy of 3·10⁻⁴ took 3 to 6 steps instead of 7 to 18; on sentence
embeddings 4 to 6 instead of 4 to 9. Missing some Vecchia neighbours does no harm, so they are
searched inside overlapping cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numba
import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import NDArray

from latentscale.array_types import BoolArray, Float32Array, Float64Array, Int32Array, Int64Array
from latentscale.linalg.iterations import ReadRows
from latentscale.magnitude.vecchia import distances_among, vecchia_neighbours
from latentscale.neighbours.ivf import assign, find_centres
from latentscale.tiles.distances import Points, distance_tile, row_blocks
from latentscale.tiles.exponential_products import DistanceTiles, tile_sums

ROWS_FOR_A_LANDMARK = 40
"""Rows for each landmark: with more landmarks, preparing takes longer than the steps it saves."""

SINGLE_RANGE = 1e37
"""Largest scale, and one over the smallest, whose distances single precision tells apart."""

MIN_LANDMARKS, MAX_LANDMARKS = 250, 2000
"""Bounds of the number of landmarks; for few rows it is a tenth of the rows. A factor takes 32 MB
at most."""

FACTORS_BYTES = 320 * 2**20
"""Memory for the landmarks' factors of all scales."""

PROBES = 256
"""Further random rows, which measure what the landmarks leave unexplained."""

VECCHIA_NEIGHBOURS = 10
"""Vecchia neighbours of a row. With 20, nearly equidistant in 384 dimensions, it took more
steps."""

NUGGET = 1e-4
"""Added to the diagonals. Residuals in single precision are no more accurate than this."""

CELL_ROWS = 1024
"""Mean number of rows of a cell in which Vecchia neighbours are searched."""

OVERLAP = 2
"""Cells whose rows are candidates for a row's Vecchia neighbours."""

MAX_MEMBERS = 6 * CELL_ROWS
"""Rows beyond which a cell is divided at random."""

SAMPLE_SHARE = 8
"""Smallest number of sampled rows for each centre of a cell."""

CELLS_BYTES = 2**26
"""Memory for the rows of the cells that are processed in one pass over all rows."""

BLOCK_ROWS = 2048
"""Rows that are compared with the landmarks at a time."""

KEPT_BYTES = 2**27
"""Memory for the distances between rows and landmarks, which are kept where they and the rows fit
it."""

PREDICTING_LANDMARKS = 1000
"""Landmarks from which the number of steps is predicted."""


def landmark_count(n: int) -> int:
    """Return the number of landmarks for ``n`` rows."""
    by_rows = min(max(n // ROWS_FOR_A_LANDMARK, MIN_LANDMARKS), MAX_LANDMARKS)
    return min(by_rows, n // 10)


def most_preconditioners(n: int) -> int:
    """Return how many scales can have one; the larger scales have none and need fewer steps."""
    return max(1, FACTORS_BYTES // (8 * max(landmark_count(n), 1) ** 2))


@dataclass(frozen=True)
class Landmarks:
    """Random rows that represent all rows.

    Attributes
    ----------
    points : Points
        ``m`` landmarks, followed by the probes.
    positions : ndarray of int64
        Their positions among all rows.
    count : int
        ``m``.
    """

    points: Points
    positions: Int64Array
    count: int

    @classmethod
    def draw(cls, n: int, read_rows: ReadRows, generator: np.random.Generator) -> Landmarks:
        """Draw landmarks and probes from ``n`` distinct rows, and read them."""
        count = landmark_count(n)
        positions = generator.choice(n, min(count + PROBES, n), replace=False)
        return cls(gather_rows(read_rows, positions), positions, count)

    @property
    def chosen(self) -> Points:
        """The landmarks without the probes."""
        return self.points.take(slice(0, self.count))

    @property
    def probes(self) -> Points:
        """The probes."""
        return self.points.take(slice(self.count, None))


def gather_rows(read_rows: ReadRows, positions: Int64Array) -> Points:
    """Read the rows at these positions, in the order given."""
    order = np.argsort(positions)
    ascending = positions[order]
    parts: list[Points] = []
    start = 0
    for block in read_rows():
        low, high = np.searchsorted(ascending, (start, start + len(block)))
        parts.append(block.take(ascending[low:high] - start))
        start += len(block)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return Points(
        np.concatenate([part.rows for part in parts])[place],
        np.concatenate([part.squared_norms for part in parts])[place],
        parts[0].metric,
        parts[0].origin,
    )


@dataclass(frozen=True)
class Preconditioner:
    """The preconditioner of one scale.

    Attributes
    ----------
    landmark_factor : ndarray of float64, shape (m, m)
        Lower Cholesky factor of the landmarks' similarities.
    row_factors : ndarray of float32, shape (n, k + 1)
        The rows of ``G``: entries at the Vecchia neighbours, then at the row itself; zero for
        landmarks.
    """

    landmark_factor: Float64Array
    row_factors: Float32Array


def prepare_preconditioners(
    landmarks: Landmarks,
    scales: Sequence[float],
    n: int,
    read_rows: ReadRows,
    generator: np.random.Generator,
    *,
    cell_rows: int = CELL_ROWS,
    most_members: int = MAX_MEMBERS,
    cells_bytes: int = CELLS_BYTES,
) -> tuple[list[Preconditioner | None], Int32Array]:
    """Prepare the preconditioner of every scale for ``n`` rows.

    Parameters
    ----------
    landmarks : Landmarks
        Of these rows.
    scales : sequence of float
        ``s`` positive scales.
    n : int
        Number of rows.
    read_rows : ReadRows
        Reads the rows.
    generator : numpy.random.Generator
        Draws the order of the rows and the centres of cells.
    cell_rows : int
        Mean number of rows of a cell in which Vecchia neighbours are searched.
    most_members : int
        Rows beyond which a cell is divided at random.
    cells_bytes : int
        Memory for the rows of the cells that are processed in one pass over all rows. The result
        doesn't depend on it.

    Returns
    -------
    list of Preconditioner or None
        None where rounding leaves no factor, or distances are beyond single precision.
    ndarray of int32, shape (n, k)
        The Vecchia neighbours of every row, for all scales; missing ones are the row itself.

    Notes
    -----
    Costs about ``2 n m (m + k²)`` operations a scale, and once a search among some thousand rows
    for every row. Memory is ``cells_bytes`` besides the result.
    """
    m = landmarks.count
    between = distance_tile(landmarks.chosen, landmarks.chosen)
    factors = [
        _landmark_factor(between, scale) if 1.0 / SINGLE_RANGE < scale < SINGLE_RANGE else None
        for scale in scales
    ]
    prepared = [
        None
        if factor is None
        else Preconditioner(factor, np.zeros((n, VECCHIA_NEIGHBOURS + 1), np.float32))
        for factor in factors
    ]
    ranks = np.empty(n, dtype=np.int64)
    ranks[generator.permutation(n)] = np.arange(n)
    ranks[landmarks.positions[:m]] = -1
    vecchia = np.repeat(np.arange(n, dtype=np.int32)[:, None], VECCHIA_NEIGHBOURS, axis=1)
    everything = _cells(landmarks, ranks, read_rows, generator, cell_rows, most_members)
    for cells in _batches(everything, landmarks.points.dimension, cells_bytes):
        gathered = np.unique(np.concatenate([cell.members for cell in cells]))
        rows = gather_rows(read_rows, gathered)
        for cell in cells:
            points = rows.take(np.searchsorted(gathered, cell.members))
            lists = vecchia_neighbours(points, VECCHIA_NEIGHBOURS).indices[cell.owned]
            owned = cell.members[cell.owned]
            found = np.where(lists >= 0, cell.members[lists], owned[:, None])
            vecchia[owned] = found.astype(np.int32)
            lists = np.concatenate((lists, np.flatnonzero(cell.owned)[:, None]), axis=1)
            among = distances_among(points, lists)
            to_landmarks = distance_tile(points, landmarks.chosen).astype(np.float32)
            for scale, ready in zip(scales, prepared, strict=True):
                if ready is not None:
                    explained = _explained(ready.landmark_factor, to_landmarks, scale)
                    ready.row_factors[owned] = _factorise_rows(explained, among, lists, scale)
    return prepared, vecchia


def preconditioner_bytes(n: int, scales: int, dimension: int) -> int:
    """Bound the memory of the preconditioners of ``scales`` scales while they are prepared."""
    m = landmark_count(n)
    factors = min(scales, most_preconditioners(n)) * (8 * m * m + 4 * n * (VECCHIA_NEIGHBOURS + 1))
    once = 3 * 8 * (m + PROBES) * dimension + 4 * 8 * m * m + n * (4 * VECCHIA_NEIGHBOURS + 48)
    # A batch holds at least one cell. A cell holds its rows, their lists, and their explained
    # parts.
    rows = min(n, MAX_MEMBERS)
    cell = (
        rows * 8 * (2 * dimension + 2 * m + (VECCHIA_NEIGHBOURS + 1) ** 2 + 4 * VECCHIA_NEIGHBOURS)
    )
    return factors + once + min(2 * CELLS_BYTES, 16 * OVERLAP * n * dimension) + cell


@dataclass(frozen=True)
class _Cell:
    """Rows among which Vecchia neighbours are searched, in random order, and the rows it owns."""

    members: Int64Array
    owned: BoolArray


def _cells(
    landmarks: Landmarks,
    ranks: Int64Array,
    read_rows: ReadRows,
    generator: np.random.Generator,
    cell_rows: int,
    most_members: int,
) -> list[_Cell]:
    """Divide the rows that aren't landmarks by their nearest centres."""
    sample = landmarks.points.rows
    count = min(-(-len(ranks) // cell_rows), max(len(sample) // SAMPLE_SHARE, 1))
    centres = find_centres(sample, count, generator)
    near = np.concatenate([assign(block, centres, OVERLAP) for block in read_rows()])
    near[ranks < 0] = -1
    cells = []
    for number in range(len(centres)):
        members = np.flatnonzero((near == number).any(axis=1))
        members = members[np.argsort(ranks[members])]
        pieces = -(-len(members) // most_members)
        for piece in (members[start::pieces] for start in range(pieces)):
            owned = near[piece, 0] == number
            if owned.any():
                cells.append(_Cell(piece, owned))
    return cells


def _batches(cells: Sequence[_Cell], dimension: int, cells_bytes: int) -> Iterator[list[_Cell]]:
    """Group cells so that the rows of a group fit the memory."""
    batch: list[_Cell] = []
    size = 0
    for cell in cells:
        needed = 8 * (dimension + 1) * len(cell.members)
        if batch and size + needed > cells_bytes:
            yield batch
            batch, size = [], 0
        batch.append(cell)
        size += needed
    if batch:
        yield batch


def _landmark_factor(between: Float64Array, scale: float) -> Float64Array | None:
    similarities = np.exp(-scale * between)
    np.fill_diagonal(similarities, 1.0 + NUGGET)
    try:
        return scipy.linalg.cholesky(
            similarities.T, lower=True, overwrite_a=True, check_finite=False
        )
    except scipy.linalg.LinAlgError:
        return None


def _explained(factor: Float64Array, to_landmarks: Float32Array, scale: float) -> Float32Array:
    """Return coordinates whose inner products are the similarities that the landmarks explain."""
    similarities = np.exp(to_landmarks * np.float32(-scale))
    # The row-major similarities are a column-major matrix for BLAS.
    coordinates: Float32Array = scipy.linalg.blas.strsm(
        1.0, factor, similarities.T, lower=1, overwrite_b=1
    ).T
    return coordinates


def _unexplained(landmarks: Landmarks, scale: float, similarities: Float64Array) -> float:
    """Return the mean share of the probes' variance that the landmarks leave unexplained."""
    half = np.linalg.cholesky(similarities)
    tile = np.exp(-scale * distance_tile(landmarks.chosen, landmarks.probes))
    explained = scipy.linalg.solve_triangular(half, tile, lower=True, check_finite=False)
    shares = 1.0 - np.einsum("ij,ij->j", explained, explained)
    return max(float(shares.mean()) if len(shares) else 1.0, NUGGET)


@numba.njit(cache=True, nogil=True)
def _factorise_rows(
    explained: Float32Array, distances: Float64Array, lists: Int64Array, scale: float
) -> Float32Array:
    """Compute the last row of the inverse Cholesky factor of every list's Schur complement."""
    length, width = lists.shape[1], explained.shape[1]
    factors = np.zeros((len(lists), length), dtype=np.float32)
    rows = np.empty((length, width), dtype=np.float32)
    present = np.empty(length, dtype=np.int64)
    for q in range(len(lists)):
        count = 0
        for c in range(length):
            at = lists[q, c]
            if at >= 0:
                # A loop compiles two seconds faster than an assignment of a row.
                for k in range(width):
                    rows[count, k] = explained[at, k]
                present[count] = c
                count += 1
        products = np.dot(rows[:count], rows[:count].T)
        rest = np.zeros((count, count))
        for i in range(count):
            rest[i, i] = NUGGET
            for j in range(i + 1):
                rest[i, j] -= products[i, j]
                rest[i, j] += np.exp(-scale * distances[q, present[i], present[j]])
        for j in range(count):
            for other in range(j):
                for i in range(j, count):
                    rest[i, j] -= rest[i, other] * rest[j, other]
            pivot = np.sqrt(max(rest[j, j], NUGGET))
            rest[j, j] = pivot
            for i in range(j + 1, count):
                rest[i, j] /= pivot
        solution = np.zeros(count)
        solution[count - 1] = 1.0
        for i in range(count - 1, -1, -1):
            for j in range(i + 1, count):
                solution[i] -= rest[j, i] * solution[j]
            solution[i] /= rest[i, i]
            factors[q, present[i]] = solution[i]
    return factors


@dataclass(frozen=True)
class LandmarkTiles:
    """The distances between all rows and the landmarks, which every visit computes or has kept.

    Attributes
    ----------
    landmarks : Landmarks
    n : int
        Number of rows.
    read_rows : ReadRows
    """

    landmarks: Landmarks
    n: int
    read_rows: ReadRows
    _kept: list[tuple[slice, DistanceTiles]] = field(default_factory=list, init=False, repr=False)

    def __iter__(self) -> Iterator[tuple[slice, DistanceTiles]]:
        """Visit the rows in blocks: their numbers, and the tiles between them and landmarks."""
        if self._kept:
            yield from self._kept
            return
        chosen = self.landmarks.chosen
        size = kept_bytes(self.n, chosen.dimension)
        visited = []
        for rows, block in _blocks(self.read_rows, chosen):
            tiles = DistanceTiles(block, chosen, "single", kept_bytes=size)
            yield rows, tiles
            if size:
                visited.append((rows, tiles))
        self._kept.extend(visited)


def kept_bytes(n: int, dimension: int) -> int:
    """Return the memory that the kept distances of ``n`` rows to landmarks take with the rows.

    0 where that is more than :data:`KEPT_BYTES`, and none are kept.
    """
    size = n * (4 * landmark_count(n) + 8 * dimension)
    return size if size <= KEPT_BYTES else 0


def apply_preconditioners(
    tiles: LandmarkTiles,
    vecchia: Int32Array,
    scales: Sequence[float],
    preconditioners: Sequence[Preconditioner],
    residuals: Sequence[NDArray[np.floating]],
) -> list[Solved]:
    """Solve with the preconditioners.

    Parameters
    ----------
    tiles : LandmarkTiles
    vecchia : ndarray of int32, shape (n, k)
    scales : sequence of float
        Distinct, ascending.
    preconditioners : sequence of Preconditioner
        One a scale.
    residuals : sequence of ndarray, shape (n,)
        One a scale.

    Returns
    -------
    list of Solved
        One a scale.
    """
    count = tiles.landmarks.count
    positions = tiles.landmarks.positions[:count]
    corrections = np.stack(
        [
            scipy.linalg.cho_solve(
                (ready.landmark_factor, True), residual[positions].astype(np.float64)
            )
            for ready, residual in zip(preconditioners, residuals, strict=True)
        ],
        axis=1,
    )
    corrected = [residual.copy() for residual in residuals]
    for rows, between in tiles:
        nothing = np.zeros((len(between.points), len(scales)))
        images = tile_sums(between, scales, nothing, corrections).products_a
        for k, vector in enumerate(corrected):
            vector[rows] -= images[:, k].astype(vector.dtype)
    solved = [
        _apply_row_factors(ready.row_factors, vecchia, vector)
        for ready, vector in zip(preconditioners, corrected, strict=True)
    ]
    moments = np.zeros((count, len(scales)))
    for rows, between in tiles:
        vectors = np.stack([vector[rows] for vector in solved], axis=1)
        moments += tile_sums(between, scales, vectors, np.zeros_like(moments)).products_b
    for k, (ready, vector) in enumerate(zip(preconditioners, solved, strict=True)):
        vector[positions] = corrections[:, k] - scipy.linalg.cho_solve(
            (ready.landmark_factor, True), moments[:, k]
        )
    return [
        Solved(vector.astype(rest.dtype), rest, correction)
        for vector, rest, correction in zip(solved, corrected, corrections.T, strict=True)
    ]


@dataclass(frozen=True)
class Solved:
    """The result of applying a preconditioner to a residual ``r``.

    Attributes
    ----------
    solution : ndarray, shape (n,)
        ``M⁻¹ r``, of the residual's type.
    corrected : ndarray, shape (n,)
        The residual after ``correction`` has been added to the solution.
    correction : ndarray of float64, shape (m,) or None
        The correction at the landmarks; None if there is none.
    """

    solution: NDArray[np.floating]
    corrected: NDArray[np.floating]
    correction: Float64Array | None


@numba.njit(cache=True, nogil=True)
def _apply_row_factors(
    factors: Float32Array, vecchia: Int32Array, vector: NDArray[np.floating]
) -> Float64Array:
    """Multiply by ``G`` and then by its transpose."""
    n, k = vecchia.shape
    product = np.zeros(n)
    for i in range(n):
        total = 0.0
        for j in range(k):
            total += factors[i, j] * vector[vecchia[i, j]]
        total += factors[i, k] * vector[i]
        for j in range(k):
            product[vecchia[i, j]] += factors[i, j] * total
        product[i] += factors[i, k] * total
    return product


def _blocks(read_rows: ReadRows, like: Points) -> Iterator[tuple[slice, Points]]:
    """Read the rows in small blocks with the landmarks' origin."""
    start = 0
    for block in read_rows():
        for rows in row_blocks(len(block), BLOCK_ROWS):
            part = block.take(rows)
            part = part if like.origin is None else part.about(like.origin)
            yield slice(start + rows.start, start + rows.stop), part
        start += len(block)


def predicted_steps(landmarks: Landmarks, scale: float, n: int, share: float, most: int) -> int:
    r"""Predict how many steps conjugate gradients take without a preconditioner.

    Take the landmarks' matrix, let each landmark stand for ``n / m`` rows, and add the unexplained
    part to the diagonal. This matrix has the large eigenvalues of ``K``, with their shares in the
    vector of ones. Conjugate gradients on it reach a relative gain of ``share`` in about as many
    steps as on ``K``, at the cost of ``m²`` a step.
    """
    m = min(landmarks.count, PREDICTING_LANDMARKS)
    few = Landmarks(
        landmarks.points.take(np.r_[0:m, landmarks.count : len(landmarks.points)]),
        landmarks.positions,
        m,
    )
    similarities = np.exp(-scale * distance_tile(few.chosen, few.chosen))
    np.fill_diagonal(similarities, 1.0 + NUGGET)
    try:
        unexplained = _unexplained(few, scale, similarities)
    except scipy.linalg.LinAlgError:
        return most
    similarities *= n / m
    residual, total = np.ones(m), 0.0
    direction, squared = residual.copy(), float(m)
    for step in range(1, most):
        image = similarities @ direction + unexplained * direction
        length = squared / float(direction @ image)
        gain = length * squared
        total += gain
        if not gain > share * total:
            return step
        residual -= length * image
        remaining = float(residual @ residual)
        direction = residual + remaining / squared * direction
        squared = remaining
        if not math.isfinite(squared) or squared == 0.0:
            return step
    return most
