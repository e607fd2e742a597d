r"""Effective dimensions of a corpus, from the eigenvalues of its covariance.

Let :math:`p_i = \lambda_i / \sum_j \lambda_j` be the shares of the variance that the principal
components hold. The *effective rank* is :math:`e^H` with their entropy :math:`H = -\sum_i p_i \ln
p_i` (Roy & Vetterli, The effective rank, EUSIPCO 2007, definition 1, of the covariance). The
*participation ratio* is :math:`1 / \sum_i p_i^2` (Gao et al., A theory of multineuronal
dimensionality, dynamics and measurement, 2017). *IsoScore* (Rudman et al., Findings of ACL 2022,
algorithm 1) is a function of it: with the authors' steps put into each other, :math:`(PR - 1) / (d
- 1)`. *RankMe* (Garrido et al., ICML 2023, eq. 1) is the effective rank of the rows themselves: of
their singular values, without the mean taken off. There :math:`\epsilon` keeps logarithms finite;
here terms of zero are zero.

*Correction.* Few rows spread the eigenvalues, so both ranks are too small, by a part that falls
with :math:`1/n`: for normal rows :math:`1 / PR` is too large by about :math:`1 / n`, and for white
noise :math:`H` is too small by :math:`d / 2n`. The jackknife takes such parts off: with G random
groups of rows, of :math:`\theta = H` or :math:`1 / PR`,

.. math:: \theta' = G\, \theta - \frac{G - 1}{G} \sum_g \theta_{(g)}

where :math:`\theta_{(g)}` leaves out a group (Shao & Tu, The Jackknife and Bootstrap, 1995, section
1.2). The same values give the sampling errors (:mod:`latentscale.sampling.jackknife`).

What is taken off depends on how chance divides the rows. Leaving out a group changes the shares of
all rows by :math:`\delta_- = -1 / (G - 1)` of what the group differs in, and counting it twice by
:math:`\delta_+ = 1 / (G + 1)`. From both follows the part of second order of a group, the only one
that a correction consists of,

.. math:: Q_g = \frac{1}{\delta_- - \delta_+} \left( \frac{\theta_{(g)} - \theta}{\delta_-}
          - \frac{\theta_{[g]} - \theta}{\delta_+} \right)

with :math:`\theta_{[g]}` of all rows and the group again. The correction is the sum of :math:`Q_g
/ G (G - 1)`, and varies as such a sum of independent values does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.special
from scipy.linalg import eigvalsh

from latentscale.array_types import Float64Array
from latentscale.estimate import Estimate
from latentscale.linalg.moments import Moments, longest_sum
from latentscale.sampling.jackknife import jackknife_error

EPSILON = float(np.finfo(np.float64).eps)

OTHER_GROUPS = 3.0
"""Largest change of a correction by another choice of groups, in standard deviations."""


@dataclass(frozen=True)
class Shares:
    """Shares of a total that the components of a corpus hold.

    Attributes
    ----------
    values : ndarray of float64, shape (k,)
        Descending, not negative, summing to 1.
    distance : float
        Bound of the sum of the absolute errors.
    """

    values: Float64Array
    distance: float


@dataclass(frozen=True)
class Corrected:
    """A score without what few rows do to it, and its sampling error."""

    estimate: Estimate
    sampling_error: float


def variance_shares(moments: Moments) -> Shares:
    """Return the shares of the variance that the principal components hold, at most n - 1.

    Raises
    ------
    ValueError
        With fewer than two rows, or if all rows are equal.
    """
    if moments.count < 2:
        raise ValueError("there is only one row: nothing varies")
    total = float(np.trace(moments.scatter))
    if not total > 0.0:
        raise ValueError("all rows are equal: nothing varies")
    rank = min(moments.dimension, moments.count - 1)
    values = np.clip(eigvalsh(moments.scatter)[::-1][:rank], 0.0, None)
    share = _rounding(moments)
    # The mean is rounded too, which matters for rows far from the origin.
    far = share * math.sqrt(1.0 + float(moments.mean @ moments.mean) * moments.count / total)
    error = share + 2.0 * far + far**2
    return Shares(values / values.sum(), min(2.0, 2.0 * math.sqrt(rank) * error))


def singular_shares(moments: Moments) -> Shares:
    """Return the shares of the singular values of the rows in their sum, at most n.

    Raises
    ------
    ValueError
        If all rows are zero.
    """
    second = moments.scatter / moments.count + np.outer(moments.mean, moments.mean)
    total = float(np.trace(second))
    if not total > 0.0:
        raise ValueError("all rows are zero")
    rank = min(moments.dimension, moments.count)
    squares = np.clip(eigvalsh(second)[::-1][:rank], 0.0, None)
    values = np.sqrt(squares)
    error = 4.0 * _rounding(moments) * total
    # The root of an eigenvalue near zero is much less exact than the eigenvalue.
    reach = np.minimum(math.sqrt(error), error / np.maximum(values, math.sqrt(error)))
    return Shares(values / values.sum(), min(2.0, 2.0 * float(reach.sum() / values.sum())))


def _rounding(moments: Moments) -> float:
    """Bound the error of the eigenvalues, in units of their sum."""
    return (moments.dimension + longest_sum(moments.count)) * EPSILON


def effective_rank(shares: Shares) -> Estimate:
    """Return the exponential of the entropy of shares.

    The bracket is Audenaert's bound of the change of an entropy (J. Phys. A 40, 2007, theorem 1).
    """
    k, half = len(shares.values), shares.distance / 2.0
    entropy = float(scipy.special.entr(shares.values).sum())
    if half >= 1.0 - 1.0 / k:
        return _bracketed(min(float(k), math.exp(entropy)), 1.0, float(k), 1.0, float(k))
    reach = half * math.log(max(1, k - 1)) + float(scipy.special.entr([half, 1.0 - half]).sum())
    ends = math.exp(entropy - reach), math.exp(entropy + reach)
    return _bracketed(min(float(k), math.exp(entropy)), ends[0], ends[1], 1.0, float(k))


def participation_ratio(shares: Shares) -> Estimate:
    """Return one over the sum of the squared shares."""
    norm, k = float(np.linalg.norm(shares.values)), len(shares.values)
    reach = shares.distance + 4.0 * EPSILON
    lower = 1.0 / (norm + reach) ** 2
    upper = float(k) if norm <= reach else min(float(k), 1.0 / (norm - reach) ** 2)
    return _bracketed(min(float(k), norm**-2), lower, upper, 1.0, float(k))


def iso_score(ratio: Estimate, dimension: int) -> Estimate:
    """Return IsoScore, from the participation ratio: 1 if all directions vary alike.

    Raises
    ------
    ValueError
        With one dimension.
    """
    if dimension < 2:
        raise ValueError("there is only one dimension: nothing to compare")
    value, lower, upper = (
        min(1.0, max(0.0, (each - 1.0) / (dimension - 1.0)))
        for each in (ratio.value, ratio.lower, ratio.upper)
    )
    return Estimate(value, lower, upper, "exact", "moments")


def first_share(shares: Shares) -> Estimate:
    """Return the share of the variance that the first principal component holds."""
    value = float(shares.values[0])
    reach = shares.distance
    return _bracketed(value, value - reach, value + reach, 0.0, 1.0)


def corrected_rank(
    value: float, left_out: Float64Array, twice: Float64Array, most: float
) -> Corrected:
    """Return the effective rank without the part that falls with the number of rows.

    Parameters
    ----------
    value : float
        The effective rank of all rows.
    left_out : ndarray of float64, shape (G,)
        The same without each group.
    twice : ndarray of float64, shape (G,)
        The same with each group counted twice.
    most : float
        The number of dimensions.

    Returns
    -------
    Corrected
        Its bracket holds what another choice of groups would give.
    """
    return _corrected(value, left_out, twice, most, np.log, np.exp, 1)


def corrected_participation_ratio(
    value: float, left_out: Float64Array, twice: Float64Array, most: float
) -> Corrected:
    """Return the participation ratio without the part that falls with the number of rows.

    Parameters are those of :func:`corrected_rank`.
    """

    def inverse(values: Float64Array) -> Float64Array:
        return np.asarray(1.0 / np.maximum(values, 1.0 / most))

    return _corrected(value, left_out, twice, most, inverse, inverse, 2)


def _corrected(
    value: float,
    left_out: Float64Array,
    twice: Float64Array,
    most: float,
    scale: Callable[[Float64Array], Float64Array],
    back: Callable[[Float64Array], Float64Array],
    power: int,
) -> Corrected:
    """Correct a score on a scale, whose inverse has the slope score**power, but for the sign."""
    groups = len(left_out)
    whole, others, doubled = scale(np.array([value])), scale(left_out), scale(twice)
    extrapolated = groups * whole - (groups - 1) * others.mean()
    found = float(np.clip(back(extrapolated), 1.0, most)[0])
    less, more = -1.0 / (groups - 1), 1.0 / (groups + 1)
    second = ((others - whole) / less - (doubled - whole) / more) / (less - more)
    reach = OTHER_GROUPS * float(second.std(ddof=1)) / math.sqrt(groups) / (groups - 1)
    low, high = np.sort(back(extrapolated + np.array([-reach, reach])))
    ends = min(found, max(1.0, float(low))), max(found, min(most, float(high)))
    estimate = Estimate(found, *ends, "estimate", "jackknife")
    # The slope is that at what is given, which may be far from the score as it is.
    return Corrected(estimate, found**power * float(jackknife_error(others)))


def _bracketed(value: float, lower: float, upper: float, least: float, most: float) -> Estimate:
    """Return an estimate with its rounding, of a score between two limits."""
    slack = 8.0 * EPSILON * value
    ends = min(value, max(least, lower - slack)), max(value, min(most, upper + slack))
    return Estimate(value, *ends, "exact", "moments")
