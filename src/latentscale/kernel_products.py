"""Products of a kernel matrix with many vectors at once, without the matrix.

A tile of similarities serves every vector, so a visit of all pairs costs the distances, one
exponential a pair, and two multiply-adds a pair and vector. Each unordered pair of blocks is
visited once and folded both ways (:class:`latentscale.exponentials.DistanceTiles`); the diagonal is
exactly 1, and the matrix multiplied with exactly symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentscale.backend import exponentials
from latentscale.distances import Float64Array, Points
from latentscale.exponentials import DistanceTiles
from latentscale.kernels import Kernel, check_kernel


@dataclass(frozen=True)
class KernelSums:
    """What the pairs between two blocks of rows add to the products.

    Attributes
    ----------
    products_a, products_b : ndarray of float64, shapes (m, s) and (n, s)
        Products with the other block's vectors.
    squares : float
        Sum of the squared similarities times both rows' masses, over both orders of every pair.
    """

    products_a: Float64Array
    products_b: Float64Array
    squares: float


def kernel_block_products(
    a: Points,
    b: Points,
    kernel: Kernel,
    bandwidth: float,
    vectors_a: Float64Array,
    vectors_b: Float64Array,
    *,
    masses_a: Float64Array | None = None,
    masses_b: Float64Array | None = None,
) -> KernelSums:
    """Multiply vectors by the similarities between two blocks of rows, both ways, in float64.

    Parameters
    ----------
    a, b : Points
        Blocks of ``m`` and ``n`` rows under the Euclidean metric, with the same origin in their
        midst. With ``b is a`` one block meets itself and ``vectors_b`` is not read.
    kernel : {"rbf", "laplacian"}
        The similarity.
    bandwidth : float
        Positive.
    vectors_a, vectors_b : ndarray of float64, shapes (m, s) and (n, s)
        The vectors' entries for the rows of either block.
    masses_a, masses_b : ndarray of float64, shapes (m,) and (n,), optional
        Wanted for the squares, which are 0 without them.

    Returns
    -------
    KernelSums
        With ``b is a`` the second products are zeros, so that adding both is always right.

    Raises
    ------
    ValueError
        On a kernel that doesn't suit the points.
    """
    check_kernel(a, kernel, bandwidth)
    itself = b is a
    products_a = np.zeros((len(a), vectors_a.shape[1]))
    products_b = np.zeros((len(b), vectors_a.shape[1]))
    right = vectors_a if itself else vectors_b
    masses = masses_a if itself else masses_b
    squares = 0.0
    factor = -0.5 / bandwidth**2 if kernel == "rbf" else -1.0 / bandwidth
    for rows, columns, filled in DistanceTiles(a, None if itself else b):
        tile = filled[: rows.stop - rows.start]
        if kernel == "laplacian":
            np.sqrt(tile, out=tile)
        exponentials(tile, factor)
        products_a[rows] += tile @ right[columns]
        twice = not (itself and rows == columns)
        if twice:
            target = products_a if itself else products_b
            target[columns] += tile.T @ vectors_a[rows]
        if masses_a is not None and masses is not None:
            np.square(tile, out=tile)
            squares += (1 + twice) * float(masses_a[rows] @ (tile @ masses[columns]))
    return KernelSums(products_a, products_b, squares)
