"""A number and its bracket.

Every measure returns its result as an :class:`Estimate`: the value, an interval that bounds the
measure *of this corpus*, and the kind of that interval. The interval covers the errors of the
computation (random probes, quadrature, rounding, an approximate graph). It says nothing about the
score of another sample from the same source; that is the sampling error, which is kept separately.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Bounds = Literal["exact", "certified", "interval95", "estimate"]
"""What an interval promises.

``exact``: a direct computation; the interval is its rounding (usually of zero width).
``certified``: a mathematical inequality holds on both sides. ``interval95``: a 95 % confidence
interval over the computation's own randomness. ``estimate``: a heuristic on at least one side.
"""


CONFIDENT = 1.96
"""Standard errors on either side of a 95 % interval."""


def student_quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's distribution; ``math.inf`` degrees of freedom: the normal."""
    import scipy  # reading results needs no numerical library

    return float(scipy.special.stdtrit(freedom, probability))


def divide_chance(deviation: float, shares: Sequence[float]) -> tuple[float, float]:
    """Divide what chance makes of random rows between the computation and the sampling error.

    Parameters
    ----------
    deviation : float
        Standard deviation of a score over fresh samples of so many rows.
    shares : sequence of float
        The share of its rows that was taken, of every corpus.

    Returns
    -------
    float
        How far the score of all rows may be, on either side of a 95 % interval.
    float
        Standard error over fresh corpora. Where shares differ, both numbers are upper bounds.
    """
    reach = CONFIDENT * math.sqrt(1.0 - min(shares)) * deviation
    return reach, math.sqrt(max(shares)) * deviation


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its bracket.

    Parameters
    ----------
    value : float
        The number to quote.
    lower, upper : float
        Bounds of the measure of this corpus, ``lower <= value <= upper``.
    bounds : {"exact", "certified", "interval95", "estimate"}
        What the two bounds promise.
    method : str
        The algorithm that gave the value.
    standard_error : float
        Standard error over the computation's own randomness; 0 for deterministic methods.

    Raises
    ------
    ValueError
        If a number isn't finite or the bracket doesn't contain the value.
    """

    value: float
    lower: float
    upper: float
    bounds: Bounds
    method: str
    standard_error: float = 0.0

    def __post_init__(self) -> None:
        numbers = (self.value, self.lower, self.upper, self.standard_error)
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError(f"an estimate needs finite numbers, got {self}")
        if not self.lower <= self.value <= self.upper:
            raise ValueError(f"an estimate's bracket must contain its value, got {self}")

    def __float__(self) -> float:
        """Return the value alone."""
        return float(self.value)

    @classmethod
    def exact(cls, value: float, method: str) -> Estimate:
        """Wrap a directly computed number: its bracket has zero width."""
        return cls(value, value, value, "exact", method)


@dataclass(frozen=True, slots=True)
class Scored:
    """A score with its standard error over fresh samples of the source.

    Parameters
    ----------
    estimate : Estimate
        The score with its bracket.
    sampling_error : float or None
        Standard error over fresh corpora of as many rows; None if it isn't known.
    """

    estimate: Estimate
    sampling_error: float | None = None

    @classmethod
    def of_rows(
        cls,
        value: float,
        rows: int,
        n: int,
        deviation: float | None,
        method: str,
        *,
        rounding: float = 0.0,
        limits: tuple[float, float] = (-math.inf, math.inf),
    ) -> Scored:
        """Return a score of all rows, or of random ones that stand for all.

        Of random rows, some of what chance makes is the computation's: it is in the bracket.

        Parameters
        ----------
        value : float
            The score of the rows.
        rows, n : int
            Their number, and that of all rows.
        deviation : float or None
            Standard deviation of the score over fresh samples of so many rows; needed if they are
            fewer than all.
        method : str
            The algorithm.
        rounding : float
            Bound of the rounding.
        limits : tuple of float
            Least and largest possible score.
        """
        if rows < n and deviation is None:
            raise ValueError("the score of random rows needs its standard deviation")
        chance, error = (0.0, None) if deviation is None else divide_chance(deviation, [rows / n])
        reach = rounding + chance
        least, most = limits
        ends = max(least, value - reach), min(most, value + reach)
        bounds: Bounds = "interval95" if rows < n else "exact"
        return cls(Estimate(value, *ends, bounds, method), error)
