r"""Second moments of unit rows, which determine the cosine kernel's spectrum.

With the cosine kernel :math:`K/n = UU^\top/n` has the same non-zero eigenvalues as the d by d
matrix :math:`U^\top U/n` (Friedman & Dieng 2023, section 3.3). This is a sum over rows. It is
computed block by block, for any number of rows, and moments of disjoint sets of rows are added.

Precision
---------
``double``
    Products and sums are in float64. No more than :data:`BLOCK_ROWS` terms are added one after the
    other.
``single``
    Products of :data:`BLOCK_ROWS` rows at a time are in float32, which is twice as fast, and are
    added up in float64. The rounding is far below its worst-case bound, so it is measured instead
    (:class:`Rounding`): some blocks are also computed in float64. Every block is scaled by its own
    factor between 1 and 2 before it is rounded, and its product is scaled back. So even equal
    blocks have independent rounding errors, and the error of b blocks is about the root of b times
    that of one block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentscale.array_types import Float32Array, Float64Array
from latentscale.tiles.device import Precision, unit_rows
from latentscale.tiles.distances import as_points, row_blocks

BLOCK_ROWS = 4096
"""Rows of one matrix product; the products are then added pairwise.

No more terms than this are added one after the other, however many rows there are. So the rounding
of a second moment, and the tolerance of its spectrum, don't depend on n. With fewer rows the
additions would take a noticeable share of the time.
"""

CHECKED_BLOCKS = 64
"""In single precision the first of this many blocks is also computed in double."""

MARGIN = 2.0
"""Safety factor on the error that is estimated from the checked blocks."""

GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
"""The fractional parts of its multiples fill the interval from 0 to 1 evenly."""

LARGEST_WEIGHT = 1e200
"""Weights up to which no sum of them overflows."""

KINDS = (np.float16, np.float32, np.float64)


@dataclass(frozen=True)
class Rounding:
    """The rounding of products in single precision, measured on checked blocks.

    Attributes
    ----------
    mass, squared_masses : float
        Sum of the blocks' weights, and sum of the squares of these weights.
    checked : int
        Blocks that were computed in double as well.
    squares : float
        Sum over the checked blocks of the squared Frobenius norm of the error per unit of weight.
    """

    mass: float = 0.0
    squared_masses: float = 0.0
    checked: int = 0
    squares: float = 0.0

    def __add__(self, other: Rounding) -> Rounding:
        return Rounding(
            self.mass + other.mass,
            self.squared_masses + other.squared_masses,
            self.checked + other.checked,
            self.squares + other.squares,
        )

    def share(self, factor: float) -> Rounding:
        """Return the rounding of the sum multiplied by a factor."""
        return replace(
            self, mass=self.mass * factor, squared_masses=self.squared_masses * factor**2
        )

    @property
    def error(self) -> float:
        """Frobenius norm of the error of the sum of all blocks, with a margin."""
        if self.mass == 0:
            return 0.0
        if self.checked == 0:
            return math.inf
        return MARGIN * math.sqrt(self.squared_masses * self.squares / self.checked)


@dataclass(frozen=True)
class SecondMoment:
    r"""Weighted sum of the outer products of unit rows.

    Attributes
    ----------
    total : float
        Sum of the weights (the number of rows without weights).
    matrix : ndarray of float64, shape (d, d)
        :math:`\sum_i w_i x_i x_i^\top` over rows scaled to unit length; its trace is ``total``.
    rounding : Rounding
        The rounding of what was summed in single precision. It is empty in double precision, whose
        rounding is part of the tolerance of every spectrum.
    """

    total: float
    matrix: Float64Array
    rounding: Rounding = Rounding()

    @property
    def dimension(self) -> int:
        """Number of coordinates of a row."""
        return int(self.matrix.shape[0])


def second_moment(
    vectors: ArrayLike, weights: ArrayLike | None = None, *, precision: Precision = "double"
) -> SecondMoment:
    """Compute the second moment of rows scaled to unit length.

    Parameters
    ----------
    vectors : array_like, shape (n, d)
        Finite rows, none of them zero. Any float or integer type.
    weights : array_like, shape (n,), optional
        Non-negative and finite; they need not sum to 1. A weight of 2 counts the row twice.
    precision : {"double", "single"}
        Precision of the products.

    Returns
    -------
    SecondMoment

    Raises
    ------
    ValueError
        On a zero row or one with a NaN or infinity (the message names it), or bad weights.

    Notes
    -----
    Costs ``n d^2 / 2`` multiplications (a symmetric product) and memory for a block of rows and a
    few matrices of ``d`` by ``d``.
    """
    moments = MomentSum(precision)
    moments.add(vectors, weights)
    return moments.moment()


class MomentSum:
    """The second moment of rows that are added piece by piece.

    Parameters
    ----------
    precision : {"double", "single"}
        Precision of the products.
    """

    def __init__(self, precision: Precision = "double") -> None:
        self._precision: Precision = precision
        self._totals: list[float] = []
        self._blocks = 0
        self._sum = PairwiseSum()
        self._rounding = Rounding()
        self._buffers: _Buffers | None = None

    def add(self, vectors: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Add rows; parameters and errors are those of :func:`second_moment`."""
        rows = _as_rows(vectors)
        masses = None if weights is None else checked_weights(weights, len(rows))
        for block in row_blocks(len(rows), BLOCK_ROWS):
            self._sum.add(
                self._block_moment(rows, block, None if masses is None else masses[block])
            )
            self._blocks += 1
        self._totals.append(float(len(rows)) if masses is None else math.fsum(masses))

    def moment(self) -> SecondMoment:
        """Return the moment of all rows so far.

        Raises
        ------
        ValueError
            If there are none.
        """
        return SecondMoment(math.fsum(self._totals), self._sum.total(), self._rounding)

    def _block_moment(
        self, rows: NDArray[Any], block: slice, masses: Float64Array | None
    ) -> Float64Array:
        if self._precision == "double":
            return _double_moment(rows, block, masses)
        if self._buffers is None or self._buffers.dimension != rows.shape[1]:
            self._buffers = _Buffers.of(rows.shape[1])
        factor = 1.0 + (self._blocks + 1) * GOLDEN % 1.0
        moment = _single_moment(rows, block, masses, factor, self._buffers)
        mass = float(block.stop - block.start) if masses is None else float(masses.sum())
        self._rounding += Rounding(mass, mass * mass)
        if self._blocks % CHECKED_BLOCKS == 0 and mass > 0:
            error = moment - _double_moment(rows, block, masses)
            square = float(np.vdot(error, error)) / mass**2
            self._rounding += Rounding(checked=1, squares=square)
        return moment


def merge_moments(moments: Iterable[SecondMoment]) -> SecondMoment:
    """Return the second moment of several sets of rows together.

    Parameters
    ----------
    moments : iterable of SecondMoment
        At least one moment, all of equal dimension. They are added pairwise in the order given, so
        equal sequences give equal bits. Of ``p`` moments from a generator, about ``log2(p) + 2``
        are held at a time.

    Returns
    -------
    SecondMoment

    Raises
    ------
    ValueError
        Without any moment, or on differing dimensions.
    """
    totals: list[float] = []
    rounding = Rounding()
    matrices = PairwiseSum()
    dimensions: set[int] = set()
    for moment in moments:
        totals.append(moment.total)
        rounding += moment.rounding
        dimensions.add(moment.dimension)
        if len(dimensions) > 1:
            different = sorted(dimensions)
            raise ValueError(f"moments of different dimensions can't be merged: {different}")
        matrices.add(moment.matrix)
    return SecondMoment(math.fsum(totals), matrices.total(), rounding)


def unit_block(rows: NDArray[Any], masses: Float64Array | None) -> Float64Array:
    """Return rows scaled to unit length times the roots of their masses.

    Raises
    ------
    ValueError
        On a row that has no direction or isn't finite. The message names its place among ``rows``.
    """
    out = np.empty(rows.shape)
    scale_to_unit(rows, masses, out)
    return out


def scale_to_unit(rows: NDArray[Any], masses: Float64Array | None, out: NDArray[Any]) -> None:
    """Scale rows as :func:`unit_block` does, into an existing array."""
    roots = np.ones(len(rows)) if masses is None else np.sqrt(masses)
    if unit_rows(rows, roots, out) >= 0:
        # Rows of extreme length can be scaled with more care. Other bad rows are refused by name.
        out[:] = as_points(rows, "cosine").rows * roots[:, None]


def checked_weights(weights: ArrayLike, n: int) -> Float64Array:
    """Return weights of ``n`` rows as float64; raise a ValueError on a wrong shape, sign or NaN."""
    masses = np.asarray(weights, dtype=np.float64)
    if masses.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one for each row, got {masses.shape}")
    wrong = ~(np.isfinite(masses) & (masses >= 0))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"weights must be finite and not negative, row {row} has {masses[row]}")
    if n and float(masses.max()) > LARGEST_WEIGHT:
        raise ValueError(f"weights must be at most {LARGEST_WEIGHT:g}; divide all by the largest")
    return masses


class PairwiseSum:
    """A pairwise sum of matrices in their order: sums of ``2^k`` wait for another such sum.

    Sums are formed in the memory of earlier sums. The matrices that are added aren't changed.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Float64Array]] = []

    def add(self, matrix: Float64Array) -> None:
        """Add the next matrix."""
        count, total = 1, matrix
        while self._waiting and self._waiting[-1][0] == count:
            earlier = self._waiting.pop()[1]
            total = np.add(earlier, total, out=None if count == 1 else earlier)
            count *= 2
        self._waiting.append((count, total))

    def total(self) -> Float64Array:
        """Return the sum of all matrices.

        Raises
        ------
        ValueError
            If there are none.
        """
        if not self._waiting:
            raise ValueError("there are no moments to merge")
        *others, (_, total) = self._waiting
        for _, other in reversed(others):
            total = other + total
        return total


def _as_rows(vectors: ArrayLike) -> NDArray[Any]:
    rows = np.asarray(vectors)
    if rows.dtype not in KINDS:
        rows = rows.astype(np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"vectors must be a non-empty array of rank 2, got shape {rows.shape}")
    return rows


@dataclass(frozen=True)
class _Buffers:
    """Memory that is reused from block to block: fresh memory costs as much as the arithmetic."""

    unit: Float32Array
    product: Float32Array

    @classmethod
    def of(cls, dimension: int) -> _Buffers:
        unit = np.empty((BLOCK_ROWS, dimension), dtype=np.float32)
        return cls(unit, np.empty((dimension, dimension), dtype=np.float32))

    @property
    def dimension(self) -> int:
        return len(self.product)


def _double_moment(rows: NDArray[Any], block: slice, masses: Float64Array | None) -> Float64Array:
    """Compute the moment of a block in double precision."""
    unit = np.empty((block.stop - block.start, rows.shape[1]))
    _fill_unit_block(rows, block, masses, unit)
    return np.asarray(unit.T @ unit)


def _single_moment(
    rows: NDArray[Any], block: slice, masses: Float64Array | None, factor: float, buffers: _Buffers
) -> Float64Array:
    """Compute the moment of a block in single precision, with rows scaled by a root."""
    m = block.stop - block.start
    size = 1.0 if masses is None else _power_of_four(float(masses.max(initial=0.0)))
    weights = np.full(m, factor) if masses is None else masses / size * factor
    unit = buffers.unit[:m]
    _fill_unit_block(rows, block, weights, unit)
    np.matmul(unit.T, unit, out=buffers.product)
    return np.multiply(buffers.product, size / factor, dtype=np.float64)


def _power_of_four(mass: float) -> float:
    """Return a power of four near a mass, by which single precision loses nothing; 1 for 0."""
    return 4.0 ** (math.frexp(mass)[1] // 2) if mass else 1.0


def _fill_unit_block(
    rows: NDArray[Any], block: slice, masses: Float64Array | None, out: NDArray[Any]
) -> None:
    try:
        scale_to_unit(rows[block], masses, out)
    except ValueError:
        as_points(rows, "cosine")  # raises the same error with the row's place among all
        raise
