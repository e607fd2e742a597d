r"""Where a score of a corpus is expected if its rows come from the source of a reference.

A score S is measured G times on m random rows of the corpus and m rows of the reference, and on
twice m other rows of the same reference in place of those of the corpus. The corpus is expected to
score like the latter: all samples have the same size, so scores that grow with the number of rows
compare, and the samples of the reference show what chance makes of S.

Two samples of m rows that share c rows have scores whose covariance is at most c/m times the
variance of one, whatever S is (Hoeffding, A class of statistics with asymptotically normal
distribution, 1948, section 5). So the variance of a mean over samples is bounded, and the ranges
are wide enough for scores that aren't smooth, such as counts of neighbours and distances between
distributions, and hardly too wide for smooth ones. The variance on one sample is estimated from
samples of one reference, which fails for its extremes: of ranges for a largest row, one in nine
missed it, and not one in twenty.

Two corpora are compared by the means over their own samples: the variance on one sample is then
that between samples of one of them, divided by what overlap may have taken from it.

An average over rows has a variance proportional to one over their number, so samples of few rows
also tell its sampling error on all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import student_quantile
from latentscale.sampling.subsets import allowance_for_few

EQUAL = 1e-12
"""Relative difference up to which two scores are equal."""

REPRODUCIBLE = 1e-6
"""Relative difference between the same score computed on two kinds of machine."""

POWER = 0.8
"""Share of tries in which the smallest difference is found."""


@dataclass(frozen=True)
class Expectation:
    """What a score is on samples of a corpus, and where it is expected.

    Attributes
    ----------
    found : float
        The mean score over the samples of the corpus.
    centre : float
        The mean score over the samples of the reference.
    lower, upper : float
        The range around ``centre`` that holds ``found`` with a probability of 95 % if the source is
        the same.
    standard_error : float
        Of the difference between ``found`` and ``centre``; 0 if no sample differs.
    freedom : int
        Degrees of freedom of Student's distribution.
    z, p : float
        The difference in standard errors, and the probability of one as large.
    """

    found: float
    centre: float
    lower: float
    upper: float
    standard_error: float
    freedom: int
    z: float
    p: float

    def smallest_found(self, level: float) -> float:
        """Return the difference that is found four times in five at a level of p."""
        return found_reach(level, self.freedom) * self.standard_error


def found_reach(level: float, freedom: float) -> float:
    """Return the difference that is found four times in five, in true standard errors.

    A difference is found if it exceeds Student's quantile in estimated standard errors. It is then
    one of a noncentral distribution, whose quantiles are approximated by the normal ones (Johnson &
    Welch, Applications of the non-central t-distribution, Biometrika 1940): for 3 or more degrees
    of freedom it is found in 80 to 81 of 100 tries.

    Parameters
    ----------
    level : float
        Of the two-sided p-value.
    freedom : float
        Degrees of freedom of the standard error; ``math.inf`` if it is known.
    """
    reach = student_quantile(1.0 - level / 2.0, freedom)
    beyond = student_quantile(POWER, math.inf)
    return reach * (1.0 - 0.25 / freedom) + beyond * math.sqrt(1.0 + 0.5 * reach**2 / freedom)


@dataclass(frozen=True)
class SampleMean:
    """The mean of a score over samples of a corpus, and how far it is from that of its source.

    Attributes
    ----------
    mean : float
        The mean score.
    variance : float
        Of the score on one sample.
    share : float
        The variance of the mean, in units of that of one sample.
    freedom : int
        Degrees of freedom of the variance.
    """

    mean: float
    variance: float
    share: float
    freedom: int


@dataclass(frozen=True)
class Cuts:
    """How samples were cut from rows.

    Attributes
    ----------
    rows, n : int
        Rows of a sample, and rows that samples are cut from.
    counts : sequence of int
        How many disjoint samples were cut from each random order of the n rows.
    """

    rows: int
    n: int
    counts: Sequence[int]

    @property
    def freedom(self) -> int:
        """Return the degrees of freedom of differences between samples, at least 1.

        The samples that use up all rows of an order add up to the same as those of any other.
        """
        spare = sum(count * self.rows < self.n for count in self.counts)
        free = sum(self.counts) - len(self.counts) + spare
        return max(1, min(free, sum(self.counts) - 1))

    def overlaps(self) -> Float64Array:
        """Return the share of rows that any two samples share on average, shape (G, G)."""
        orders = np.repeat(np.arange(len(self.counts)), self.counts)
        return np.where(orders[:, None] == orders, 0.0, self.rows / self.n)


def mean_of_samples(scores: Float64Array, cuts: Sequence[Cuts]) -> SampleMean | None:
    """Return the mean of a score over samples, and its variance.

    Parameters
    ----------
    scores : ndarray of float64, shape (G,)
        Scores of the samples, G >= 2.
    cuts : sequence of Cuts
        How the samples of each corpus that the score depends on were cut.

    Returns
    -------
    SampleMean or None
        None if all samples have the same rows, so that nothing says how far others would be.

    Notes
    -----
    Samples that share a part of their rows are alike, which lowers the variance between them by
    that part at most (Hoeffding 1948, section 5).
    """
    groups = len(scores)
    overlaps = np.max([one.overlaps() for one in cuts], axis=0)
    between = float(overlaps[~np.eye(groups, dtype=bool)].mean())
    if between >= 1.0 - EQUAL:
        return None
    mean = float(scores.mean())
    variance = float(scores.var(ddof=1)) / (1.0 - between)
    if math.sqrt(variance) <= EQUAL * abs(mean):
        variance = 0.0
    share = (1.0 + (groups - 1) * between) / groups
    return SampleMean(mean, variance, share, min(one.freedom for one in cuts))


def error_of_average(variance: float, freedom: int, rows: int, n: int) -> float:
    """Return the sampling error of an average over n rows.

    Parameters
    ----------
    variance : float
        Of the average over a sample of ``rows`` rows.
    freedom : int
        Its degrees of freedom. The error is enlarged for few, so that 1.96 times it equals
        Student's interval.
    rows, n : int
        Rows of a sample and of the whole.
    """
    return allowance_for_few(freedom) * math.sqrt(variance * rows / n)


def expect_like(found: SampleMean, usual: SampleMean) -> Expectation:
    """Say where the mean of a corpus is expected if its rows come from the source of another's.

    Parameters
    ----------
    found, usual : SampleMean
        The mean of the corpus, and that of the other one, over samples of equally many rows. The
        variance is that of the other one, as what is found may be a larger spread. Where samples of
        that one don't differ, it is that of the corpus or, if its samples don't differ either, the
        one that could as well have been missed.
    """
    away = found.mean - usual.mean
    if abs(away) <= REPRODUCIBLE * max(abs(found.mean), abs(usual.mean)):
        away = 0.0
    variance, freedom = usual.variance, usual.freedom
    if not variance:
        variance = max(found.variance, away * away * usual.share)
    error = math.sqrt(variance * (found.share + usual.share))
    z = away / error if error else 0.0
    reach = student_quantile(0.975, freedom) * error
    middle = usual.mean if away else found.mean
    return Expectation(
        found=found.mean,
        centre=middle,
        lower=middle - reach,
        upper=middle + reach,
        standard_error=error,
        freedom=freedom,
        z=z,
        p=_two_sided(z, freedom),
    )


def variance_of_mean(rows: int, n: int, cuts: Sequence[int]) -> float:
    """Return the largest variance of a mean over samples, in units of that of one sample.

    Parameters
    ----------
    rows, n : int
        Rows of a sample, and rows that samples are cut from.
    cuts : sequence of int
        How many disjoint samples were cut from each random order of the n rows. Samples of two
        orders share rows / n of their rows, on average.
    """
    samples = sum(cuts)
    alike = sum(count * count for count in cuts) / samples**2
    return 1.0 / samples + (1.0 - alike) * rows / n


def expect(
    corpus: Float64Array,
    reference: Float64Array,
    corpus_share: float,
    reference_share: float,
) -> Expectation:
    """Compare the scores of samples of a corpus with those of samples of the reference.

    Parameters
    ----------
    corpus : ndarray of float64, shape (G,)
        Scores of samples of the corpus, G >= 2.
    reference : ndarray of float64, shape (G, 2)
        Scores of two disjoint samples of the reference beside each of them.
    corpus_share, reference_share : float
        The variance of the mean of each, in units of that of one sample; see
        :func:`variance_of_mean`.

    Notes
    -----
    Samples that share the other rows of the reference differ by the variance of S alone, so half
    the mean square of the differences estimates it, with G degrees of freedom. Where no two samples
    of the reference differ but the corpus does, as many samples are taken to differ by the smallest
    such difference as could without being seen: one of those that don't share rows.
    """
    groups = len(corpus)
    found, middle = float(corpus.mean()), float(reference.mean())
    variance = variance_of_pairs(reference)
    apart = np.abs(corpus - middle)
    apart = apart[apart > EQUAL * max(abs(middle), abs(found))]
    if math.sqrt(variance) <= EQUAL * abs(middle):
        variance = float(apart.min() ** 2) * reference_share if len(apart) else 0.0
        middle = middle if len(apart) else found
    error = math.sqrt(variance * (corpus_share + reference_share))
    z = (found - middle) / error if error else 0.0
    reach = student_quantile(0.975, groups) * error
    return Expectation(
        found, middle, middle - reach, middle + reach, error, groups, z, _two_sided(z, groups)
    )


def variance_of_pairs(scores: Float64Array) -> float:
    """Return the variance of a score on one sample, from pairs of disjoint ones, shape (G, 2).

    It has G degrees of freedom.
    """
    return float(((scores[:, 0] - scores[:, 1]) ** 2).mean() / 2.0)


def _two_sided(z: float, freedom: int) -> float:
    """Return the probability of a Student variable at least as far from 0."""
    import scipy  # reading results needs no numerical library

    return float(2.0 * scipy.special.stdtr(freedom, -abs(z)))


def adjust(p: Float64Array) -> Float64Array:
    """Adjust p-values for their number, by Holm's method (1979).

    Parameters
    ----------
    p : ndarray of float64, shape (k,)
        From 0 to 1.

    Returns
    -------
    ndarray of float64, shape (k,)
        Below a level for any with a probability of at most that level, if all hypotheses are true.
    """
    order = np.argsort(p, kind="stable")
    factors = np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    return adjusted
