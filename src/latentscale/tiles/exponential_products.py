r"""Products of the similarity matrices :math:`e^{-tD}` with vectors, without the matrices.

The similarity matrix of a metric space at scale ``t`` has the entries :math:`\zeta_{ij} =
e^{-t\,d(x_i, x_j)}` (Limbeck et al. 2024, definitions 3.1 and 3.2). For ``n`` rows it has ``n²``
entries, which differ at every scale. Iterative solvers only multiply by it, so the matrix is never
stored: a product visits the distance tiles one after another, and one visit serves *all* scales.

Once its distances are known, a tile is cheap:

* the matrix is symmetric, so each unordered pair of blocks is visited once and used both ways;
* when the scales lie on a grid, :math:`t_k = t_0 + m_k \Delta` with whole :math:`m_k`, the
  exponentials are powers, :math:`e^{-t_k d} = e^{-t_0 d} (e^{-\Delta d})^{m_k}`, and one
  exponential a pair is enough for all scales. Scales may be missing from such a grid: a gap costs
  multiplications, but no exponential. Other scales take an exponential each.

Gaussian sums :math:`\sum_j e^{-s\,d(x_i, x_j)^2}` use the same tiles. Where each exponent is twice
the one before, one exponential serves several exponents by squaring.

Blocks
------
:func:`block_sums` computes the sums between two blocks of rows, or of one block with itself, both
ways. The tiles, the order of the sums and so the bits of the result depend on the blocks alone, not
on the machine's size or load. No pair is visited twice, so the implied matrix is exactly symmetric.
Two blocks should always be given in the same order, because a transposed tile may round
differently. Equal rows have similarity exactly 1, and so does the diagonal.

Precision
---------
``double`` is for reported results, ``single`` for the products before: tiles, exponentials and sums
over short strips are in float32, the rest in float64. :func:`similarity_error`,
:func:`product_error` and :func:`gaussian_error` bound the error. Similarities below 2⁻¹⁰⁰ are
raised to that value (:data:`LOST_SIMILARITY`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from latentscale.array_types import Float64Array, FloatArray, Int64Array
from latentscale.tiles.device import (
    EXPONENTIAL_ERROR,
    FOLDED_COLUMNS,
    MIN_SIMILARITY,
    RECOMPUTED_SHARE,
    ROWS_AT_ONCE,
    Precision,
    fold_similarities,
    rounding_share,
    rounding_unit,
    separations,
)
from latentscale.tiles.distances import Points, check_alike, common_unit, largest_size, row_blocks

PANEL_ROWS = 512
PANEL_COLUMNS = 512
"""Shape of a tile: 1 MiB (single) or 2 MiB (double). The bits of the result depend on it."""

SQUARINGS = 4
"""Largest number of squarings of one exponential; each doubles its relative error."""

LOST_SIMILARITY = 2.0**-90
"""Largest absolute error of a similarity beyond its relative error: small ones are raised."""

TINY = float(np.finfo(np.float64).tiny)

SPACING_TOLERANCE = 8 * np.finfo(np.float64).eps
"""Largest distance of a scale from its grid, as a share of the largest scale."""

MAX_DIVISOR = 4
"""Largest number of steps into which the smallest gap is divided to find a grid."""


@dataclass(frozen=True)
class ScaleGrid:
    """Ascending scales as multiples of one step.

    Attributes
    ----------
    step : float
        The spacing of the grid.
    start : float
        The first scale whose exponential is taken; equal to ``step`` when 0 is on the grid.
    powers : ndarray of int64, shape (s,)
        Number of steps from the preceding scale (for the first scale, from ``start``) to each
        scale.
    """

    step: float
    start: float
    powers: Int64Array


def scale_grid(scales: Float64Array) -> ScaleGrid | None:
    """Find the grid that ascending scales lie on, or None when powers would not pay.

    Parameters
    ----------
    scales : ndarray of float64, shape (s,)
        Non-negative, ascending, distinct.
    """
    if len(scales) < 2:
        return None
    slack = SPACING_TOLERANCE * scales[-1]
    span = scales[-1] - scales[0]
    smallest_gap = np.diff(scales).min()
    for divisor in range(1, MAX_DIVISOR + 1):
        if span * divisor > (2 * len(scales) + 8) * smallest_gap:
            return None
        # The span contains many steps, so it gives the step more accurately than the smallest gap.
        step = span / round(span * divisor / smallest_gap)
        multiples = np.rint((scales - scales[0]) / step)
        if np.abs(scales[0] + multiples * step - scales).max() > slack:
            continue
        offset = round(scales[0] / step)
        if 1 <= offset <= len(scales) and abs(offset * step - scales[0]) <= slack:
            return ScaleGrid(step, step, _powers(multiples + offset - 1))
        return ScaleGrid(step, float(scales[0]), _powers(multiples))
    return None


def _powers(multiples: Float64Array) -> Int64Array:
    return np.diff(multiples, prepend=0.0).astype(np.int64)


@dataclass(frozen=True)
class _Schedule:
    """How similarities at many scales follow from one another, in the order of computation.

    ``order[k]`` is the place in the caller's list of the scale that is computed ``k``-th. The
    others are the parameters of :func:`latentscale.tiles.device.fold_similarities`.
    """

    order: Int64Array
    factors: Float64Array
    multiplications: Int64Array
    step: float
    squarings: Int64Array

    @property
    def derives(self) -> bool:
        """Return whether some similarities are powers or squares of others."""
        return bool(np.isnan(self.factors).any())

    @property
    def roundings(self) -> Float64Array:
        """Return the number of roundings in each similarity, in the caller's order."""
        each = EXPONENTIAL_ERROR + 1.0
        counts, count = np.empty(len(self.order)), 0.0
        for k, place in enumerate(self.order):
            count = each if not math.isnan(self.factors[k]) else count
            count += each * float(self.multiplications[k])
            for _ in range(self.squarings[k]):
                count = 2.0 * count + 1.0
            counts[place] = count
        return counts


def _scale_schedule(scales: Float64Array) -> _Schedule:
    """Plan powers of one exponential where the scales lie on a grid, else an exponential each."""
    order = np.argsort(scales)
    ascending = scales[order]
    none = np.zeros(len(scales), dtype=np.int64)
    grid = scale_grid(ascending)
    if grid is None:
        return _Schedule(order, ascending, none, 0.0, none)
    factors, multiplications = np.full(len(scales), np.nan), grid.powers.copy()
    if grid.start == grid.step:
        multiplications[0] += 1
    else:
        factors[0] = grid.start
    return _Schedule(order, factors, multiplications, grid.step, none)


def _exponent_schedule(exponents: Float64Array) -> _Schedule:
    """Plan squares where exponents double, with a new exponential every few squarings."""
    order: list[int] = []
    squarings: list[int] = []
    left = np.argsort(exponents).tolist()
    while left:
        first, squared = left.pop(0), 0
        order.append(first)
        squarings.append(0)
        for times in range(1, SQUARINGS + 1):
            wanted = exponents[first] * 2.0**times
            for other in left:
                if abs(exponents[other] - wanted) <= SPACING_TOLERANCE * wanted:
                    left.remove(other)
                    order.append(other)
                    squarings.append(times - squared)
                    squared = times
                    break
    places = np.array(order, dtype=np.int64)
    counts = np.array(squarings, dtype=np.int64)
    factors = np.where(counts == 0, exponents[places], np.nan)
    return _Schedule(places, factors, np.zeros_like(counts), 0.0, counts)


# --- Tiles -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class DistanceTiles:
    """The tiles between two blocks of rows, or of one block with itself; some may be kept.

    Attributes
    ----------
    points : Points
        ``m`` rows under a metric.
    others : Points or None
        ``n`` rows under the same metric with the same origin. None stands for ``points``
        themselves; their pairs are then visited once.
    precision : {"single", "double"}
        Arithmetic of the tiles.
    kept_bytes : int
        Memory for kept tiles. All tiles of ``n`` rows take about ``4 n²`` bytes in double and ``2
        n²`` in single precision. The other tiles are recomputed on each visit, with the same
        result.

    Notes
    -----
    The tiles are the same on every machine. A visit holds one tile of 1 MiB (single) or 2 MiB
    (double), and the rows in the precision of the tiles: ``4 (m + n) d`` bytes in single; in double
    ``8 (m + n) d`` with an origin, and nothing without one.
    """

    points: Points
    others: Points | None = None
    precision: Precision = "double"
    kept_bytes: int = 0
    kept: list[FloatArray] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise ValueError(
                f"unknown precision {self.precision!r}; choose one of "
                f"{', '.join(get_args(Precision))}"
            )
        check_alike(self.points, self.second)

    @property
    def second(self) -> Points:
        """The block of the columns."""
        return self.points if self.others is None else self.others

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a tile."""
        return np.dtype(np.float32 if self.precision == "single" else np.float64)

    @property
    def unit(self) -> float:
        """Unit of length of the tiles: separations are in multiples of it or of its square."""
        return common_unit(self.points, self.second) if self.precision == "single" else 1.0

    def __iter__(self) -> Iterator[tuple[slice, slice, FloatArray]]:
        """Visit each pair of rows once: rows of the first block, of the second, separations.

        Where the two slices are equal in one block with itself, the tile holds each pair twice, its
        diagonal is 0, and the next tile begins after it. The height of a tile is padded to a
        multiple of four with rows of zeros. A tile is valid until the next one is requested.
        """
        unit, itself = self.unit, self.others is None
        first = self.points.tile_rows(self.precision, unit)
        second = first if itself else self.second.tile_rows(self.precision, unit)
        widest = max(PANEL_ROWS, PANEL_COLUMNS)
        scratch = np.empty((PANEL_ROWS + ROWS_AT_ONCE) * widest, dtype=self.dtype)
        size = 0
        for index, (rows, columns) in enumerate(self._cut()):
            if index < len(self.kept):
                size += self.kept[index].nbytes
                yield rows, columns, self.kept[index]
                continue
            height, width = rows.stop - rows.start, columns.stop - columns.start
            filled = -(-height // ROWS_AT_ONCE) * ROWS_AT_ONCE
            tile = scratch[: filled * width].reshape(filled, width)
            tile[height:] = 0.0
            separations(
                first.take(rows),
                second.take(columns),
                tile[:height],
                itself=itself and rows == columns,
            )
            size += tile.nbytes
            if index == len(self.kept) and size <= self.kept_bytes:
                self.kept.append(tile.copy())
            yield rows, columns, tile

    def _cut(self) -> Iterator[tuple[slice, slice]]:
        for rows in row_blocks(len(self.points), PANEL_ROWS):
            start = 0
            if self.others is None:
                yield rows, rows
                start = rows.stop
            for columns in row_blocks(len(self.second) - start, PANEL_COLUMNS):
                yield rows, slice(start + columns.start, start + columns.stop)


# --- Sums over tiles -------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockSums:
    """The contribution of the tiles between two blocks to the sums of their rows.

    Attributes
    ----------
    products_a, products_b : ndarray of float64, shapes (m, s) and (n, s)
        Products of the similarity matrices with the other block's vectors.
    gaussians_a, gaussians_b : ndarray of float64, shapes (m, e) and (n, e)
        Gaussian sums over the other block's rows.
    """

    products_a: Float64Array
    products_b: Float64Array
    gaussians_a: Float64Array
    gaussians_b: Float64Array


def block_sums(
    a: Points,
    b: Points,
    *,
    scales: ArrayLike = (),
    vectors_a: ArrayLike | None = None,
    vectors_b: ArrayLike | None = None,
    exponents: ArrayLike = (),
    precision: Precision = "double",
) -> BlockSums:
    """Visit the tiles between two blocks once, for exponential products and Gaussian sums.

    Parameters and results are those of :func:`exponential_block_products` and
    :func:`gaussian_block_sums`; without scales the products have no columns, and without exponents
    the sums have none.
    """
    tiles = DistanceTiles(a, None if b is a else b, precision)
    return tile_sums(tiles, scales, vectors_a, vectors_b, exponents)


def exponential_block_products(
    a: Points,
    b: Points,
    scales: ArrayLike,
    vectors_a: ArrayLike,
    vectors_b: ArrayLike,
    *,
    precision: Precision = "double",
) -> tuple[Float64Array, Float64Array]:
    r"""Multiply vectors by the similarities between two blocks of rows, both ways.

    Parameters
    ----------
    a, b : Points
        Blocks of ``m`` and ``n`` rows under the same metric with the same origin. With ``b is a``
        the pairs of one block are visited once, and ``vectors_b`` isn't read.
    scales : array_like of float, shape (s,)
        Finite and non-negative, distinct, in any order; fastest when evenly spaced.
    vectors_a, vectors_b : array_like of float, shapes (m, s) and (n, s)
        One vector a scale.
    precision : {"single", "double"}
        Arithmetic of the tiles; :func:`product_error` bounds the error. In single precision give
        the points an origin among them.

    Returns
    -------
    tuple of ndarray of float64, shapes (m, s) and (n, s)
        Columns :math:`e^{-t_k D_{ab}} b_k` and :math:`e^{-t_k D_{ab}^\top} a_k`. With ``b is a``
        the second holds zeros, so adding both to the sums of their rows is always correct.

    Raises
    ------
    ValueError
        On scales that are negative, not finite or repeated, vectors of the wrong shape, or blocks
        that differ in metric, dimension or origin.

    Notes
    -----
    Costs ``m n`` separations (half as many for one block with itself), two or three operations a
    pair and scale, and one or two exponentials a pair for a grid of scales, ``s`` otherwise. Memory
    is that of :class:`DistanceTiles` plus ``24 (m + n) s`` bytes.
    """
    sums = block_sums(
        a, b, scales=scales, vectors_a=vectors_a, vectors_b=vectors_b, precision=precision
    )
    return sums.products_a, sums.products_b


def gaussian_block_sums(
    a: Points, b: Points, exponents: ArrayLike, *, precision: Precision = "double"
) -> tuple[Float64Array, Float64Array]:
    r"""Sum Gaussians of the distances between two blocks of rows, both ways.

    Parameters
    ----------
    a, b : Points
        As in :func:`exponential_block_products`, under the Euclidean metric.
    exponents : array_like of float, shape (e,)
        Finite and positive, distinct; fastest where each is twice another.
    precision : {"single", "double"}
        Arithmetic of the tiles; :func:`gaussian_error` bounds the error.

    Returns
    -------
    tuple of ndarray of float64, shapes (m, e) and (n, e)
        :math:`\sum_j e^{-s_k d(a_i, b_j)^2}` for every row ``i`` of ``a``, and likewise for ``b``.
        With ``b is a`` the sums run over the *other* rows, and the second array holds zeros.

    Raises
    ------
    ValueError
        On exponents that aren't positive, finite and distinct, another metric, or blocks that
        differ.
    """
    sums = block_sums(a, b, exponents=exponents, precision=precision)
    return sums.gaussians_a, sums.gaussians_b


def exponential_products(
    points: Points,
    scales: ArrayLike,
    blocks: ArrayLike,
    *,
    precision: Precision = "double",
) -> Float64Array:
    r"""Multiply a vector by the similarity matrix of every scale.

    Parameters
    ----------
    points : Points
        ``n`` rows under a metric.
    scales : array_like of float, shape (s,)
        Finite and non-negative, distinct, in any order; fastest when evenly spaced.
    blocks : array_like of float, shape (n, s)
        One vector a scale.
    precision : {"single", "double"}
        Arithmetic of the tiles.

    Returns
    -------
    ndarray of float64, shape (n, s)
        Column ``k`` is :math:`e^{-t_k D} b_k`.

    Raises
    ------
    ValueError
        On scales that are negative, not finite or repeated, or a block of the wrong shape.

    Notes
    -----
    Cost and memory are those of :func:`exponential_block_products`.
    """
    tiles = DistanceTiles(points, precision=precision)
    return tile_sums(tiles, scales, blocks, blocks).products_a


def tile_sums(
    tiles: DistanceTiles,
    scales: ArrayLike = (),
    vectors_a: ArrayLike | None = None,
    vectors_b: ArrayLike | None = None,
    exponents: ArrayLike = (),
) -> BlockSums:
    """Visit tiles that may be kept, as :func:`block_sums` visits those between two blocks."""
    a, b, itself = tiles.points, tiles.second, tiles.others is None
    scales = np.asarray(scales, dtype=np.float64)
    exponents = np.asarray(exponents, dtype=np.float64)
    vectors_a = np.asarray(np.empty((len(a), 0)) if vectors_a is None else vectors_a, np.float64)
    vectors_b = np.asarray(np.empty((len(b), 0)) if vectors_b is None else vectors_b, np.float64)
    vectors_b = vectors_a if itself else vectors_b
    _check("scales", a, scales, vectors_a, least=0.0)
    _check("scales", b, scales, vectors_b, least=0.0)
    ones_a, ones_b = (np.ones((len(points), len(exponents))) for points in (a, b))
    _check("exponents", a, exponents, ones_a, least=TINY)
    if len(exponents) and a.metric != "euclidean":
        raise ValueError(f"Gaussian sums are of Euclidean distances, got metric {a.metric!r}")
    length = tiles.unit
    unit = {"euclidean": length, "cosine": 0.5 * length * length, "manhattan": length}[a.metric]
    root = a.metric == "euclidean"
    products = _Fold.start(_scale_schedule(scales), unit, root, vectors_a, vectors_b, tiles)
    schedule = _exponent_schedule(exponents)
    gaussians = _Fold.start(schedule, length * length, False, ones_a, ones_b, tiles)
    for rows, columns, tile in tiles if len(scales) or len(exponents) else ():
        both_ways = not (itself and rows == columns)
        if len(scales):
            products.add(tile, rows, columns, both_ways)
        if len(exponents):
            if not both_ways:  # at this distance a row adds nothing to its own sum
                np.fill_diagonal(tile, np.finfo(tile.dtype).max)
            gaussians.add(tile, rows, columns, both_ways)
            if not both_ways:
                np.fill_diagonal(tile, 0.0)
    return BlockSums(*products.finish(), *gaussians.finish())


@dataclass(frozen=True)
class _Fold:
    """Running sums of similarities times vectors, with scales in the schedule's order.

    Vectors are divided by powers of two, so that they neither overflow nor underflow in single
    precision, and are padded with zeros to the height of a tile. One block with itself has one
    array of vectors and one of sums.
    """

    schedule: _Schedule
    unit: float
    root: bool
    floor: float
    vectors_a: FloatArray
    vectors_b: FloatArray
    factor_a: Float64Array
    factor_b: Float64Array
    sums_a: Float64Array
    sums_b: Float64Array
    sizes: tuple[int, int]

    @classmethod
    def start(
        cls,
        schedule: _Schedule,
        unit: float,
        root: bool,
        vectors_a: Float64Array,
        vectors_b: Float64Array,
        tiles: DistanceTiles,
    ) -> _Fold:
        ready_a, factor_a = _ready(vectors_a, schedule.order, tiles.dtype)
        ready_b, factor_b = ready_a, factor_a
        sums_a = sums_b = np.zeros(ready_a.shape)
        if tiles.others is not None:
            ready_b, factor_b = _ready(vectors_b, schedule.order, tiles.dtype)
            sums_b = np.zeros(ready_b.shape)
        floor = MIN_SIMILARITY[tiles.precision]
        sizes = len(vectors_a), len(vectors_b)
        return cls(
            schedule,
            unit,
            root,
            floor,
            ready_a,
            ready_b,
            factor_a,
            factor_b,
            sums_a,
            sums_b,
            sizes,
        )

    def add(self, tile: FloatArray, rows: slice, columns: slice, both_ways: bool) -> None:
        # An infinite factor would make NaN of the distance 0.
        largest = float(np.finfo(tile.dtype).max)
        with np.errstate(over="ignore"):
            factors = np.minimum(self.schedule.factors * self.unit, largest)
            step = min(self.schedule.step * self.unit, largest)
        fold_similarities(
            tile,
            self.root,
            factors,
            self.schedule.multiplications,
            step,
            self.schedule.squarings,
            self.floor,
            self.vectors_a,
            self.vectors_b,
            rows.start,
            columns.start,
            self.sums_a,
            self.sums_b,
            both_ways,
        )

    def finish(self) -> tuple[Float64Array, Float64Array]:
        m, n = self.sizes
        result_a, result_b = (np.zeros((size, len(self.schedule.order))) for size in (m, n))
        result_a[:, self.schedule.order] = self.sums_a[:, :m].T * self.factor_b
        if self.sums_b is not self.sums_a:
            result_b[:, self.schedule.order] = self.sums_b[:, :n].T * self.factor_a
        return result_a, result_b


def _ready(
    vectors: Float64Array, order: Int64Array, dtype: np.dtype[Any]
) -> tuple[FloatArray, Float64Array]:
    n, count = vectors.shape
    _, exponents = np.frexp(np.abs(vectors).max(axis=0, initial=0.0)[order])
    factors = np.ldexp(1.0, exponents)
    ready = np.zeros((count, n + ROWS_AT_ONCE), dtype=dtype)
    for k, place in enumerate(order):
        ready[k, :n] = vectors[:, place] / factors[k]
    return ready, factors


def _check(
    name: str, points: Points, scales: Float64Array, vectors: Float64Array, *, least: float
) -> None:
    if scales.ndim != 1 or not np.isfinite(scales).all() or (scales < least).any():
        kind = "of at least 0" if least == 0 else "above 0"
        raise ValueError(f"{name} must be a list of finite numbers {kind}, got {scales}")
    if len(np.unique(scales)) != len(scales):
        raise ValueError(f"{name} must be distinct, got {scales}")
    if vectors.shape != (len(points), len(scales)):
        raise ValueError(
            f"blocks must have one row a point and one column a scale, "
            f"{(len(points), len(scales))}, got {vectors.shape}"
        )


# --- Error bounds ----------------------------------------------------------------------------


def similarity_error(points: Points, scales: ArrayLike, precision: Precision) -> Float64Array:
    r"""Bound the relative error of the similarities in exponential products.

    Parameters
    ----------
    points : Points
        Rows under a metric, with the origin that the products use.
    scales : array_like of float, shape (s,)
        All the scales of one call: the error of a power depends on the grid.
    precision : {"single", "double"}
        Arithmetic of the tiles.

    Returns
    -------
    ndarray of float64, shape (s,)
        Bounds :math:`\varepsilon_k` with :math:`|\hat\zeta_{ij} - \zeta_{ij}| \le \varepsilon_k
        \zeta_{ij}` for all pairs of rows no farther from the origin than the farthest of
        ``points``, up to :data:`LOST_SIMILARITY`. For pairs between blocks the largest of the
        blocks' bounds holds.

    Notes
    -----
    :math:`\varepsilon = e^{\delta} - 1`, where :math:`\delta` bounds the error of :math:`t d` and
    the roundings of exponentials and powers. Worst cases are assumed throughout; typical errors are
    a hundredth of the bound.
    """
    scales = np.asarray(scales, dtype=np.float64)
    schedule = _scale_schedule(scales)
    exponent = _exponent_error(points, scales, precision, schedule, squared=False)
    return _relative_error(exponent + schedule.roundings * rounding_unit(precision))


def _relative_error(exponent: Float64Array) -> Float64Array:
    with np.errstate(over="ignore"):  # nothing is known then, and the bound is infinite
        return np.asarray(np.expm1(exponent))


def gaussian_error(
    points: Points, exponents: ArrayLike, precision: Precision, *, rows: int | None = None
) -> Float64Array:
    """Bound the relative error of Gaussian sums.

    Parameters
    ----------
    points, precision, rows
        As in :func:`product_error`, under the Euclidean metric.
    exponents : array_like of float, shape (e,)
        All the exponents of one call.

    Returns
    -------
    ndarray of float64, shape (e,)
        Relative bounds. Beyond these the error is at most :data:`LOST_SIMILARITY` a term.
    """
    exponents = np.asarray(exponents, dtype=np.float64)
    schedule = _exponent_schedule(exponents)
    exponent = _exponent_error(points, exponents, precision, schedule, squared=True)
    exponent += schedule.roundings * rounding_unit(precision)
    return _relative_error(exponent + _folding_error(points, precision, rows))


def product_error(
    points: Points, scales: ArrayLike, precision: Precision, *, rows: int | None = None
) -> Float64Array:
    r"""Bound the error of exponential products.

    Parameters
    ----------
    points, scales, precision
        As in :func:`similarity_error`.
    rows : int, optional
        Number of terms of a sum, over all blocks; by default that of ``points``.

    Returns
    -------
    ndarray of float64, shape (s,)
        Bounds :math:`\eta_k` with :math:`|\hat y - K v| \le \eta_k K |v|`, row by row, for the sum
        over blocks added in float64. Beyond that the error is at most :data:`LOST_SIMILARITY` times
        :math:`\|v\|_1 + n \max |v|`.
    """
    similarity = np.log1p(similarity_error(points, scales, precision))
    return _relative_error(similarity + _folding_error(points, precision, rows))


def _folding_error(points: Points, precision: Precision, rows: int | None) -> float:
    """Bound the relative rounding of the sums: of vectors, of strips, and of the sum of strips."""
    long = len(points) if rows is None else rows
    return (FOLDED_COLUMNS + 3.0) * rounding_unit(precision) + long * rounding_unit("double")


def _exponent_error(
    points: Points,
    factors: Float64Array,
    precision: Precision,
    schedule: _Schedule,
    *,
    squared: bool,
) -> Float64Array:
    """Bound the error of factor times distance (or its square), up to the clip of exponents."""
    roundoff, share = rounding_unit(precision), RECOMPUTED_SHARE[precision]
    gamma = rounding_share(points.dimension, precision)
    clip = -math.log(MIN_SIMILARITY[precision])
    # The sizes of two rows bound their separation twice over (Manhattan: once), and so the
    # exponents that occur.
    sizes = 2.0 * largest_size(points)
    farthest = sizes if points.metric == "manhattan" else 2.0 * sizes
    lost = 2.0**-149 * (common_unit(points, points) ** (1 if points.metric == "manhattan" else 2))
    kept = share - gamma
    relative = gamma / kept if kept > 0 else math.inf
    absolute = gamma * sizes
    if points.metric == "manhattan" and precision == "double":
        absolute, relative = points.dimension * roundoff * sizes, points.dimension * roundoff
    if points.metric == "cosine":
        absolute, farthest, lost = 0.5 * absolute, 0.5 * farthest, 0.5 * lost
    elif points.metric == "euclidean" and not squared:
        # The difference of two roots is the difference of the squares over the sum of the roots.
        if sizes > 0.0:
            absolute /= math.sqrt(share * sizes) + math.sqrt(max(kept, 0.0) * sizes)
        relative, farthest, lost = 0.5 * relative, math.sqrt(farthest), math.sqrt(lost)
    # Roundings of a recomputed separation, its conversion and root, the factor, and the product.
    rounding = 4.0 * roundoff + (points.dimension + 3.0) * rounding_unit("double")
    error = np.minimum(factors * absolute, clip * relative)
    error += rounding * np.minimum(factors * farthest, clip) + factors * lost
    if schedule.derives:
        with np.errstate(divide="ignore"):
            reach = np.minimum(farthest, clip / factors)
        error += SPACING_TOLERANCE * float(factors.max(initial=0.0)) * reach
    if points.metric == "cosine":
        error += _unit_row_error(points.dimension, factors, farthest, clip)
    return error


def _unit_row_error(
    dimension: int, factors: Float64Array, farthest: float, clip: float
) -> Float64Array:
    r"""Bound the error of factor times cosine distance that the rounding of unit rows makes.

    A row ``x`` is divided by its largest coordinate and by its length, so the unit row is stored as
    :math:`(1 + \theta)(x / \|x\| + e)` with :math:`|\theta| \le (d / 2 + 2) u` and, from two
    roundings of each coordinate, :math:`\|e\| \le 2 u`. The difference of two unit rows is
    orthogonal to their sum. So for rows at the distance :math:`\rho` the two :math:`\theta` change
    :math:`\rho^2 / 2` by a relative :math:`(d + 4) u` and in second order, and the two ``e`` by at
    most :math:`4 u \rho`.
    """
    roundoff = rounding_unit("double")
    exponents = np.minimum(factors * farthest, clip)
    separations = np.sqrt(2.0 * exponents * factors)  # factor times distance of the unit rows
    second_order = 0.5 * ((dimension + 8.0) * roundoff) ** 2
    first_order = (dimension + 4.0) * exponents + 4.0 * separations
    return np.asarray(1.01 * roundoff * first_order + factors * second_order)
