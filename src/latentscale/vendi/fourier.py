r"""Vendi scores from random Fourier features: one pass over the rows, at any n.

The second moment (:mod:`latentscale.vendi.second_moments`) of 2D Fourier features
(:mod:`latentscale.linalg.fourier_features`) has the spectrum of an approximate kernel matrix.

The error of its entries is about :math:`1/\sqrt{D}`, which biases every score. Small orders are
mostly too low, because 2D features have rank 2D at most. The error falls about like 1/D, so the
value is extrapolated from D and D/2. The interval is three times the difference of the two on
either side, and the rounding of the sums besides. It is an estimate, not a bound.
"""

from __future__ import annotations

import math

import numpy as np

from latentscale.estimate import Estimate
from latentscale.vendi.scores import moment_spectrum, vendi_score
from latentscale.vendi.second_moments import SecondMoment

FREQUENCIES = 1024
"""Default number of frequencies, for a second moment of 2048 × 2048."""

REACH = 3.0
"""Half the interval's length, in differences between D and D/2 (on a logarithmic scale)."""


def fourier_score(moment: SecondMoment, n: int, order: float) -> Estimate:
    """Extrapolate a Vendi score from the second moment of the features.

    Parameters
    ----------
    moment : SecondMoment
        The second moment of the features of all rows.
    n : int
        Number of rows.
    order : float
        q in [0, inf].

    Returns
    -------
    Estimate
        ``bounds`` "estimate", method "fourier".
    """
    whole = vendi_score(moment_spectrum(moment, n), order)
    half = moment.dimension // 2
    logs = []
    for part in (slice(0, half), slice(half, None)):
        matrix = moment.matrix[part, part]
        total = float(np.trace(matrix))
        # Both leave out the same eigenvalues as rounding.
        found = vendi_score(moment_spectrum(SecondMoment(total, matrix, moment.rounding), n), order)
        logs.append(math.log(found.value))
    step = math.log(whole.value) - sum(logs) / 2
    spread = REACH * max(abs(step), abs(logs[0] - logs[1]) / 2)
    value = min(max(math.log(whole.value) + step, 0.0), math.log(n))
    middle = math.exp(value)
    reach = math.exp(spread)
    lower = max(1.0, middle / reach * (whole.lower / whole.value))
    upper = min(float(n), middle * reach * (whole.upper / whole.value))
    return Estimate(middle, min(lower, middle), max(upper, middle), "estimate", "fourier")
