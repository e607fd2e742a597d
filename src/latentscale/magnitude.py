r"""Magnitude: the effective number of distinct points, at every scale.

For distinct points with distances ``D`` the magnitude at scale ``t`` is

.. math:: \mathrm{Mag}(t) = \mathbf 1^\top K^{-1} \mathbf 1, \qquad K = e^{-tD},

(Limbeck et al. 2024, definitions 3.1 and 3.2). It runs from 1 at ``t = 0``, where all points look
like one, to ``n`` when every point stands alone. The solution of :math:`K w = \mathbf 1` holds the
*weights* of the points, which sum to the magnitude: large at the boundary and for outlying points,
small inside clusters. The area under the function (definition 3.3) summarises one set, the area
between two functions (definition 3.4) compares two; both run up to the scale at which the magnitude
reaches a share, 0.95, of the number of points (definition 3.5).

For the three metrics here ``K`` is positive definite, so that for *any* vector ``w``

.. math:: \mathrm{Mag} \ge \frac{(\mathbf 1^\top w)^2}{w^\top K w}

by the inequality of Cauchy and Schwarz: every approximate solution certifies a lower bound. For a
``w`` that misses the solution by a small vector the bound misses by its square, while the plain sum
:math:`\mathbf 1^\top w` may lie on either side.

Methods
-------
``cholesky``
    A dense factor: :math:`\mathrm{Mag} = \|L^{-1} \mathbf 1\|^2` (appendix A.5). The bracket is its
    rounding, :math:`|w^\top E\, w| \le \epsilon \|w\|_1^2` for a matrix known to within
    :math:`|E_{ij}| \le \epsilon`.
``cg``
    Conjugate gradients from 0 for all scales at once, with
    :func:`latentscale.exponentials.exponential_products`. Step ``j`` raises the magnitude by
    :math:`\Delta_j = \alpha_j \|r_j\|^2` (Hestenes and Stiefel 1952), so the error after ``k``
    steps is the sum of all later gains. The last ``m`` gains are therefore a lower bound of the
    error ``m`` steps ago, and a sharp one when convergence has not stalled (Strakoš and Tichý
    2002). Three times their sum serves as the error *now*; ``m`` is 4 at least and a quarter of all
    steps, since stalls last longer where convergence is slow. The lower bound is certified, the
    upper is this estimate, or the number of points when it stays above the tolerance.
``definition``
    :math:`\mathrm{Mag}(0) = 1`, which the paper defines, and which is the limit for almost all
    spaces (the one-point property; Roff and Yoshinaga 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import toms748

from latentscale.distances import (
    RECOMPUTED_SHARE,
    Float64Array,
    Points,
    distance_tile,
    row_blocks,
)
from latentscale.duplicates import Distinct, find_distinct
from latentscale.estimate import Bounds, Estimate
from latentscale.exponentials import DistanceTiles, exponential_products

MagnitudeMethod = Literal["auto", "cholesky", "cg"]

CHOLESKY_ROWS = 3000
"""Distinct rows up to which ``auto`` factorises: at 3000 a scale takes about 0.3 s on one core."""

KEPT_BYTES = 2**29
"""Memory that ``cg`` may take by default to keep distances: all of them up to 11 500 rows."""

DELAY = 4
"""Least number of past steps whose gains estimate the error."""

DELAY_SHARE = 0.25
"""Share of all steps that this number grows to: slow convergence stalls for longer."""

SAFETY = 3.0
"""Factor on the estimated error, which tends to be low."""

STOPPING_SHARE = 0.3
"""Share of the tolerance that the estimated error must reach."""

PRODUCT_ERROR = 4e-15
"""Rounding of a squared distance from a matrix product, as a share of the squared norms."""

EPSILON = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)


class NoConvergenceScale(ValueError):
    """No scale at which the magnitude is the share of the points that was asked for."""


@dataclass(frozen=True)
class MagnitudeFunction:
    """The magnitude of one set of points over a list of scales.

    Attributes
    ----------
    scales : ndarray of float64, shape (s,)
        Ascending scales.
    estimates : tuple of Estimate
        The magnitude at each scale; ``method`` says how each was found.
    weights : ndarray of float64, shape (n,)
        The weights at the largest scale, one an input row in input order. They sum to the last
        magnitude; equal rows share their weight equally.
    points : int
        Number of distinct points, the limit of the function.
    products : int
        Passes over all pairs of rows that conjugate gradients took.
    """

    scales: Float64Array
    estimates: tuple[Estimate, ...]
    weights: Float64Array
    points: int
    products: int


def magnitude_function(
    points: Points,
    scales: ArrayLike,
    *,
    method: MagnitudeMethod = "auto",
    tolerance: float = 1e-3,
    distinct: Distinct | None = None,
    kept_bytes: int = KEPT_BYTES,
) -> MagnitudeFunction:
    """Evaluate the magnitude function.

    Parameters
    ----------
    points : Points
        ``n`` rows under a metric; repeated rows count once.
    scales : array_like of float, shape (s,)
        Finite, non-negative, strictly ascending. Even spacing is fastest with conjugate gradients.
    method : {"auto", "cholesky", "cg"}
        ``auto`` factorises up to :data:`CHOLESKY_ROWS` distinct rows and iterates beyond. A scale
        too small for a numerically definite matrix is left to ``cg``, whatever was asked; each
        estimate names its method.
    tolerance : float
        Relative error allowed to ``cg``, in (0, 1).
    distinct : Distinct, optional
        The result of :func:`latentscale.duplicates.find_distinct`, when it is known.
    kept_bytes : int
        Memory that ``cg`` may take to keep distances between products, on top of about 100 MiB;
        it doesn't change the result.

    Returns
    -------
    MagnitudeFunction
        Estimates with ``bounds`` "exact" from a factor and "estimate" from ``cg``, whose lower
        bound is certified all the same. Where ``cg`` doesn't converge within ``50 + 4 sqrt(n)``
        products, the upper bound is the number of points.

    Raises
    ------
    ValueError
        On scales that aren't ascending, an unknown method or a tolerance out of range.

    Notes
    -----
    A factor costs ``n³/3`` multiply-adds a scale and ``16 n²`` bytes. Conjugate gradients take 10
    to 20 products on embeddings of high intrinsic dimension, of the order of ``sqrt(n)`` on
    clustered data of low dimension at small scales.
    """
    scales = np.array(scales, dtype=np.float64)
    _check_scales(scales)
    _check_method(method, tolerance)
    distinct = find_distinct(points) if distinct is None else distinct
    points = points.take(distinct.rows)
    n = len(points)
    positive = scales[scales > 0]
    tiles = DistanceTiles(points, kept_bytes=kept_bytes)
    solution = _solve(tiles, positive, method, tolerance)
    origin = (Estimate.exact(1.0, "definition"),) * (len(scales) - len(positive))
    weights = solution.weights if len(positive) else np.full(n, 1.0 / n)
    return MagnitudeFunction(
        scales, origin + solution.estimates, distinct.share(weights), n, solution.products
    )


def convergence_scale(
    points: Points,
    *,
    target: float = 0.95,
    method: MagnitudeMethod = "auto",
    tolerance: float = 1e-3,
    distinct: Distinct | None = None,
    kept_bytes: int = KEPT_BYTES,
) -> Estimate:
    """Find the scale at which the magnitude reaches a share of the number of distinct points.

    Definition 3.5 of Limbeck et al. 2024, with ε = (1 - target) n. Small sets use TOMS 748 on
    Cholesky factors, as appendix B.2 does. Large ones evaluate whole groups of scales with
    conjugate gradients: a wide grid placed by a subset, then a few scales about the interpolated
    root.

    Parameters
    ----------
    points : Points
        At least two distinct rows under a metric.
    target : float
        Share of the distinct points, above ``1/n`` and below 1.
    method, tolerance, distinct, kept_bytes
        As in :func:`magnitude_function`. The scale is found to a relative 1e-3 or better.

    Returns
    -------
    Estimate
        The scale, in inverse units of distance. Its bracket is that of the magnitude, divided by
        the slope of the function.

    Raises
    ------
    ValueError
        When no scale has that magnitude: a single distinct point, or a target out of range.
    """
    _check_method(method, tolerance)
    distinct = find_distinct(points) if distinct is None else distinct
    points = points.take(distinct.rows)
    n = len(points)
    if n == 1:
        raise NoConvergenceScale(
            "one distinct point has magnitude 1 at every scale: no convergence scale"
        )
    if not 1.0 / n < target < 1.0:
        raise ValueError(
            f"the magnitude of {n} distinct points lies between 1 and {n}, so the target share "
            f"must lie between 1/{n} and 1, got {target}"
        )
    if method == "cholesky" or (method == "auto" and n <= CHOLESKY_ROWS):
        return _dense_convergence_scale(points, target, tolerance)
    tiles = DistanceTiles(points, kept_bytes=kept_bytes)
    return _iterated_convergence_scale(tiles, target, tolerance)


def magnitude_area(scales: ArrayLike, estimates: Sequence[Estimate]) -> Estimate:
    """Integrate a magnitude function by the trapezoidal rule (MagArea, definition 3.3).

    Parameters
    ----------
    scales : array_like of float, shape (s,)
        Strictly ascending, at least two.
    estimates : sequence of Estimate
        The magnitude at each scale.

    Returns
    -------
    Estimate
        The sum of the rule and its bracket, which says nothing of the rule's own error: the area
        is defined over the scales given.
    """
    scales = np.asarray(scales, dtype=np.float64)
    _check_scales(scales)
    if len(scales) != len(estimates):
        raise ValueError(f"{len(scales)} scales but {len(estimates)} estimates")
    if len(scales) < 2:
        raise ValueError("an area needs at least two scales")
    value, lower, upper = (
        float(np.trapezoid([getattr(estimate, side) for estimate in estimates], scales))
        for side in ("value", "lower", "upper")
    )
    return Estimate(value, lower, upper, _weakest(estimates), _methods(estimates))


def magnitude_difference(first: MagnitudeFunction, second: MagnitudeFunction) -> Estimate:
    """Integrate the difference of two magnitude functions (MagDiff, definition 3.4).

    Parameters
    ----------
    first, second : MagnitudeFunction
        Functions over the same scales. The difference is signed: positive when the first set is
        the more diverse.

    Raises
    ------
    ValueError
        When the scales differ.
    """
    if not np.array_equal(first.scales, second.scales):
        raise ValueError(
            "the two magnitude functions have different scales; evaluate both on the same ones"
        )
    a = magnitude_area(first.scales, first.estimates)
    b = magnitude_area(second.scales, second.estimates)
    return Estimate(
        a.value - b.value,
        a.lower - b.upper,
        a.upper - b.lower,
        _weakest((a, b)),
        _methods((*first.estimates, *second.estimates)),
    )


def _weakest(estimates: Sequence[Estimate]) -> Bounds:
    return max((estimate.bounds for estimate in estimates), key=get_args(Bounds).index)


def _methods(estimates: Sequence[Estimate]) -> str:
    """Name the methods of the estimates; the value at 0 needs none."""
    methods = {estimate.method for estimate in estimates}
    return "+".join(sorted(methods - {"definition"} or methods))


def _check_scales(scales: Float64Array) -> None:
    if scales.ndim != 1 or len(scales) == 0 or not np.isfinite(scales).all() or scales[0] < 0:
        raise ValueError(f"scales must be a list of finite numbers of at least 0, got {scales}")
    if (np.diff(scales) <= 0).any():
        raise ValueError(f"scales must be strictly ascending, got {scales}")


def _check_method(method: str, tolerance: float) -> None:
    if method not in get_args(MagnitudeMethod):
        names = ", ".join(get_args(MagnitudeMethod))
        raise ValueError(f"unknown magnitude method {method!r}; choose one of {names}")
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"the tolerance must lie between 0 and 1, got {tolerance}")


# --- Solutions at several scales -------------------------------------------------------------


@dataclass(frozen=True)
class _Solution:
    """Magnitudes at ascending positive scales, and the weights at the last."""

    estimates: tuple[Estimate, ...]
    weights: Float64Array
    products: int


def _solve(tiles: DistanceTiles, scales: Float64Array, method: str, tolerance: float) -> _Solution:
    """Factorise where asked and possible, iterate elsewhere; the points are distinct."""
    points = tiles.points
    dense = method == "cholesky" or (method == "auto" and len(points) <= CHOLESKY_ROWS)
    if not dense or len(scales) == 0:
        return _conjugate_gradients(tiles, scales, tolerance)
    distances = _all_distances(points)
    error = _relative_error(points, _closest(distances)) / math.e
    factored = [_factorise(distances, scale, error, tolerance) for scale in scales]
    indefinite = [k for k, result in enumerate(factored) if result is None]
    iterated = _conjugate_gradients(tiles, scales[indefinite], tolerance)
    others = iter(iterated.estimates)
    estimates = tuple(next(others) if result is None else result[0] for result in factored)
    last = factored[-1]
    weights = iterated.weights if last is None else last[1]
    return _Solution(estimates, weights, iterated.products)


def _all_distances(points: Points) -> Float64Array:
    distances = np.empty((len(points), len(points)))
    for rows in row_blocks(len(points), 512):
        distances[rows] = distance_tile(points.take(rows), points)
    return distances


def _closest(distances: Float64Array) -> float:
    """Return the smallest distance between two different points."""
    closest = math.inf
    for i, row in enumerate(distances[1:], start=1):
        closest = min(closest, float(row[:i].min()))
    return closest


def _relative_error(points: Points, closest: float) -> float:
    """Bound the relative rounding error of the distances between points at least so close.

    A similarity errs by at most this over e, as x exp(-x) is at most 1/e.
    """
    if points.metric == "manhattan":
        return points.dimension * EPSILON
    if points.metric == "cosine":
        return PRODUCT_ERROR / max(RECOMPUTED_SHARE, min(closest, 1.0))
    largest = 2.0 * float(points.squared_norms.max())
    share = min(closest * closest / largest, 1.0) if largest > 0 else 1.0
    return 0.5 * PRODUCT_ERROR / max(RECOMPUTED_SHARE, share)


def _factorise(
    distances: Float64Array, scale: float, error: float, tolerance: float
) -> tuple[Estimate, Float64Array] | None:
    """Solve with a Cholesky factor; None when the matrix isn't safely positive definite."""
    n = len(distances)
    similarities = distances * -scale
    np.exp(similarities, out=similarities)
    try:
        factor = cholesky(similarities.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    half = solve_triangular(factor, np.ones(n), lower=True, check_finite=False)
    weights = solve_triangular(factor, half, lower=True, trans=1, check_finite=False)
    value = float(half @ half)
    # The factor's rounding is bounded entry by entry by |L||L|', at most 1 since each row of L has
    # unit length (Higham 2002, theorem 10.3); the two triangular solves add as much each.
    rounding = (3.0 * n * EPSILON + error) * float(np.abs(weights).sum()) ** 2
    if not (math.isfinite(value) and rounding <= STOPPING_SHARE * tolerance * value):
        return None
    value = max(value, 1.0)
    estimate = Estimate(value, max(value - rounding, 1.0), value + rounding, "exact", "cholesky")
    return estimate, weights


# --- Conjugate gradients ---------------------------------------------------------------------


def _most_products(n: int) -> int:
    return 50 + 4 * math.isqrt(n)


def _conjugate_gradients(tiles: DistanceTiles, scales: Float64Array, tolerance: float) -> _Solution:
    """Solve at all scales together; a scale leaves when its estimated error is small enough."""
    points = tiles.points
    n, s = len(points), len(scales)
    weights, residuals, directions = np.zeros((n, s)), np.ones((n, s)), np.ones((n, s))
    squared = np.full(s, float(n))  # of the residuals' lengths
    mass = np.zeros(s)  # sum of |step| times the 1-norm of its direction: bounds the rounding
    longest = np.zeros(s)
    gains: list[list[float]] = [[] for _ in range(s)]
    errors = np.full(s, math.inf)
    active = np.arange(s)
    products = 0
    while len(active) and products < _most_products(n):
        moving = directions[:, active]
        images = exponential_products(points, scales[active], moving, tiles=tiles)
        products += 1
        curvature = np.einsum("ik,ik->k", moving, images)
        usable = curvature > 0
        steps = np.divide(squared[active], curvature, out=np.zeros_like(curvature), where=usable)
        weights[:, active] += steps * moving
        residuals[:, active] -= steps * images
        rest = residuals[:, active]
        remaining = np.einsum("ik,ik->k", rest, rest)
        directions[:, active] = rest + remaining / squared[active] * moving
        mass[active] += steps * np.abs(moving).sum(axis=0)
        longest[active] = np.maximum(longest[active], steps)
        staying = usable.copy()
        for position, k in enumerate(active.tolist()):
            gains[k].append(float(steps[position] * squared[k]))
            exhausted = remaining[position] <= n * (4.0 * EPSILON * mass[k]) ** 2
            if exhausted:
                errors[k] = SAFETY * longest[k] * remaining[position]
            else:
                errors[k] = _remaining_error(gains[k]) if usable[position] else math.inf
            converged = errors[k] <= STOPPING_SHARE * tolerance * sum(gains[k])
            staying[position] &= not (exhausted or converged)
        squared[active] = remaining
        active = active[staying]
    errors[active] = math.inf
    entry_error = _relative_error(points, 0.0) / math.e
    estimates = []
    for k in range(s):
        rounding = (entry_error + (n + 4 * len(gains[k])) * EPSILON) * mass[k]
        estimate, scaling = _quotient(weights[:, k], residuals[:, k], rounding, float(errors[k]))
        estimates.append(estimate)
        weights[:, k] *= scaling
    return _Solution(tuple(estimates), weights[:, -1] if s else np.empty(0), products)


def _remaining_error(gains: Sequence[float]) -> float:
    """Estimate the error from the last steps' gains, which bound it some steps ago from below."""
    count = len(gains)
    delay = max(DELAY, math.ceil(DELAY_SHARE * count))
    return SAFETY * math.fsum(gains[-delay:]) if count > delay else math.inf


def _quotient(
    weights: Float64Array, residuals: Float64Array, rounding: float, error: float
) -> tuple[Estimate, float]:
    """Bracket the magnitude by an approximate solution, and scale it to sum to the value.

    ``rounding`` bounds, entry by entry, the error of ``1 - residuals`` as the product of the
    similarity matrix with the weights.
    """
    n = len(weights)
    total = float(weights.sum())
    size = float(np.abs(weights).sum())
    form = total - float(weights @ residuals)
    value = max(total * total / form, 1.0)
    sure = max(abs(total) - n * EPSILON * size, 0.0)
    lower = max(sure * sure / (form + (rounding + 2 * n * EPSILON) * size), 1.0)
    upper = max(value, min(value + error + (value - lower), float(n)))
    return Estimate(value, min(lower, value), upper, "estimate", "cg"), value / total


# --- The convergence scale -------------------------------------------------------------------

SUBSET_ROWS = (300, 1200)
"""Sizes of the evenly spaced subsets whose convergence scales are extrapolated to all rows."""

ABOUT = np.linspace(0.8, 1.2, 9)
"""First group of scales, relative to the extrapolated one."""

NARROW = 0.06
"""Relative width of the interval in which the root is interpolated in the end."""

ROOT_ACCURACY = 5e-4
"""Relative error allowed to that interpolation."""

VANISHING = 750.0
"""exp(-750) is 0: at this multiple of the inverse smallest distance nothing changes any more."""

MOST_GROUPS = 40
"""Groups of scales after which the search gives up."""


def _dense_convergence_scale(points: Points, target: float, tolerance: float) -> Estimate:
    n = len(points)
    tiles = DistanceTiles(points)
    distances = _all_distances(points)
    error = _relative_error(points, _closest(distances)) / math.e
    smallest = float(distances.min(initial=math.inf, where=distances > 0))
    largest = VANISHING / smallest
    goal = target * n
    excesses: dict[float, float] = {}

    def evaluate(scale: float) -> tuple[Estimate, Float64Array]:
        result = _factorise(distances, scale, error, tolerance)
        if result is None:
            iterated = _conjugate_gradients(tiles, np.array([scale]), tolerance)
            result = iterated.estimates[0], iterated.weights
        return result

    def excess(scale: float) -> float:
        if scale not in excesses:
            value = evaluate(scale)[0].value
            excesses[scale] = _log_odds(value, n) - _log_odds(goal, n)
        return excesses[scale]

    low = high = min(_first_scale(points, distances, target, tolerance), largest)
    while excess(high) < 0:
        if not high < largest:
            raise NoConvergenceScale(_UNREACHED)
        low, high = high, min(1.6 * high, largest)
    while excess(low) >= 0:
        low, high = low / 1.6, low
    root = float(toms748(excess, low, high, rtol=1e-12, xtol=1e-300))
    estimate, weights = evaluate(root)
    slope = _slope(distances, root, weights)
    return _root_estimate(root, estimate, goal, slope, 1e-12 * root)


def _log_odds(value: float, n: int) -> float:
    """Return log(Mag / (n - Mag)), which is nearly linear in the logarithm of the scale."""
    share = min(value / n, 1.0 - EPSILON)
    return math.log(share / (1.0 - share))


def _first_scale(points: Points, distances: Float64Array, target: float, tolerance: float) -> float:
    """Guess the convergence scale: a subset's, or the inverse mean distance of few points."""
    n = len(points)
    few = SUBSET_ROWS[0]
    if n < 2 * few:
        return 1.0 / max(float(distances.mean()), TINY)
    subset = points.take(np.linspace(0, n - 1, few).astype(np.int64))
    return _dense_convergence_scale(subset, max(target, 1.5 / few), tolerance).value


def _slope(distances: Float64Array, scale: float, weights: Float64Array) -> float:
    """Differentiate the magnitude by the scale: w' (D K) w, entry by entry."""
    total = 0.0
    for rows in row_blocks(len(distances), 512):
        derivative = distances[rows] * np.exp(distances[rows] * -scale)
        total += float(weights[rows] @ (derivative @ weights))
    return total


_UNREACHED = (
    "no finite scale separates the points: some are distinct but closer than their distances can "
    "resolve; merge rows that are nearly equal first"
)


def _root_estimate(
    root: float, magnitude: Estimate, goal: float, slope: float, inaccuracy: float
) -> Estimate:
    """Turn the magnitude's bracket at the root into one of the scale."""
    if not slope > 0:
        raise NoConvergenceScale(
            f"the magnitude function is flat at {goal}: no convergence scale there"
        )
    earlier = max(magnitude.upper - goal, 0.0) / slope + inaccuracy
    later = max(goal - magnitude.lower, 0.0) / slope + inaccuracy
    lower, upper = float(max(root - earlier, 0.0)), float(root + later)
    return Estimate(root, lower, upper, magnitude.bounds, magnitude.method)


def _iterated_convergence_scale(tiles: DistanceTiles, target: float, tolerance: float) -> Estimate:
    points = tiles.points
    n = len(points)
    goal = target * n
    accuracy = min(tolerance, 1e-3)
    start = _extrapolated_scale(points, target, tolerance)
    known = _evaluate_about(tiles, goal, start * ABOUT, accuracy)
    for _ in range(MOST_GROUPS):
        low, high = _bracket(known, goal)
        root, inaccuracy = _interpolate(known, goal, n)
        if high <= (1.0 + NARROW) * low and inaccuracy <= ROOT_ACCURACY * root:
            slope = (known[high].value - known[low].value) / (high - low)
            nearest = known[low] if root - low < high - root else known[high]
            return _root_estimate(root, _shift(nearest, goal), goal, slope, inaccuracy)
        wanted = root + (high - low) / 8.0 * np.linspace(-1.0, 1.0, 5)
        known |= _evaluate(tiles, wanted[(wanted > low) & (wanted < high)], accuracy)
    raise NoConvergenceScale(_UNREACHED)


def _extrapolated_scale(points: Points, target: float, tolerance: float) -> float:
    """Guess the convergence scale from two subsets: it grows like a power of their size."""
    n = len(points)
    sizes = [min(n, rows) for rows in SUBSET_ROWS]
    small, large = (
        _dense_convergence_scale(
            points.take(np.linspace(0, n - 1, rows).astype(np.int64)),
            max(target, 1.5 / rows),
            tolerance,
        ).value
        for rows in sizes
    )
    if n == sizes[1]:
        return large
    power = math.log(large / small) / math.log(sizes[1] / sizes[0])
    return large * math.pow(n / sizes[1], min(max(power, 0.0), 1.0))


Evaluated = dict[float, Estimate]


def _evaluate(tiles: DistanceTiles, scales: Float64Array, tolerance: float) -> Evaluated:
    estimates = _conjugate_gradients(tiles, scales, tolerance).estimates
    return dict(zip(scales.tolist(), estimates, strict=True))


def _evaluate_about(
    tiles: DistanceTiles, goal: float, scales: Float64Array, tolerance: float
) -> Evaluated:
    """Evaluate groups of scales, further and further out, until the goal lies among them."""
    known: Evaluated = {}
    factor = 1.05
    for _ in range(MOST_GROUPS):
        known |= _evaluate(tiles, scales, tolerance)
        first, last = min(known), max(known)
        if known[last].value < goal:
            scales = last * factor ** np.arange(1.0, 6.0)
        elif known[first].value >= goal:
            scales = first / factor ** np.arange(5.0, 0.0, -1.0)
        else:
            return known
        factor = min(factor * factor, 1e3)
        if not np.isfinite(scales).all():
            break
    raise NoConvergenceScale(_UNREACHED)


def _bracket(known: Evaluated, goal: float) -> tuple[float, float]:
    """Return the neighbouring scales between which the magnitude first reaches the goal."""
    scales = sorted(known)
    reached = next(k for k, scale in enumerate(scales) if known[scale].value >= goal)
    return scales[reached - 1], scales[reached]


def _interpolate(known: Evaluated, goal: float, n: int) -> tuple[float, float]:
    """Interpolate the scale of a magnitude, and say how far two interpolations differ."""
    low, high = _bracket(known, goal)
    scales = np.array(sorted(known))
    values = np.array([known[scale].value for scale in scales])
    odds = np.array([_log_odds(value, n) for value in np.maximum.accumulate(values)])
    keep = np.diff(odds, prepend=-np.inf) > 0
    wanted = _log_odds(goal, n)
    curve = PchipInterpolator(odds[keep], np.log(scales[keep]))
    chord = np.interp(wanted, odds[keep], np.log(scales[keep]))
    root, straight = (float(np.clip(np.exp(at), low, high)) for at in (curve(wanted), chord))
    return root, abs(root - straight)


def _shift(estimate: Estimate, value: float) -> Estimate:
    """Move an estimate by a small amount, with its bracket."""
    shift = value - estimate.value
    return Estimate(
        value, estimate.lower + shift, estimate.upper + shift, estimate.bounds, estimate.method
    )
