r"""Vendi scores of a kernel matrix of any size from products with it.

Let :math:`A = D^{1/2} K D^{1/2}` with the rows' probabilities on the diagonal of D (1/n each
without weights): symmetric, positive semidefinite, of trace 1, :math:`\operatorname{tr} A^2 =
\|A\|_F^2` a sum over all pairs. A score of order q is a function of :math:`\operatorname{tr} f(A)`,
:math:`f = \lambda^q` or :math:`-\lambda \log \lambda`.

Pinching
--------
With Q an orthonormal basis of approximate eigenvectors of the largest eigenvalues and P = I - QQᵀ,
the traces of :math:`Q^\top f(A) Q` and :math:`P f(A) P` sum to that of f(A). Without the blocks
that couple the two spaces,

.. math:: \operatorname{tr} f(A) = \sum_i f(\theta_i) + \operatorname{tr}_P f(PAP) - D,
          \qquad \theta_i \text{ the eigenvalues of } Q^\top A Q,

where :math:`D \ge 0`, because f is operator concave up to order 1 (convex beyond, where the sign
turns), and D is of second order in the coupling. The first sum is known. The spectrum of PAP is
narrow, so few steps of Lanczos suffice: this is what makes small orders cheap, for which most of
the trace lies in the tail. Without Q, the largest eigenvalue enters the Krylov space again and
again, however small its share of a vector.

*Stochastic Lanczos quadrature.* For a vector z, m steps of Lanczos give the nodes and weights of
the Gauss rule for :math:`z^\top f(PAP) z` (Golub & Meurant 2010). The anti-Gauss rule has nearly
the opposite error (Laurie 1996, Math. Comp. 65), so the mean of both is the value, and the two
rules are the ends, of which the second is moved by another half of their distance. Where
eigenvalues span many decades this is too little, so the ends also include the Gauss-Radau rule with
a node at 0: the integral certainly lies between that and the Gauss rule. For random signs z,
projected by P, the expectation is the trace (Hutchinson 1990; Ubaru, Chen & Saad 2017).

*Coupling.* With :math:`r_i = P A q_i` and :math:`h(a, b) = (f'(b) - f'(a)) / (a - b)`, perturbation
theory gives

.. math:: D \approx \sum_i r_i^\top h(\theta_i, PAP)\, r_i
            = \mathrm E_z \sum_i (z^\top r_i)\, r_i^\top h(\theta_i, PAP)\, z .

The inner products of :math:`r_i` with the Lanczos vectors are what P removes from the products, so
this needs no further product. The interval includes :data:`REMAINDER` of D for higher orders. That
theory fails where P leaves small eigenvalues about as large as what couples them to Q, as those of
rows that nearly repeat others: then D exceeds the trace of small powers. So the more D takes of it,
the less of D is subtracted, and the more the interval allows for. Without it the trace of a concave
function is too large, never too small (a pinched matrix is majorised by the whole one; Bhatia,
Matrix Analysis, 1997, chapter II).

*Control variates.* Of the polynomials 1, :math:`\lambda`, :math:`\lambda^2` all traces are known:
for PAP they are :math:`n - k`, :math:`1 - \sum \theta_i` and :math:`\|A\|_F^2 - 2 \|AQ\|_F^2 +
\sum \theta_i^2`. Subtracting the best combination leaves little to estimate. The coefficients for
each half of the probes are fitted to the other half, so no probe is corrected by coefficients that
were fitted to it.

*Equal rows* and rows of weight 0 add eigenvalues 0, whose eigenvectors are known. Small powers are
steep there, so a rule with few nodes is wrong about many of them. So probes have no part of these
eigenvectors: a group of equal rows has one sign, times the unit vector of its span.

The interval of the trace is Student's over the probes, widened to the ends of the quadrature, by
the remainder, and by the error of the entries of A (as in :mod:`latentscale.vendi.scores`). The
*endpoints* of this interval are transformed to those of the score.

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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array, Int64Array, UInt64Array
from latentscale.estimate import Estimate, student_quantile
from latentscale.linalg.iterations import Arrays, iterate
from latentscale.linalg.lanczos import Recurrence, take_off_before, take_off_own
from latentscale.linalg.quadrature import Rule, gauss_rule, radau_rule, tridiagonal_matrices
from latentscale.tiles.distances import Points
from latentscale.tiles.top_lists import content_keys
from latentscale.vendi.kernel_products import (
    SimilaritySquares,
    SimilarityTiles,
    kept_type,
    multiply_tiles,
    sum_squares,
)
from latentscale.vendi.kernels import FUNCTION_TOLERANCE, Kernel, KernelNorm
from latentscale.vendi.scores import EPSILON, check_order

KEPT_BYTES = 7 * 2**27
"""Memory for the kernel matrix: in double precision up to 15 000 rows, in single up to 21 000."""

DEFLATED = 256
"""Largest number of columns of Q; at most a quarter of the rows."""

PROBES = 16
"""Number of random probes."""

MIN_STEPS, MAX_STEPS = 8, 40
"""Smallest and largest number of Lanczos steps; the quadrature's bracket decides in between."""

QUADRATURE_SHARE = 0.25
"""Share of an interval that the quadrature's bracket may take at the end."""

ENOUGH = 2e-3
"""Relative width of a score's interval below which it needs no further steps."""

ANTI_SHARE = 0.5
"""How far the end of the anti-Gauss rule is moved, in distances of it from the Gauss rule."""

REMAINDER = 0.25
"""Share of the coupling's effect that is left for higher orders of perturbation theory."""

CANCELLED = 1e4
"""Roundings that a difference of sums of squares must be, to be known well enough."""

STRONG = 1.0
"""The same where eigenvalues fall too fast for that theory, of an order of at least 1."""

STRONG_SHARE = 0.1
"""Share of a trace from which a coupling's effect is too strong for that theory."""

CLOSE = 1e-6
"""Relative distance of two eigenvalues from which a divided difference is a derivative."""

CONFIDENCE = 0.975
"""Upper quantile of Student's distribution for the interval."""

LARGEST_CHANGE = 100.0
"""Relative change of a trace beyond which nothing is known of it."""

TINIEST = 1e-300
"""Smallest eigenvalue of which a logarithm or a power is taken."""

SLACK = 1e-12
"""Allowance for the rounding of sums in a certified bracket, in addition to n roundings."""


@dataclass(frozen=True)
class KernelRequest:
    """A request for products with the kernel matrix.

    Attributes
    ----------
    vectors : ndarray of float64, shape (n, c)
        The vectors to multiply A by.
    rough : bool
        Whether products in single precision do, because any basis is as good.
    """

    vectors: Float64Array
    rough: bool


@dataclass(frozen=True)
class KernelTraces:
    """An :class:`~latentscale.linalg.iterations.Iteration` between products with the kernel matrix.

    It requests the products of A with the columns of ``vectors``. Its outcome is the score of every
    order.

    Attributes
    ----------
    phase : {"range", "basis", "ritz", "lanczos"}
        Finding the span of the largest eigenvectors, refining it, diagonalising in it, quadrature.
    vectors : ndarray of float64, shape (n, c)
        The vectors to multiply next; the first column belongs to the power iteration.
    before : ndarray of float64, shape (n, p)
        The Lanczos vectors of the previous step.
    signs : ndarray of int8, shape (n, p)
        The random probes, before they are made orthogonal to the span; empty once they are.
    shares : ndarray of float64, shape (n,)
        What the signs are multiplied by; empty once they are, and if all are 1.
    leaders : ndarray of int64, shape (n,)
        The first row that equals each row; empty as ``shares``.
    distinct : int
        Number of distinct rows whose weights aren't 0.
    basis : ndarray of float64, shape (n, k)
        Q: Ritz vectors, by ascending Ritz value.
    ritz : ndarray of float64, shape (k,)
        Ritz values.
    couplings : ndarray of float64, shape (steps, k, p)
        Inner products of the basis with the products of the Lanczos vectors.
    lengths : ndarray of float64, shape (p,)
        Squared lengths of the first Lanczos vectors.
    recurrence : Recurrence
        The tridiagonal matrices so far, of p columns.
    products_squared : float
        Squared Frobenius norm of AQ.
    squares : SimilaritySquares
        Squared Frobenius norms of A and of its errors.
    largest : tuple of float
        Bounds of the largest eigenvalue.
    orders : tuple of float
        The orders of the requested scores.
    """

    phase: str
    vectors: Float64Array
    before: Float64Array
    signs: NDArray[np.int8]
    shares: Float64Array
    leaders: Int64Array
    distinct: int
    basis: Float64Array
    ritz: Float64Array
    couplings: Float64Array
    lengths: Float64Array
    recurrence: Recurrence
    products_squared: float
    squares: SimilaritySquares
    largest: tuple[float, float]
    orders: tuple[float, ...]
    finished: bool = False

    @classmethod
    def start(
        cls,
        n: int,
        squares: SimilaritySquares,
        orders: Sequence[float],
        generator: np.random.Generator,
        roots: Float64Array | None = None,
        *,
        keys: UInt64Array | None = None,
        probes: int = PROBES,
        deflated: int = DEFLATED,
    ) -> KernelTraces:
        """Draw the random vectors and return the start.

        Parameters
        ----------
        n : int
            Number of rows, at least a few hundred.
        squares : SimilaritySquares
            Sums over all pairs, with the rows' probabilities as masses.
        orders : sequence of float
            In [0, inf].
        generator : numpy.random.Generator
            Draws probes and the start of the basis.
        roots : ndarray of float64, shape (n,), optional
            Roots of the probabilities.
        keys : ndarray of uint64, shape (n,), optional
            Equal for equal rows, as of :func:`latentscale.tiles.top_lists.content_keys`; by default
            no two rows are equal.
        probes : int
            Number of random probes, at least 4.
        deflated : int
            Largest number of columns of Q; memory is proportional to it.

        Raises
        ------
        ValueError
            On a bad order, or too few rows.
        """
        for order in orders:
            check_order(order)
        if n < 4 * probes:
            raise ValueError(f"{n} rows are too few for probes; take all eigenvalues")
        signs = (2 * generator.integers(0, 2, size=(n, probes)) - 1).astype(np.int8)
        first = np.full(n, n**-0.5) if roots is None else roots / np.linalg.norm(roots)
        shares, leaders = merge_equal_rows(first, keys)
        several = bool(np.any(shares != 1.0))
        distinct = round(float(np.square(shares).sum()))
        # Few distinct rows are spanned whole, which leaves nothing to the probes.
        columns = min(deflated, max(distinct // 4, min(distinct, 4 * probes)))
        random = generator.standard_normal((n, columns))
        return cls(
            phase="range",
            vectors=np.column_stack([first, random]),
            before=np.empty((n, 0)),
            signs=signs[leaders],
            shares=shares if several else np.empty(0),
            leaders=leaders if several else np.empty(0, np.int64),
            distinct=distinct,
            basis=np.empty((n, 0)),
            ritz=np.empty(0),
            couplings=np.empty((0, 0, probes)),
            lengths=np.empty(0),
            recurrence=Recurrence.begin(np.ones(probes)),
            products_squared=math.nan,
            squares=squares,
            largest=(0.0, 1.0),
            orders=tuple(orders),
        )

    @property
    def request(self) -> KernelRequest | None:
        """The next product; None when finished."""
        if self.finished:
            return None
        return KernelRequest(self.vectors, rough=self.phase in {"range", "basis"})

    @property
    def nonnegative(self) -> bool:
        """Whether no entry of A is negative."""
        return self.squares.least >= 0

    @property
    def steps(self) -> int:
        """Number of Lanczos steps so far."""
        return len(self.recurrence.diagonal)

    def advance(self, products: Float64Array) -> KernelTraces:
        """Take the products of A with ``vectors``, and return the next iteration.

        The products may be overwritten.

        Raises
        ------
        ValueError
            If A turns out to have a negative eigenvalue.
        """
        if self.phase in {"range", "basis"}:
            self._make_equal_in_groups(products[:, 1:])
            basis = np.linalg.qr(products[:, 1:])[0]
            return replace(
                self,
                phase="basis" if self.phase == "range" else "ritz",
                vectors=np.column_stack([_positive(products[:, 0]), basis]),
            )
        # Rough products prove nothing, so the largest eigenvalue is bounded from here on.
        known = replace(self, largest=self._bound_largest(products[:, 0]))
        if self.phase == "ritz":
            return known._begin_quadrature(products[:, 1:])
        return known._step(products)

    def _make_equal_in_groups(self, vectors: Float64Array) -> None:
        """Project vectors onto the span of the groups of equal rows, in place.

        Products are in it but for their rounding, which would take the place of small eigenvalues.
        """
        for column in vectors.T if len(self.leaders) else ():
            sums = np.bincount(self.leaders, self.shares * column)
            column[:] = self.shares * sums[self.leaders]

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
        found = float(np.square(ritz[:-1]).sum())
        rest = self.squares.rounded_squares * (1.0 + slack) - found * (1.0 - slack)
        low = max(self.largest[0], float(ritz[-1]) * (1.0 - slack))
        high = min(self.largest[1], math.sqrt(max(rest, low**2)))
        basis = basis @ directions
        probes = self.signs.astype(np.float64)
        if len(self.shares):
            probes *= self.shares[:, None]
        for _ in range(2):
            probes -= basis @ (basis.T @ probes)
        squared = np.einsum("ij,ij->j", probes, probes)
        # Nothing but rounding is left of probes in the span of the basis.
        nothing = squared <= len(basis) * EPSILON**2
        squared[nothing] = 0.0
        first = probes / np.sqrt(np.where(nothing, 1.0, squared))
        first[:, nothing] = 0.0
        return replace(
            self,
            phase="lanczos",
            largest=(low, high),
            vectors=np.column_stack([_positive(products @ directions[:, -1]), first]),
            before=np.zeros_like(first),
            signs=np.empty((len(basis), 0), np.int8),
            shares=np.empty(0),
            leaders=np.empty(0, np.int64),
            basis=basis,
            ritz=ritz,
            couplings=np.empty((0, len(ritz), len(squared))),
            products_squared=float(np.vdot(products, products)),
            lengths=squared,
        )

    def _step(self, products: Float64Array) -> KernelTraces:
        vectors, following = self.vectors[:, 1:], products[:, 1:].copy()
        coupling = self.basis.T @ following
        following -= self.basis @ coupling
        # A second time, because little is left of a product by the first.
        left = self.basis.T @ following
        following -= self.basis @ left
        shares = take_off_before(following, vectors, self.before, self.recurrence.coupling)
        squares = take_off_own(following, vectors, shares)
        recurrence = self.recurrence.take_shares(shares).take_squares(
            squares, 8 * EPSILON * self.largest[1]
        )
        # The recurrence ends at a span that PAP maps into itself. Later nodes have weight 0.
        length = recurrence.coupling
        following /= np.where(length > 0, length, 1.0)
        following[:, length == 0] = 0.0
        stepped = replace(
            self,
            vectors=np.column_stack([_positive(products[:, 0]), following]),
            before=vectors,
            couplings=np.concatenate([self.couplings, (coupling + left)[None]]),
            recurrence=recurrence,
        )
        steps = stepped.steps
        if not self.nonnegative:
            stepped = stepped._see_ritz_values()
        done = steps >= MAX_STEPS or (steps >= MIN_STEPS and stepped._is_sharp())
        return replace(stepped, finished=done)

    def _see_ritz_values(self) -> KernelTraces:
        """Raise the largest eigenvalue's lower bound to a Ritz value; refuse negative ones."""
        found = np.linalg.eigvalsh(tridiagonal_matrices(self.recurrence))
        least = min(float(found.min()), float(self.ritz[0]))
        if least < -FUNCTION_TOLERANCE:
            raise ValueError(
                "the kernel isn't positive semidefinite: divided by the number of rows, it has an "
                f"eigenvalue of at most {least:.2g}"
            )
        slack = SLACK + len(self.vectors) * EPSILON
        low = max(self.largest[0], float(found.max()) * (1.0 - slack))
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
            if _relative_width(traces, self._term(order)) < ENOUGH:
                continue
            if traces.quadrature > QUADRATURE_SHARE * (traces.upper - traces.lower):
                return False
        return True

    @cached_property
    def _rules(self) -> tuple[Rule, Rule, Rule, Rule]:
        """The Gauss rule, that with one node less, its anti-Gauss rule, and Gauss-Radau's."""
        recurrence = self.recurrence
        shorter = replace(recurrence, diagonal=recurrence.diagonal[:-1])
        # Laurie 1996, section 2: the last coupling counts twice.
        off_diagonal = recurrence.off_diagonal.copy()
        off_diagonal[-2] *= math.sqrt(2.0)
        anti = replace(recurrence, off_diagonal=off_diagonal)
        gauss, shorter_rule, anti_rule, radau = (
            rule.weighted(self.lengths)
            for rule in (*map(gauss_rule, (recurrence, shorter, anti)), radau_rule(recurrence))
        )
        return gauss, shorter_rule, anti_rule, radau

    @cached_property
    def _eigenpairs(self) -> tuple[Float64Array, Float64Array]:
        """Eigenvalues and eigenvectors of the tridiagonal matrices."""
        nodes, directions = np.linalg.eigh(tridiagonal_matrices(self.recurrence))
        return nodes, directions

    def _term(self, order: float) -> _Term:
        nodes = (rule.nodes.max(initial=0.0) for rule in self._rules)
        return _Term(order, max(float(self.ritz.max()), *nodes) if order > 2 else 1.0)

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
        own = {name: getattr(self, name) for name in _ARRAYS}
        arrays = {**own, **self.recurrence.arrays()}
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}

    def values(self) -> dict[str, Any]:
        """Return everything that isn't an array, as JSON."""
        return {
            "phase": self.phase,
            "finished": self.finished,
            "distinct": self.distinct,
            "squares": asdict(self.squares),
            "products_squared": None
            if math.isnan(self.products_squared)
            else self.products_squared,
            "largest": list(self.largest),
            "orders": [repr(order) for order in self.orders],
        }

    @classmethod
    def load(cls, arrays: Arrays, values: Mapping[str, Any]) -> KernelTraces:
        """Restore it from :meth:`arrays` and :meth:`values`."""
        products = values["products_squared"]
        return cls(
            phase=values["phase"],
            squares=SimilaritySquares(**values["squares"]),
            products_squared=math.nan if products is None else products,
            largest=(values["largest"][0], values["largest"][1]),
            orders=tuple(float(order) for order in values["orders"]),
            recurrence=Recurrence.load(arrays),
            finished=values["finished"],
            distinct=values["distinct"],
            **{name: arrays[name] for name in _ARRAYS},
        )


_ARRAYS = (
    *("vectors", "before", "signs", "shares", "leaders"),
    *("basis", "ritz", "couplings", "lengths"),
)
"""Fields that are arrays, besides those of the recurrence."""


def is_kept(n: int) -> bool:
    """Return whether the kernel matrix of ``n`` rows fits :data:`KEPT_BYTES`."""
    return kept_type(n, KEPT_BYTES) is not None


def kernel_scores(
    points: Points,
    kernel: Kernel,
    bandwidth: float | None,
    orders: Sequence[float],
    generator: np.random.Generator,
    weights: Float64Array | None = None,
    *,
    kept_bytes: int = KEPT_BYTES,
) -> dict[float, Estimate]:
    """Estimate Vendi scores of rows in memory.

    Parameters
    ----------
    points : Points
        ``n`` rows, with the kernel's metric.
    kernel, bandwidth
        As in :class:`latentscale.vendi.kernel_products.SimilarityTiles`.
    orders, generator
        As in :meth:`KernelTraces.start`.
    weights : ndarray of float64, shape (n,), optional
        Non-negative, not all 0.
    kept_bytes : int
        Memory for the kernel matrix, which is computed once if it fits: ``4 n²`` bytes in double
        precision, ``2 n²`` in single. The rounding to single precision is in the brackets.

    Returns
    -------
    dict
        The score of every order.

    Notes
    -----
    Costs up to 1500 products of the matrix with a vector, and memory of about 10 kB a row besides
    the matrix.
    """
    n = len(points)
    masses = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    roots = np.sqrt(masses)
    kind = kept_type(n, kept_bytes)
    tiles = SimilarityTiles(
        points, kernel, bandwidth, kind=kind or np.float64, keep=kind is not None
    )
    squares = sum_squares(tiles, masses)
    traces = KernelTraces.start(
        n,
        squares,
        orders,
        generator,
        None if weights is None else roots,
        keys=content_keys(points.rows),
    )

    def compute(request: KernelRequest) -> Float64Array:
        products, _ = multiply_tiles(tiles, roots[:, None] * request.vectors, single=request.rough)
        return np.asarray(roots[:, None] * products)

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


@dataclass(frozen=True)
class _Term:
    """The function whose trace a score needs: its values and derivatives at eigenvalues.

    The powers of large orders are those of eigenvalues in units of the largest, as others would be
    below all numbers.
    """

    order: float
    unit: float = 1.0

    def __call__(self, nodes: Float64Array) -> Float64Array:
        positive = np.maximum(nodes, TINIEST)
        if self.order == 1:
            return np.where(nodes > 0, -nodes * np.log(positive), 0.0)
        return np.where(nodes > 0, (positive / self.unit) ** self.order, 0.0)

    def slope(self, nodes: Float64Array) -> Float64Array:
        """Return the derivative at positive eigenvalues."""
        if self.order == 1:
            return np.asarray(-1.0 - np.log(nodes))
        powers = (nodes / self.unit) ** (self.order - 1.0)
        return np.asarray(self.order / self.unit * powers)

    def curvature(self, nodes: Float64Array) -> Float64Array:
        """Return the second derivative at positive eigenvalues."""
        if self.order == 1:
            return np.asarray(-1.0 / nodes)
        powers = (nodes / self.unit) ** (self.order - 2.0)
        return np.asarray(self.order * (self.order - 1.0) / self.unit**2 * powers)

    def coupled(self, a: Float64Array, b: Float64Array) -> Float64Array:
        """Return (f'(b) - f'(a)) / (a - b), the effect of a unit coupling of two eigenvalues."""
        gap, middle = a - b, 0.5 * (a + b)
        close = np.abs(gap) <= CLOSE * middle
        divided = (self.slope(b) - self.slope(a)) / np.where(close, 1.0, gap)
        return np.where(close, -self.curvature(middle), divided)

    def number(self, trace: float) -> float:
        """Return the score of a trace."""
        if self.order == 1:
            return math.exp(trace)
        if trace <= 0:
            return 0.0 if self.order < 1 else math.inf
        power = 1.0 / (1.0 - self.order)
        return float(trace**power * self.unit ** (self.order * power))


def _estimate_trace(traces: KernelTraces, order: float) -> _Trace:
    n, probes = len(traces.vectors), len(traces.lengths)
    function = traces._term(order)
    tolerance = n * EPSILON * traces.largest[1]
    rules, squares = traces._rules, traces.squares.rounded_squares
    known = np.array(
        [
            traces.distinct - len(traces.ritz),
            1.0 - traces.ritz.sum(),
            squares - 2.0 * traces.products_squared + np.square(traces.ritz).sum(),
        ]
    )
    # Where the basis spans the whole range, only rounding is left for the probes, and a polynomial
    # fitted to it would be noise.
    some = known[1] > n * tolerance
    scale = float(known[1] / known[0]) if some else 1.0
    # The sum of squares is a small difference of large ones where eigenvalues fall fast.
    degree = 2 if known[2] > CANCELLED * n * EPSILON * squares else 1
    known = known / np.array([1.0, scale, scale**2])
    coupled = _coupling(traces, function, tolerance)
    totals = np.empty((len(rules), probes))
    numbers = np.arange(probes)
    for own, other in ((numbers[::2], numbers[1::2]), (numbers[1::2], numbers[::2])):
        coefficients = np.zeros(3)
        if some:
            coefficients[: degree + 1] = _fit(rules[0], other, function, scale, degree)
        for total, rule in zip(totals, rules, strict=True):
            left = _probe_sums(rule, own, coefficients, function, scale)
            total[own] = left + float(coefficients @ known)
    head = float(function(traces.ritz).sum())
    # A coupling that takes all of an eigenvalue changes its power by 1 / order times what its
    # derivative foresees; small eigenvalues beside a basis of single precision come near to that.
    moved = abs(float(coupled.mean()))
    whole = max(abs(head + float(totals[0].mean())), TINIEST)
    strong = min(1.0, (moved / (STRONG_SHARE * whole)) ** 2) if order < 1 else 0.0
    totals -= (1.0 - strong) * coupled
    gauss, shorter, anti, radau = (head + float(total.mean()) for total in totals)
    ends = gauss, shorter, anti + ANTI_SHARE * (anti - shorter)
    low, high = min(*ends, radau), max(*ends, radau)
    # Further steps hardly move the certain end, so half of the way there is judged.
    half = 0.5 * (gauss + radau)
    quadrature = max(*ends, half) - min(*ends, half)
    error = float(totals[0].std(ddof=1)) / math.sqrt(probes)
    margin = student_quantile(CONFIDENCE, probes - 2) * error
    margin += _rounding(traces, rules[0], function)
    strong = strong if degree == 2 else 1.0
    margin += (REMAINDER + strong * (STRONG / min(order, 1.0) - REMAINDER)) * moved
    if order > 2:
        # A large power of an eigenvalue changes exponentially with it.
        change = min(moved / whole, LARGEST_CHANGE)
        margin += whole * (math.expm1(change) - change)
    # The dense solver counts the smallest eigenvalues as 0.
    uncounted = float((function(traces.ritz) * (traces.ritz <= tolerance)).sum())
    unseen = rules[0].weights * function(rules[0].nodes) * (rules[0].nodes <= tolerance)
    uncounted += float(unseen.sum(axis=1).mean())
    value = 0.5 * (shorter + anti)
    return _Trace(value, low - margin - uncounted, high + margin, error, quadrature)


def _coupling(traces: KernelTraces, function: _Term, tolerance: float) -> Float64Array:
    """Estimate the effect of the coupling of the two spaces, by every probe."""
    nodes, directions = traces._eigenpairs
    couplings = traces.couplings.transpose(2, 0, 1)
    turned = directions.transpose(0, 2, 1) @ couplings
    seen = (nodes > tolerance)[:, :, None] & (traces.ritz > tolerance)
    effects = function.coupled(
        np.maximum(traces.ritz, tolerance)[None, None, :],
        np.maximum(nodes, tolerance)[:, :, None],
    )
    starts = directions[:, 0, :, None] * couplings[:, None, 0, :]
    return np.asarray(traces.lengths * (starts * turned * effects * seen).sum(axis=(1, 2)))


def _rounding(traces: KernelTraces, rule: Rule, function: _Term) -> float:
    """Bound the effect of the error of A, and of rounded sums of products on every eigenvalue."""
    error = math.sqrt(traces.squares.rounded_errors)
    summing = math.sqrt(len(traces.vectors)) * EPSILON * traces.largest[1]

    def slopes(nodes: Float64Array, least: float) -> Float64Array:
        return np.abs(function.slope(np.maximum(nodes, least)))

    ritz = np.maximum(traces.ritz, 0.0)
    # Not by derivatives: small powers of eigenvalues below the rounding aren't nearly straight.
    lowered, raised = function(np.maximum(ritz - summing, 0.0)), function(ritz + summing)
    moved = float(
        np.maximum(np.abs(function(ritz) - lowered), np.abs(raised - function(ritz))).sum()
    )
    moved += summing * float((rule.weights * slopes(rule.nodes, summing)).sum(axis=1).mean())
    if error > 0:
        nodes = np.concatenate([ritz, rule.nodes.ravel()])
        counts = np.concatenate([np.ones_like(ritz), rule.weights.ravel() / len(rule)])
        moved += _effect_of_error(function, nodes, counts, error)
    return moved


def _effect_of_error(
    function: _Term, nodes: Float64Array, counts: Float64Array, error: float
) -> float:
    r"""Bound by how much an error of A changes the trace of a function of it.

    An error of the Frobenius norm :math:`\epsilon` moves the eigenvalues by :math:`\delta_i` with
    :math:`\sum \delta_i^2 \le \epsilon^2` (Hoffman & Wielandt 1953). A concave function with
    :math:`f(0) = 0` changes by at most :math:`f(|\delta|)` and at most
    :math:`|\delta| f(\lambda) / \lambda`. So the m smallest eigenvalues change by at
    most :math:`m f(\epsilon / \sqrt m)` together, which matters where the error makes most of them.

    Parameters
    ----------
    function : _Term
        The function, concave up to order 1.
    nodes, counts : ndarray of float64, shape (k,)
        Eigenvalues, and how many of each there are.
    error : float
        The norm, above 0.
    """
    if function.order > 1:
        return error * math.sqrt(float(counts @ np.square(function.slope(nodes + error))))
    order = np.argsort(nodes)
    order = order[counts[order] > 0]
    nodes, counts = nodes[order], counts[order]
    positive = np.maximum(nodes, np.finfo(np.float64).tiny)
    chords = np.where(nodes > 0, function(positive) / positive, np.inf)
    steepest = np.where(
        nodes > error, np.abs(function.slope(np.maximum(nodes - error, error))), np.inf
    )
    rates = np.minimum(np.maximum(chords, np.abs(function.slope(positive))), steepest)
    below = np.concatenate([[0.0], np.cumsum(counts)])
    small = below * function(error / np.sqrt(np.maximum(below, 1.0)))
    squares = np.cumsum((counts * np.square(rates))[::-1])[::-1]
    large = error * np.sqrt(np.concatenate([squares, [0.0]]))
    return float(np.min(small + large))


def _fit(
    rule: Rule,
    columns: Int64Array,
    function: _Term,
    scale: float,
    degree: int,
) -> Float64Array:
    """Fit the function by a polynomial in the probes' spectrum."""
    nodes, weights = rule.nodes[columns].ravel(), np.sqrt(rule.weights[columns].ravel())
    powers = np.vander(nodes / scale, degree + 1, increasing=True)
    fitted = np.linalg.lstsq(powers * weights[:, None], function(nodes) * weights, rcond=None)[0]
    return np.asarray(fitted)


def _probe_sums(
    rule: Rule,
    columns: Int64Array,
    coefficients: Float64Array,
    function: _Term,
    scale: float,
) -> Float64Array:
    nodes = rule.nodes[columns]
    fitted = np.polynomial.polynomial.polyval(nodes / scale, coefficients)
    return np.asarray((rule.weights[columns] * (function(nodes) - fitted)).sum(axis=1))


def _relative_width(trace: _Trace, term: _Term) -> float:
    ends = sorted((term.number(trace.lower), term.number(trace.upper)))
    return ends[1] / ends[0] - 1.0 if ends[0] > 0 else math.inf


def _scores(traces: KernelTraces) -> dict[float, Estimate]:
    n = len(traces.vectors)
    error = math.sqrt(traces.squares.rounded_errors)
    low_largest, high_largest = traces.largest
    least, most = 1.0 / (high_largest + error), 1.0 / max(low_largest - error, 1.0 / n)
    slack = SLACK + n * EPSILON
    squares = traces.squares
    by_squares = KernelNorm(squares.squares, math.sqrt(squares.squared_errors), n).score()
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
        cap = float(traces.distinct)
        if order > 2:  # from the order of squares, and from the largest eigenvalue
            cap = min(by_squares.upper, most ** (order / (order - 1.0)))
        bottom = max(floor, by_squares.lower) if order < 2 else floor
        if order == 0:
            # Products don't determine the rank. It is at least the score of the smallest order, and
            # at most the number of distinct rows.
            scores[order] = Estimate(cap, bottom, cap, "estimate", "lanczos")
            continue
        trace, term = traces._trace(order), traces._term(order)
        ends = sorted(term.number(end) for end in (trace.lower, trace.upper))
        low, high = ends[0] * (1.0 - slack), ends[1] * (1.0 + slack)
        if low > cap or high < bottom:  # the interval says nothing
            low, high = bottom, cap
        low, high = max(low, bottom), min(high, cap)
        floor = max(floor, low)  # scores of lower orders are larger
        value = min(max(term.number(trace.value), low), high)
        # The derivative of the score by the trace, times the error of the trace.
        slope = value if order == 1 else value / (abs(1.0 - order) * abs(trace.value))
        scores[order] = Estimate(value, low, high, "interval95", "lanczos", slope * trace.error)
    return {order: scores[order] for order in traces.orders}


def merge_equal_rows(
    roots: Float64Array, keys: UInt64Array | None
) -> tuple[Float64Array, Int64Array]:
    """Return the entries of the unit vectors of groups of equal rows, and each group's first row.

    A row of weight 0 has an entry of 0. So has one whose group weighs nothing.
    """
    if keys is None:
        return (roots > 0).astype(np.float64), np.arange(len(roots))
    _, firsts, group = np.unique(keys, return_index=True, return_inverse=True)
    lengths = np.sqrt(np.bincount(group, np.square(roots)))[group]
    alone = np.bincount(group)[group] == 1
    shares = np.divide(roots, lengths, out=np.zeros(len(roots)), where=lengths > 0)
    return np.where(alone & (roots > 0), 1.0, shares), firsts[group]


def _positive(vector: Float64Array) -> Float64Array:
    """Return a vector of unit length whose entries are all positive."""
    turned = vector * math.copysign(1.0, float(vector.sum()))
    tiny = 1e-8 * float(np.abs(turned).max())
    turned = np.maximum(turned, tiny)
    return np.asarray(turned / np.linalg.norm(turned))
