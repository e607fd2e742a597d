"""What subsets of rows tell of their mean, and of how fresh samples would vary.

Some average over rows is found on subsets of s out of n rows. Their spread gives an interval of the
mean over subsets, and the sampling error of the whole: the variance of an average falls as one over
the rows, and subsets of s out of n rows, which share rows, vary by 1 - s/n less than fresh samples
of s rows do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

Float64Array = NDArray[np.float64]

LEVEL = 0.99
"""Of the intervals of means."""


@dataclass(frozen=True)
class Spread:
    """Mean over subsets with its interval, and how far one subset is from it.

    Attributes
    ----------
    mean, lower, upper, standard_deviation : ndarray of float64
        The interval is Student's, of level 0.99.
    """

    mean: Float64Array
    lower: Float64Array
    upper: Float64Array
    standard_deviation: Float64Array

    @classmethod
    def of(cls, values: Float64Array) -> Spread:
        """Describe values of subsets, which are along the first axis; two at least."""
        count = len(values)
        mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
        reach = student_t.ppf(0.5 + LEVEL / 2, count - 1) * deviation / math.sqrt(count)
        return cls(mean, mean - reach, mean + reach, deviation)


def sampling_error(values: Float64Array, rows: int, n: int) -> Float64Array:
    """Return the standard error of an average over fresh samples of n rows.

    Parameters
    ----------
    values : ndarray of float64, shape (B, ...)
        The averages of subsets of these n rows.
    rows, n : int
        Rows of a subset, and of the whole.

    Returns
    -------
    ndarray of float64, shape (...)
        So much larger for few subsets that 1.96 of it reach as far as Student's quantile.
    """
    few = student_t.ppf(0.975, len(values) - 1) / student_t.ppf(0.975, np.inf)
    deviation = values.std(axis=0, ddof=1)
    return np.asarray(few * deviation * math.sqrt(rows / (n - rows)))
