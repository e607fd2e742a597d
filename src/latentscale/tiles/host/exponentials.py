r"""Exponentials of a tile's separations, and their products with vectors, on numba.

Exponential
-----------
:math:`e^{-x} = 2^{-m} e^{r}` with :math:`r = m \ln 2 - x`, :math:`|r| \le \frac12 \ln 2`, taken in
two steps so that nothing cancels, and a Taylor polynomial of degree 7 (single) or 13 (double) for
:math:`e^r`, whose remainder is below a tenth of a rounding. Written as plain loops, it uses the
whole vector unit in both precisions, which neither numpy's nor numba's own exponential does. The
relative error is at most :data:`EXPONENTIAL_ERROR` roundings; :math:`e^{-0}` is exactly 1.

Underflow
---------
Subnormal numbers slow many processors down a hundredfold. Similarities are therefore kept above a
floor, :data:`MIN_SIMILARITY`: exponents are clipped there, and a product of two similarities is a
fused multiply-add with the floor, which costs no more than the product. A similarity of 1 stays
exactly 1.

Sums
----
Strips of :data:`FOLDED_COLUMNS` columns and :data:`FOLDED_ROWS` rows stay in the first caches while
all scales are processed. Sums within such a strip are in the tile's precision, sums of strips in
float64.
"""

from __future__ import annotations

from decimal import Decimal
from math import factorial
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from latentscale.array_types import Float64Array, FloatArray, Int64Array
from latentscale.tiles.host.separations import Precision

EXPONENTIAL_ERROR = 3.0
"""Bound on an exponential's relative error, in roundings of its precision."""

MIN_SIMILARITY: dict[Precision, float] = {"single": 2.0**-100, "double": 2.0**-900}
"""Smaller similarities are raised to this value. The error is negligible in the sums."""

FOLDED_COLUMNS = 128
"""Columns of a strip."""

FOLDED_ROWS = 64
"""Rows of a strip."""

ROWS_AT_ONCE = 4
"""Rows processed together; the height of a tile is a multiple of it."""


def exponentials(values: FloatArray, factor: float) -> None:
    """Replace each value ``x`` of an array by ``exp(factor * x)``."""
    values *= factor
    np.exp(values, out=values)


# --- exp(-x) over a strip --------------------------------------------------------------------


def _type_float_of_bits(typing_context: Any, bits: Any) -> Any:
    number: Any = types.float32 if bits == types.int32 else types.float64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(number))

    return number(bits), generate


_float_of_bits: Any = intrinsic(_type_float_of_bits)
"""Reinterprets the bits of an integer as a floating-point number of the same size."""


_HIGH_BITS = {"single": 10, "double": 32}
"""Fractional bits of the first part of ln 2, few enough that its multiples are exact."""

_LOG_2 = Decimal(2).ln()
_HIGH = {name: round(_LOG_2 * 2**bits) / 2**bits for name, bits in _HIGH_BITS.items()}
_LOW = {name: float(_LOG_2 - Decimal(high)) for name, high in _HIGH.items()}

_HIGH_32, _LOW_32 = np.float32(_HIGH["single"]), np.float32(_LOW["single"])
_HIGH_64, _LOW_64 = _HIGH["double"], _LOW["double"]
_INVERSE_32, _INVERSE_64 = np.float32(1 / _LOG_2), float(1 / _LOG_2)
_LARGEST_32 = np.float32(-np.log(MIN_SIMILARITY["single"]))
_LARGEST_64 = float(-np.log(MIN_SIMILARITY["double"]))
_HALF_32, _ONE_32 = np.float32(0.5), np.float32(1.0)
_BIAS_32, _SHIFT_32 = np.int32(127), np.int32(23)
_BIAS_64, _SHIFT_64 = np.int64(1023), np.int64(52)
_C = tuple(1.0 / factorial(k) for k in range(14))
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(c) for c in _C[2:8])


# The exact steps of the reduction must keep their order, so nothing is reassociated here.
@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _exponentials_single(
    distances: FloatArray, factor: float, out: FloatArray, columns: int
) -> None:
    scale = np.float32(factor)
    for j in range(columns):
        x = min(distances[j] * scale, _LARGEST_32)
        m = np.floor(x * _INVERSE_32 + _HALF_32)
        r = (m * _HIGH_32 - x) + m * _LOW_32
        p = _C4 + r * (_C5 + r * (_C6 + r * _C7))
        p = _ONE_32 + r * (_ONE_32 + r * (_C2 + r * (_C3 + r * p)))
        out[j] = p * _float_of_bits(np.int32(np.int32(_BIAS_32 - np.int32(m)) << _SHIFT_32))


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _exponentials_double(
    distances: FloatArray, factor: float, out: FloatArray, columns: int
) -> None:
    for j in range(columns):
        x = min(distances[j] * factor, _LARGEST_64)
        m = np.floor(x * _INVERSE_64 + 0.5)
        r = (m * _HIGH_64 - x) + m * _LOW_64
        p = _C[8] + r * (_C[9] + r * (_C[10] + r * (_C[11] + r * (_C[12] + r * _C[13]))))
        p = _C[3] + r * (_C[4] + r * (_C[5] + r * (_C[6] + r * (_C[7] + r * p))))
        p = 1.0 + r * (1.0 + r * (_C[2] + r * p))
        out[j] = p * _float_of_bits((_BIAS_64 - np.int64(m)) << _SHIFT_64)


def _exponentials(distances: FloatArray, factor: float, out: FloatArray, columns: int) -> None:
    """Set ``out = exp(-factor * distances)``, at least the least similarity."""
    raise NotImplementedError


@overload(_exponentials)
def _choose_exponentials(distances: Any, factor: Any, out: Any, columns: Any) -> Any:
    def single(distances: Any, factor: Any, out: Any, columns: Any) -> Any:
        _exponentials_single(distances, factor, out, columns)

    def double(distances: Any, factor: Any, out: Any, columns: Any) -> Any:
        _exponentials_double(distances, factor, out, columns)

    return single if distances.dtype == types.float32 else double


# --- Sums ------------------------------------------------------------------------------------


# Reassociation lets a sum over a strip use the whole vector unit. The order of the sum is fixed
# when the function is compiled, and doesn't depend on the data.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def fold_similarities(
    tile: FloatArray,
    root: bool,
    factors: Float64Array,
    multiplications: Int64Array,
    step: float,
    squarings: Int64Array,
    floor: float,
    a_vectors: FloatArray,
    b_vectors: FloatArray,
    a_start: int,
    b_start: int,
    a_sums: Float64Array,
    b_sums: Float64Array,
    both_ways: bool,
) -> None:
    """Multiply similarities at many scales by a vector for each, and add up the products.

    The similarities at one scale follow from those at the scale before. With ``z`` the separation,
    or its root:

    1. unless ``factors[k]`` is NaN they are ``exp(-factors[k] * z)``, else the scale before's
       (before the first: 1);
    2. they are multiplied ``multiplications[k]`` times by ``exp(-step * z)``;
    3. they are squared ``squarings[k]`` times.

    Parameters
    ----------
    tile : ndarray, shape (m, n)
        Separations; ``m`` is a multiple of ``ROWS_AT_ONCE``.
    root : bool
        Whether distances are the roots of separations.
    factors, step, multiplications, squarings, floor
        As above; without multiplications the step isn't used. ``floor`` is the smallest similarity.
    a_vectors, b_vectors : ndarray of the tile's type, shapes (s, at least a_start + m) and likewise
        One vector a scale; the tile's rows begin at ``a_start`` and its columns at ``b_start``.
    a_sums, b_sums : ndarray of float64, shapes of the vectors
        Changed in place: products with ``b_vectors`` are added to ``a_sums`` and, if ``both_ways``,
        products with ``a_vectors`` to ``b_sums``.
    """
    rows, columns = tile.shape
    scales = len(factors)
    one, least = tile.dtype.type(1), tile.dtype.type(floor)
    stepping = False
    for k in range(scales):
        stepping |= multiplications[k] > 0
    # Strips have a fixed width, which makes their loops fastest. The last one is padded with zeros
    # in the vectors.
    distances = np.zeros((ROWS_AT_ONCE, FOLDED_COLUMNS), dtype=tile.dtype)
    powers = np.zeros_like(distances)
    steps = np.zeros_like(distances)
    strip_sums = np.empty((scales, FOLDED_COLUMNS), dtype=tile.dtype)
    strip_vectors = np.zeros((scales, FOLDED_COLUMNS), dtype=tile.dtype)
    p0, p1, p2, p3 = powers[0], powers[1], powers[2], powers[3]
    e0, e1, e2, e3 = steps[0], steps[1], steps[2], steps[3]
    for left in range(0, columns, FOLDED_COLUMNS):
        width = min(FOLDED_COLUMNS, columns - left)
        for k in range(scales):
            for j in range(width):
                strip_vectors[k, j] = b_vectors[k, b_start + left + j]
            for j in range(width, FOLDED_COLUMNS):
                strip_vectors[k, j] = 0
        for top in range(0, rows, FOLDED_ROWS):
            strip_sums[:] = 0
            for i in range(top, min(top + FOLDED_ROWS, rows), ROWS_AT_ONCE):
                for r in range(ROWS_AT_ONCE):
                    row, distance = tile[i + r, left : left + width], distances[r]
                    if root:
                        for j in range(width):
                            distance[j] = np.sqrt(row[j])
                    else:
                        for j in range(width):
                            distance[j] = row[j]
                    if stepping:
                        _exponentials(distance, step, steps[r], width)
                powers[:] = one
                for k in range(scales):
                    if not np.isnan(factors[k]):
                        for r in range(ROWS_AT_ONCE):
                            _exponentials(distances[r], factors[k], powers[r], width)
                    last_is_step = squarings[k] == 0 and multiplications[k] > 0
                    for _ in range(multiplications[k] - (1 if last_is_step else 0)):
                        for r in range(ROWS_AT_ONCE):
                            power, factor = powers[r], steps[r]
                            for j in range(FOLDED_COLUMNS):
                                power[j] = power[j] * factor[j] + least
                    for _ in range(squarings[k]):
                        for r in range(ROWS_AT_ONCE):
                            power = powers[r]
                            for j in range(FOLDED_COLUMNS):
                                power[j] = power[j] * power[j] + least
                    at = a_start + i
                    v0, v1 = a_vectors[k, at], a_vectors[k, at + 1]
                    v2, v3 = a_vectors[k, at + 2], a_vectors[k, at + 3]
                    sum0 = sum1 = sum2 = sum3 = tile.dtype.type(0)
                    if last_is_step:  # by far the most frequent case: multiplied while summing
                        for j in range(FOLDED_COLUMNS):
                            q0 = p0[j] * e0[j] + least
                            q1 = p1[j] * e1[j] + least
                            q2 = p2[j] * e2[j] + least
                            q3 = p3[j] * e3[j] + least
                            p0[j], p1[j], p2[j], p3[j] = q0, q1, q2, q3
                            v = strip_vectors[k, j]
                            sum0 += q0 * v
                            sum1 += q1 * v
                            sum2 += q2 * v
                            sum3 += q3 * v
                            strip_sums[k, j] += (q0 * v0 + q1 * v1) + (q2 * v2 + q3 * v3)
                    else:
                        for j in range(FOLDED_COLUMNS):
                            q0, q1, q2, q3 = p0[j], p1[j], p2[j], p3[j]
                            v = strip_vectors[k, j]
                            sum0 += q0 * v
                            sum1 += q1 * v
                            sum2 += q2 * v
                            sum3 += q3 * v
                            strip_sums[k, j] += (q0 * v0 + q1 * v1) + (q2 * v2 + q3 * v3)
                    a_sums[k, at] += sum0
                    a_sums[k, at + 1] += sum1
                    a_sums[k, at + 2] += sum2
                    a_sums[k, at + 3] += sum3
            if both_ways:
                for k in range(scales):
                    total, part = b_sums[k], strip_sums[k]
                    for j in range(width):
                        total[b_start + left + j] += part[j]
