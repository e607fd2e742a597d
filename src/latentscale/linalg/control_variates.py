r"""Polynomial control variates for the quadratic forms of :math:`e^{-tL}`.

A polynomial :math:`p_t` whose trace is known exactly is subtracted from what random probes have to
find: :math:`v^\top (e^{-tL} - p_t(L)) v` varies the less, the better :math:`p_t` fits
:math:`e^{-t\cdot}` in the spectral distribution; :mod:`latentscale.heat.trace` says more. The same
distribution, seen by pilot probes, foretells how skewed what is left will be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from latentscale.linalg.quadrature import Rule
from latentscale.linalg.random_vectors import Distribution

Float64Array = NDArray[np.float64]

VarianceReduction = Literal["moments", "linear", "none"]

MOST_SKEWNESS = float(np.sqrt(8.0))
"""Of a square of one normal variable; no sum of weighted squares has more."""

_EPSILON = float(np.finfo(np.float64).eps)


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
        What probes needn't find: tr p_t(L) / n off the known null space, and its share.
    rounding : ndarray of float64, shape (T,)
        Allowance for the rounding of an estimate with them.
    skewness : ndarray of float64, shape (T,)
        Of what a probe sees of e^(-tL) - p_t(L).
    slopes : ndarray of float64, shape (2, T)
        What tr L³ / n and tr L⁴ / n add to the trace for a unit, where they aren't in ``trace``
        because they have to be estimated; else 0.
    """

    width: float
    coefficients: Float64Array
    trace: Float64Array
    rounding: Float64Array
    skewness: Float64Array
    slopes: Float64Array

    def remainder(self, times: Float64Array, nodes: Float64Array) -> Float64Array:
        """e^(-t x) - p_t(x) for nodes of shape (...), as (..., T)."""
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
    """Fit polynomials p_t to the spectral distribution that pilot probes see, or take the paper's.

    Parameters
    ----------
    pilots : Rule
        From :func:`latentscale.heat.trace.pilot_rules`, of any number of probes.
    moments : ndarray of float64, shape (5,)
        tr L^j for j = 0 … 4; unless ``exact`` the last two aren't known.
    width : float
        Bound on the largest eigenvalue.
    times : ndarray of float64, shape (T,)
        Positive times.
    steps : int
        Lanczos steps of the probes that it will serve.
    null_dimension : int
        Dimension of the null space that all probes are orthogonal to.
    variance_reduction : {"moments", "linear", "none"}
        Fitted polynomials of degree 4, or less where that would cost a bracket; the paper's of
        degree 1; or 0.
    distribution : {"rademacher", "gaussian"}
        Of the entries of the probes that it will serve.
    exact : bool
        Whether all of the moments are known.

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
    # Powers of L are 0 on its null space but for L^0.
    outside = moments[: degree + 1] - np.where(np.arange(degree + 1) == 0, null_dimension, 0.0)
    trace = _shifted_moments(outside / n, width) @ coefficients + null_dimension / n
    rounding = _EPSILON * (64.0 + 4.0 * np.sqrt(n)) * (1.0 + np.abs(coefficients).sum(axis=0))
    left = values - powers @ coefficients
    if distribution == "rademacher":
        # Signs have one length, so that they see no multiple of the identity.
        left -= weights @ left / weights.sum() if weights.any() else 0.0
    squares, cubes = (n / len(pilots) * (weights @ left**power) for power in (2, 3))
    # Where the polynomial is exact, what is left is rounding, which isn't skewed.
    spread = np.sqrt(2.0 * squares) / n
    known = spread > rounding
    skewness = np.zeros(len(times))
    skewness[known] = 8.0 * cubes[known] / (2.0 * squares[known]) ** 1.5
    skewness = np.clip(skewness, -MOST_SKEWNESS, MOST_SKEWNESS)
    return ControlVariate(width, coefficients, trace, rounding, skewness, slopes)


def _fitted(
    nodes: Float64Array, weights: Float64Array, width: float, times: Float64Array, steps: int
) -> Float64Array:
    # Gauss quadrature is exact to degree 2 steps - 1, so that far p_t costs no bracket.
    degree = min(4, 2 * steps - 1)
    root = np.sqrt(weights)[:, None]
    powers = np.vander(2.0 / width * nodes - 1.0, degree + 1, increasing=True)
    values = np.exp(-np.multiply.outer(nodes, times))
    coefficients: Float64Array = np.linalg.lstsq(root * powers, root * values, rcond=1e-12)[0]
    return coefficients


def _linear(
    nodes: Float64Array, weights: Float64Array, width: float, times: Float64Array, steps: int
) -> Float64Array:
    """1 - t e^(-t) x (Tsitsulin et al. 2020, eq. 15), in powers of u."""
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
    """Mean of (2 λ / width - 1)^j from the means of λ^j."""
    shift = Polynomial([-1.0, 2.0 / width])
    powers = [np.asarray((shift**j).coef, dtype=np.float64) for j in range(len(moments))]
    return np.array([power @ moments[: len(power)] for power in powers])
