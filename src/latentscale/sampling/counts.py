r"""Where a count of rows is expected if two corpora have one source, by Fisher's exact test.

If x of n rows and y of m rows are of a kind, and both corpora are samples of one source, then x
alone is random given x + y: it has the hypergeometric distribution of x + y draws from n + m rows
of which n are the corpus (Fisher, The logic of inductive inference, 1935). Its tails are exact
however far out, where those of a normal distribution are too small for few rows beside many. The
probability of both sides is twice that of the smaller one, which holds its level for every share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from latentscale.estimate import student_quantile
from latentscale.sampling.fresh_samples import POWER
from latentscale.sampling.shares import expect_share

LEVEL = 0.05
"""Probability of a count outside of its range."""

TERMS = 4096
"""Terms of a tail that are summed at a time."""

NEGLIGIBLE = 1e-17
"""Part of a tail that isn't summed."""


@dataclass(frozen=True)
class ExpectedCount:
    """A count of rows, and where it is expected; shares of all rows stand for both.

    Among several counts, as those of labels, the range holds all of them together, by Bonferroni's
    inequality: one of them lies outside of its own with a probability of at most 5 %.

    Attributes
    ----------
    count, rows : int
        How many rows of the corpus are of the kind, and how many it has.
    usual_count, usual_rows : int
        The same of the reference.
    chosen_from : int
        Number of counts that this one was chosen from.
    """

    count: int
    rows: int
    usual_count: int
    usual_rows: int
    chosen_from: int = 1

    @property
    def found(self) -> float:
        """The share, in [0, 1]."""
        return self.count / self.rows

    @property
    def centre(self) -> float:
        """The share that is usual."""
        return self.usual_count / self.usual_rows

    @cached_property
    def p_alone(self) -> float:
        """The probability of a count at least as far out, on both sides, of this one alone."""
        return min(1.0, 2.0 * min(self._below, self._above))

    @property
    def p(self) -> float:
        """The probability that one of the counts is at least as far out."""
        return min(1.0, self.chosen_from * self.p_alone)

    @property
    def z(self) -> float:
        """The standard normal deviation with the p of this one alone, positive for an excess."""
        if self.p_alone == 1.0:
            return 0.0
        sign = 1.0 if self._above < self._below else -1.0
        return sign * float(-scipy.special.ndtri(max(self.p_alone, 1e-300) / 2.0))

    @property
    def lower(self) -> float:
        """Lower end of the range that holds every share with a probability of 95 %."""
        return self.least(LEVEL)

    @property
    def upper(self) -> float:
        """Upper end of this range."""
        return self.most(LEVEL)

    def smallest_found(self, level: float) -> float:
        """Return the excess that is found four times in five at a level of p.

        Of a share that can't grow by as much it is the fall, and 1 if not even that is found.
        """
        reach, row = student_quantile(POWER, math.inf), 1.0 / self.rows
        most, least = self.most(level) + row, self.least(level) - row
        if most < 1.0:
            above = expect_share(self.found, self.rows, most, self.usual_rows).at(reach)
            if above < 1.0:
                return above - self.centre
        if least < 0.0:
            return 1.0
        below = expect_share(self.found, self.rows, least, self.usual_rows).at(-reach)
        return self.centre - below if below > 0.0 else 1.0

    def least(self, level: float) -> float:
        """Return the smallest share that has p above a level."""
        tail = level / (2.0 * self.chosen_from)
        return (
            _first_where(lambda count: self._with(count)._below > tail, 0, self._middle) / self.rows
        )

    def most(self, level: float) -> float:
        """Return the largest share that has p above a level."""
        tail, end = level / (2.0 * self.chosen_from), self.rows + 1
        beyond = _first_where(lambda count: self._with(count)._above <= tail, self._middle, end)
        return (beyond - 1) / self.rows

    @property
    def _middle(self) -> int:
        """A count inside the range, between those that are too small and those too large."""
        return round(self.centre * self.rows)

    def _with(self, count: int) -> ExpectedCount:
        return replace(self, count=count)

    @cached_property
    def _below(self) -> float:
        return _at_most(self.count, self.rows, self.count + self.usual_count, self.usual_rows)

    @cached_property
    def _above(self) -> float:
        total = self.count + self.usual_count
        return _at_most(self.usual_count, self.usual_rows, total, self.rows)


def _first_where(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least number in [low, high] from which on something holds; ``high`` if none."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _at_most(count: int, rows: int, total: int, others: int) -> float:
    """Return the probability that at most ``count`` of ``total`` draws are of ``rows`` rows.

    They are drawn without replacement from these rows and ``others``.
    """
    if count > total * rows / (rows + others):
        return 1.0 - _tail(total - count - 1, others, total, rows)
    return _tail(count, rows, total, others)


def _tail(count: int, rows: int, total: int, others: int) -> float:
    """Sum the probabilities from ``count`` downwards, where they fall."""
    least = max(0, total - others)
    if count < least:
        return 0.0
    log_first = _log_ways(rows, count) + _log_ways(others, total - count)
    log_first -= _log_ways(rows + others, total)
    term, found = 1.0, 0.0
    while term > NEGLIGIBLE * found:
        found += term
        at = np.arange(count, max(least, count - TERMS), -1, dtype=np.float64)
        if not len(at):
            break
        ratios = at * (others - total + at) / ((rows - at + 1.0) * (total - at + 1.0))
        terms = term * np.cumprod(ratios)
        found += float(terms[:-1].sum())
        term, count = float(terms[-1]), count - len(at)
    return math.exp(min(log_first + math.log(found), 0.0))


def _log_ways(n: int, k: int) -> float:
    """Return the logarithm of the number of ways to choose k of n."""
    log_gamma = scipy.special.gammaln
    return float(log_gamma(n + 1.0) - log_gamma(k + 1.0) - log_gamma(n - k + 1.0))
