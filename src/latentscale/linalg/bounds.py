"""Bounds on eigenvalues that need no iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
from numpy.typing import NDArray

from latentscale.array_types import Float64Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def norm_bound(laplacian: csr_array[Any, Any]) -> float:
    """Bound the largest eigenvalue by Gershgorin's theorem; 1 for a matrix of zeros.

    Parameters
    ----------
    laplacian : csr_array, shape (n, n)
        A symmetric matrix.

    Returns
    -------
    float
        The largest sum of a row's absolute values.
    """
    return _largest_row_sum(laplacian.indptr, laplacian.data) or 1.0


@numba.njit(cache=True, nogil=True)
def _largest_row_sum(indptr: NDArray[Any], data: Float64Array) -> float:
    largest = 0.0
    for i in range(len(indptr) - 1):
        total = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            total += abs(data[entry])
        largest = max(largest, total)
    return largest
