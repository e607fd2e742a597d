r"""Iterations that ask for pairwise sums, so that anyone can compute them.

The measures that need many passes over all pairs of rows, such as the magnitude of a large set,
consist of two parts: sums over all pairs, which take almost all the time and can be spread over
machines, and the mathematics between two passes. A *procedure* is the second part alone. It says
which sums it wants next, and with them it becomes the next procedure:

.. code-block:: python

    while (request := procedure.request) is not None:
        products, gaussian_sums = ...  # what the request describes, computed by whatever means
        procedure = procedure.advance(products, gaussian_sums, read_rows)
    procedure.outcome

Between two passes a procedure is plain arrays and JSON values, so it can be stored, and after a
kill at most one pass is repeated. It is deterministic: the same sums lead to the same bits. What is
random is drawn when it starts, from a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from numpy.typing import NDArray

from latentscale.backend import Precision
from latentscale.distances import Float64Array, Points
from latentscale.exponentials import (
    DistanceTiles,
    FloatArray,
    exponential_products,
    gaussian_block_sums,
)

Arrays = Mapping[str, NDArray[Any]]
"""Arrays of a procedure by name. An array that an earlier step had is often the same again."""

ReadRows = Callable[[], Iterator[Points]]
"""Reads the distinct rows in order, block after block; may be called again and again.

All blocks have the origin that the products use.
"""

Outcome_co = TypeVar("Outcome_co", covariant=True)
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Request:
    r"""Sums over all pairs of the ``n`` distinct rows.

    Attributes
    ----------
    scales : ndarray of float64, shape (s,)
        Positive, strictly ascending; may be empty.
    vectors : ndarray of float32 or float64, shape (n, s)
        One vector a scale. Wanted are the *products* :math:`\sum_j e^{-t_k d_{ij}} v_{jk}` over all
        rows ``j``, shape (n, s): :func:`latentscale.exponentials.exponential_products`.
    precision : {"single", "double"}
        Of the products.
    exponents : ndarray of float64, shape (q,)
        Positive, ascending; empty after the first request. Wanted are the *Gaussian sums*
        :math:`\sum_{j \ne i} e^{-s_k d_{ij}^2}` over the other rows, shape (n, q), in single
        precision or better: :func:`latentscale.exponentials.gaussian_block_sums`.
    """

    scales: Float64Array
    vectors: FloatArray
    precision: Precision
    exponents: Float64Array


class Procedure(Protocol[Outcome_co]):
    """An iteration between passes over all pairs of rows."""

    @property
    def request(self) -> Request | None:
        """What to compute next; None when finished. Its arrays are read-only."""
        ...

    def advance(
        self, products: Float64Array, gaussian_sums: Float64Array, read_rows: ReadRows
    ) -> Self:
        """Take what was requested, of shapes (n, s) and (n, q), and go one step on.

        The procedure itself is spent afterwards: its arrays pass on to the next one.
        """
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Give the arrays that the procedure consists of, with :meth:`values`."""
        ...

    def values(self) -> dict[str, Any]:
        """Give everything that isn't an array, as JSON without NaN or infinity."""
        ...

    @classmethod
    def load(cls, arrays: Arrays, values: Mapping[str, Any]) -> Self:
        """Restore a procedure from what :meth:`arrays` and :meth:`values` gave."""
        ...

    @property
    def outcome(self) -> Outcome_co:
        """The result, once nothing is requested any more.

        Raises
        ------
        ValueError
            When there is none, with the reason.
        RuntimeError
            When the procedure isn't finished.
        """
        ...


def complete(procedure: Procedure[Outcome], points: Points, *, kept_bytes: int = 0) -> Outcome:
    """Run a procedure on points in memory and return its outcome.

    Parameters
    ----------
    procedure : Procedure
        As started, or as restored.
    points : Points
        The distinct rows, with an origin in their midst.
    kept_bytes : int
        Memory in which tiles may be kept between products; it doesn't change the result.
    """
    tiles = DistanceTiles(points, precision="single", kept_bytes=kept_bytes)
    while (request := procedure.request) is not None:
        products = exponential_products(
            points,
            request.scales,
            request.vectors,
            precision=request.precision,
            tiles=tiles if request.precision == "single" else None,
        )
        sums, _ = gaussian_block_sums(points, points, request.exponents, precision="single")
        procedure = procedure.advance(products, sums, lambda: iter((points,)))
    return procedure.outcome
