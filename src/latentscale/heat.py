r"""Heat trace and IMD (Tsitsulin et al., *The Shape of Data*, ICLR 2020).

The heat trace of a graph with normalised Laplacian :math:`L` is

.. math:: h(t) = \operatorname{tr} e^{-tL} = \sum_i e^{-t\lambda_i},

and the IMD of two graphs is :math:`\sup_t e^{-2(t + 1/t)} |h_1(t) - h_2(t)|` (their eq. 2).

Estimator
---------
For a probe :math:`v` of random signs, :math:`v^\top f(L) v` has the mean :math:`\operatorname{tr}
f(L)` (eq. 3), and :math:`m` Lanczos steps from :math:`v` give it as a Gauss quadrature: nodes are
the eigenvalues of the tridiagonal matrix, weights the squared first components of its eigenvectors
(eq. 4-6). All probes of a block advance together, one sparse product a step.

Variance
--------
The paper subtracts a linear control variate (eq. 15). Here it is a polynomial :math:`p_t` of degree
4, whose trace follows from :math:`\operatorname{tr} L^j, j \le 4`, known exactly:

.. math:: \operatorname{tr} e^{-tL} \approx \operatorname{tr} p_t(L)
          + \frac1P \sum_i v_i^\top (e^{-tL} - p_t(L)) v_i .

For random signs the variance is at most :math:`2 \sum_j (e^{-t\lambda_j} - p_t(\lambda_j))^2`, so
:math:`p_t` is the least-squares fit in the spectral distribution. That is taken from the quadrature
of a few pilot probes, which aren't used again: the coefficients are then constants to the other
probes and the estimate stays unbiased.

Interval
--------
Student's interval over probes, widened by two errors that more probes don't cure. Derivatives of
:math:`e^{-t\lambda}` alternate in sign, so Gauss quadrature lies below each quadratic form and
Gauss-Radau quadrature with a node at 0 above it (Golub & Meurant 2010, chapter 6); the value is
halfway. And a rounding floor: on a star or a complete graph the polynomial fits the few eigenvalues
exactly, the probes agree, and the width would otherwise be a false zero.

IMD's interval is a band: the 0.95 quantile of the supremum over t of a Gaussian multiplier
bootstrap of both graphs' weighted deviations (Chernozhukov, Chetverikov & Kato 2013), to which the
widths of quadrature, rounding and the graph's own error are added. The supremum moves by no more
than the largest difference between the curves, so the band bounds it however many times compete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numba
import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.special import stdtrit

from latentscale.estimate import Estimate
from latentscale.graph import exact_moments

Float64Array = NDArray[np.float64]
Normalization = Literal["none", "empty", "complete", "er"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)

DENSE_VERTICES = 500
"""Up to this many vertices, an automatic number of probes means exact eigenvalues."""

PILOT_PROBES = 8
LEAST_PROBES = 4
MOST_PROBES = 1024
"""An automatic number of probes starts at 4 and doubles until the tolerance is met, to 1024."""

BLOCK_BYTES = 3 << 27
WIDEST_BLOCK = 32
"""Probes advance in blocks of at most 32, fewer where three such blocks exceed 384 MiB."""

SUMMED_ROWS = 1024
"""Rows summed by themselves before they join a total, which keeps rounding from growing with n."""

BOOTSTRAP_DRAWS = 4000

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class HeatTrace:
    """A heat trace at several times, with its errors.

    Attributes
    ----------
    times : ndarray of float64, shape (T,)
        Ascending diffusion times.
    trace : ndarray of float64, shape (T,)
        tr exp(-tL) over its normaliser; per vertex as computed.
    lower, upper : ndarray of float64, shape (T,)
        95 % interval at each time by itself: probes, quadrature and rounding.
    standard_error : ndarray of float64, shape (T,)
        Standard error over probes, not below the rounding floor; 0 for exact eigenvalues.
    deviations : ndarray of float64, shape (P, T)
        Each probe's estimate less the mean of all.
    quadrature : ndarray of float64, shape (T,)
        Half width of the quadrature bracket plus the rounding floor.
    vertices : int
        Number n of vertices.
    probes, steps : int
        Probes in the mean (pilots not counted) and Lanczos steps of each; 0 for exact
        eigenvalues.
    normalization : {"empty", "none", "complete", "er"}
        What the trace is divided by, see :func:`normalise`.
    """

    times: Float64Array
    trace: Float64Array
    lower: Float64Array
    upper: Float64Array
    standard_error: Float64Array
    deviations: Float64Array
    quadrature: Float64Array
    vertices: int
    probes: int
    steps: int
    normalization: Normalization = "empty"


@dataclass(frozen=True)
class ImdResult:
    """The intrinsic multi-scale distance of two graphs.

    Attributes
    ----------
    estimate : Estimate
        IMD in the units of the two traces' normalisation.
    time : float
        The time at which the supremum is attained.
    """

    estimate: Estimate
    time: float


@dataclass(frozen=True)
class _ControlVariate:
    """Polynomials p_t in u = 2 L / width - I, and their exact per-vertex traces."""

    width: float
    coefficients: Float64Array  # (degree + 1, T), ascending powers of u
    trace: Float64Array  # (T,)
    rounding: Float64Array  # (T,)

    def remainder(self, times: Float64Array, nodes: Float64Array) -> Float64Array:
        """e^(-t x) - p_t(x) for nodes of shape (...), as (..., T)."""
        powers = np.vander((2.0 / self.width * nodes - 1.0).ravel(), len(self.coefficients), True)
        values = np.exp(-np.multiply.outer(nodes.ravel(), times)) - powers @ self.coefficients
        return values.reshape(*nodes.shape, len(times))


def heat_trace(
    laplacian: csr_array[Any, Any],
    times: ArrayLike,
    *,
    generator: np.random.Generator,
    steps: int = 10,
    probes: int | None = None,
    tolerance: float = 1e-3,
) -> HeatTrace:
    """Estimate tr exp(-tL) / n by stochastic Lanczos quadrature with control variates.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric positive semidefinite, sorted indices.
    times : array_like, shape (T,)
        Positive ascending times.
    generator : numpy.random.Generator
        Source of the probes.
    steps : int
        Lanczos steps of a probe (the paper's 10 suits the normalised Laplacian to t = 10).
    probes : int or None
        Probes to average, at least 2 (the paper: 100). None doubles them from 4 until the
        standard error is at most ``tolerance`` of the trace at every time, or to 1024; graphs of
        at most 500 vertices then get exact eigenvalues.
    tolerance : float
        Relative standard error to stop at.

    Returns
    -------
    HeatTrace
        Per vertex (normalisation ``empty``).

    Raises
    ------
    ValueError
        If the matrix isn't square, or times, steps, probes or tolerance are out of range.

    Notes
    -----
    Costs ``steps`` sparse products for each of ``probes + 8`` columns, in at most 384 MiB of
    blocks, and one sparse product L L for the exact moments.
    """
    grid = _check_input(laplacian, times, steps, probes, tolerance)
    n = laplacian.shape[0]
    if probes is None and n <= DENSE_VERTICES:
        return dense_heat_trace(laplacian, grid)
    control = _fit_control_variate(laplacian, grid, steps, generator)
    below: list[Float64Array] = []
    above: list[Float64Array] = []
    wanted = LEAST_PROBES if probes is None else probes
    while True:
        for width in _block_widths(n, wanted - sum(map(len, below))):
            gauss, radau = _lanczos_rules(laplacian, _random_signs(n, width, generator), steps)
            below.append(_integrate(gauss, control, grid))
            above.append(_integrate(radau, control, grid))
        heat = _summarise_probes(
            grid, np.concatenate(below), np.concatenate(above), control, n, steps
        )
        met = bool((heat.standard_error <= tolerance * heat.trace).all())
        if probes is not None or met or wanted >= MOST_PROBES:
            return heat
        wanted *= 2


def dense_heat_trace(laplacian: csr_array[Any, Any], times: ArrayLike) -> HeatTrace:
    """Compute tr exp(-tL) / n from all eigenvalues.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric positive semidefinite.
    times : array_like, shape (T,)
        Positive ascending times.

    Returns
    -------
    HeatTrace
        Without probes; the interval is the eigenvalues' rounding.

    Raises
    ------
    ValueError
        If the matrix isn't square or the times are out of range.

    Notes
    -----
    Costs about ``4/3 n³`` operations and ``8 n²`` bytes.
    """
    grid = _check_input(laplacian, times, 1, None, 1.0)
    n = laplacian.shape[0]
    spectrum = eigh(laplacian.toarray(), eigvals_only=True, overwrite_a=True, check_finite=False)
    spectrum = np.maximum(spectrum, 0.0)
    trace = np.exp(-np.multiply.outer(grid, spectrum)).mean(axis=1)
    # Each eigenvalue errs by at most a modest multiple of n ε ‖L‖, the trace t times that.
    rounding = _EPSILON * (16.0 + n * spectrum[-1] * grid * trace)
    zero = np.zeros_like(grid)
    return HeatTrace(
        times=grid,
        trace=trace,
        lower=trace - rounding,
        upper=trace + rounding,
        standard_error=zero,
        deviations=np.zeros((0, len(grid))),
        quadrature=rounding,
        vertices=n,
        probes=0,
        steps=0,
    )


def normalise(heat: HeatTrace, kind: Normalization, mean_degree: float | None = None) -> HeatTrace:
    """Divide a per-vertex heat trace by another null model's instead.

    Parameters
    ----------
    heat : HeatTrace
        Per vertex (``empty``), as :func:`heat_trace` returns it.
    kind : {"none", "empty", "complete", "er"}
        ``none``: the trace itself; ``empty``: over n, the trace of the graph without edges;
        ``complete``: over the trace of the complete graph on n vertices; ``er``: over that of
        an Erdős-Rényi graph, its n eigenvalues evenly spaced over 1 ± 2 / √(mean degree)
        (Tsitsulin et al. 2020, appendix C.4).
    mean_degree : float or None
        Mean degree of the graph; needed for ``er``.

    Returns
    -------
    HeatTrace
        Trace, interval, standard error and deviations scaled alike.

    Raises
    ------
    ValueError
        On an unknown kind, a trace that isn't per vertex, or ``er`` without a positive degree.
    """
    if kind not in NORMALIZATIONS:
        raise ValueError(f"unknown normalization {kind!r}; choose {', '.join(NORMALIZATIONS)}")
    if heat.normalization != "empty":
        raise ValueError(
            f"the trace is normalised already ({heat.normalization}); start from empty"
        )
    scale = heat.vertices / _null_trace(kind, heat.times, heat.vertices, mean_degree)
    return replace(
        heat,
        trace=heat.trace * scale,
        lower=heat.lower * scale,
        upper=heat.upper * scale,
        standard_error=heat.standard_error * scale,
        deviations=heat.deviations * scale,
        quadrature=heat.quadrature * scale,
        normalization=kind,
    )


def imd(
    first: HeatTrace,
    second: HeatTrace,
    *,
    generator: np.random.Generator,
    graph_error: float = 0.0,
) -> ImdResult:
    """Intrinsic multi-scale distance (Tsitsulin et al. 2020, eq. 2) with a 95 % interval.

    Parameters
    ----------
    first, second : HeatTrace
        At the same times, in the same normalisation, from independent probes.
    generator : numpy.random.Generator
        Source of the bootstrap's multipliers.
    graph_error : float
        What the approximation of the two graphs adds, in units of IMD.

    Returns
    -------
    ImdResult
        The interval is [max(0, S - q), S + q]; with exact eigenvalues on both sides and no graph
        error, q is rounding and the bounds are ``exact``.

    Raises
    ------
    ValueError
        If times or normalisations differ, or the graph error isn't a number of at least 0.
    """
    _check_alike(first, second, graph_error)
    times = first.times
    weight = np.exp(-2.0 * (times + 1.0 / times))
    weighted = weight * np.abs(first.trace - second.trace)
    peak = int(weighted.argmax())
    value = float(weighted[peak])
    # Opposite signs don't matter: the multipliers are symmetric.
    swings = sum(_bootstrap_swings(heat.deviations * weight, generator) for heat in (first, second))
    reach = float(np.quantile(np.abs(swings).max(axis=1), 0.95)) + graph_error
    reach += float((weight * (first.quadrature + second.quadrature)).max())
    standard_error = float(
        weight[peak] * np.hypot(first.standard_error[peak], second.standard_error[peak])
    )
    dense = first.probes == 0 and second.probes == 0
    estimate = Estimate(
        value=value,
        lower=max(0.0, value - reach),
        upper=value + reach,
        bounds="exact" if dense and graph_error == 0 else "interval95",
        method="dense" if dense else "lanczos",
        standard_error=standard_error,
    )
    return ImdResult(estimate, float(times[peak]))


def _check_input(
    laplacian: csr_array[Any, Any],
    times: ArrayLike,
    steps: int,
    probes: int | None,
    tolerance: float,
) -> Float64Array:
    grid = np.array(times, dtype=np.float64)
    rows, columns = laplacian.shape
    if rows != columns or rows == 0:
        raise ValueError(f"a Laplacian is square and not empty, got shape {laplacian.shape}")
    if grid.ndim != 1 or not len(grid) or not np.isfinite(grid).all():
        raise ValueError("times must be a non-empty list of finite numbers")
    if grid[0] <= 0 or (np.diff(grid) <= 0).any():
        raise ValueError("times must be positive and ascending")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if probes is not None and probes < 2:
        raise ValueError(f"probes must be at least 2 for a standard error, got {probes}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance}")
    return grid


def _check_alike(first: HeatTrace, second: HeatTrace, graph_error: float) -> None:
    if not np.array_equal(first.times, second.times):
        raise ValueError("the heat traces are at different times; compute both at the same ones")
    if first.normalization != second.normalization:
        raise ValueError(
            f"the heat traces are normalised differently: {first.normalization} and "
            f"{second.normalization}"
        )
    if not (np.isfinite(graph_error) and graph_error >= 0):
        raise ValueError(f"graph_error must be a number of at least 0, got {graph_error}")


def _random_signs(n: int, width: int, generator: np.random.Generator) -> Float64Array:
    """Columns of ±1 / √n; each takes the same draws whatever the width of its block."""
    signs = np.empty((n, width))
    unit = 1.0 / np.sqrt(n)
    for column in range(width):
        octets = np.frombuffer(generator.bytes(-(-n // 8)), dtype=np.uint8)
        signs[:, column] = np.where(np.unpackbits(octets, count=n), unit, -unit)
    return signs


def _block_widths(n: int, columns: int) -> Iterator[int]:
    widest = min(max(BLOCK_BYTES // (3 * 8 * n), 1), WIDEST_BLOCK)
    if widest > 8:
        widest -= widest % 8  # whole cache lines
    for start in range(0, columns, widest):
        yield min(widest, columns - start)


_Rule = tuple[Float64Array, Float64Array]
"""Quadrature nodes and weights, each of shape (probes, number of nodes)."""


def _lanczos_rules(
    laplacian: csr_array[Any, Any], start: Float64Array, steps: int
) -> tuple[_Rule, _Rule]:
    """Gauss rules, and Gauss-Radau rules with a node at 0, from unit columns."""
    diagonal, off_diagonal = _lanczos(laplacian, start, steps)
    gauss = _quadrature(diagonal, off_diagonal[:, :-1])
    # The Radau matrix has one more row whose diagonal makes 0 an eigenvalue: β² over the last
    # pivot of the tridiagonal's LDLᵀ factors (Golub & Meurant 2010, section 6.2.1).
    pivot = diagonal[:, 0].copy()
    for step in range(1, steps):
        pivot = diagonal[:, step] - np.square(off_diagonal[:, step - 1]) / _above_zero(pivot)
    # Columns that broke down have a last β of 0: the extra node is cut off and changes nothing.
    extra = np.square(off_diagonal[:, -1]) / _above_zero(pivot)
    radau = _quadrature(np.column_stack([diagonal, extra]), off_diagonal)
    return gauss, radau


def _above_zero(pivot: Float64Array) -> Float64Array:
    return np.maximum(pivot, _EPSILON)


def _quadrature(diagonal: Float64Array, off_diagonal: Float64Array) -> _Rule:
    size = diagonal.shape[1]
    matrices = np.zeros((len(diagonal), size, size))
    place = np.arange(size)
    matrices[:, place, place] = diagonal
    matrices[:, place[1:], place[:-1]] = off_diagonal
    nodes, vectors = np.linalg.eigh(matrices)
    return np.maximum(nodes, 0.0), np.square(vectors[:, 0, :])


def _lanczos(
    laplacian: csr_array[Any, Any], start: Float64Array, steps: int
) -> tuple[Float64Array, Float64Array]:
    """Tridiagonal matrices of independent Lanczos runs, one for each column of ``start``.

    Returns the diagonals (probes, steps) and off-diagonals (probes, steps), the last of which
    leads out of the matrix. A run that meets an invariant subspace continues with zeros.
    ``start`` is overwritten.
    """
    width = start.shape[1]
    diagonal = np.zeros((steps, width))
    off_diagonal = np.zeros((steps, width))
    smallest = np.sqrt(_EPSILON) * _norm_bound(laplacian)
    previous, current, product = np.zeros_like(start), start, np.empty_like(start)
    coupling = np.zeros(width)
    for step in range(steps):
        share = _multiply(
            laplacian.indptr,
            laplacian.indices,
            laplacian.data,
            current,
            previous,
            coupling,
            product,
        )
        # Twice: the second time takes off what rounding left of the last two vectors.
        rest, rest_previous = _orthogonalise(product, current, share, previous, np.zeros(width))
        _orthogonalise(product, current, rest, previous, rest_previous)
        length = np.sqrt(_column_dots(product, product))
        going = length > smallest
        coupling = np.where(going, length, 0.0)
        diagonal[step], off_diagonal[step] = share + rest, coupling
        product *= np.where(going, 1.0 / np.where(going, length, 1.0), 0.0)
        previous, current, product = current, product, previous
    return diagonal.T, off_diagonal.T


def _norm_bound(laplacian: csr_array[Any, Any]) -> float:
    """Gershgorin's bound on the largest eigenvalue; 1 for a matrix of zeros."""
    sums = np.asarray(abs(laplacian).sum(axis=1))
    return float(sums.max()) or 1.0


@numba.njit(cache=True, nogil=True)
def _multiply(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    data: Float64Array,
    current: Float64Array,
    previous: Float64Array,
    coupling: Float64Array,
    product: Float64Array,
) -> Float64Array:
    """Set product = L current - previous coupling; return its dot products with current."""
    n, width = current.shape
    shares = np.zeros(width)
    partial = np.zeros(width)
    row = np.empty(width)
    for i in range(n):
        for c in range(width):
            row[c] = -previous[i, c] * coupling[c]
        for entry in range(indptr[i], indptr[i + 1]):
            j, factor = indices[entry], data[entry]
            for c in range(width):
                row[c] += factor * current[j, c]
        for c in range(width):
            product[i, c] = row[c]
            partial[c] += current[i, c] * row[c]
        if i % SUMMED_ROWS == 0 or i == n - 1:
            shares += partial
            partial[:] = 0.0
    return shares


@numba.njit(cache=True, nogil=True)
def _orthogonalise(
    target: Float64Array,
    first: Float64Array,
    first_share: Float64Array,
    second: Float64Array,
    second_share: Float64Array,
) -> tuple[Float64Array, Float64Array]:
    """Take off shares of two blocks; return the dot products of what is left with them."""
    n, width = target.shape
    firsts, seconds = np.zeros(width), np.zeros(width)
    partial, partial_second = np.zeros(width), np.zeros(width)
    for i in range(n):
        for c in range(width):
            left = target[i, c] - first_share[c] * first[i, c] - second_share[c] * second[i, c]
            target[i, c] = left
            partial[c] += left * first[i, c]
            partial_second[c] += left * second[i, c]
        if i % SUMMED_ROWS == 0 or i == n - 1:
            firsts += partial
            seconds += partial_second
            partial[:] = 0.0
            partial_second[:] = 0.0
    return firsts, seconds


@numba.njit(cache=True, nogil=True)
def _column_dots(a: Float64Array, b: Float64Array) -> Float64Array:
    n, width = a.shape
    totals, partial = np.zeros(width), np.zeros(width)
    for i in range(n):
        for c in range(width):
            partial[c] += a[i, c] * b[i, c]
        if i % SUMMED_ROWS == 0 or i == n - 1:
            totals += partial
            partial[:] = 0.0
    return totals


def _fit_control_variate(
    laplacian: csr_array[Any, Any],
    times: Float64Array,
    steps: int,
    generator: np.random.Generator,
) -> _ControlVariate:
    """Fit p_t to the spectral distribution that pilot probes see."""
    n = laplacian.shape[0]
    # Gauss quadrature is exact to degree 2 steps - 1, so that far p_t costs no bracket.
    degree = min(4, 2 * steps - 1)
    pilots = [
        _lanczos_rules(laplacian, _random_signs(n, width, generator), steps)[0]
        for width in _block_widths(n, PILOT_PROBES)
    ]
    nodes = np.concatenate([rule[0].ravel() for rule in pilots])
    weights = np.concatenate([rule[1].ravel() for rule in pilots])
    width = _norm_bound(laplacian)
    root = np.sqrt(weights)[:, None]
    powers = np.vander(2.0 / width * nodes - 1.0, degree + 1, increasing=True)
    values = np.exp(-np.multiply.outer(nodes, times))
    coefficients = np.linalg.lstsq(root * powers, root * values, rcond=1e-12)[0]
    moments = _shifted_moments(exact_moments(laplacian)[: degree + 1] / n, width)
    rounding = _EPSILON * (64.0 + 4.0 * np.sqrt(n)) * (1.0 + np.abs(coefficients).sum(axis=0))
    return _ControlVariate(width, coefficients, moments @ coefficients, rounding)


def _shifted_moments(moments: Float64Array, width: float) -> Float64Array:
    """Mean of (2 λ / width - 1)^j from the means of λ^j."""
    shift = Polynomial([-1.0, 2.0 / width])
    powers = [np.asarray((shift**j).coef, dtype=np.float64) for j in range(len(moments))]
    return np.array([power @ moments[: len(power)] for power in powers])


def _integrate(rule: _Rule, control: _ControlVariate, times: Float64Array) -> Float64Array:
    nodes, weights = rule
    integrals: Float64Array = np.einsum("pj,pjt->pt", weights, control.remainder(times, nodes))
    return integrals


def _summarise_probes(
    times: Float64Array,
    below: Float64Array,
    above: Float64Array,
    control: _ControlVariate,
    n: int,
    steps: int,
) -> HeatTrace:
    probes = len(below)
    middle = 0.5 * (below + above)
    mean = middle.mean(axis=0)
    deviations = middle - mean
    trace = control.trace + mean
    quadrature = 0.5 * np.abs((above - below).mean(axis=0)) + control.rounding
    spread = np.sqrt(np.square(deviations).sum(axis=0) / (probes * (probes - 1)))
    half = float(stdtrit(probes - 1, 0.975)) * spread + quadrature
    return HeatTrace(
        times=times,
        trace=trace,
        lower=np.minimum(np.maximum(trace - half, 0.0), trace),  # a trace is positive
        upper=trace + half,
        standard_error=np.hypot(spread, control.rounding),
        deviations=deviations,
        quadrature=quadrature,
        vertices=n,
        probes=probes,
        steps=steps,
    )


def _null_trace(
    kind: Normalization, times: Float64Array, n: int, mean_degree: float | None
) -> Float64Array:
    if kind == "none":
        return np.ones_like(times)
    if kind == "complete":
        return 1.0 + (n - 1) * np.exp(-times * n / max(n - 1, 1))
    if kind == "er":
        if mean_degree is None or not mean_degree > 0:
            raise ValueError(
                f"the er normalization needs a positive mean degree, got {mean_degree}"
            )
        radius = 2.0 / np.sqrt(mean_degree)
        if n == 1:
            return np.exp(-times)
        # n evenly spaced eigenvalues: a geometric sum.
        spacing = times * 2.0 * radius / (n - 1)
        lowest: Float64Array = np.exp(-times * (1.0 - radius))
        count: Float64Array = np.expm1(-n * spacing) / np.expm1(-spacing)
        return lowest * count
    return np.full_like(times, float(n))


def _bootstrap_swings(deviations: Float64Array, generator: np.random.Generator) -> Float64Array:
    """Draws of the mean's error at all times, shape (draws, T)."""
    probes = len(deviations)
    if probes == 0:
        return np.zeros((BOOTSTRAP_DRAWS, deviations.shape[1]))
    # Few probes understate their spread; Student's quantile over the normal one makes up for it.
    few = float(stdtrit(probes - 1, 0.975)) / 1.959963984540054
    multipliers = generator.standard_normal((BOOTSTRAP_DRAWS, probes))
    swings: Float64Array = multipliers @ (deviations * (few / np.sqrt(probes * (probes - 1))))
    return swings
