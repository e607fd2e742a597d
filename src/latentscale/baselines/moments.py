"""Baselines that are computed from moments: of one corpus, in one pass over its rows."""

from __future__ import annotations

import math

import numpy as np

from latentscale.estimate import Estimate
from latentscale.linalg.moments import UNIT_ROUNDOFF, Moments, longest_sum


def mean_similarity(moments: Moments) -> Estimate:
    r"""Return the mean cosine similarity of two different rows.

    It is :math:`(\|\sum_i u_i\|^2 - n) / (n (n - 1))` for unit rows ``u``, so no pair has to be
    visited.

    Raises
    ------
    ValueError
        If a row is zero and so has no direction, or there is only one row.
    """
    if moments.count < 2:
        raise ValueError("there is only one row: there are no two different rows")
    n, mean, rounding = moments.count, *_squared_mean_direction(moments)
    value = (mean * n - 1.0) / (n - 1.0)
    reach = rounding * n / (n - 1.0) + 4.0 * UNIT_ROUNDOFF * abs(value)
    lower, upper = max(-1.0, value - reach), min(1.0, value + reach)
    return Estimate(min(max(value, lower), upper), lower, upper, "exact", "moments")


def internal_diversity(moments: Moments) -> Estimate:
    r"""Return IntDiv with the cosine kernel.

    It is one minus the mean similarity of all :math:`n^2` ordered pairs, each row with itself
    included (Friedman & Dieng 2023, section 5).

    Raises
    ------
    ValueError
        If a row is zero and so has no direction.
    """
    mean, rounding = _squared_mean_direction(moments)
    value = min(max(1.0 - mean, 0.0), 1.0)
    lower, upper = max(0.0, value - rounding), min(1.0, value + rounding)
    return Estimate(value, lower, upper, "exact", "moments")


def geometric_mean_deviation(moments: Moments) -> Estimate:
    """Return the geometric mean of the standard deviations of all coordinates (GMStds).

    Limbeck et al. 2024, appendix C.1, eq. 2; variances are sums divided by ``n``. The result is 0
    if any coordinate is constant.
    """
    variances = np.diagonal(moments.scatter) / moments.count
    if (variances <= 0).any():
        return Estimate.exact(0.0, "moments")
    ratio = moments.mean_error / np.sqrt(variances)
    share = longest_sum(moments.count) * UNIT_ROUNDOFF
    errors = np.minimum(share + 2.0 * ratio + ratio**2, 1.0)
    value = math.exp(0.5 * float(np.log(variances).mean()))
    lower = 0.0
    if errors.max() < 1.0:
        lower = value * math.exp(0.5 * float(np.log1p(-errors).mean()))
    upper = value * math.exp(0.5 * float(np.log1p(errors).mean()))
    # The rounding of logarithms grows with their size.
    slack = (64.0 + 4.0 * abs(math.log(value))) * UNIT_ROUNDOFF
    return Estimate(value, lower * (1.0 - slack), upper * (1.0 + slack), "exact", "moments")


def _squared_mean_direction(moments: Moments) -> tuple[float, float]:
    """Return the squared length of the mean unit row, and a bound of its error."""
    if moments.zero_rows:
        zero = "1 row is" if moments.zero_rows == 1 else f"{moments.zero_rows} rows are"
        raise ValueError(f"{zero} zero, without a direction")
    mean = moments.directions / moments.count
    value = float(mean @ mean)
    share = (longest_sum(moments.count) + 2.0 * moments.dimension) * UNIT_ROUNDOFF
    return value, 2.0 * share * math.sqrt(value) + share**2 + share * value
