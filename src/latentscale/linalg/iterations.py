r"""Iterations that request sums over rows, which any process may compute.

The algorithms that need many passes over all rows, or over all pairs of rows, consist of two parts:
the sums, which take almost all the time and can be distributed over machines, and the mathematics
between two passes. An *iteration* is the second part alone. It states which sums it needs next, and
given those it advances to the next iteration:

.. code-block:: python

    while (request := iteration.request) is not None:
        iteration = iteration.advance(compute(request))
    iteration.outcome

Between two passes an iteration consists of plain arrays and JSON values, so it can be stored, and
after a kill at most one pass is repeated. It is deterministic: the same sums lead to the same bits.
Random numbers are drawn when it starts, from a generator.

Each kind of iteration has its own kind of request. Conjugate gradients
(:mod:`latentscale.magnitude.conjugate_gradients`) and the search for the convergence scale
(:mod:`latentscale.magnitude.convergence`) make a :class:`PairRequest`, which is answered by
:class:`PairSums`. :mod:`latentscale.vendi.lanczos` requests products with a kernel matrix, and
:mod:`latentscale.heat.row_blocks` products with a sparse matrix by blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from numpy.typing import NDArray

from latentscale.array_types import Float64Array, FloatArray
from latentscale.tiles.device import Precision
from latentscale.tiles.distances import Points
from latentscale.tiles.exponential_products import (
    DistanceTiles,
    gaussian_block_sums,
    tile_sums,
)

Arrays = Mapping[str, NDArray[Any]]
"""Arrays of an iteration by name. An array is often the same object as in an earlier state."""

ReadRows = Callable[[], Iterator[Points]]
"""Reads the distinct rows in order, block by block; may be called any number of times.

All blocks have the origin that the products use.
"""

Request_co = TypeVar("Request_co", covariant=True)
Sums_contra = TypeVar("Sums_contra", contravariant=True)
Outcome_co = TypeVar("Outcome_co", covariant=True)
Request = TypeVar("Request")
Sums = TypeVar("Sums")
Outcome = TypeVar("Outcome")


class Iteration(Protocol[Request_co, Sums_contra, Outcome_co]):
    """The mathematics between passes over rows."""

    @property
    def request(self) -> Request_co | None:
        """The sums to compute next, with read-only arrays; None when finished."""
        ...

    def advance(self, sums: Sums_contra, /) -> Self:
        """Take the requested sums and return the next iteration.

        The iteration itself can't be used afterwards, because the next one takes over its arrays.
        """
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that, with :meth:`values`, make up the iteration."""
        ...

    def values(self) -> dict[str, Any]:
        """Return everything that isn't an array, as JSON without NaN or infinity."""
        ...

    @classmethod
    def load(cls, arrays: Arrays, values: Mapping[str, Any]) -> Self:
        """Restore an iteration from :meth:`arrays` and :meth:`values`."""
        ...

    @property
    def outcome(self) -> Outcome_co:
        """The result, once the iteration is finished.

        Raises
        ------
        ValueError
            When there is no result; the message gives the reason.
        RuntimeError
            When the iteration isn't finished.
        """
        ...


def iterate(
    iteration: Iteration[Request, Sums, Outcome], compute: Callable[[Request], Sums]
) -> Outcome:
    """Run a new or restored iteration and return its outcome."""
    while (request := iteration.request) is not None:
        iteration = iteration.advance(compute(request))
    return iteration.outcome


@dataclass(frozen=True)
class PairRequest:
    r"""Sums over all pairs of the ``n`` distinct rows.

    Attributes
    ----------
    scales : ndarray of float64, shape (s,)
        Positive, strictly ascending; may be empty.
    vectors : ndarray of float32 or float64, shape (n, s)
        One vector a scale. Wanted are the *products* :math:`\sum_j e^{-t_k d_{ij}} v_{jk}` over all
        rows ``j``, shape (n, s):
        :func:`latentscale.tiles.exponential_products.exponential_products`.
    precision : {"single", "double"}
        Precision of the products.
    exponents : ndarray of float64, shape (q,)
        Positive, ascending; empty after the first request. Wanted are the *Gaussian sums*
        :math:`\sum_{j \ne i} e^{-s_k d_{ij}^2}` over the other rows, shape (n, q), in single
        precision or better: :func:`latentscale.tiles.exponential_products.gaussian_block_sums`.
    """

    scales: Float64Array
    vectors: FloatArray
    precision: Precision
    exponents: Float64Array


@dataclass(frozen=True)
class PairSums:
    """The answer to a :class:`PairRequest`.

    Attributes
    ----------
    products : ndarray of float64, shape (n, s)
        Sums of exponentials.
    gaussians : ndarray of float64, shape (n, q)
        Gaussian sums.
    read_rows : ReadRows
        Reads the rows, which preconditioners need.
    """

    products: Float64Array
    gaussians: Float64Array
    read_rows: ReadRows


def iterate_in_memory(
    iteration: Iteration[PairRequest, PairSums, Outcome], points: Points, *, kept_bytes: int = 0
) -> Outcome:
    """Run an iteration on points in memory and return its outcome.

    Parameters
    ----------
    iteration : Iteration
        A new or restored iteration.
    points : Points
        The distinct rows, with an origin among them.
    kept_bytes : int
        Memory in which tiles may be kept between products, in the precision of the first one; it
        doesn't change the result.
    """
    request = iteration.request
    steps: Precision = "single" if request is None else request.precision
    kept = DistanceTiles(points, precision=steps, kept_bytes=kept_bytes)

    def compute(request: PairRequest) -> PairSums:
        scales, vectors, exponents = request.scales, request.vectors, request.exponents
        tiles = kept if request.precision == steps else DistanceTiles(points)
        if request.precision == "single":
            sums = tile_sums(tiles, scales, vectors, vectors, exponents)
            products, gaussians = sums.products_a, sums.gaussians_a
        else:
            products = tile_sums(tiles, scales, vectors, vectors).products_a
            gaussians, _ = gaussian_block_sums(points, points, exponents, precision="single")
        return PairSums(products, gaussians, lambda: iter((points,)))

    return iterate(iteration, compute)
