r"""Heat trace and IMD (Tsitsulin et al., *The Shape of Data*, ICLR 2020).

The heat trace of a graph with normalised Laplacian :math:`L` is

.. math:: h(t) = \operatorname{tr} e^{-tL} = \sum_i e^{-t\lambda_i},

and the IMD of two graphs is :math:`\sup_t e^{-2(t + 1/t)} |h_1(t) - h_2(t)|` (their eq. 2).

Estimator
---------
For a probe :math:`v` of random signs, :math:`v^\top f(L) v` has the mean :math:`\operatorname{tr}
f(L)` (eq. 3). :math:`m` Lanczos steps from :math:`v` give it as a Gauss quadrature: the nodes are
the eigenvalues of the tridiagonal matrix, the weights the squared first components of its
eigenvectors (eq. 4-6). All probes of a block advance together, with one sparse product a step.

Variance
--------
The paper subtracts a linear control variate (its eq. 15, :math:`1 - t e^{-t} \lambda`); ``linear``
selects it here. ``none`` subtracts nothing. Neither uses the null space. The default is a
polynomial :math:`p_t` of degree 4. Its trace follows from :math:`\operatorname{tr} L^j, j \le 4`,
which are known exactly:

.. math:: \operatorname{tr} e^{-tL} \approx \operatorname{tr} p_t(L)
          + \frac1P \sum_i v_i^\top (e^{-tL} - p_t(L)) v_i .

For random signs the variance is at most :math:`2 \sum_j (e^{-t\lambda_j} - p_t(\lambda_j))^2`, so
:math:`p_t` is the least-squares fit in the spectral distribution. That distribution is estimated by
the quadrature of a few pilot probes, which aren't used again. The coefficients are therefore
independent of the other probes, and the estimate stays unbiased.

On a graph with hubs the product that tr L³ and tr L⁴ need can cost too much. Then every probe has
companion vectors that estimate these two moments, at two products each. This removes less of the
variance. The error of the companions shows in the spread over probes.

The null space of :math:`L` is known: one vector for every component. Probes are made orthogonal to
it, and its part of the trace is added. At large :math:`t`, where little else is left, this removes
most of the variance.

Interval
--------
The interval is Student's over probes, widened for three errors. *Skewness*: :math:`v^\top g(L) v`
is skewed where few eigenvalues dominate :math:`g = e^{-t\cdot} - p_t`. As a sum of weighted
:math:`\chi^2` it has the cumulants :math:`\kappa_2 = 2 \operatorname{tr} g^2` and :math:`\kappa_3 =
8 \operatorname{tr} g^3`, which are estimated by the pilots' quadrature. The end that the skewness
:math:`\gamma` makes unsafe is moved out by :math:`|\gamma| (1 + 2q^2) / 6\sqrt P` standard errors,
the first term of the Edgeworth expansion of Student's ratio at its quantile :math:`q` (Johnson,
JASA 73, 1978; Hall 1992, section 3.10). The other end isn't moved in. More probes don't reduce the
other two errors. *Quadrature*: derivatives of :math:`e^{-t\lambda}` alternate in sign, so Gauss
quadrature lies below each quadratic form and Gauss-Radau quadrature with a node at 0 above it
(Golub & Meurant 2010, chapter 6). The value is halfway between. *Rounding*: on a star or a complete
graph the polynomial fits the few eigenvalues exactly and all probes agree, so without a floor the
width would be 0, which is too narrow.

IMD's interval comes from a band over all times. Its width is a high quantile of the supremum over t
of a Gaussian multiplier bootstrap of both graphs' weighted deviations (Chernozhukov, Chetverikov &
Kato 2013), plus the widths of quadrature and rounding and the graph's own error. The supremum
changes by no more than the largest difference between the curves, so the band bounds it. It is
taken over all positive times, which :mod:`latentscale.heat.supremum` derives from a few. Traces are
therefore always computed at those as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import ArrayLike

from latentscale.array_types import Float64Array
from latentscale.estimate import student_quantile
from latentscale.graphs.laplacian import exact_moments, few_moments, find_null_space, product_work
from latentscale.heat.control_variates import (
    ControlVariate,
    VarianceReduction,
    fit_control_variate,
)
from latentscale.heat.null_models import NORMALIZATIONS, LaplacianKind, Normalization, null_trace
from latentscale.heat.supremum import IMD_TIMES, LEBESGUE
from latentscale.linalg.bounds import norm_bound
from latentscale.linalg.null_space import NullSpace
from latentscale.linalg.quadrature import Rule, quadrature_rules, seen_moments
from latentscale.linalg.random_vectors import Distribution

if TYPE_CHECKING:
    from scipy.sparse import csr_array


DENSE_VERTICES = 500
"""Number of vertices up to which automatic probes are replaced by exact eigenvalues."""

PILOT_PROBES = 8
MIN_PROBES = 4
MAX_PROBES = 1024
"""An automatic number of probes starts at 4 and doubles until the tolerance is met, to 1024."""

MIN_STEPS = 10
MAX_STEPS = 640
"""An automatic number of Lanczos steps starts at 10 and doubles, to 640 or the vertices."""

TRIED_PROBES = 4
"""Probes that are used to choose the number of steps."""

QUADRATURE_SHARE = 0.1
"""Share of the tolerance that the quadrature's error (half its bracket) may take."""

COMPANIONS = 4
"""Companion vectors of a probe that estimate tr L³ and tr L⁴ where hubs make them costly."""

PRODUCT_WORK, PRODUCT_WORK_OF_A_ROW = 10**10, 1000
"""Multiply-adds of L L up to which these moments are exact: the larger of these two limits."""


_EPSILON = float(np.finfo(np.float64).eps)

_BETWEEN = LEBESGUE * 32.0 * _EPSILON
"""Rounding of a trace between the times of IMD: that of the polynomial and of its values."""


@dataclass(frozen=True)
class HeatTrace:
    """A heat trace at several times, and at those that determine IMD, with its errors.

    Attributes
    ----------
    times : ndarray of float64, shape (T,)
        Ascending diffusion times.
    trace : ndarray of float64, shape (T,)
        tr exp(-tL) divided by its normaliser; as computed, per vertex.
    lower, upper : ndarray of float64, shape (T,)
        95 % interval at each single time, for probes, quadrature and rounding.
    standard_error : ndarray of float64, shape (T,)
        Standard error over probes, not below the rounding floor; 0 for exact eigenvalues.
    deviations : ndarray of float64, shape (P, T)
        Each probe's estimate less the mean of all.
    quadrature : ndarray of float64, shape (T,)
        Half width of the quadrature bracket plus the rounding floor.
    vertices : int
        Number of vertices, n.
    probes, steps : int
        Probes in the mean (pilots not counted) and Lanczos steps of each; 0 for exact
        eigenvalues.
    imd_trace, imd_standard_error, imd_deviations, imd_quadrature : ndarray of float64
        The same at :data:`latentscale.heat.supremum.IMD_TIMES`. Here ``imd_quadrature`` allows for
        the rounding between these times, too.
    normalization : {"empty", "none", "complete", "er"}
        The divisor of the trace, see :func:`normalise`.
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
    imd_trace: Float64Array
    imd_standard_error: Float64Array
    imd_deviations: Float64Array
    imd_quadrature: Float64Array
    normalization: Normalization = "empty"


@dataclass(frozen=True)
class ProbeIntegrals:
    """Quadratic forms of e^(-tL) - p_t(L): lower and upper bounds, each of shape (P, T)."""

    below: Float64Array
    above: Float64Array

    def __len__(self) -> int:
        return len(self.below)


def estimate_heat_trace(
    laplacian: csr_array[Any, Any],
    times: ArrayLike,
    *,
    generator: np.random.Generator,
    steps: int | None = 10,
    probes: int | None = None,
    tolerance: float = 1e-3,
    distribution: Distribution = "rademacher",
    variance_reduction: VarianceReduction = "moments",
    threads: int = 1,
    moments_budget: float | None = None,
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
        standard error, and what the pilots foresee of it, are at most ``tolerance`` of the trace
        at every time, or to 1024; graphs of at most 500 vertices then get exact eigenvalues.
    tolerance : float
        Relative standard error to stop at.
    distribution : {"rademacher", "gaussian"}
        Distribution of the probes' entries. Normal entries have a larger variance, because the
        diagonal of L contributes to it.
    variance_reduction : {"moments", "linear", "none"}
        ``moments``: polynomials of degree 4 with exact moments, and probes orthogonal to the known
        null space; ``linear``: the paper's eq. 15; ``none``: no control variate.
    threads : int
        Blocks of probes that advance at the same time. The result doesn't depend on it.
    moments_budget : float, optional
        Multiply-adds of L L up to which the moments are exact, by default as in
        :func:`moments_in_budget`. Beyond, random vectors estimate tr L³ and tr L⁴.

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
    blocks a thread, and one sparse product L L for the exact moments.
    """
    grid = _check_input(laplacian, times, steps, probes, tolerance)
    n = laplacian.shape[0]
    if probes is None and n <= DENSE_VERTICES:
        return dense_heat_trace(laplacian, grid)
    null_space = find_null_space(laplacian) if variance_reduction == "moments" else None
    if steps is None:
        steps = sufficient_steps(
            laplacian, grid, tolerance=tolerance, generator=generator, null_space=null_space
        )
    exact = moments_in_budget(product_work(laplacian), n, moments_budget)
    with ThreadPoolExecutor(1) as pool:
        moments = pool.submit(exact_moments if exact else few_moments, laplacian)
        if threads == 1:
            wait([moments])
        pilots = pilot_rules(laplacian, PILOT_PROBES, steps, generator, null_space, distribution)
    everywhere = with_imd_times(grid)
    null_dimension = null_space.dimension if null_space else 0
    control = fit_control_variate(
        pilots,
        moments.result(),
        norm_bound(laplacian),
        everywhere,
        steps,
        null_dimension,
        variance_reduction,
        distribution,
        exact=exact,
    )
    integrals: list[ProbeIntegrals] = []
    wanted = MIN_PROBES if probes is None else probes
    while True:
        more = wanted - sum(map(len, integrals))
        integrals.append(
            probe_integrals(
                laplacian,
                control,
                everywhere,
                more,
                steps,
                generator,
                null_space,
                distribution,
                threads,
            )
        )
        heat = average_probes(grid, integrals, control, n, steps, least=null_dimension / n)
        if probes is not None or is_known(heat, control, tolerance) or wanted >= MAX_PROBES:
            return heat
        wanted *= 2


def with_imd_times(times: Float64Array) -> Float64Array:
    """Append the times that determine IMD, at which every trace is computed as well."""
    return np.concatenate([times, IMD_TIMES])


def moments_in_budget(work: float, n: int, budget: float | None = None) -> bool:
    """Return whether tr L³ and tr L⁴ are computed, not estimated.

    Parameters
    ----------
    work : float
        Multiply-adds of L L, Σ deg² (:func:`~latentscale.graphs.laplacian.product_work`).
    n : int
        Vertices.
    budget : float, optional
        Most multiply-adds; by default 10¹⁰, or 1000 per vertex if that is more.
    """
    return work <= (max(PRODUCT_WORK, PRODUCT_WORK_OF_A_ROW * n) if budget is None else budget)


def is_known(heat: HeatTrace, control: ControlVariate, tolerance: float) -> bool:
    """Return whether the standard error is within the tolerance at every time.

    So is the one that the pilots foresee. Probes that are close to each other by chance would end
    the estimate too early, with an interval that is too narrow.
    """
    foreseen = control.deviation[: len(heat.times)] / np.sqrt(heat.probes)
    error = np.maximum(heat.standard_error, foreseen)
    return bool((error <= tolerance * heat.trace).all())


def sufficient_steps(
    laplacian: csr_array[Any, Any],
    times: Float64Array,
    *,
    tolerance: float,
    generator: np.random.Generator,
    null_space: NullSpace | None = None,
) -> int:
    """Return a number of Lanczos steps whose quadrature is accurate enough.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric positive semidefinite, sorted indices.
    times : ndarray of float64, shape (T,)
        Positive times.
    tolerance : float
        Relative standard error that the trace should have.
    generator : numpy.random.Generator
        Source of the four probes on which every number of steps is tried.
    null_space : NullSpace or None
        The known null space of the matrix.

    Returns
    -------
    int
        10, doubled until the Gauss and Gauss-Radau rules bracket every probe's quadratic form
        within a tenth of the tolerance at every time; at most 640.
    """
    steps, known = MIN_STEPS, (null_space.dimension if null_space else 0) / laplacian.shape[0]
    while steps < min(MAX_STEPS, laplacian.shape[0]):
        rules = list(quadrature_rules(laplacian, TRIED_PROBES, steps, generator, null_space))
        if all(quadrature_suffices(*pair, times, tolerance, known) for pair in rules):
            break
        steps *= 2
    return steps


def quadrature_suffices(
    gauss: Rule, radau: Rule, times: Float64Array, tolerance: float, known: float = 0.0
) -> bool:
    """Return whether every probe's quadratic form is bracketed within a tenth of the tolerance.

    Parameters
    ----------
    gauss, radau : Rule
        Rules of the same probes.
    times : ndarray of float64, shape (T,)
        Positive times.
    tolerance : float
        Relative standard error that the trace should have.
    known : float
        Dimension of the known null space over the number of vertices. Probes are orthogonal to it.

    Returns
    -------
    bool
        True when this holds at every time.
    """
    below, above = _heat_seen(gauss, times), _heat_seen(radau, times)
    # Take the widest bracket, because only a few probes may overlap with the rest of the spectrum.
    width, trace = np.abs(above - below).max(axis=0), known + below.mean(axis=0)
    return bool((0.5 * width <= QUADRATURE_SHARE * tolerance * trace).all())


def pilot_rules(
    laplacian: csr_array[Any, Any],
    count: int,
    steps: int,
    generator: np.random.Generator,
    null_space: NullSpace | None = None,
    distribution: Distribution = "rademacher",
) -> Rule:
    """Compute the Gauss rules of pilot probes, which show the spectral distribution.

    Parameters
    ----------
    laplacian : csr_array of float64, shape (n, n)
        Symmetric positive semidefinite, sorted indices.
    count, steps : int
        Probes and Lanczos steps.
    generator : numpy.random.Generator
        Source of the probes.
    null_space : NullSpace or None
        The known null space of the matrix.
    distribution : {"rademacher", "gaussian"}
        Distribution of the probes' entries.

    Returns
    -------
    Rule
        A rule for each probe.
    """
    rules = [
        gauss
        for gauss, _ in quadrature_rules(
            laplacian, count, steps, generator, null_space, distribution
        )
    ]
    return Rule(
        np.concatenate([rule.nodes for rule in rules]),
        np.concatenate([rule.weights for rule in rules]),
    )


def probe_integrals(
    laplacian: csr_array[Any, Any],
    control: ControlVariate,
    times: Float64Array,
    count: int,
    steps: int,
    generator: np.random.Generator,
    null_space: NullSpace | None = None,
    distribution: Distribution = "rademacher",
    threads: int = 1,
) -> ProbeIntegrals:
    """Estimate tr (e^(-tL) - p_t(L)) / n by each of several probes.

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
        Source of the probes, which must not include the pilots.
    null_space : NullSpace or None
        The known null space of the matrix; the control variate must assume the same one.
    distribution : {"rademacher", "gaussian"}
        Distribution of the probes' entries.
    threads : int
        Blocks of probes that advance at the same time.

    Returns
    -------
    ProbeIntegrals
        Of ``count`` probes.
    """
    below, above = [np.empty((0, len(times)))], [np.empty((0, len(times)))]
    for gauss, radau in quadrature_rules(
        laplacian, count, steps, generator, null_space, distribution, threads
    ):
        below.append(gauss.integrate(control.remainder(times, gauss.nodes)))
        above.append(radau.integrate(control.remainder(times, radau.nodes)))
    lower, upper = np.concatenate(below), np.concatenate(above)
    if control.slopes.any():
        # Every probe has its own companions, so the spread over probes includes their error.
        seen = seen_moments(laplacian, COMPANIONS * count, generator, distribution)
        added = seen.reshape(count, COMPANIONS, 2).mean(axis=1) @ control.slopes
        lower, upper = lower + added, upper + added
    return ProbeIntegrals(lower, upper)


def average_probes(
    times: Float64Array,
    integrals: Sequence[ProbeIntegrals],
    control: ControlVariate,
    n: int,
    steps: int,
    least: float = 0.0,
) -> HeatTrace:
    """Average probes, and compute the interval of their mean.

    Parameters
    ----------
    times : ndarray of float64, shape (T,)
        The times.
    integrals : sequence of ProbeIntegrals
        Integrals of at least two probes in all, in a fixed order, at :func:`with_imd_times`.
    control : ControlVariate
        The polynomials that were subtracted, for the same times.
    n, steps : int
        Vertices of the graph; Lanczos steps of a probe.
    least : float
        The trace isn't below it: the known share of eigenvalues 0. That of a graph is at least 1/n.

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
    trace = np.maximum(control.trace + mean, least)  # random moments don't know it
    quadrature = 0.5 * np.abs((above - below).mean(axis=0)) + control.rounding
    # Where few steps leave the sides apart, one spreads twice as far as their middle.
    sides = np.stack([below, above])
    spread = sides.std(axis=1, ddof=1) / np.sqrt(probes)
    quantile = student_quantile(0.975, probes - 1)
    tail = np.abs(control.skewness) * (1.0 + 2.0 * quantile**2) / (6.0 * np.sqrt(probes))
    down, up = (quantile + np.where(sign * control.skewness > 0, tail, 0.0) for sign in (-1, 1))
    centre = control.trace + sides.mean(axis=1)
    lower = (centre - spread * down).min(axis=0) - control.rounding
    upper = (centre + spread * up).max(axis=0) + control.rounding
    errors = np.hypot(middle.std(axis=0, ddof=1) / np.sqrt(probes), control.rounding)
    asked, of_imd = slice(len(times)), slice(len(times), None)
    return HeatTrace(
        times=times,
        trace=trace[asked],
        lower=np.minimum(np.maximum(lower, least), trace)[asked],
        upper=np.maximum(upper, trace)[asked],
        standard_error=errors[asked],
        deviations=np.ascontiguousarray(deviations[:, asked]),
        quadrature=quadrature[asked],
        vertices=n,
        probes=probes,
        steps=steps,
        imd_trace=trace[of_imd],
        imd_standard_error=errors[of_imd],
        imd_deviations=np.ascontiguousarray(deviations[:, of_imd]),
        imd_quadrature=(quadrature + _BETWEEN * np.abs(trace))[of_imd],
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
    spectrum = scipy.linalg.eigh(
        laplacian.toarray(), eigvals_only=True, overwrite_a=True, check_finite=False
    )
    spectrum = np.maximum(spectrum, 0.0)
    everywhere = with_imd_times(grid)
    trace = np.exp(-np.multiply.outer(everywhere, spectrum)).mean(axis=1)
    # The error of an eigenvalue is at most a small multiple of n ε ‖L‖, that of the trace t times
    # as much.
    rounding = _EPSILON * (16.0 + n * spectrum[-1] * everywhere * trace)
    asked, of_imd = slice(len(grid)), slice(len(grid), None)
    return HeatTrace(
        times=grid,
        trace=trace[asked],
        lower=(trace - rounding)[asked],
        upper=(trace + rounding)[asked],
        standard_error=np.zeros_like(grid),
        deviations=np.zeros((0, len(grid))),
        quadrature=rounding[asked],
        vertices=n,
        probes=0,
        steps=0,
        imd_trace=trace[of_imd],
        imd_standard_error=np.zeros_like(IMD_TIMES),
        imd_deviations=np.zeros((0, len(IMD_TIMES))),
        imd_quadrature=(rounding + _BETWEEN)[of_imd],
    )


def normalise(
    heat: HeatTrace,
    kind: Normalization,
    mean_degree: float | None = None,
    laplacian: LaplacianKind = "normalized",
) -> HeatTrace:
    """Return a per-vertex heat trace divided by another null model instead.

    Parameters
    ----------
    heat : HeatTrace
        Per vertex (``empty``), as :func:`estimate_heat_trace` returns it.
    kind : {"none", "empty", "complete", "er"}
        The null model, see :func:`latentscale.heat.null_models.null_trace`.
    mean_degree : float or None
        Mean degree of the graph; required for ``er``.
    laplacian : {"normalized", "unnormalized"}
        The Laplacian that the trace belongs to.

    Returns
    -------
    HeatTrace
        Trace, interval, standard error and deviations scaled alike.

    Raises
    ------
    ValueError
        On an unknown kind, a trace that isn't per vertex, or ``er`` without a positive degree or
        under the unnormalised Laplacian.
    """
    if kind not in NORMALIZATIONS:
        raise ValueError(f"unknown normalization {kind!r}; choose {', '.join(NORMALIZATIONS)}")
    if heat.normalization != "empty":
        raise ValueError(
            f"the trace is normalised already ({heat.normalization}); start from empty"
        )
    n = heat.vertices
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scale, of_imd = (
            n / null_trace(kind, times, n, mean_degree, laplacian)
            for times in (heat.times, IMD_TIMES)
        )
    for own, at in ((scale, heat.times), (of_imd, IMD_TIMES)):
        if not (np.isfinite(own) & (own > 0)).all():
            wrong = float(at[~(np.isfinite(own) & (own > 0))][0])
            raise ValueError(f"the {kind} normalization has no number at time {wrong:g}")
    return replace(
        heat,
        trace=heat.trace * scale,
        lower=heat.lower * scale,
        upper=heat.upper * scale,
        standard_error=heat.standard_error * scale,
        deviations=heat.deviations * scale,
        quadrature=heat.quadrature * scale,
        imd_trace=heat.imd_trace * of_imd,
        imd_standard_error=heat.imd_standard_error * of_imd,
        imd_deviations=heat.imd_deviations * of_imd,
        imd_quadrature=heat.imd_quadrature * of_imd,
        normalization=kind,
    )


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


def _heat_seen(rule: Rule, times: Float64Array) -> Float64Array:
    return rule.integrate(np.exp(-np.multiply.outer(rule.nodes, times)))
