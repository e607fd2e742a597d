r"""Where a share of rows is expected if two corpora have one source.

A share of n rows is close to normal, with a variance that hardly depends on it, after the
transformation :math:`\arcsin \sqrt{(x + 3/8) / (n + 3/4)}` of the count x: the variance is
:math:`1 / (4 n + 2)` (Anscombe, The transformation of Poisson, binomial and negative-binomial data,
1948). The difference of two such shares is compared with its standard error.

How many of n fresh values exceed the (k + 1)-th largest of m others doesn't depend on their
distribution: the number has the beta-binomial distribution with parameters k + 1 and m - k, whose
mean is n (k + 1) / (m + 1) (Wilks 1942). With k = 0 that is wide: the largest of m values is easily
exceeded.

Rows don't always count by themselves. Two rows that are near each other make two of them, so a
count of such rows moves in steps of two: with independent rows, its variance is up to twice that of
single rows. Counts and numbers of rows are divided by the rows of an event, which makes ranges wide
enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from latentscale.array_types import Float64Array, Int64Array
from latentscale.estimate import student_quantile
from latentscale.sampling.fresh_samples import POWER, found_reach

ROUNDING = 1e-6
"""Part of an event that is rounding."""

QUANTILES = 64
"""Quantiles that stand for a distribution in a mean over it."""


@dataclass(frozen=True)
class ExpectedShare:
    """What a share of rows is, and where it is expected.

    Attributes
    ----------
    found : float
        The share, in [0, 1].
    centre : float
        The share that is usual.
    events, usual_events : float
        Numbers of independent events that both were counted among.
    """

    found: float
    centre: float
    events: float
    usual_events: float

    @property
    def z(self) -> float:
        """The difference, in standard errors."""
        away = math.copysign(1.0, self.found - self.centre)
        if self.found == self.centre:
            # The transformation moves equal shares apart where numbers of events differ.
            return 0.0
        difference = _transform(self.found, self.events)
        difference -= _transform(self.centre, self.usual_events)
        return away * max(away * difference, 0.0) / self._error

    @property
    def p(self) -> float:
        """The probability of a difference at least as large."""
        return math.erfc(abs(self.z) / math.sqrt(2.0))

    @property
    def lower(self) -> float:
        """Lower end of the range that holds the share with a probability of 95 %."""
        return self.at(-student_quantile(0.975, math.inf))

    @property
    def upper(self) -> float:
        """Upper end of this range."""
        return self.at(student_quantile(0.975, math.inf))

    def smallest_found(self, level: float) -> float:
        """Return the excess that is found four times in five at a level of p.

        Of a share that can't grow by as much it is the fall, and 1 if not even that is found.
        """
        reach = found_reach(level, math.inf)
        above, below = self.at(reach), self.at(-reach)
        if above < 1.0:
            return above - self.centre
        return self.centre - below if below > 0.0 else 1.0

    def at(self, z: float) -> float:
        """Return the share that is z standard errors above what is usual."""
        usual = _transform(self.centre, self.usual_events)
        angle = min(max(usual + z * self._error, 0.0), math.pi / 2)
        count = math.sin(angle) ** 2 * (self.events + 0.75) - 0.375
        return min(max(count / self.events, 0.0), 1.0)

    @property
    def _error(self) -> float:
        return math.sqrt(1.0 / (4 * self.events + 2) + 1.0 / (4 * self.usual_events + 2))


def expect_share(
    found: float,
    rows: int,
    usual: float,
    usual_rows: int,
    *,
    rows_of_event: float = 1.0,
) -> ExpectedShare:
    """Compare a share of the rows of a corpus with the share that is usual.

    Parameters
    ----------
    found, rows
        The share, and the number of rows that it was found among.
    usual, usual_rows
        The same of rows of the reference.
    rows_of_event : float
        Largest number of rows that come and go together, at least 1.

    Raises
    ------
    ValueError
        On a share outside [0, 1], or without rows.
    """
    if not (0.0 <= found <= 1.0 and 0.0 <= usual <= 1.0):
        raise ValueError(f"shares must be in [0, 1], got {found} and {usual}")
    if min(rows, usual_rows) < 1 or rows_of_event < 1:
        raise ValueError("shares need rows, and an event at least one")
    events, usual_events = rows / rows_of_event, usual_rows / rows_of_event
    return ExpectedShare(found, usual, events, usual_events)


def p_of_excess(found: Int64Array, rows: Int64Array) -> Float64Array:
    """Return how likely each of several groups has at least as many of the rows that were found.

    The rows found are random among all rows, each independent of the others: the number in a group
    is binomial. Without replacement it would vary less, so p isn't too small.

    Parameters
    ----------
    found, rows : ndarray of int64, shape (groups,)
        Of every group, how many of its rows were found, and how many it has. Some group has rows.

    Returns
    -------
    ndarray of float64, shape (groups,)
        Every p is of one group alone.
    """
    share = rows / rows.sum()
    p = np.asarray(scipy.special.bdtrc(found - 1.0, found.sum(), share), dtype=np.float64)
    return np.where(found > 0, p, 1.0)


@dataclass(frozen=True)
class ExpectedExceedances:
    """How many values exceed an order statistic of others, and how many are expected to.

    Attributes
    ----------
    found : float
        The share of ``rows`` that exceeds it, in [0, 1].
    rows : int
        Number of values.
    beyond, among : int
        The statistic is exceeded by ``beyond`` of ``among`` other values.
    rows_of_event : float
        Number of values that come and go together.
    """

    found: float
    rows: int
    beyond: int
    among: int
    rows_of_event: float = 1.0

    @property
    def centre(self) -> float:
        """The mean share, or the end of the range where that lies beyond it."""
        mean = (self._beyond + 1.0) / (self.among / self.rows_of_event + 1.0)
        return min(max(mean, self.lower), self.upper)

    @property
    def p(self) -> float:
        """The probability of a number at least as far from the middle, on both sides."""
        events = self.found * self.rows / self.rows_of_event
        above = self._reaching(math.ceil(events - ROUNDING))
        below = 1.0 - self._reaching(math.floor(events + ROUNDING) + 1)
        return min(1.0, 2.0 * min(above, below))

    @property
    def z(self) -> float:
        """The standard normal deviation with this p, positive if more than expected exceed it."""
        sign = 1.0 if self.found > self.centre else -1.0
        return sign * float(-scipy.special.ndtri(max(self.p, 1e-300) / 2.0))

    @property
    def lower(self) -> float:
        """The smallest share that has p above 5 %."""
        return self._share(self._least(0.025))

    @property
    def upper(self) -> float:
        """The largest share that has p above 5 %."""
        return self._share(self._most(0.025))

    def smallest_found(self, level: float) -> float:
        """Return the excess that is found four times in five at a level of p.

        It is a share of the values, each at random, that exceed the statistic besides those that
        usually do.
        """
        least, n = self._most(level / 2.0) + 1, self._events
        k, m = self._beyond, self._among
        # The share of the source that exceeds the statistic has a beta distribution.
        quantiles = (np.arange(QUANTILES) + 0.5) / QUANTILES
        usual = scipy.special.betaincinv(k + 1.0, max(m - k, 1.0), quantiles)

        def found(excess: float) -> float:
            shares = excess + (1.0 - excess) * usual
            return float(scipy.special.betainc(least, n - least + 1.0, shares).mean())

        if least > n or found(1.0) < POWER:
            return 1.0
        excess = scipy.optimize.brentq(lambda share: found(share) - POWER, 0.0, 1.0, xtol=1e-12)
        return self._share(n * float(excess))

    @property
    def _beyond(self) -> int:
        return math.ceil(self.beyond / self.rows_of_event)

    @property
    def _among(self) -> int:
        return max(self._beyond + 1, math.floor(self.among / self.rows_of_event))

    @property
    def _events(self) -> int:
        return max(1, math.floor(self.rows / self.rows_of_event))

    def _share(self, events: float) -> float:
        return min(1.0, events * self.rows_of_event / self.rows)

    @cached_property
    def _tail(self) -> Float64Array:
        """The probability of at least 0, 1, 2, … events; as many as may matter."""
        n, k, m = self._events, self._beyond, self._among
        count = min(n, math.ceil(20.0 * (k + 2) * (n + m) / m) + 100)
        x = np.arange(count + 1)
        mass = np.exp(
            scipy.special.gammaln(n + 1)
            - scipy.special.gammaln(x + 1)
            - scipy.special.gammaln(n - x + 1)
            + scipy.special.betaln(x + k + 1, n - x + m - k)
            - scipy.special.betaln(k + 1, m - k)
        )
        tail: Float64Array = np.concatenate([[1.0], 1.0 - np.cumsum(mass)]).clip(0.0, 1.0)
        return tail

    def _reaching(self, events: int) -> float:
        return float(self._tail[events]) if events < len(self._tail) else 0.0

    def _most(self, tail: float) -> int:
        """Return the largest number of events that is reached with more than a probability."""
        return int(np.flatnonzero(self._tail > tail)[-1])

    def _least(self, tail: float) -> int:
        """Return the smallest number that isn't exceeded with more than a probability."""
        return int(np.flatnonzero(1.0 - self._tail[1:] > tail)[0])


def share_interval(count: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a share that was found among random rows (Wilson 1927)."""
    z = student_quantile(0.975, math.inf)
    share = count / rows
    centre = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    reach = z * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows**2)) / (1 + z * z / rows)
    return max(0.0, min(share, centre - reach)), min(1.0, max(share, centre + reach))


def exact_interval(count: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a share found among random rows, never too narrow.

    Its ends are shares that would give so many, or so few, with a probability of 2.5 % (Clopper &
    Pearson 1934).
    """
    beta = scipy.special.betaincinv
    lower = 0.0 if count == 0 else float(beta(count, rows - count + 1, 0.025))
    upper = 1.0 if count == rows else float(beta(count + 1, rows - count, 0.975))
    return lower, upper


def share_error(count: int, rows: int, rows_of_event: float = 1.0) -> float:
    """Return the standard error of a share over fresh rows; not 0 for none or all of them."""
    share = (count + 0.5) / (rows + 1)
    return math.sqrt(rows_of_event * share * (1 - share) / rows)


def _transform(share: float, events: float) -> float:
    return math.asin(math.sqrt((_within(share) * events + 0.375) / (events + 0.75)))


def _within(share: float) -> float:
    return min(max(share, 0.0), 1.0)
