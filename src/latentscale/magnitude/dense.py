r"""The magnitude of a small set of points, by factorising the similarity matrix.

With the Cholesky factor ``L`` of ``K`` the magnitude is :math:`\|L^{-1} \mathbf 1\|^2` (Limbeck et
al. 2024, appendix A.5). Its bracket is the rounding. If the entries of the matrix have relative
errors of at most :math:`\epsilon`, the error of the magnitude is at most

.. math:: |w^\top E\, w| \le \epsilon\, |w|^\top (K - I) |w|
          \le \epsilon \sum_i |w_i| (1 + 2 \nu - |w_i|)_+,

where :math:`\nu` is the sum of the absolute values of the negative weights. This holds because
:math:`K |w|` is :math:`K w = \mathbf 1` plus twice the product with the negative part, and because
a point's similarity to itself is exactly 1.

That is the first order. What the errors change in the weights themselves adds at most

.. math:: (E w)^\top (K + E)^{-1} E w \le 2 \|K^{-1}\| \, \|E w\|^2,

as long as :math:`\|K^{-1}\| \, \|E\| \le 1/2`. A matrix that is closer to a singular one isn't
factorised. The norm of the inverse is bounded by its powers on random vectors: one of them has a
component of :data:`MIN_COMPONENT` or more along the smallest eigenvector, but for a chance of
10⁻¹⁷.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import scipy  # its submodules are imported when they are first used

from latentscale.array_types import Float64Array
from latentscale.estimate import Bounds, Estimate
from latentscale.linalg.iterations import iterate_in_memory
from latentscale.magnitude.conjugate_gradients import ConjugateGradients
from latentscale.tiles.distances import Points, distance_tile, row_blocks
from latentscale.tiles.exponential_products import similarity_error

ROUNDING_SHARE = 0.3
"""Largest share of the tolerance that a factor's rounding may take."""

FEW_ROWS = 200
"""Rows whose similarities to all others give the first guess of the convergence scale."""

GUESS_ACCURACY = 1e-3
"""Relative error of the search for this guess; the guess itself is some 0.3 % off."""

FIRST_SCALE_RATIO = 1.01
"""Factor between the first two scales that are tried until the root lies between two of them; it is
squared from one to the next."""

VANISHING = 750.0
"""Multiple of the inverse smallest distance beyond which nothing changes: exp(-750) is 0."""

ROOT_ACCURACY = 1e-9
"""Relative error of a root."""

MIN_RTOL = 4.0 * float(np.finfo(np.float64).eps)
"""Smallest relative accuracy that root finding accepts; that of a logarithm means nothing."""

PROBES, MIN_COMPONENT = 8, 0.01
"""Random vectors that bound the norm of the inverse, and the component that one of them has."""

SOLVES = 4
"""Most products with the inverse. The bound is too large by a factor of (n / 0.01²)^(1/8) then."""

NEGLIGIBLE = 0.01
"""Share of the first order's bound below which that of the second doesn't matter."""

EPSILON = float(np.finfo(np.float64).eps)
TINY = float(np.finfo(np.float64).tiny)

UNREACHED = (
    "no finite scale separates the points: some are distinct but closer than their distances can "
    "resolve; merge rows that are nearly equal first"
)


class NoConvergenceScale(ValueError):
    """Raised where no scale gives the requested share of the points."""


def all_distances(points: Points) -> Float64Array:
    """Compute the distances between all points, shape (n, n)."""
    distances = np.empty((len(points), len(points)))
    for rows in row_blocks(len(points), 512):
        distances[rows] = distance_tile(points.take(rows), points)
    return distances


def factorised_magnitude(
    points: Points, distances: Float64Array, scale: float, tolerance: float
) -> tuple[Estimate, Float64Array] | None:
    """Compute the magnitude with a Cholesky factor.

    Parameters
    ----------
    points : Points
        ``n`` distinct points.
    distances : ndarray of float64, shape (n, n)
        Their distances, from :func:`all_distances`.
    scale : float
        Positive.
    tolerance : float
        Relative error allowed.

    Returns
    -------
    tuple of Estimate and ndarray of float64, shape (n,), or None
        Magnitude and weights; None when the matrix isn't safely positive definite.
    """
    n = len(distances)
    if n == 1:
        return Estimate.exact(1.0, "cholesky"), np.ones(1)
    similarities = distances * -scale
    np.exp(similarities, out=similarities)
    others_norm = math.sqrt(max(float(np.vdot(similarities, similarities)) - n, 0.0))
    try:
        factor = scipy.linalg.cholesky(
            similarities.T, lower=True, overwrite_a=True, check_finite=False
        )
    except scipy.linalg.LinAlgError:
        return None
    half = scipy.linalg.blas.dtrsv(factor, np.ones(n), lower=1)
    weights = scipy.linalg.blas.dtrsv(factor, half, lower=1, trans=1)
    value = float(half @ half)
    size, negative = float(np.abs(weights).sum()), float(-weights.sum(where=weights < 0))
    entries = float(similarity_error(points, [scale], "double")[0])
    # The factor's rounding is bounded entry by entry by |L||L|', which is at most 1 because the
    # rows of L have unit length (Higham 2002, theorem 10.3). Each of the two triangular solves adds
    # as much.
    others = np.maximum(1.0 + 2.0 * negative - np.abs(weights), 0.0)
    rounding = entries * float(np.abs(weights) @ others) + 3.0 * n * EPSILON * size * size
    residual = entries * others_norm * float(np.linalg.norm(weights))
    residual += 3.0 * n * EPSILON * math.sqrt(n) * size
    largest = 0.5 / (entries * others_norm + 3.0 * n * n * EPSILON)
    # Products of large numbers become infinite, and such a matrix isn't factorised.
    changed = 2.0 * residual * residual
    inverse = _inverse_norm(factor, min(largest, NEGLIGIBLE * rounding / max(changed, TINY)))
    if not inverse <= largest:
        return None
    rounding += inverse * changed
    if not (math.isfinite(value) and rounding <= ROUNDING_SHARE * tolerance * value):
        return None
    value = max(value, 1.0)
    lower = max(value - rounding, 1.0)
    return Estimate(value, lower, value + rounding, "exact", "cholesky"), weights


def _inverse_norm(factor: Float64Array, sufficient: float) -> float:
    """Bound the norm of the inverse of a matrix from its factor, closely where it matters."""
    vectors = np.random.default_rng(0).standard_normal((len(factor), PROBES))
    exponents = np.zeros(PROBES)
    bound = math.inf
    for solves in range(1, SOLVES + 1):
        vectors = scipy.linalg.lapack.dpotrs(factor, vectors, lower=1)[0]
        lengths = np.linalg.norm(vectors, axis=0)
        exponents += np.log(lengths)
        vectors = vectors / lengths
        with np.errstate(over="ignore"):
            bound = float(np.exp((exponents.max() - math.log(MIN_COMPONENT)) / solves))
        if bound <= sufficient:
            break
    return bound


def dense_convergence_scale(points: Points, target: float, tolerance: float) -> Estimate:
    """Find the convergence scale of a small set by root finding, as in appendix B.2.

    Parameters
    ----------
    points : Points
        ``n`` distinct points, at least 2.
    target : float
        Share of ``n``, above ``1/n`` and below 1.
    tolerance : float
        Relative error allowed for a magnitude where the matrix can't be factorised.

    Raises
    ------
    NoConvergenceScale
        When no scale has that magnitude.

    Notes
    -----
    Uses Brent's method on the logarithm of the odds, which is nearly linear in the logarithm of the
    scale. Takes five to seven factors and ``24 n²`` bytes.
    """
    n = len(points)
    distances = all_distances(points)
    largest = VANISHING / float(distances.min(initial=math.inf, where=distances > 0))
    goal = target * n

    @cache
    def evaluate(scale: float) -> tuple[Estimate, Float64Array]:
        result = factorised_magnitude(points, distances, scale, tolerance)
        return iterated_magnitude(points, scale, tolerance) if result is None else result

    def excess(scale: float) -> float:
        return log_odds(evaluate(scale)[0].value, n) - log_odds(goal, n)

    low = high = min(_first_scale(distances, target, largest), largest)
    stretch = FIRST_SCALE_RATIO
    while excess(high) < 0:
        if not high < largest:
            raise NoConvergenceScale(UNREACHED)
        low, high, stretch = high, min(stretch * high, largest), stretch**2
    while excess(low) >= 0:
        low, high, stretch = low / stretch, low, stretch**2
    root = math.exp(
        scipy.optimize.brentq(
            lambda logarithm: excess(math.exp(logarithm)),
            math.log(low),
            math.log(high),
            xtol=ROOT_ACCURACY,
            rtol=MIN_RTOL,
        )
    )
    estimate, weights = evaluate(root)
    return root_estimate(
        root, estimate, goal, _slope(distances, root, weights), ROOT_ACCURACY * root
    )


def iterated_magnitude(
    points: Points, scale: float, tolerance: float
) -> tuple[Estimate, Float64Array]:
    """Compute the magnitude by conjugate gradients, where a factor isn't safe."""
    solver = ConjugateGradients.start(
        len(points),
        [scale],
        tolerance=tolerance,
        read_rows=lambda: iter((points,)),
        generator=np.random.default_rng(0),
    )
    solutions = iterate_in_memory(solver, points)
    return solutions.estimates[0], solutions.weights[:, 0].astype(np.float64)


def log_odds(value: float, n: int) -> float:
    """Return log(Mag / (n - Mag)), which is nearly linear in the logarithm of the scale."""
    share = min(value / n, 1.0 - EPSILON)
    return math.log(share / (1.0 - share))


def root_estimate(
    root: float, magnitude: Estimate, goal: float, slope: float, inaccuracy: float
) -> Estimate:
    """Turn the bracket of the magnitude at the root into a bracket of the scale.

    The function is taken to be straight inside the bracket. That holds for the rounding of a
    factor; a wider bracket certifies nothing of the scale.
    """
    if not slope > 0:
        raise NoConvergenceScale(
            f"the magnitude function is flat at {goal}: no convergence scale there"
        )
    earlier = max(magnitude.upper - goal, 0.0) / slope + inaccuracy
    later = max(goal - magnitude.lower, 0.0) / slope + inaccuracy
    lower, upper = float(max(root - earlier, 0.0)), float(root + later)
    bounds: Bounds = "exact" if magnitude.bounds == "exact" else "estimate"
    return Estimate(root, lower, upper, bounds, magnitude.method)


def _first_scale(distances: Float64Array, target: float, largest: float) -> float:
    """Guess the convergence scale: where the mean of 1 / (row sum of K) is the target.

    Over all rows that mean is the spread as a share of n, which is near the magnitude where most
    similarities are small (Willerton 2015, "Spread: a measure of the size of metric spaces"). Some
    rows tell it closely enough.
    """
    n = len(distances)
    few = distances[np.linspace(0, n - 1, min(n, FEW_ROWS)).astype(np.int64)]

    def excess(logarithm: float) -> float:
        sums = np.exp(few * -math.exp(logarithm)).sum(axis=1)
        return float((1.0 / sums).mean()) - target

    end = math.log(largest)
    low = high = min(-math.log(max(float(few.mean()), TINY)), end)
    while excess(high) < 0:
        if not high < end:
            return largest
        low, high = high, min(high + 1.0, end)
    while excess(low) >= 0:
        low, high = low - 1.0, low
    return math.exp(scipy.optimize.brentq(excess, low, high, xtol=GUESS_ACCURACY))


def _slope(distances: Float64Array, scale: float, weights: Float64Array) -> float:
    """Differentiate the magnitude by the scale: w' (D K) w, entry by entry."""
    total = 0.0
    for rows in row_blocks(len(distances), 512):
        derivative = distances[rows] * np.exp(distances[rows] * -scale)
        total += float(weights[rows] @ (derivative @ weights))
    return total
