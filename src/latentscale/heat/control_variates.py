r"""Polynomial control variates for the quadratic forms of :math:`e^{-tL}`.

A polynomial :math:`p_t` whose trace is known exactly is subtracted from :math:`e^{-tL}`, and random
probes estimate the trace of the difference. The better :math:`p_t` fits :math:`e^{-t\cdot}` in the
spectral distribution, the less :math:`v^\top (e^{-tL} - p_t(L)) v` varies (see
:mod:`latentscale.heat.trace`). Pilot probes estimate that distribution, and with it the skewness of
the remainder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.polynomial import Polynomial

from latentscale.array_types import Float64Array
from latentscale.linalg.quadrature import Rule
from latentscale.linalg.random_vectors import Distribution

VarianceReduction = Literal["moments", "linear", "none"]

MAX_SKEWNESS = float(np.sqrt(8.0))
"""Skewness of the square of one normal variable; no weighted sum of squares has more."""

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class ControlVariate:
    """Polynomials p_t in u = 2 L / width - I, and their exact traces.

    Attributes
    ----------
    width : float
        Bound on the largest eigenvalue.
    coefficients : ndarray of float64, shape (degree + 1, T)
        Coefficients of ascending powers of u.
    trace : ndarray of float64, shape (T,)
        The part of the trace that is known without probes: tr p_t(L) / n outside the known null
        space, plus the share of the null space.
    rounding : ndarray of float64, shape (T,)
        Allowance for the rounding of an estimate with these polynomials.
    deviation, skewness : ndarray of float64, shape (T,)
        Standard deviation and skewness of a probe's quadratic form of e^(-tL) - p_t(L) over n, as
        the pilots see them. For random signs the deviation is an upper bound.
    slopes : ndarray of float64, shape (2, T)
        Derivatives of the trace by tr L³ / n and tr L⁴ / n, where these have to be estimated and
        aren't included in ``trace``; otherwise 0.
    """

    width: float
    coefficients: Float64Array
    trace: Float64Array
    rounding: Float64Array
    deviation: Float64Array
    skewness: Float64Array
    slopes: Float64Array

    def remainder(self, times: Float64Array, nodes: Float64Array) -> Float64Array:
        """Return e^(-t x) - p_t(x) at nodes x of shape (...), as shape (..., T)."""
        powers = np.vander((2.0 / self.width * nodes - 1.0).ravel(), len(self.coefficients), True)
        values = np.exp(-np.multiply.outer(nodes.ravel(), times)) - powers @ self.coefficients
        return values.reshape(*nodes.shape, len(times))


def fit_control_variate(
    pilots: Rule,
    moments: Float64Array,
    width: float,
    times: Float64Array,
    steps: int,
    null_dimension: int = 0,
    variance_reduction: VarianceReduction = "moments",
    distribution: Distribution = "rademacher",
    *,
    exact: bool = True,
) -> ControlVariate:
    """Fit polynomials p_t to the spectral distribution of pilot probes, or take the paper's.

    Parameters
    ----------
    pilots : Rule
        Rules of any number of probes, from :func:`latentscale.heat.trace.pilot_rules`.
    moments : ndarray of float64, shape (5,)
        tr L^j for j = 0 … 4; the last two are unknown unless ``exact``.
    width : float
        Bound on the largest eigenvalue.
    times : ndarray of float64, shape (T,)
        Positive times.
    steps : int
        Lanczos steps of the probes that will use the polynomials.
    null_dimension : int
        Dimension of the null space that all probes are orthogonal to.
    variance_reduction : {"moments", "linear", "none"}
        ``moments``: fitted polynomials of degree 4, or less where degree 4 would invalidate the
        quadrature's bracket; ``linear``: the paper's, of degree 1; ``none``: 0.
    distribution : {"rademacher", "gaussian"}
        Distribution of the entries of the probes that will use the polynomials.
    exact : bool
        Whether all the moments are known.

    Returns
    -------
    ControlVariate
    """
    n = moments[0]
    nodes, weights = pilots.nodes.ravel(), pilots.weights.ravel()
    coefficients = _POLYNOMIALS[variance_reduction](nodes, weights, width, times, steps)
    degree = len(coefficients) - 1
    powers = np.vander(2.0 / width * nodes - 1.0, degree + 1, increasing=True)
    values = np.exp(-np.multiply.outer(nodes, times))
    slopes = np.zeros((2, len(times)))
    if not exact and degree > 2:
        units = np.eye(degree + 1)[3:]
        slopes[: degree - 2] = [_shifted_moments(unit, width) @ coefficients for unit in units]
    # Powers of L are 0 on its null space, except for L^0.
    outside = moments[: degree + 1] - np.where(np.arange(degree + 1) == 0, null_dimension, 0.0)
    trace = _shifted_moments(outside / n, width) @ coefficients + null_dimension / n
    rounding = _EPSILON * (64.0 + 4.0 * np.sqrt(n)) * (1.0 + np.abs(coefficients).sum(axis=0))
    left = values - powers @ coefficients
    if distribution == "rademacher":
        # Vectors of signs have equal lengths, so a multiple of the identity adds no variance.
        left -= weights @ left / weights.sum() if weights.any() else 0.0
    squares, cubes = (n / len(pilots) * (weights @ left**power) for power in (2, 3))
    # Where the polynomial is exact, the remainder is rounding, which isn't skewed.
    deviation = np.sqrt(2.0 * squares) / n
    known = deviation > rounding
    skewness = np.zeros(len(times))
    skewness[known] = 8.0 * cubes[known] / (2.0 * squares[known]) ** 1.5
    skewness = np.clip(skewness, -MAX_SKEWNESS, MAX_SKEWNESS)
    return ControlVariate(width, coefficients, trace, rounding, deviation, skewness, slopes)


def _fitted(
    nodes: Float64Array, weights: Float64Array, width: float, times: Float64Array, steps: int
) -> Float64Array:
    # Gauss quadrature is exact to degree 2 steps - 1. Up to that degree p_t leaves the bracket
    # valid.
    degree = min(4, 2 * steps - 1)
    root = np.sqrt(weights)[:, None]
    powers = np.vander(2.0 / width * nodes - 1.0, degree + 1, increasing=True)
    values = np.exp(-np.multiply.outer(nodes, times))
    coefficients: Float64Array = np.linalg.lstsq(root * powers, root * values, rcond=1e-12)[0]
    return coefficients


def _linear(
    nodes: Float64Array, weights: Float64Array, width: float, times: Float64Array, steps: int
) -> Float64Array:
    """Return 1 - t e^(-t) x (Tsitsulin et al. 2020, eq. 15), in powers of u."""
    slope = -0.5 * width * times * np.exp(-times)
    return np.array([1.0 + slope, slope])


def _nothing(
    nodes: Float64Array, weights: Float64Array, width: float, times: Float64Array, steps: int
) -> Float64Array:
    return np.zeros((1, len(times)))


_POLYNOMIALS: dict[VarianceReduction, Callable[..., Float64Array]] = {
    "moments": _fitted,
    "linear": _linear,
    "none": _nothing,
}


def _shifted_moments(moments: Float64Array, width: float) -> Float64Array:
    """Return the means of (2 λ / width - 1)^j from the means of λ^j."""
    shift = Polynomial([-1.0, 2.0 / width])
    powers = [np.asarray((shift**j).coef, dtype=np.float64) for j in range(len(moments))]
    return np.array([power @ moments[: len(power)] for power in powers])
