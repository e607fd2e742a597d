"""Known vectors that a symmetric matrix maps to zero."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from latentscale.array_types import Float64Array, Int32Array


@dataclass(frozen=True)
class NullSpace:
    """Orthonormal vectors that a matrix maps to 0, one for each of some components.

    Attributes
    ----------
    labels : ndarray of int32, shape (n,)
        The component of every row.
    vector : ndarray of float64, shape (n,)
        The sum of all the vectors: each is 0 outside its component. It is 0 where a component has
        no vector.
    components, dimension : int
        Number of components, and number of those with a vector.
    """

    labels: Int32Array
    vector: Float64Array
    components: int
    dimension: int

    def project_out(self, columns: Float64Array) -> None:
        """Make columns orthogonal to the vectors, in place."""
        _project_out(columns, self.labels, self.vector, self.components)


@numba.njit(cache=True, nogil=True)
def _project_out(
    columns: Float64Array,
    labels: Int32Array,
    vector: Float64Array,
    components: int,
) -> None:
    n, width = columns.shape
    shares = np.zeros((components, width))
    for i in range(n):
        for c in range(width):
            shares[labels[i], c] += vector[i] * columns[i, c]
    for i in range(n):
        for c in range(width):
            columns[i, c] -= vector[i] * shares[labels[i], c]
