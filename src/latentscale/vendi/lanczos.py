r"""Vendi scores of a kernel matrix of any size from products with it.

Let :math:`A = D^{1/2} K D^{1/2}` with the rows' probabilities on the diagonal of D (1/n each
without weights): symmetric, positive semidefinite, of trace 1, :math:`\operatorname{tr} A^2 =
\|A\|_F^2` a sum over all pairs. A score of order q is a function of :math:`\operatorname{tr} f(A)`,
:math:`f = \lambda^q` or :math:`-\lambda \log \lambda`.

Stochastic Lanczos quadrature
-----------------------------
For a vector z, m steps of Lanczos give the nodes and weights of the Gauss rule for :math:`z^\top
f(A) z` (Golub & Meurant 2010). On :math:`\lambda > 0` the even derivatives of f have one sign and
the odd ones the other. So the Gauss rule lies on one side and the Gauss-Radau rule with a node at 0
on the other: together they bracket the quadratic form. For random signs z its expectation is the
trace (Hutchinson 1990; Ubaru, Chen & Saad 2017).

*Deflation without bias.* A few large eigenvalues cause most of the variance. With Q an orthonormal
basis of approximately their eigenvectors and P = I - QQᵀ,

.. math:: \operatorname{tr} f(A) = \sum_i q_i^\top f(A) q_i + \operatorname{tr} P f(A) P,

whatever Q is (the idea of Hutch++, Meyer et al. 2021). The first sum is computed by Lanczos from
every column of Q; random probes estimate the second. No eigenpair is assumed to be exact.

*Control variates.* Of the polynomials 1, :math:`\lambda`, :math:`\lambda^2` all traces are known:
with P they are :math:`n - k`, :math:`1 - \sum q_i^\top A q_i` and :math:`\|A\|_F^2 - \sum \|A
q_i\|^2`. Subtracting the best combination leaves little to estimate. The coefficients for each half
of the probes are fitted to the other half, so no probe is corrected by coefficients that were
fitted to it.

The interval of the trace is Student's over the probes, widened to the outer ends of the quadrature.
The *endpoints* of this interval are transformed to those of the score.

Largest eigenvalue
------------------
Where A has no negative entries, for every positive vector v (Collatz 1942, Wielandt 1950)

.. math:: \frac{v^\top A v}{v^\top v} \le \lambda_{\max} \le \max_i \frac{(A v)_i}{v_i}.

Unlike a small residual, this proves that no larger eigenvalue was missed. One column of every
product is a power iteration, which starts at the largest Ritz vector of Q. Whatever the signs of
the entries, the Ritz values :math:`\theta_1 \ge \theta_2 \ge \ldots` of Q lie below the eigenvalues
(Cauchy), so

.. math:: \theta_1^2 \le \lambda_{\max}^2 \le \|A\|_F^2 - \sum_{i > 1} \theta_i^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.estimate import Estimate, student_quantile
from latentscale.linalg.iterations import Arrays, iterate
from latentscale.linalg.lanczos import Recurrence, take_off_before, take_off_own
from latentscale.linalg.quadrature import Rule, gauss_rule, radau_rule, tridiagonal_matrices
from latentscale.tiles.distances import Float64Array, Points
from latentscale.vendi.kernel_products import kernel_block_products
from latentscale.vendi.kernels import FUNCTION_TOLERANCE, Kernel, KernelNorm
from latentscale.vendi.scores import EPSILON, check_order

DEFLATED = 32
"""Number of columns of Q."""

PROBES = 24
"""Number of random probes."""

LEAST_STEPS, MOST_STEPS = 8, 40
"""Smallest and largest number of Lanczos steps; the quadrature's bracket decides in between."""

QUADRATURE_SHARE = 0.1
"""Largest share of an interval that the quadrature's bracket may take at the end."""

ENOUGH = 2e-3
"""Relative width of a score's interval below which it needs no further steps."""

CONFIDENCE = 0.975
"""Upper quantile of Student's distribution for the interval."""

SLACK = 1e-12
"""Allowance for the rounding of sums in a certified bracket, in addition to n roundings."""


@dataclass(frozen=True)
class KernelRequest:
    """A request for products with the kernel matrix.

    Attributes
    ----------
    vectors : ndarray of float64, shape (n, c)
        The vectors to multiply A by.
    squares : bool
        Whether the squared Frobenius norm of A and its smallest entry are requested as well.
    """

    vectors: Float64Array
    squares: bool


@dataclass(frozen=True)
class KernelProducts:
    """The answer to a :class:`KernelRequest`.

    Attributes
    ----------
    products : ndarray of float64, shape (n, c)
        A times the vectors.
    squares, least : float
        Squared Frobenius norm of A, and a lower bound of its entries; used only where requested.
    squared_errors : float
        Bound of the squared Frobenius norm of the error of A.
    """

    products: Float64Array
    squares: float
    least: float
    squared_errors: float


@dataclass(frozen=True)
class KernelTraces:
    """An :class:`~latentscale.linalg.iterations.Iteration` between products with the kernel matrix.

    It requests the products of A with the columns of ``vectors``, and in the first iteration the
    squared Frobenius norm as well. Its outcome is the score of every order.

    Attributes
    ----------
    phase : {"range", "basis", "lanczos"}
        Finding the span of the largest eigenvectors, refining it, quadrature.
    vectors : ndarray of float64, shape (n, c)
        The vectors to multiply next; the first column belongs to the power iteration.
    before : ndarray of float64, shape (n, c - 1)
        The Lanczos vectors of the previous step.
    signs : ndarray of int8, shape (n, p)
        The random probes, before they are made orthogonal to the span.
    lengths : ndarray of float64, shape (c - 1,)
        Squared lengths of the first Lanczos vectors.
    recurrence : Recurrence
        The tridiagonal matrices so far, of c - 1 columns.
    squares, squared_errors : float
        Squared Frobenius norm of A, and a bound of that of its error.
    nonnegative : bool
        Whether no entry of A is negative.
    largest : tuple of float
        Bounds of the largest eigenvalue.
    orders : tuple of float
        The orders of the requested scores.
    """

    phase: str
    vectors: Float64Array
    before: Float64Array
    signs: NDArray[np.int8]
    lengths: Float64Array
    recurrence: Recurrence
    squares: float
    squared_errors: float
    nonnegative: bool
    largest: tuple[float, float]
    orders: tuple[float, ...]
    finished: bool = False

    @classmethod
    def start(
        cls,
        n: int,
        orders: Sequence[float],
        generator: np.random.Generator,
        roots: Float64Array | None = None,
        *,
        probes: int = PROBES,
    ) -> KernelTraces:
        """Draw the random vectors and return the start.

        Parameters
        ----------
        n : int
            Number of rows, at least a few hundred.
        orders : sequence of float
            In [0, inf].
        generator : numpy.random.Generator
            Draws probes and the start of the basis.
        roots : ndarray of float64, shape (n,), optional
            Roots of the probabilities.
        probes : int
            Number of random probes, at least 2.

        Raises
        ------
        ValueError
            On a bad order, or too few rows.
        """
        for order in orders:
            check_order(order)
        if n < 2 * (DEFLATED + probes):
            raise ValueError(f"{n} rows are too few for probes; take all eigenvalues")
        signs = (2 * generator.integers(0, 2, size=(n, probes)) - 1).astype(np.int8)
        first = np.full(n, n**-0.5) if roots is None else roots / np.linalg.norm(roots)
        vectors = np.column_stack([first, generator.standard_normal((n, DEFLATED))])
        return cls(
            phase="range",
            vectors=vectors,
            before=np.empty((n, 0)),
            signs=signs,
            lengths=np.empty(0),
            recurrence=Recurrence.begin(np.ones(DEFLATED + probes)),
            squares=math.nan,
            squared_errors=0.0,
            nonnegative=False,
            largest=(0.0, 1.0),
            orders=tuple(orders),
        )

    @property
    def request(self) -> KernelRequest | None:
        """The next product; None when finished."""
        return None if self.finished else KernelRequest(self.vectors, self.phase == "range")

    @property
    def steps(self) -> int:
        """Number of Lanczos steps so far."""
        return len(self.recurrence.diagonal)

    def advance(self, sums: KernelProducts) -> KernelTraces:
        """Take the products of A with ``vectors``, and return the next iteration.

        Raises
        ------
        ValueError
            If A turns out to have a negative eigenvalue.
        """
        products = sums.products
        begins = self.phase == "range"
        known = replace(self, nonnegative=sums.least >= 0) if begins else self
        known = replace(known, largest=known._bound_largest(products[:, 0]))
        if begins:
            basis = np.linalg.qr(products)[0][:, : self.vectors.shape[1] - 1]
            power = _positive(products[:, 0])
            vectors = np.column_stack([power, basis])
            return replace(
                known,
                phase="basis",
                squares=sums.squares,
                squared_errors=sums.squared_errors,
                vectors=vectors,
            )
        if self.phase == "basis":
            return known._begin_quadrature(products[:, 1:])
        return known._step(products)

    def _bound_largest(self, product: Float64Array) -> tuple[float, float]:
        vector = self.vectors[:, 0]
        slack = SLACK + len(vector) * EPSILON
        # Rows of weight 0 have entry 0, so they are left out of the positive vector.
        weighing = vector > 0
        upper = math.inf
        if self.nonnegative:
            upper = float((product[weighing] / vector[weighing]).max()) * (1.0 + slack)
        lower = float(vector @ product) / float(vector @ vector) * (1.0 - slack)
        return max(self.largest[0], lower), min(self.largest[1], upper)

    def _begin_quadrature(self, products: Float64Array) -> KernelTraces:
        basis = self.vectors[:, 1:]
        ritz, directions = np.linalg.eigh(basis.T @ products)
        slack = SLACK + len(basis) * EPSILON
        rest = self.squares * (1.0 + slack) - float(np.square(ritz[:-1]).sum()) * (1.0 - slack)
        low = max(self.largest[0], float(ritz[-1]) * (1.0 - slack))
        high = min(self.largest[1], math.sqrt(max(rest, low**2)))
        power = _positive(products @ directions[:, -1])
        basis = np.linalg.qr(products @ directions[:, ::-1])[0]
        probes = self.signs.astype(np.float64)
        for _ in range(2):
            probes -= basis @ (basis.T @ probes)
        squared = np.einsum("ij,ij->j", probes, probes)
        first = np.column_stack([basis, probes / np.sqrt(squared)])
        return replace(
            self,
            phase="lanczos",
            largest=(low, high),
            vectors=np.column_stack([power, first]),
            before=np.zeros_like(first),
            lengths=np.concatenate([np.ones(basis.shape[1]), squared]),
        )

    def _step(self, products: Float64Array) -> KernelTraces:
        vectors, following = self.vectors[:, 1:], products[:, 1:].copy()
        shares = take_off_before(following, vectors, self.before, self.recurrence.coupling)
        squares = take_off_own(following, vectors, shares)
        recurrence = self.recurrence.take_shares(shares).take_squares(
            squares, 8 * EPSILON * self.largest[1]
        )
        # The recurrence ends at a span that A maps into itself. Later nodes have weight 0.
        length = recurrence.coupling
        following /= np.where(length > 0, length, 1.0)
        following[:, length == 0] = 0.0
        power = _positive(products[:, 0])
        stepped = replace(
            self,
            vectors=np.column_stack([power, following]),
            before=vectors,
            recurrence=recurrence,
        )
        steps = stepped.steps
        if not self.nonnegative:
            stepped = stepped._see_ritz_values()
        done = steps >= MOST_STEPS or (steps >= LEAST_STEPS and stepped._is_sharp())
        return replace(stepped, finished=done)

    def _see_ritz_values(self) -> KernelTraces:
        """Raise the largest eigenvalue's lower bound to a Ritz value; refuse negative ones."""
        ritz = np.linalg.eigvalsh(tridiagonal_matrices(self.recurrence))
        if float(ritz.min()) < -FUNCTION_TOLERANCE:
            raise ValueError(
                "the kernel isn't positive semidefinite: divided by the number of rows, it has an "
                f"eigenvalue of at most {float(ritz.min()):.2g}"
            )
        slack = SLACK + len(self.vectors) * EPSILON
        low = max(self.largest[0], float(ritz.max()) * (1.0 - slack))
        return replace(self, largest=(low, max(low, self.largest[1])))

    def _is_sharp(self) -> bool:
        low, high = self.largest
        # Only the power iteration can still narrow the bounds.
        if self.nonnegative and math.inf in self.orders and high > low * (1.0 + ENOUGH):
            return False
        for order in self.orders:
            if order in (0.0, 2.0, math.inf):
                continue
            traces = self._trace(order)
            if _relative_width(traces.lower, traces.upper, order) < ENOUGH:
                continue
            if traces.quadrature > QUADRATURE_SHARE * (traces.upper - traces.lower):
                return False
        return True

    def _trace(self, order: float) -> _Trace:
        return _estimate_trace(self, order)

    @property
    def outcome(self) -> dict[float, Estimate]:
        """The score of every order.

        Raises
        ------
        RuntimeError
            If the iteration isn't finished.
        """
        if not self.finished:
            raise RuntimeError("the quadrature isn't finished")
        return _scores(self)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that, with :meth:`values`, make up the iteration."""
        own = {name: getattr(self, name) for name in ("vectors", "before", "signs", "lengths")}
        arrays = {**own, **self.recurrence.arrays()}
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}

    def values(self) -> dict[str, Any]:
        """Return everything that isn't an array, as JSON."""
        return {
            "phase": self.phase,
            "finished": self.finished,
            "squares": None if math.isnan(self.squares) else self.squares,
            "squared_errors": self.squared_errors,
            "nonnegative": self.nonnegative,
            "largest": list(self.largest),
            "orders": [repr(order) for order in self.orders],
        }

    @classmethod
    def load(cls, arrays: Arrays, values: Mapping[str, Any]) -> KernelTraces:
        """Restore it from :meth:`arrays` and :meth:`values`."""
        squares = values["squares"]
        return cls(
            phase=values["phase"],
            vectors=arrays["vectors"],
            squares=math.nan if squares is None else squares,
            squared_errors=values["squared_errors"],
            nonnegative=values["nonnegative"],
            largest=(values["largest"][0], values["largest"][1]),
            orders=tuple(float(order) for order in values["orders"]),
            before=arrays["before"],
            signs=arrays["signs"],
            lengths=arrays["lengths"],
            recurrence=Recurrence.load(arrays),
            finished=values["finished"],
        )


def kernel_scores(
    points: Points,
    kernel: Kernel,
    bandwidth: float | None,
    orders: Sequence[float],
    generator: np.random.Generator,
    weights: Float64Array | None = None,
) -> dict[float, Estimate]:
    """Estimate Vendi scores of rows in memory; parameters as in :meth:`KernelTraces.start`."""
    n = len(points)
    masses = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    roots = np.sqrt(masses)
    traces = KernelTraces.start(n, orders, generator, None if weights is None else roots)

    def compute(request: KernelRequest) -> KernelProducts:
        wanted = masses if request.squares else None
        vectors = roots[:, None] * request.vectors
        sums = kernel_block_products(
            points, points, kernel, bandwidth, vectors, vectors, masses_a=wanted
        )
        return KernelProducts(
            roots[:, None] * sums.products_a, sums.squares, sums.least, sums.squared_errors
        )

    return iterate(traces, compute)


# --- Traces ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Trace:
    """A trace with its interval, and the quadrature's part of the interval."""

    value: float
    lower: float
    upper: float
    error: float
    quadrature: float


def _rules(traces: KernelTraces) -> tuple[Rule, Rule]:
    """Compute the Gauss rule, and the Gauss-Radau rule with a node at 0, of every column."""
    recurrence = traces.recurrence
    matrices = tridiagonal_matrices(recurrence)
    # The last diagonal entry is chosen so that 0 is an eigenvalue (Golub 1973). A tiny shift keeps
    # the solution finite where the matrix is already singular.
    right = np.zeros((*matrices.shape[:2], 1))
    right[:, -1, 0] = recurrence.coupling**2
    shift = EPSILON * traces.largest[1] * np.eye(matrices.shape[1])
    extra = np.asarray(np.linalg.solve(matrices + shift, right)[:, -1, 0], dtype=np.float64)
    gauss, radau = gauss_rule(recurrence), radau_rule(recurrence, extra)
    return gauss.weighted(traces.lengths), radau.weighted(traces.lengths)


def _estimate_trace(traces: KernelTraces, order: float) -> _Trace:
    n, deflated = len(traces.vectors), len(traces.lengths) - traces.signs.shape[1]
    gauss, radau = _rules(traces)
    tolerance = n * EPSILON * traces.largest[1]

    def function(nodes: Float64Array) -> Float64Array:
        positive = np.maximum(nodes, 1e-300)
        if order == 1:
            return np.asarray(-nodes * np.log(positive))
        return np.where(nodes > 0, positive**order, 0.0)

    def counted(nodes: Float64Array) -> Float64Array:
        return np.where(nodes > tolerance, function(nodes), 0.0)

    first, off = traces.recurrence.diagonal[0], traces.recurrence.off_diagonal[0]
    exact = np.array(
        [
            n - deflated,
            1.0 - first[:deflated].sum(),
            traces.squares - (first[:deflated] ** 2 + off[:deflated] ** 2).sum(),
        ]
    )
    # Where the basis spans the whole range, only rounding is left for the probes, and a polynomial
    # fitted to it would be noise.
    some = exact[1] > n * tolerance
    scale = float(exact[1] / exact[0]) if some else 1.0
    exact = exact / np.array([1.0, scale, scale**2])
    residuals, corrections = [], []
    probes = np.arange(deflated, len(traces.lengths))
    for own, other in ((probes[::2], probes[1::2]), (probes[1::2], probes[::2])):
        coefficients = _fit(gauss, other, function, scale) if some else np.zeros(3)
        pairs = [_probe_sums(rule, own, coefficients, function, scale) for rule in (gauss, radau)]
        residuals.append(np.stack(pairs))
        corrections.append(float(coefficients @ exact))
    totals = np.concatenate(
        [found + shift for found, shift in zip(residuals, corrections, strict=True)], axis=1
    )
    ends = totals.mean(axis=1) + [rule.sums(function)[:deflated].sum() for rule in (gauss, radau)]
    uncounted = (
        sum(
            max(0.0, float((rule.sums(function) - rule.sums(counted)).sum()))
            for rule in (gauss, radau)
        )
        / 2
    )
    middle = totals.mean(axis=0)
    error = float(middle.std(ddof=1)) / math.sqrt(len(middle))
    margin = student_quantile(CONFIDENCE, len(middle) - 2) * error
    low, high = float(ends.min()), float(ends.max())
    return _Trace(0.5 * (low + high), low - margin - uncounted, high + margin, error, high - low)


def _fit(
    rule: Rule,
    columns: NDArray[np.int64],
    function: Callable[[Float64Array], Float64Array],
    scale: float,
) -> Float64Array:
    """Fit the function by a polynomial of degree 2 in the probes' spectrum."""
    nodes, weights = rule.nodes[columns].ravel(), np.sqrt(rule.weights[columns].ravel())
    powers = np.vander(nodes / scale, 3, increasing=True)
    fitted = np.linalg.lstsq(powers * weights[:, None], function(nodes) * weights, rcond=None)[0]
    return np.asarray(fitted)


def _probe_sums(
    rule: Rule,
    columns: NDArray[np.int64],
    coefficients: Float64Array,
    function: Callable[[Float64Array], Float64Array],
    scale: float,
) -> Float64Array:
    nodes = rule.nodes[columns]
    fitted = np.polynomial.polynomial.polyval(nodes / scale, coefficients)
    return np.asarray((rule.weights[columns] * (function(nodes) - fitted)).sum(axis=1))


def _number(trace: float, order: float) -> float:
    if order == 1:
        return math.exp(trace)
    if trace <= 0:
        return 0.0 if order < 1 else math.inf
    return float(trace ** (1.0 / (1.0 - order)))


def _relative_width(lower: float, upper: float, order: float) -> float:
    ends = sorted((_number(lower, order), _number(upper, order)))
    return ends[1] / ends[0] - 1.0 if ends[0] > 0 else math.inf


def _scores(traces: KernelTraces) -> dict[float, Estimate]:
    n = len(traces.vectors)
    error = math.sqrt(traces.squared_errors)
    low_largest, high_largest = traces.largest
    least, most = 1.0 / (high_largest + error), 1.0 / max(low_largest - error, 1.0 / n)
    slack = SLACK + n * EPSILON
    by_squares = KernelNorm(traces.squares, error, n).score()
    scores: dict[float, Estimate] = {}
    floor = max(1.0, least)
    for order in sorted(traces.orders, reverse=True):
        if order == math.inf:
            low, high = max(1.0, least), min(most, by_squares.upper)
            scores[order] = Estimate(min(most, high), low, high, "certified", "lanczos")
            continue
        if order == 2:
            scores[order] = by_squares
            floor = max(floor, by_squares.lower)
            continue
        cap = float(n) if order < 2 else by_squares.upper
        bottom = max(floor, by_squares.lower) if order < 2 else floor
        if order == 0:
            # Products don't determine the rank. It is at least the score of the smallest order, and
            # at most the number of rows.
            scores[order] = Estimate(cap, bottom, cap, "estimate", "lanczos")
            continue
        trace = traces._trace(order)
        ends = sorted(_number(end, order) for end in (trace.lower, trace.upper))
        low = min(max(ends[0] * (1.0 - slack), bottom), cap)
        high = max(low, min(ends[1] * (1.0 + slack), cap))
        value = min(max(_number(trace.value, order), low), high)
        # The derivative of the score by the trace, times the error of the trace.
        slope = value if order == 1 else value / (abs(1.0 - order) * abs(trace.value))
        scores[order] = Estimate(value, low, high, "interval95", "lanczos", slope * trace.error)
    return {order: scores[order] for order in traces.orders}


def _positive(vector: Float64Array) -> Float64Array:
    """Return a vector of unit length whose entries are all positive."""
    turned = vector * math.copysign(1.0, float(vector.sum()))
    tiny = 1e-8 * float(np.abs(turned).max())
    turned = np.maximum(turned, tiny)
    return np.asarray(turned / np.linalg.norm(turned))
