r"""Bounds of power sums of proportions whose sum of squares is known.

How small can :math:`\sum f(p_i)` be for proportions :math:`p_i \in [l_i, u_i]` with :math:`\sum p_i
= 1` and :math:`\sum p_i^2 \le s`? Here f is one of the concave functions behind a Hill number of
order 0 < q < 2:

.. math:: p^q \;(q < 1), \qquad -p \log p \;(q = 1), \qquad -p^q \;(q > 1) .

For every :math:`\alpha` and :math:`\beta \ge 0` Lagrangian duality gives a lower bound,

.. math:: \alpha - \beta s + \sum_i \min_{l_i \le p \le u_i} g(p),
   \qquad g(p) = f(p) - \alpha p + \beta p^2,

so the search for good multipliers needs no proof that it found the best ones. The function g has a
convex derivative, so it rises, falls and rises again: its minimum over an interval is at the lower
end or at the second zero r of the derivative. Multipliers are therefore parametrised by r and by
the ratio :math:`b = 2\beta / |f''(r)| \ge 1`. Without bounds on the proportions :math:`r = s, b =
2/q` gives Jensen's inequality: a Hill number of order below 2 is at least 1/s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules are imported when they are first used

from latentscale.array_types import Float64Array

ROUNDING_SHARE = 1e-13
"""Allowance for the rounding of a bound, as a share of the absolute values of its terms."""


@dataclass(frozen=True)
class Proportions:
    """What is known of proportions that sum to 1.

    Attributes
    ----------
    lower, upper : ndarray of float64, shape (k,)
        Bounds of k of them, ``0 < lower <= upper``.
    others : int
        Number of the remaining proportions, which are known only to be at least 0 and at most
        ``limit``.
    limit : float
        Positive.
    squares : float
        Upper bound of the sum of the squares of all proportions.
    """

    lower: Float64Array
    upper: Float64Array
    others: int
    limit: float
    squares: float


def least_hill_number(proportions: Proportions, order: float) -> float:
    """Bound the Hill number of an order between 0 and 2 (exclusive) from below.

    Parameters
    ----------
    proportions : Proportions
        What is known.
    order : float
        q with ``0 < q < 2``.

    Returns
    -------
    float
        At least ``1 / squares``; valid for all such proportions.

    Notes
    -----
    A few hundred evaluations of ``O(k)`` each, without randomness.
    """
    start = np.array([math.log(proportions.squares), math.log(2.0 / order)])

    def shortfall(at: Float64Array) -> float:
        return -_dual_bound(proportions, order, at)

    found = scipy.optimize.minimize(shortfall, start, method="Nelder-Mead").x
    bound = max(_dual_bound(proportions, order, at) for at in (start, found))
    jensen = 1.0 / proportions.squares
    if order == 1:
        return max(jensen, math.exp(bound))
    # Above order 1 the bound is that of minus the power sum; the power sum lies between 0 and 1.
    power_sum = max(bound, 1.0) if order < 1 else min(-bound, 1.0)
    return max(jensen, math.exp(math.log(power_sum) / (1.0 - order)))


def _dual_bound(proportions: Proportions, order: float, at: Float64Array) -> float:
    root = math.exp(min(max(float(at[0]), -60.0), 0.0))
    slope, curvature = _derivatives(root, order)
    quadratic = 0.5 * abs(curvature) * math.exp(min(max(float(at[1]), 0.0), 60.0))
    linear = slope + 2.0 * quadratic * root

    def relaxed(p: Float64Array) -> Float64Array:
        return _concave(p, order) - linear * p + quadratic * p * p

    lower, limit = proportions.lower, proportions.limit
    inner = np.clip(root, lower, proportions.upper)
    least = np.minimum(relaxed(lower), relaxed(inner))
    rest = min(0.0, float(relaxed(np.array([min(root, limit)]))[0]))
    penalty = quadratic * proportions.squares
    bound = float(least.sum()) + proportions.others * rest + linear - penalty
    # The terms of g may cancel, so the allowance for rounding follows from their sizes.
    mass = 1.0 + float(inner.sum()) + proportions.others * min(root, limit)
    scale = mass * (abs(linear) + quadratic) + float(np.abs(_concave(inner, order)).sum())
    return bound - ROUNDING_SHARE * (scale + proportions.others * abs(slope) * root)


def _concave(p: Float64Array, order: float) -> Float64Array:
    if order == 1:
        return -p * np.log(p)
    return p**order if order < 1 else -(p**order)


def _derivatives(p: float, order: float) -> tuple[float, float]:
    """Return the first and second derivative of the concave function."""
    if order == 1:
        return -math.log(p) - 1.0, -1.0 / p
    sign = 1.0 if order < 1 else -1.0
    return (
        sign * order * p ** (order - 1.0),
        sign * order * (order - 1.0) * p ** (order - 2.0),
    )
