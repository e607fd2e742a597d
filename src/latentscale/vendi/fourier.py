r"""Vendi scores from random Fourier features: one pass over the rows, at any n.

The second moment (:mod:`latentscale.vendi.second_moments`) of 2D Fourier features
(:mod:`latentscale.linalg.fourier_features`) has the spectrum of an approximate kernel matrix.

The error of its entries is about :math:`1/\sqrt{D}`, which biases every score. Small orders are
mostly too low, because 2D features have rank 2D at most. The error falls about like 1/D, so the
value is extrapolated from D and D/2. The interval is three times the difference of the two on
either side, or three standard errors of the draw if these are more, and the rounding of the sums
besides. The standard error is that of a mean of eight groups of frequencies. The interval is an
estimate, not a bound. Where the score of D is nearly twice that of D/2, it is about the rank of the
features, whatever the kernel's is; then the upper end is n.

The frequencies of the Laplacian kernel have heavy tails. Under a bandwidth of thousands of times
the distances, the few largest of them make the score, and the draw may lack them. It shows in
groups whose scores have little in common (:data:`UNLIKE`), or in a score near 1. Then the interval
begins at 1, and its upper end allows for frequencies of which the draw has none in 5 % of cases: a
share :math:`m = 3 / D`. The spectrum is at most :math:`1 - m` of the one that was seen and
:math:`m` of n equal eigenvalues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Int64Array
from latentscale.estimate import Estimate
from latentscale.vendi.scores import Spectrum, moment_spectrum, vendi_score
from latentscale.vendi.second_moments import SecondMoment

FREQUENCIES = 1024
"""Default number of frequencies, for a second moment of 2048 × 2048."""

REACH = 3.0
"""Half the interval's length, in differences between D and D/2 (on a logarithmic scale)."""

GROUPS = 8
"""Groups of frequencies whose scores tell the error of the draw; even."""

FULL = 0.5
"""Difference between D and D/2, in logarithms of 2, from which the features are too few."""

UNLIKE = 0.5
"""Standard deviation of the groups' logarithmic scores, as a share of their mean."""

NEAR_ONE = 1e-6
"""Distance from order 1 within which its formula is taken."""

UNSEEN = 3.0
"""Expected number of draws of something that is drawn with a probability of 95 %."""


@dataclass(frozen=True)
class FeatureSpectra:
    """Spectra of the features of all frequencies, of two halves, and of eight groups of them."""

    frequencies: int
    whole: Spectrum
    halves: tuple[Spectrum, ...]
    groups: tuple[Spectrum, ...]

    @classmethod
    def of(cls, moment: SecondMoment, n: int) -> FeatureSpectra:
        """Return the spectra of the second moment of the features of ``n`` rows."""

        def of_frequencies(count: int) -> tuple[Spectrum, ...]:
            return tuple(
                moment_spectrum(_part(moment, half, group), n)
                for half in np.split(np.arange(moment.dimension), 2)
                for group in np.array_split(np.arange(moment.dimension // 4), count // 2)
            )

        drawn = moment.dimension // 2
        return cls(drawn, moment_spectrum(moment, n), of_frequencies(2), of_frequencies(GROUPS))


def _part(moment: SecondMoment, half: Int64Array, group: Int64Array) -> SecondMoment:
    """Return the second moment of the cosines and sines of some frequencies of a half."""
    cosines, sines = np.split(half, 2)
    features = np.concatenate([cosines[group], sines[group]])
    matrix = moment.matrix[np.ix_(features, features)]
    # All leave out the same eigenvalues as rounding.
    return SecondMoment(float(np.trace(matrix)), matrix, moment.rounding)


def fourier_score(spectra: FeatureSpectra, n: int, order: float) -> Estimate:
    """Extrapolate a Vendi score from the spectra of the features.

    Parameters
    ----------
    spectra : FeatureSpectra
        Those of the features of all rows.
    n : int
        Number of rows.
    order : float
        q in [0, inf].

    Returns
    -------
    Estimate
        ``bounds`` "estimate", method "fourier".
    """
    whole = vendi_score(spectra.whole, order)
    halves, groups = (
        np.log([vendi_score(part, order).value for part in parts])
        for parts in (spectra.halves, spectra.groups)
    )
    step = math.log(whole.value) - float(halves.mean())
    standard_error = float(groups.std(ddof=1)) / math.sqrt(len(groups))
    spread = REACH * max(abs(step), standard_error)
    value = min(max(math.log(whole.value) + step, 0.0), math.log(n))
    middle = math.exp(value)
    reach = math.exp(spread)
    lower = max(1.0, middle / reach * (whole.lower / whole.value))
    upper = min(float(n), middle * reach * (whole.upper / whole.value))
    if step > FULL * math.log(2.0):
        upper = float(n)
    share = UNSEEN / spectra.frequencies
    if value < 2.0 * share or groups.std(ddof=1) > UNLIKE * groups.mean():
        lower, upper = 1.0, _with_unseen(max(upper, middle), order, share, n)
    return Estimate(middle, min(lower, middle), max(upper, middle), "estimate", "fourier")


def _with_unseen(score: float, order: float, share: float, n: int) -> float:
    """Return the largest score if a share of the spectrum may be n equal eigenvalues."""
    rest = 1.0 - share
    if order == math.inf:
        found = score / rest
    elif abs(order - 1.0) < NEAR_ONE:
        mixed = -rest * math.log(rest) - share * math.log(share)
        found = math.exp(rest * math.log(score) + share * math.log(n) + mixed)
    else:
        seen = order * math.log(rest) + (1.0 - order) * math.log(score)
        unseen = order * math.log(share) + (1.0 - order) * math.log(n)
        power = float(np.logaddexp(seen, unseen))
        found = math.exp(min(power / (1.0 - order), math.log(n)))
    return min(found, float(n))
