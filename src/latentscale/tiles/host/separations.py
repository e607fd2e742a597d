r"""Separations of all pairs of two blocks of rows, on numpy and numba.

The *separation* of two rows is a distance without its root: the squared Euclidean distance, or the
Manhattan distance. The Euclidean metric, and the cosine metric on unit rows, take

.. math:: \|x - y\|^2 = \|x\|^2 + \|y\|^2 - 2\,x \cdot y

from one matrix product. Rows are first moved to an origin and scaled by a power of two.

Rounding
--------
Let :math:`u` be the unit roundoff of the tile (:math:`2^{-24}` or :math:`2^{-53}`) and :math:`S =
\|x\|^2 + \|y\|^2` about the origin (Manhattan: the sum of the two 1-norms). The error of a
separation is at most

.. math:: \gamma S, \qquad \gamma = \Bigl(\frac{d}{1 - d u} + 16\Bigr) u.

Of this, :math:`d u S` is the product's, whatever the order of its sums
(:math:`\gamma_d |x|^\top|y|` twice, and :math:`2 |x|^\top |y| \le S`; Higham, *Accuracy and
Stability of Numerical Algorithms*, section 3.1), :math:`4 u S` that of rounding the rows, and the
rest that of norms, sums and comparisons. What underflows adds at most ``(d + 16)`` of the least
normal number.

*Values* (:func:`separations`) below a share of :math:`S` are recomputed from the original rows in
float64, coordinate by coordinate. So the relative error of a value is at most :math:`\gamma` over
that share, and distances of near-duplicates are accurate. If a tile has so many such values that a
product in float64 is cheaper, that product is computed first.

*Comparisons* (:func:`decide`) use the tile outside the band :math:`\gamma S`, and float64 sums over
the original coordinates inside it. Pairs within the rounding of these are decided by sums without
rounding (:mod:`latentscale.tiles.expansions`). So the outcome is that of exact arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numba
import numpy as np

from latentscale.array_types import BoolArray, Float64Array, FloatArray
from latentscale.tiles.expansions import (
    PARTS,
    compare_with_limit,
    float64_is_exact,
    rounding_of_pairs,
)
from latentscale.tiles.pairs import any_order_manhattan, any_order_squared

Precision = Literal["single", "double"]


DTYPE: dict[Precision, type[np.floating[Any]]] = {"single": np.float32, "double": np.float64}

RECOMPUTED_SHARE: dict[Precision, float] = {"single": 2.0**-6, "double": 1e-6}
"""Separations below this share of the sizes are recomputed from the original rows.

Single: distances under an eighth of the rows' distances from the origin. Double: the relative error
of what remains is about ``1e-16 / 1e-6 = 1e-10``.
"""

CROWDED = 0.2
"""Share of a single-precision tile from which a float64 product is cheaper than recomputing."""

REFINED_SHARE = 1e-9
"""Replaces the share of recomputed separations then: the float64 product is more accurate."""

STRIP = 256
"""Columns of a strip of Manhattan distances."""


@dataclass(frozen=True)
class TileRows:
    """A block of rows as one side of a tile.

    Attributes
    ----------
    exact : ndarray of float64, shape (m, d)
        The original rows.
    matrix : ndarray of float32 or float64, shape (m, d)
        The rows about ``origin``, divided by ``unit``.
    sizes : ndarray of float64, shape (m,)
        Squared lengths of the rows of ``matrix`` (Manhattan: their 1-norms).
    origin : ndarray of float64, shape (d,), or None
        None for the origin of the coordinates.
    unit : float
        A power of two.
    manhattan : bool
        Whether separations are Manhattan distances.
    """

    exact: Float64Array
    matrix: FloatArray
    sizes: Float64Array
    origin: Float64Array | None
    unit: float
    manhattan: bool

    def __len__(self) -> int:
        return len(self.exact)

    @property
    def separation_unit(self) -> float:
        """Unit of the separations of these rows."""
        return self.unit if self.manhattan else self.unit * self.unit

    def take(self, rows: slice | BoolArray) -> TileRows:
        """Return consecutive rows, without a copy, or those that a mask selects."""
        return replace(
            self, exact=self.exact[rows], matrix=self.matrix[rows], sizes=self.sizes[rows]
        )

    def joined(self, other: TileRows) -> TileRows:
        """Return a copy of these rows followed by others of the same origin and unit."""
        return replace(
            self,
            exact=np.concatenate([self.exact, other.exact]),
            matrix=np.concatenate([self.matrix, other.matrix]),
            sizes=np.concatenate([self.sizes, other.sizes]),
        )


def tile_rows(
    rows: Float64Array,
    *,
    origin: Float64Array | None,
    unit: float,
    manhattan: bool,
    precision: Precision,
) -> TileRows:
    """Move rows to an origin, scale them, and round them to the precision of the tiles.

    Parameters
    ----------
    rows : ndarray of float64, shape (m, d)
        Finite.
    origin : ndarray of float64, shape (d,), or None
        The same for all blocks that are compared.
    unit : float
        A power of two, so that scaling is exact; at least the length of every row about the origin,
        and the same for all blocks that are compared.
    manhattan : bool
        Whether separations are Manhattan distances; otherwise squared Euclidean ones.
    precision : {"single", "double"}
        Precision of the tiles.

    Returns
    -------
    TileRows
        Takes ``4 m d`` bytes in single precision, ``8 m d`` in double, and nothing in double
        without an origin at unit 1.
    """
    dtype = DTYPE[precision]
    if origin is None and unit == 1.0 and dtype is np.float64:
        matrix: FloatArray = rows
    else:
        matrix = np.empty(rows.shape, dtype=dtype)
        _place(rows, np.zeros(rows.shape[1]) if origin is None else origin, unit, matrix)
    return TileRows(rows, matrix, _sizes(matrix, manhattan), origin, unit, manhattan)


def rounding_unit(precision: Precision) -> float:
    """Return the largest relative error of one rounding."""
    return 0.5 * float(np.finfo(DTYPE[precision]).eps)


def rounding_share(dimension: int, precision: Precision) -> float:
    """Return the share of the two rows' sizes that bounds the error of a separation."""
    unit = rounding_unit(precision)
    return (dimension / (1.0 - dimension * unit) + 16.0) * unit


def inner_products(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """Set ``out`` to the inner products of all rows of two matrices of its type."""
    np.matmul(a, b.T, out=out)


def separations(a: TileRows, b: TileRows, out: FloatArray, *, itself: bool = False) -> None:
    """Compute the separations of all pairs of two blocks, in multiples of their unit.

    Parameters
    ----------
    a, b : TileRows
        ``m`` and ``n`` rows that are alike in all but the rows.
    out : ndarray, shape (m, n), contiguous
        Receives the result; of the type of the matrices. Equal rows have separation exactly 0.
    itself : bool
        Whether both blocks are the same. The result is then exactly symmetric with diagonal 0.
    """
    _fill(a, b, out, RECOMPUTED_SHARE["single" if out.dtype == np.float32 else "double"])
    if itself:
        _mirror(out)


def _fill(a: TileRows, b: TileRows, out: FloatArray, share: float) -> None:
    approximate_separations(a, b, out)
    if a.manhattan and out.dtype == np.float64:
        return  # sums of differences, so nothing has cancelled
    a_sizes, b_sizes = a.sizes.astype(out.dtype), b.sizes.astype(out.dtype)
    near = _count_near(out, a_sizes, b_sizes, share)
    if near > CROWDED * out.size and out.dtype == np.float32:
        refined = np.empty(out.shape)
        _fill(_in_double(a), _in_double(b), refined, REFINED_SHARE)
        out[:] = refined
    elif near:
        unit = a.separation_unit
        _recompute(out, a.exact, b.exact, a_sizes, b_sizes, share, unit, a.manhattan)


def decide(a: TileRows, b: TileRows, limit: Float64Array, *, strict: bool) -> BoolArray:
    """Decide which pairs of two blocks have a separation of at most (or less than) a limit.

    Parameters
    ----------
    a, b : TileRows
        ``m`` and ``n`` rows that are alike in all but the rows.
    limit : ndarray of float64, shape (p,) or (n, p)
        An expansion of at most p parts, the largest first, in the units of the original rows
        (:mod:`latentscale.tiles.expansions`); one for all pairs, or one for each row of ``b``.
    strict : bool
        True for less than the limit, False for at most.

    Returns
    -------
    ndarray of bool, shape (m, n)
        The outcome of exact arithmetic, whatever the precision of the tile.
    """
    tile = np.empty((len(a), len(b)), dtype=a.matrix.dtype)
    approximate_separations(a, b, tile)
    precision: Precision = "single" if tile.dtype == np.float32 else "double"
    dimension = a.exact.shape[1]
    tiny = (dimension + 16) * np.finfo(tile.dtype).tiny
    decision = np.empty(tile.shape, dtype=np.bool_)
    limits = np.broadcast_to(limit, (len(b), limit.shape[-1])).copy()
    scaled = np.minimum(limits[:, 0] / a.separation_unit, float(np.finfo(tile.dtype).max))
    arguments = (
        tile,
        a.sizes.astype(tile.dtype),
        b.sizes.astype(tile.dtype),
        tile.dtype.type(rounding_share(dimension, precision)),
        tile.dtype.type(tiny),
        scaled.astype(tile.dtype),
        decision,
    )
    open_pairs = _decide_far(*arguments)
    if open_pairs > CROWDED * tile.size and precision == "single":
        return decide(_in_double(a), _in_double(b), limit, strict=strict)
    if open_pairs:
        _decide_close(*arguments, a.exact, b.exact, limits, strict, a.manhattan)
    return decision


def _in_double(rows: TileRows) -> TileRows:
    return tile_rows(
        rows.exact,
        origin=rows.origin,
        unit=rows.unit,
        manhattan=rows.manhattan,
        precision="double",
    )


def approximate_separations(a: TileRows, b: TileRows, out: FloatArray) -> None:
    """Compute separations whose errors are within the rounding share of the sizes."""
    if not a.manhattan:
        inner_products(a.matrix, b.matrix, out)
        _from_products(out, a.sizes.astype(out.dtype), b.sizes.astype(out.dtype))
    elif out.dtype == np.float64:
        _manhattan(a.exact, _strips(b.exact), out)
        if a.unit != 1.0:
            out /= a.unit
    else:
        _manhattan(a.matrix, _strips(b.matrix), out)


def _strips(rows: FloatArray) -> FloatArray:
    """Divide rows into strips stored coordinate by coordinate; the last is padded with zeros."""
    count = -(-len(rows) // STRIP)
    strips = np.zeros((count, rows.shape[1], STRIP), dtype=rows.dtype)
    for k in range(count):
        part = rows[k * STRIP : (k + 1) * STRIP]
        strips[k, :, : len(part)] = part.T
    return strips


@numba.njit(cache=True, nogil=True)
def _place(rows: Float64Array, origin: Float64Array, unit: float, out: FloatArray) -> None:
    factor = 1.0 / unit
    for i in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            out[i, c] = (rows[i, c] - origin[c]) * factor


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _sizes(matrix: FloatArray, manhattan: bool) -> Float64Array:
    sizes = np.empty(matrix.shape[0])
    for i in range(matrix.shape[0]):
        total = 0.0
        if manhattan:
            for c in range(matrix.shape[1]):
                total += abs(np.float64(matrix[i, c]))
        else:
            for c in range(matrix.shape[1]):
                total += np.float64(matrix[i, c]) * np.float64(matrix[i, c])
        sizes[i] = total
    return sizes


@numba.njit(cache=True, nogil=True)
def _in_any_order(x: Float64Array, y: Float64Array, manhattan: bool) -> float:
    return any_order_manhattan(x, y) if manhattan else any_order_squared(x, y)


@numba.njit(cache=True, nogil=True)
def _from_products(tile: FloatArray, a_sizes: FloatArray, b_sizes: FloatArray) -> None:
    two = tile.dtype.type(2)
    for i in range(tile.shape[0]):
        row, size = tile[i], a_sizes[i]
        for j in range(tile.shape[1]):
            row[j] = (size + b_sizes[j]) - two * row[j]


@numba.njit(cache=True, nogil=True)
def _count_near(tile: FloatArray, a_sizes: FloatArray, b_sizes: FloatArray, share: float) -> int:
    part = tile.dtype.type(share)
    near = 0
    for i in range(tile.shape[0]):
        row, size = tile[i], a_sizes[i]
        count: Any = np.int32(0)
        for j in range(tile.shape[1]):
            count += np.int32(row[j] <= part * (size + b_sizes[j]))
        near += count
    return near


@numba.njit(cache=True, nogil=True)
def _recompute(
    tile: FloatArray,
    a: Float64Array,
    b: Float64Array,
    a_sizes: FloatArray,
    b_sizes: FloatArray,
    share: float,
    unit: float,
    manhattan: bool,
) -> None:
    part = tile.dtype.type(share)
    for i in range(tile.shape[0]):
        row, size = tile[i], a_sizes[i]
        for j in range(tile.shape[1]):
            if row[j] <= part * (size + b_sizes[j]):
                row[j] = _in_any_order(a[i], b[j], manhattan) / unit


@numba.njit(cache=True, nogil=True)
def _mirror(tile: FloatArray) -> None:
    for i in range(tile.shape[0]):
        tile[i, i] = 0
        for j in range(i):
            tile[i, j] = tile[j, i]


@numba.njit(cache=True, nogil=True)
def _decide_far(
    tile: FloatArray,
    a_sizes: FloatArray,
    b_sizes: FloatArray,
    share: np.floating[Any],
    tiny: np.floating[Any],
    limits: FloatArray,
    decision: BoolArray,
) -> int:
    """Decide all pairs from the tile, and count those that are too close to call."""
    open_pairs = 0
    for i in range(tile.shape[0]):
        row, size, decided = tile[i], a_sizes[i], decision[i]
        count: Any = np.int32(0)
        for j in range(tile.shape[1]):
            band = share * (size + b_sizes[j]) + tiny
            decided[j] = row[j] < limits[j]
            count += np.int32(abs(row[j] - limits[j]) <= band)
        open_pairs += count
    return open_pairs


@numba.njit(cache=True, nogil=True)
def _decide_close(
    tile: FloatArray,
    a_sizes: FloatArray,
    b_sizes: FloatArray,
    share: np.floating[Any],
    tiny: np.floating[Any],
    limits: FloatArray,
    decision: BoolArray,
    a: Float64Array,
    b: Float64Array,
    exact_limits: Float64Array,
    strict: bool,
    manhattan: bool,
) -> None:
    """Decide the pairs that are too close to call from their coordinates."""
    certain, rounding = float64_is_exact(a, b), rounding_of_pairs(a.shape[1])
    parts = np.empty(PARTS * a.shape[1] + exact_limits.shape[1])
    for i in range(tile.shape[0]):
        for start in range(0, tile.shape[1], STRIP):
            row, sizes = tile[i, start : start + STRIP], b_sizes[start : start + STRIP]
            limit = limits[start : start + STRIP]
            count: Any = np.int32(0)
            for j in range(len(row)):
                band = share * (a_sizes[i] + sizes[j]) + tiny
                count += np.int32(abs(row[j] - limit[j]) <= band)
            if count == 0:
                continue
            for j in range(len(row)):
                band = share * (a_sizes[i] + sizes[j]) + tiny
                if abs(row[j] - limit[j]) <= band:
                    x, y, exact_limit = a[i], b[start + j], exact_limits[start + j]
                    separation = _in_any_order(x, y, manhattan)
                    excess = separation - exact_limit[0]
                    if certain:
                        if excess == 0.0 and len(exact_limit) > 1:
                            excess = -exact_limit[1]
                    elif abs(excess) <= rounding * (separation + exact_limit[0]):
                        excess = compare_with_limit(x, y, exact_limit, manhattan, parts)
                    decision[i, start + j] = excess < 0.0 if strict else excess <= 0.0


# Every sum runs in the order of the coordinates, as in manhattan_distance.
@numba.njit(cache=True, nogil=True)
def _manhattan(a: FloatArray, strips: FloatArray, out: FloatArray) -> None:
    rows, dimension = a.shape
    columns = out.shape[1]
    eights = dimension - dimension % 8
    total = np.empty(STRIP, dtype=out.dtype)
    zero = out.dtype.type(0)
    for k in range(strips.shape[0]):
        strip = strips[k]
        for i in range(rows):
            x = a[i]
            for j in range(STRIP):
                total[j] = zero
            for c in range(0, eights, 8):
                x0, x1, x2, x3 = x[c], x[c + 1], x[c + 2], x[c + 3]
                x4, x5, x6, x7 = x[c + 4], x[c + 5], x[c + 6], x[c + 7]
                y0, y1, y2, y3 = strip[c], strip[c + 1], strip[c + 2], strip[c + 3]
                y4, y5, y6, y7 = strip[c + 4], strip[c + 5], strip[c + 6], strip[c + 7]
                for j in range(STRIP):
                    s = total[j] + abs(x0 - y0[j])
                    s += abs(x1 - y1[j])
                    s += abs(x2 - y2[j])
                    s += abs(x3 - y3[j])
                    s += abs(x4 - y4[j])
                    s += abs(x5 - y5[j])
                    s += abs(x6 - y6[j])
                    total[j] = s + abs(x7 - y7[j])
            for c in range(eights, dimension):
                x0, y0 = x[c], strip[c]
                for j in range(STRIP):
                    total[j] += abs(x0 - y0[j])
            start = k * STRIP
            for j in range(min(STRIP, columns - start)):
                out[i, start + j] = total[j]
