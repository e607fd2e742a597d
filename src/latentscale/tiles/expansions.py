"""Separations without rounding, and their comparison.

Where two separations differ by less than their rounding in float64, they are summed without any. An
*expansion* is a list of float64 numbers, ascending in size, that don't overlap: their sum is exact,
and its sign is that of the last one (Shewchuk, *Adaptive precision floating-point arithmetic and
fast robust geometric predicates*, 1997, section 2). Differences and products are split into a
rounded number and its error (Dekker 1971), and each part is added to an expansion.

This is exact while no part of a product underflows: for rows whose coordinates are float32 numbers,
and for float64 coordinates that are 0 or above 10⁻¹⁴⁵ in size.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numba
import numpy as np

from latentscale.array_types import Float64Array

PARTS = 6
"""Most numbers that one coordinate adds to an expansion."""

_SPLITTER = 2.0**27 + 1.0


@numba.njit(cache=True, nogil=True)
def rounding_of_pairs(dimension: int) -> float:
    """Bound the relative difference of two float64 sums, in any order, of equal separations.

    It covers the rounding of two further sums that were compared before, and that of their roots.
    """
    return (dimension + 8.0) * 2.0**-51


def exact_square(number: float) -> Float64Array:
    """Return the square of a number as an expansion, the largest part first."""
    square = number * number
    if not math.isfinite(square):
        return np.array([np.finfo(np.float64).max])
    return np.array([square, float(Fraction(number) ** 2 - Fraction(square))])


@numba.njit(cache=True, nogil=True)
def float64_is_exact(a: Float64Array, b: Float64Array) -> bool:
    """Tell whether float64 sums of separations between two blocks are surely without rounding.

    They are if all coordinates are small multiples of one number, as on lattices. Then the roots of
    different sums are different too.
    """
    largest = 0.0
    for rows in (a, b):
        for row in rows:
            for number in row:
                largest = max(largest, abs(number))
    if largest == 0.0:
        return True
    grid = 2.0 ** (math.ceil(math.log2(2.0 * largest * math.sqrt(a.shape[1]))) - 25)
    for rows in (a, b):
        for row in rows:
            for number in row:
                if np.floor(number / grid) * grid != number:
                    return False
    return True


@numba.njit(cache=True, nogil=True)
def _grow(parts: Float64Array, count: int, number: float) -> int:
    """Add a number to an expansion in place, and return how many parts it then has."""
    kept = 0
    for i in range(count):
        part = parts[i]
        total = number + part
        back = total - number
        error = (number - (total - back)) + (part - back)
        number = total
        if error != 0.0:
            parts[kept] = error
            kept += 1
    if number != 0.0:
        parts[kept] = number
        kept += 1
    return kept


@numba.njit(cache=True, nogil=True)
def _grow_product(parts: Float64Array, count: int, x: float, y: float) -> int:
    product = x * y
    scaled_x, scaled_y = _SPLITTER * x, _SPLITTER * y
    x_high, y_high = scaled_x - (scaled_x - x), scaled_y - (scaled_y - y)
    x_low, y_low = x - x_high, y - y_high
    error = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    if error != 0.0:
        count = _grow(parts, count, error)
    return _grow(parts, count, product)


@numba.njit(cache=True, nogil=True)
def grow_separation(
    parts: Float64Array,
    count: int,
    x: Float64Array,
    y: Float64Array,
    sign: float,
    manhattan: bool,
) -> int:
    """Add a separation, or subtract it, and return how many parts the expansion then has."""
    for c in range(x.shape[0]):
        high = x[c] - y[c]
        back = high - x[c]
        low = (x[c] - (high - back)) - (y[c] + back)
        if manhattan:
            along = sign if high > 0.0 else -sign
            count = _grow(parts, _grow(parts, count, along * low), along * high)
        elif high != 0.0:
            count = _grow_product(parts, count, sign * high, high)
            if low != 0.0:
                count = _grow_product(parts, count, 2.0 * sign * high, low)
                count = _grow_product(parts, count, sign * low, low)
    return count


@numba.njit(cache=True, nogil=True)
def compare_with_limit(
    x: Float64Array, y: Float64Array, limit: Float64Array, manhattan: bool, parts: Float64Array
) -> float:
    """Return a number of the sign of the separation less a limit, which is an expansion."""
    count = 0
    for part in limit:
        count = _grow(parts, count, -part)
    count = grow_separation(parts, count, x, y, 1.0, manhattan)
    return parts[count - 1] if count else 0.0


@numba.njit(cache=True, nogil=True)
def is_nearer(x: Float64Array, y: Float64Array, other: Float64Array, parts: Float64Array) -> bool:
    """Tell whether x is nearer to y than to another row, in Euclidean distance."""
    count = grow_separation(parts, 0, x, y, 1.0, False)
    count = grow_separation(parts, count, x, other, -1.0, False)
    return count > 0 and parts[count - 1] < 0.0
