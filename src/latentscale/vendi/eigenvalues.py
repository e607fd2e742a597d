"""All eigenvalues of a large symmetric matrix, in place and without holding Python's lock.

SciPy's wrapper holds the interpreter's lock during the whole LAPACK call, which takes minutes for
ten thousand rows. Meanwhile a worker can't answer its scheduler, be stopped, or run a second task.
NumPy's releases it but copies the matrix, which doubles the memory. The routine underneath,
LAPACK's ``dsyev``, is called here through the pointer that SciPy publishes for this purpose
(``scipy.linalg.cython_lapack``), in place and with the lock released.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numba.extending import get_cython_function_address

from latentscale.array_types import Float64Array


def symmetric_eigenvalues(matrix: Float64Array) -> Float64Array:
    """Return all eigenvalues, ascending, and destroy the matrix.

    Parameters
    ----------
    matrix : ndarray of float64, shape (n, n)
        Column-major; only the lower triangle is read. Its content is overwritten.

    Returns
    -------
    ndarray of float64, shape (n,)

    Raises
    ------
    ValueError
        If the matrix isn't a square, column-major float64 array.
    numpy.linalg.LinAlgError
        If the iteration doesn't converge.

    Notes
    -----
    ``4/3 n^3`` operations, half of them bound by memory bandwidth; 40 n doubles of workspace.
    """
    n = len(matrix)
    fits = matrix.ndim == 2 and matrix.shape == (n, n) and matrix.dtype == np.float64
    if not fits or not matrix.flags.f_contiguous or not matrix.flags.writeable:
        raise ValueError("the matrix must be square, column-major, writeable and float64")
    eigenvalues = np.empty(n)
    work = np.empty(1)
    _dsyev(matrix, eigenvalues, work, -1)
    work = np.empty(max(1, int(work[0])))
    info = _dsyev(matrix, eigenvalues, work, len(work))
    if info != 0:
        raise np.linalg.LinAlgError(f"LAPACK's dsyev did not converge (info {info})")
    return eigenvalues


def _dsyev(matrix: Float64Array, eigenvalues: Float64Array, work: Float64Array, size: int) -> int:
    # ctypes releases the lock during a call.
    address = get_cython_function_address("scipy.linalg.cython_lapack", "dsyev")
    routine = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 9)(address)
    n, info = ctypes.c_int(len(matrix)), ctypes.c_int(0)
    leading, lwork = ctypes.c_int(max(1, len(matrix))), ctypes.c_int(size)
    routine(
        ctypes.cast(ctypes.c_char_p(b"N"), ctypes.c_void_p),
        ctypes.cast(ctypes.c_char_p(b"L"), ctypes.c_void_p),
        ctypes.addressof(n),
        matrix.ctypes.data,
        ctypes.addressof(leading),
        eigenvalues.ctypes.data,
        work.ctypes.data,
        ctypes.addressof(lwork),
        ctypes.addressof(info),
    )
    return info.value
