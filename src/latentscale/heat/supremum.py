r"""The largest weighted difference of two heat traces over all positive times.

IMD is a supremum over all :math:`t > 0` (Tsitsulin et al. 2020, eq. 2). On a grid of times it would
come out too small. But heat traces are smooth, so few times determine them everywhere: every trace
is a mean of :math:`e^{-\lambda t}` with :math:`\lambda \ge 0`. The polynomial of degree :math:`N -
1` that equals :math:`e^{-\lambda t}` at the :math:`N` Chebyshev points of :math:`[a, 3a/2]` differs
from it between them by at most

.. math:: 2 \frac{(a / 8)^N}{N!} \max |f^{(N)}| \le 2 \frac{(\lambda a / 8)^N}{N!} e^{-\lambda a}
          \le 2 \frac{(N / 8 e)^N}{N!} \approx \frac{2 \cdot 8^{-N}}{\sqrt{2 \pi N}},

the largest value over all :math:`\lambda` (Trefethen, *Approximation Theory and Approximation
Practice*, 2013, chapters 4 and 15). For :math:`N = 18` this is :math:`10^{-17}`, less than
rounding. So traces at :data:`IMD_TIMES`, 18 Chebyshev points in each of 17 intervals, determine
them from :math:`t = 0.039` to :math:`38`, whatever their graphs.

In each interval the difference is a polynomial :math:`D`, and :math:`e^{-2(t + 1/t)} D` has its
extremes at the ends and where

.. math:: t^2 D'(t) = 2 (t^2 - 1) D(t),

at roots of another polynomial. Beyond the intervals the weight is so small that the weighted
difference can't matter (:func:`largest_beyond`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import chebyshev

from latentscale.array_types import Float64Array

RATIO = 1.5
"""End of an interval over its start."""

FIRST, INTERVALS = RATIO**-8, 17
"""Start of the first interval, and how many there are."""

POINTS = 18
"""Times in an interval."""

LEBESGUE = 3.0
"""How much larger the polynomial can be than its values at the points, at most (Rivlin 1974)."""

STARTS = FIRST * RATIO ** np.arange(INTERVALS)

_X = np.sin(0.5 * np.pi * np.arange(1 - POINTS, POINTS, 2) / POINTS)

IMD_TIMES: Float64Array = (STARTS[:, None] * (1.0 + 0.25 * (1.0 + _X))).ravel()
"""Times at which heat traces are known for IMD, ascending."""

_TO_COEFFICIENTS = np.linalg.inv(chebyshev.chebvander(_X, POINTS - 1)).T


def imd_weight(times: Float64Array) -> Float64Array:
    """Return the weight of every time, e^(-2(t + 1/t))."""
    return np.asarray(np.exp(-2.0 * (times + 1.0 / times)))


def largest_gap(difference: Float64Array) -> tuple[float, float]:
    """Return the largest weighted difference of two traces, and its time.

    Parameters
    ----------
    difference : ndarray of float64, shape (T,)
        The difference at :data:`IMD_TIMES`.

    Returns
    -------
    tuple of float
        The largest absolute value of e^(-2(t + 1/t)) times the difference from the first to the
        last of the intervals, up to rounding; the time at which it is reached.
    """
    weighted = imd_weight(IMD_TIMES) * np.abs(difference)
    peak = int(weighted.argmax())
    best = float(weighted[peak]), float(IMD_TIMES[peak])
    for start, values in zip(STARTS, difference.reshape(INTERVALS, POINTS), strict=True):
        nearest_to_one = np.clip(1.0, start, RATIO * start)
        if LEBESGUE * np.abs(values).max() * imd_weight(nearest_to_one) <= best[0]:
            continue
        times, gaps = _extremes(float(start), values)
        highest = int(gaps.argmax())
        best = max(best, (float(gaps[highest]), float(times[highest])))
    return best


def _extremes(start: float, values: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the ends of an interval and the times of extremes, and the weighted gaps there."""
    half = 0.5 * (RATIO - 1.0) * start
    coefficients = values @ _TO_COEFFICIENTS
    time = [start + half, half]
    square = chebyshev.chebmul(time, time)
    slope = chebyshev.chebder(coefficients) / half
    condition = chebyshev.chebsub(
        chebyshev.chebmul(square, slope),
        2.0 * chebyshev.chebmul(chebyshev.chebsub(square, [1.0]), coefficients),
    )
    # What rounding leaves of higher powers would give roots far away.
    rounding = np.finfo(np.float64).eps * np.abs(condition).max()
    roots = chebyshev.chebroots(chebyshev.chebtrim(condition, rounding))
    inside = roots.real[(np.abs(roots.imag) < 1e-6) & (np.abs(roots.real) < 1.0)]
    places = np.concatenate([[-1.0, 1.0], inside])
    times = start + half * (1.0 + places)
    return times, imd_weight(times) * np.abs(chebyshev.chebval(places, coefficients))


def largest_beyond(largest: float) -> float:
    """Bound the weighted difference of two traces before and after all intervals.

    Parameters
    ----------
    largest : float
        The larger of both traces at time 0, in the units of their normalisation; 1 where they are
        divided by that of a null model.

    Returns
    -------
    float
        The bound: 2e-17 of the argument.

    Notes
    -----
    A trace is at most n, and between 0 and its value at time 0. The null models have eigenvalues of
    mean 1 or less, so by convexity theirs are at least n e^(-t), and the ratio is at most e^t.
    Times the weight this is e^(-t - 2/t), which grows to t = √2 and falls from there.
    """
    ends = FIRST, FIRST * RATIO**INTERVALS
    return largest * max(math.exp(-t - 2.0 / t) for t in ends)
