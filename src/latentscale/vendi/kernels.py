r"""Similarity kernels on tiles of row pairs.

A kernel turns two rows into a similarity between 0 and 1 (cosine: between -1 and 1) that is 1 for
equal rows and gives a positive semidefinite matrix on any set of rows:

``cosine``
    :math:`\cos(x, y)`, the inner product of the unit vectors.
``rbf``
    :math:`\exp(-\|x - y\|^2 / 2\sigma^2)`.
``laplacian``
    :math:`\exp(-\|x - y\| / \sigma)` with the Euclidean distance.

Any other positive semidefinite kernel is a function of two blocks of rows (:data:`KernelFunction`).
Its values are checked on a few rows.

The bandwidth :math:`\sigma` is a distance in the units of the vectors. The usual choice is the
median distance of random row pairs (:func:`latentscale.sampling.median_distance.median_bandwidth`).

Rounding
--------
The error of a separation is at most :math:`\gamma S`, with S the sum of both squared lengths about
the origin, and :math:`\gamma s` where the separation s is below a share p of S, because such values
are computed again (:mod:`latentscale.tiles.host.separations`). So the error of a similarity
:math:`k_{ij}` is at most :math:`k_{ij} (r_i + r_j)` with

.. math:: r_i = \frac{\gamma \|x_i\|^2}{2\sigma^2} \;\text{(RBF)}, \qquad
          r_i = \frac{\gamma \|x_i\|}{2\sigma\sqrt p} \;\text{(Laplacian)},

plus the rounding of the exponential. Far from the origin this is too much, but an error never
exceeds :math:`\gamma / (e p)`, because :math:`S < s / p` where nothing was computed again, and
:math:`z e^{-z} \le 1/e`. :class:`SimilarityRounding` takes the smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import Estimate
from latentscale.tiles.device import (
    EXPONENTIAL_ERROR,
    RECOMPUTED_SHARE,
    exponentials,
    inner_products,
    rounding_share,
    rounding_unit,
)
from latentscale.tiles.distances import Metric, Points, distance_tile, squared_tile

KernelName = Literal["cosine", "rbf", "laplacian"]
KERNELS: tuple[KernelName, ...] = get_args(KernelName)

KernelFunction = Callable[[Float64Array, Float64Array], Any]
"""Similarities, shape (m, n), between float64 rows of shapes (m, d) and (n, d).

Symmetric, 1 for equal rows, and positive semidefinite on any set of rows. The value of a pair
doesn't depend on the other rows of the blocks.
"""

Kernel = KernelName | KernelFunction

METRIC_OF_KERNEL: dict[KernelName, Metric] = {
    "cosine": "cosine",
    "rbf": "euclidean",
    "laplacian": "euclidean",
}
"""The metric under which rows must be prepared for a kernel."""

SUMS_ROUNDING = 1e-12
"""Relative allowance for the rounding of sums in a bracket, in addition to n roundings."""

TRIED_ROWS = 64
"""Rows on which a kernel function is tried before it is used."""

FUNCTION_TOLERANCE = 1e-6
"""Largest deviation of a kernel function from symmetry, from 1 on the diagonal, and from being
positive semidefinite (of an eigenvalue, divided by the number of rows)."""


def check_kernel(points: Points, kernel: Kernel, bandwidth: float | None) -> None:
    """Refuse a kernel that isn't known, lacks its bandwidth, or doesn't suit the points.

    Raises
    ------
    ValueError
        On an unknown kernel, points prepared for another metric, a bandwidth that isn't a
        positive number (RBF, Laplacian), or a bandwidth given for the cosine kernel or a function;
        on a function that isn't a kernel on the first rows.
    """
    if callable(kernel):
        _check_function(points, kernel, bandwidth)
        return
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}; choose one of {', '.join(KERNELS)}")
    metric = METRIC_OF_KERNEL[kernel]
    if points.metric != metric:
        raise ValueError(
            f"the {kernel} kernel needs points with metric {metric!r}, got {points.metric!r}"
        )
    if kernel == "cosine":
        if bandwidth is not None:
            raise ValueError(f"the cosine kernel has no bandwidth, got {bandwidth}; leave it None")
    elif bandwidth is None or not (math.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"the {kernel} kernel needs a positive bandwidth, got {bandwidth}")


def kernel_title(kernel: Kernel) -> str:
    """Return the name of a kernel for messages."""
    if not callable(kernel):
        return f"the {kernel} kernel"
    return f"the kernel {getattr(kernel, '__module__', '')}:{getattr(kernel, '__name__', kernel)}"


def _check_function(points: Points, kernel: KernelFunction, bandwidth: float | None) -> None:
    title = kernel_title(kernel)
    if points.metric != "euclidean":
        raise ValueError(f"{title} needs rows as they are, got points of {points.metric!r}")
    if bandwidth is not None:
        raise ValueError(f"{title} takes no bandwidth, got {bandwidth}; leave it None")
    few = points.take(slice(0, TRIED_ROWS))
    tile = function_tile(few, few, kernel)
    if np.abs(tile - tile.T).max() > FUNCTION_TOLERANCE:
        raise ValueError(f"{title} isn't symmetric")
    if np.abs(np.diagonal(tile) - 1.0).max() > FUNCTION_TOLERANCE:
        raise ValueError(f"{title} isn't 1 between a row and itself; divide it by its diagonal")
    least = float(np.linalg.eigvalsh(tile)[0])
    if least < -FUNCTION_TOLERANCE * len(tile):
        raise ValueError(
            f"{title} isn't positive semidefinite: {len(tile)} rows have the eigenvalue {least:.2g}"
        )


def check_semidefinite(eigenvalue: float, kernel: Kernel) -> None:
    """Raise a ValueError if a function's matrix of trace 1 has a negative eigenvalue."""
    if callable(kernel) and eigenvalue < -FUNCTION_TOLERANCE:
        raise ValueError(
            f"{kernel_title(kernel)} isn't positive semidefinite: divided by the number of rows, "
            f"its matrix has the eigenvalue {eigenvalue:.2g}"
        )


def function_tile(a: Points, b: Points, kernel: KernelFunction) -> Float64Array:
    """Compute the similarities between all rows of two blocks by a function.

    Parameters
    ----------
    a, b : Points
        Blocks of ``m`` and ``n`` rows under the Euclidean metric, without an origin.
    kernel : callable
        The similarity.

    Returns
    -------
    ndarray of float64, shape (m, n)
        A copy of what the function returned.

    Raises
    ------
    ValueError
        If it returned another shape, something that isn't a number, or a number beyond 1.
    """
    given = np.asarray(kernel(a.rows, b.rows))
    if given.shape != (len(a), len(b)):
        raise ValueError(
            f"{kernel_title(kernel)} gave shape {given.shape} for {len(a)} and {len(b)} rows; it "
            f"must give {(len(a), len(b))}"
        )
    tile = np.array(given, dtype=np.float64)
    if not np.abs(tile).max(initial=0.0) <= 1.0 + FUNCTION_TOLERANCE:
        raise ValueError(
            f"{kernel_title(kernel)} gave similarities from {tile.min()} to {tile.max()}; they "
            "must be numbers from -1 to 1"
        )
    return tile


def kernel_tile(a: Points, b: Points, kernel: Kernel, bandwidth: float | None) -> Float64Array:
    """Compute the similarities between all rows of two blocks.

    Parameters
    ----------
    a, b : Points
        Blocks of ``m`` and ``n`` rows, with the kernel's metric: ``"cosine"`` for the cosine
        kernel, ``"euclidean"`` for the others.
    kernel : {"cosine", "rbf", "laplacian"} or callable
        The similarity.
    bandwidth : float or None
        Positive; None for the cosine kernel and for functions.

    Returns
    -------
    ndarray of float64, shape (m, n)
        Equal rows have RBF and Laplacian similarity exactly 1, cosine similarity 1 up to
        rounding.

    Raises
    ------
    ValueError
        As in :func:`check_kernel`, or if the blocks differ in metric or dimension.
    """
    if callable(kernel):
        return function_tile(a, b, kernel)
    check_kernel(a, kernel, bandwidth)
    if kernel == "cosine":
        if b.metric != "cosine" or a.dimension != b.dimension:
            raise ValueError(
                f"blocks differ: {a.metric} in {a.dimension} dimensions against "
                f"{b.metric} in {b.dimension}"
            )
        tile = np.empty((len(a), len(b)))
        inner_products(a.rows, b.rows, tile)
        return tile
    assert bandwidth is not None  # noqa: S101  (check_kernel has seen to it)
    if kernel == "rbf":
        tile = squared_tile(a, b)
        exponentials(tile, -0.5 / (bandwidth * bandwidth))
    else:
        tile = distance_tile(a, b)
        exponentials(tile, -1.0 / bandwidth)
    return tile


@dataclass(frozen=True)
class KernelNorm:
    r"""The Frobenius norm of a kernel matrix A of trace 1.

    Attributes
    ----------
    squares : float
        :math:`\sum \lambda_i^2 = \|A\|_F^2`, as computed.
    error : float
        Bound of the Frobenius norm of the error of A.
    size : int
        Number of rows.
    """

    squares: float
    error: float
    size: int

    @property
    def least(self) -> float:
        """Lower bound of the sum of squares; at least that of equal eigenvalues."""
        root = max(math.sqrt(self.squares) - self.error, 0.0)
        return max(root**2 * (1.0 - self._sums), 1.0 / self.size)

    @property
    def most(self) -> float:
        """Upper bound of the sum of squares; at most that of one eigenvalue."""
        return min((math.sqrt(self.squares) + self.error) ** 2 * (1.0 + self._sums), 1.0)

    @property
    def _sums(self) -> float:
        return SUMS_ROUNDING + self.size * 2.0 * rounding_unit("double")

    def score(self) -> Estimate:
        """Return the Vendi score of order 2, which is the reciprocal of the sum of squares."""
        lower, upper = 1.0 / self.most, 1.0 / self.least
        value = min(max(1.0 / self.squares, lower), upper)
        return Estimate(value, lower, upper, "exact", "exact")


@dataclass(frozen=True)
class SimilarityRounding:
    r"""Bounds of the errors of similarities: the smaller of k_ij (r_i + r_j) and a constant.

    Attributes
    ----------
    shares : ndarray of float64, shape (n,)
        r_i of every row.
    largest : float
        Bound of the error of every similarity.
    """

    shares: Float64Array
    largest: float

    @classmethod
    def of(cls, points: Points, kernel: Kernel, bandwidth: float | None) -> SimilarityRounding:
        """Bound the errors of :func:`kernel_tile` between these rows.

        The values of a function count as exact.
        """
        n, unit = len(points), rounding_unit("double")
        if callable(kernel):
            return cls(np.zeros(n), 0.0)
        gamma = rounding_share(points.dimension, "double") + 8 * unit
        if kernel == "cosine":
            # The product, and the scaling of both rows to unit length.
            return cls(np.full(n, np.inf), 2.0 * gamma)
        assert bandwidth is not None  # noqa: S101  (check_kernel has seen to it)
        share = RECOMPUTED_SHARE["double"]
        lengths = np.sqrt(points.tile_rows("double", 1.0).sizes) / bandwidth
        own = EXPONENTIAL_ERROR * unit
        if kernel == "rbf":
            shares = 0.5 * gamma * lengths**2
        else:
            shares = 0.5 * gamma / math.sqrt(share) * lengths
        return cls(np.asarray(shares + own), gamma / (math.e * share) + 2.0 * own)

    def take(self, rows: slice) -> SimilarityRounding:
        """Return the bounds of some of the rows."""
        return replace(self, shares=self.shares[rows])

    def of_tile(
        self,
        tile: Float64Array,
        columns: SimilarityRounding,
        masses: tuple[Float64Array, Float64Array],
        *,
        diagonal: bool,
    ) -> float:
        """Bound the sum of the squared errors of a tile, each times the masses of both rows.

        Parameters
        ----------
        tile : ndarray of float64, shape (m, n)
            Similarities of these rows to others.
        columns : SimilarityRounding
            Of the other rows.
        masses : tuple of ndarray of float64
            Masses of these rows and of the others.
        diagonal : bool
            Whether both are the same rows. Their similarity to themselves has no error.
        """
        squares = np.square(tile)
        if diagonal:
            np.fill_diagonal(squares, 0.0)
        found = np.full(len(squares), np.inf)
        if np.isfinite(self.shares).all():
            a, b = self.shares, columns.shares
            with np.errstate(over="ignore", invalid="ignore"):  # the other bound holds then
                powers = b[:, None] ** np.arange(3.0)
                sums = squares @ (masses[1][:, None] * powers)
                found = a**2 * sums[:, 0] + 2.0 * a * sums[:, 1] + sums[:, 2]
        return float(masses[0] @ np.fmin(found, self.largest**2 * float(masses[1].sum())))
