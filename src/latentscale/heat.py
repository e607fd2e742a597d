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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.special import stdtrit

from latentscale.estimate import Estimate
from latentscale.graph import exact_moments
from latentscale.lanczos_quadrature import Float64Array, Rule, norm_bound, quadrature_rules

Normalization = Literal["none", "empty", "complete", "er"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)

DENSE_VERTICES = 500
"""Up to this many vertices, an automatic number of probes means exact eigenvalues."""

PILOT_PROBES = 8
LEAST_PROBES = 4
MOST_PROBES = 1024
"""An automatic number of probes starts at 4 and doubles until the tolerance is met, to 1024."""

LEAST_STEPS = 10
MOST_STEPS = 640
"""An automatic number of Lanczos steps starts at 10 and doubles, to 640 or the vertices."""

TRIED_PROBES = 2
"""Probes on which a number of steps is tried."""

QUADRATURE_SHARE = 0.1
"""Share of the tolerance that the quadrature may take up, half the width of its bracket."""

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
class ControlVariate:
    """Polynomials p_t in u = 2 L / width - I, and their exact traces.

    Attributes
    ----------
    width : float
        Bound on the largest eigenvalue.
    coefficients : ndarray of float64, shape (degree + 1, T)
        Of ascending powers of u.
    trace : ndarray of float64, shape (T,)
        tr p_t(L) / n.
    rounding : ndarray of float64, shape (T,)
        Allowance for the rounding of an estimate with them.
    """

    width: float
    coefficients: Float64Array
    trace: Float64Array
    rounding: Float64Array

    def remainder(self, times: Float64Array, nodes: Float64Array) -> Float64Array:
        """e^(-t x) - p_t(x) for nodes of shape (...), as (..., T)."""
        powers = np.vander((2.0 / self.width * nodes - 1.0).ravel(), len(self.coefficients), True)
        values = np.exp(-np.multiply.outer(nodes.ravel(), times)) - powers @ self.coefficients
        return values.reshape(*nodes.shape, len(times))


@dataclass(frozen=True)
class ProbeIntegrals:
    """What probes see of e^(-tL) - p_t(L): bounds from below and above, each of shape (P, T)."""

    below: Float64Array
    above: Float64Array

    def __len__(self) -> int:
        return len(self.below)


def heat_trace(
    laplacian: csr_array[Any, Any],
    times: ArrayLike,
    *,
    generator: np.random.Generator,
    steps: int | None = 10,
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
    steps : int or None
        Lanczos steps of a probe (the paper's 10 suits the normalised Laplacian to t = 10); None
        takes as many as :func:`sufficient_steps` finds.
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
    if steps is None:
        steps = sufficient_steps(laplacian, grid, tolerance=tolerance, generator=generator)
    pilots = pilot_rules(laplacian, PILOT_PROBES, steps, generator)
    moments = exact_moments(laplacian)
    control = fit_control_variate(pilots, moments, norm_bound(laplacian), grid, steps)
    integrals: list[ProbeIntegrals] = []
    wanted = LEAST_PROBES if probes is None else probes
    while True:
        more = wanted - sum(map(len, integrals))
        integrals.append(probe_integrals(laplacian, control, grid, more, steps, generator))
        heat = average_probes(grid, integrals, control, n, steps)
        if probes is not None or is_known(heat, tolerance) or wanted >= MOST_PROBES:
            return heat
        wanted *= 2


def is_known(heat: HeatTrace, tolerance: float) -> bool:
    """Tell whether the standard error is within the tolerance at every time."""
    return bool((heat.standard_error <= tolerance * heat.trace).all())


def sufficient_steps(
    laplacian: csr_array[Any, Any],
    times: Float64Array,
    *,
    tolerance: float,
    generator: np.random.Generator,
) -> int:
    """Find a number of Lanczos steps whose quadrature is accurate enough.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric positive semidefinite, sorted indices.
    times : ndarray of float64, shape (T,)
        Positive times.
    tolerance : float
        Relative standard error that the trace is meant to have.
    generator : numpy.random.Generator
        Source of the two probes that every number is tried on.

    Returns
    -------
    int
        10, or doubled until Gauss and Gauss-Radau rules bracket the trace within a tenth of the
        tolerance at every time; at most 640.
    """
    steps = LEAST_STEPS
    while steps < min(MOST_STEPS, laplacian.shape[0]):
        bounds = [
            (_heat_seen(gauss, times), _heat_seen(radau, times))
            for gauss, radau in quadrature_rules(laplacian, TRIED_PROBES, steps, generator)
        ]
        below, above = (np.concatenate(side).mean(axis=0) for side in zip(*bounds, strict=True))
        if (0.5 * np.abs(above - below) <= QUADRATURE_SHARE * tolerance * below).all():
            break
        steps *= 2
    return steps


def pilot_rules(
    laplacian: csr_array[Any, Any], count: int, steps: int, generator: np.random.Generator
) -> Rule:
    """Find the Gauss rules of probes that show the spectral distribution and aren't used again.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric positive semidefinite, sorted indices.
    count, steps : int
        Probes and Lanczos steps.
    generator : numpy.random.Generator
        Source of the probes.

    Returns
    -------
    Rule
        One for each probe.
    """
    rules = [gauss for gauss, _ in quadrature_rules(laplacian, count, steps, generator)]
    return Rule(
        np.concatenate([rule.nodes for rule in rules]),
        np.concatenate([rule.weights for rule in rules]),
    )


def fit_control_variate(
    pilots: Rule, moments: Float64Array, width: float, times: Float64Array, steps: int
) -> ControlVariate:
    """Fit polynomials p_t to the spectral distribution that pilot probes see.

    Parameters
    ----------
    pilots : Rule
        From :func:`pilot_rules`, of any number of probes.
    moments : ndarray of float64, shape (5,)
        tr L^j for j = 0 … 4.
    width : float
        Bound on the largest eigenvalue.
    times : ndarray of float64, shape (T,)
        Positive times.
    steps : int
        Lanczos steps of the probes that it will serve.

    Returns
    -------
    ControlVariate
        Of degree 4, or less where that would cost a bracket.
    """
    n = moments[0]
    # Gauss quadrature is exact to degree 2 steps - 1, so that far p_t costs no bracket.
    degree = min(4, 2 * steps - 1)
    nodes, weights = pilots.nodes.ravel(), pilots.weights.ravel()
    root = np.sqrt(weights)[:, None]
    powers = np.vander(2.0 / width * nodes - 1.0, degree + 1, increasing=True)
    values = np.exp(-np.multiply.outer(nodes, times))
    coefficients = np.linalg.lstsq(root * powers, root * values, rcond=1e-12)[0]
    means = _shifted_moments(moments[: degree + 1] / n, width)
    rounding = _EPSILON * (64.0 + 4.0 * np.sqrt(n)) * (1.0 + np.abs(coefficients).sum(axis=0))
    return ControlVariate(width, coefficients, means @ coefficients, rounding)


def probe_integrals(
    laplacian: csr_array[Any, Any],
    control: ControlVariate,
    times: Float64Array,
    count: int,
    steps: int,
    generator: np.random.Generator,
) -> ProbeIntegrals:
    """Estimate tr (e^(-tL) - p_t(L)) / n by each of some probes.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric positive semidefinite, sorted indices.
    control : ControlVariate
        The polynomials.
    times : ndarray of float64, shape (T,)
        The times they were fitted at.
    count, steps : int
        Probes and Lanczos steps.
    generator : numpy.random.Generator
        Source of the probes, none of which was a pilot.

    Returns
    -------
    ProbeIntegrals
        Of ``count`` probes.
    """
    below, above = [np.empty((0, len(times)))], [np.empty((0, len(times)))]
    for gauss, radau in quadrature_rules(laplacian, count, steps, generator):
        below.append(_integrate(gauss, control.remainder(times, gauss.nodes)))
        above.append(_integrate(radau, control.remainder(times, radau.nodes)))
    return ProbeIntegrals(np.concatenate(below), np.concatenate(above))


def average_probes(
    times: Float64Array,
    integrals: Sequence[ProbeIntegrals],
    control: ControlVariate,
    n: int,
    steps: int,
) -> HeatTrace:
    """Average probes, and judge how well their mean is known.

    Parameters
    ----------
    times : ndarray of float64, shape (T,)
        The times.
    integrals : sequence of ProbeIntegrals
        Of at least two probes together, in a fixed order.
    control : ControlVariate
        The polynomials that the integrals leave out.
    n, steps : int
        Vertices of the graph; Lanczos steps of a probe.

    Returns
    -------
    HeatTrace
        Per vertex (normalisation ``empty``).
    """
    below = np.concatenate([block.below for block in integrals])
    above = np.concatenate([block.above for block in integrals])
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
    steps: int | None,
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
    if steps is not None and steps < 1:
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


def _shifted_moments(moments: Float64Array, width: float) -> Float64Array:
    """Mean of (2 λ / width - 1)^j from the means of λ^j."""
    shift = Polynomial([-1.0, 2.0 / width])
    powers = [np.asarray((shift**j).coef, dtype=np.float64) for j in range(len(moments))]
    return np.array([power @ moments[: len(power)] for power in powers])


def _integrate(rule: Rule, values: Float64Array) -> Float64Array:
    integrals: Float64Array = np.einsum("pj,pjt->pt", rule.weights, values)
    return integrals


def _heat_seen(rule: Rule, times: Float64Array) -> Float64Array:
    return _integrate(rule, np.exp(-np.multiply.outer(rule.nodes, times)))


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
