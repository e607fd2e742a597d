"""Rows scaled to unit length, block by block, on numba.

Takes one pass over a block that is in the caches. Lengths and factors are in float64; each
coordinate is rounded once, to the type of the result.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array, FloatArray
from latentscale.tiles.host.exponentials import _float_of_bits

SHORTEST = 1e-290
"""Squared length below which squares of a row's coordinates may have underflowed."""

_SIGN, _REST = np.int32(0x8000), np.int32(0x7FFF)
_SIGN_SHIFT, _REST_SHIFT = np.int32(16), np.int32(13)
_EXPONENT_SHIFT = np.float32(2.0**112)


def unit_rows(rows: FloatArray, lengths: Float64Array, out: FloatArray) -> int:
    """Scale every row to its given length.

    Parameters
    ----------
    rows : ndarray of float16, float32 or float64, shape (m, d)
        Finite.
    lengths : ndarray of float64, shape (m,)
        The lengths to scale to.
    out : ndarray of float32 or float64, shape (m, d), contiguous
        Receives the scaled rows.

    Returns
    -------
    int
        The first row whose squared length is zero, underflows or overflows; from that row on
        ``out`` is undefined. -1 if there is none.
    """
    if rows.dtype == np.float16:
        bits = np.ascontiguousarray(rows).view(np.uint16)
        return int(_scale_half(bits, lengths, out))
    return int(_scale(rows, lengths, out))


# Reassociation lets the sum of squares use the whole vector unit. Its order is fixed when the
# function is compiled.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _scale_row(row: FloatArray, length: float, out: FloatArray) -> bool:
    total = 0.0
    for j in range(row.shape[0]):
        value = np.float64(row[j])
        total += value * value
    if not SHORTEST < total < np.inf:
        return False
    factor = length / np.sqrt(total)
    for j in range(row.shape[0]):
        out[j] = row[j] * factor
    return True


@numba.njit(cache=True, nogil=True)
def _scale(rows: FloatArray, lengths: Float64Array, out: FloatArray) -> int:
    for i in range(rows.shape[0]):
        if not _scale_row(rows[i], lengths[i], out[i]):
            return i
    return -1


@numba.njit(cache=True, nogil=True)
def _scale_half(bits: NDArray[np.uint16], lengths: Float64Array, out: FloatArray) -> int:
    wide = np.empty(bits.shape[1], dtype=np.float32)
    for i in range(bits.shape[0]):
        row = bits[i]
        for j in range(row.shape[0]):
            # The bits of a half-precision number are put into their places in a single. A
            # multiplication corrects the bias of the exponent, also for subnormal numbers.
            half = np.int32(row[j])
            placed = ((half & _REST) << _REST_SHIFT) | ((half & _SIGN) << _SIGN_SHIFT)
            wide[j] = _float_of_bits(np.int32(placed)) * _EXPONENT_SHIFT
        if not _scale_row(wide, lengths[i], out[i]):
            return i
    return -1
