"""Means over subsets of rows, and the sampling error of the whole.

An average over rows is computed on subsets of s out of n rows. The spread of the subsets gives an
interval of the mean over subsets, and the sampling error of the whole. The variance of an average
is proportional to one over the number of rows. Subsets of s out of n rows share rows, so their
variance is 1 - s/n times that of fresh samples of s rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import student_quantile

LEVEL = 0.99
"""Level of the intervals of means."""


@dataclass(frozen=True)
class Spread:
    """The mean over subsets with its interval, and the standard deviation of single subsets.

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
        """Return the spread of at least two subsets' values, which lie along the first axis."""
        count = len(values)
        mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
        reach = student_quantile(0.5 + LEVEL / 2, count - 1) * deviation / math.sqrt(count)
        return cls(mean, mean - reach, mean + reach, deviation)


def allowance_for_few(freedom: int) -> float:
    """Return by how much an error of few values grows, so that 1.96 times it is Student's reach."""
    return student_quantile(0.975, freedom) / student_quantile(0.975, math.inf)


def sampling_error(values: Float64Array, rows: int, n: int) -> Float64Array:
    """Return the standard error of an average over fresh samples of n rows.

    Parameters
    ----------
    values : ndarray of float64, shape (B, ...)
        The averages of subsets of these n rows.
    rows, n : int
        Rows of a subset and of the whole.

    Returns
    -------
    ndarray of float64, shape (...)
        The standard error, enlarged for few subsets so that 1.96 times it equals Student's
        interval.
    """
    few = allowance_for_few(len(values) - 1)
    deviation = values.std(axis=0, ddof=1)
    return np.asarray(few * deviation * math.sqrt(rows / (n - rows)))
