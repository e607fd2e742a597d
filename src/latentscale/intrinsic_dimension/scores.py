"""Intrinsic dimensions with their brackets and sampling errors.

*Sampling errors.* A score is computed 40 times from random halves of the corpus, of the rows and of
their neighbours; the standard deviation of these estimates that over fresh corpora of all rows (the
delete-d jackknife, Shao & Wu, Annals of Statistics 1989, theorem 1; scores of neighbours aren't
smooth, so leaving out few rows doesn't do). Of the neighbours in a list those in the half are what
a search in it finds, so nothing is searched again.

*Brackets.* If only random rows were looked up, the same halves, of the rows alone, say how far
others would move the score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import BoolArray, Float64Array
from latentscale.estimate import CONFIDENT, Bounds, Estimate
from latentscale.intrinsic_dimension.estimators import (
    NeighbourDistances,
    maximum_likelihood,
    mean_log_ratios,
    two_nearest,
)
from latentscale.sampling.halves import divide

EPSILON = float(np.finfo(np.float64).eps)

KNOWN = 0.95
"""Least share of the rows that have enough neighbours in halves, too; the others are left out by
where they lie, not at random.
"""

SHIFT = 0.5
"""Relative distance between the score and that of halves from which these say nothing of its error.

Where kinds of rows have few more members than neighbours are counted, halves have fewer, and count
rows of other kinds.
"""

TWO_NEAREST = 2
"""The number of neighbours of which TwoNN takes the ratio."""


@dataclass(frozen=True)
class Dimension:
    """An intrinsic dimension.

    Attributes
    ----------
    estimate : Estimate or None
        The score with its bracket; None if no row has enough neighbours.
    sampling_error : float or None
        Standard error over fresh corpora of as many rows, None if it isn't known.
    rows : int
        Rows with enough neighbours at different distances.
    """

    estimate: Estimate | None
    sampling_error: float | None
    rows: int


@dataclass(frozen=True)
class Dimensions:
    """TwoNN, and the maximum likelihood at each number of neighbours."""

    two_nearest: Dimension
    maximum_likelihood: tuple[Dimension, ...]


def score_dimensions(
    lists: NeighbourDistances, n: int, d: int, neighbours: Sequence[int], seed: int | None
) -> Dimensions:
    """Compute intrinsic dimensions.

    Parameters
    ----------
    lists : NeighbourDistances
        Of all rows, or of random ones. For sampling errors, lists have to be 2.5 times as long as
        the largest number of neighbours: many rows have fewer than half of theirs in a random half
        of the corpus, and where these are more than one in twenty, there is no error.
    n, d : int
        Rows and coordinates of the corpus.
    neighbours : sequence of int
        Numbers of neighbours for the maximum likelihood, each at least 2.
    seed : int or None
        Determines the halves; None for no sampling errors. It is needed for random rows.

    Notes
    -----
    Costs about 400 operations for every entry of the lists with sampling errors, else 10.
    """
    numbers = (TWO_NEAREST, *neighbours)
    ratios = mean_log_ratios(lists, numbers)
    counts = np.isfinite(ratios).sum(axis=1).tolist()
    found = _score(ratios)
    halves, of_rows, known = (np.empty((0, len(found))) for _ in range(3))
    if seed is not None:
        parts = []
        for rows, near in divide(lists.rows, lists.indices, seed):
            of_half, of_all = mean_log_ratios(lists.half(rows, near), numbers), ratios[:, rows]
            parts.append((_score(of_half), _score(of_all), _share_known(of_half, of_all)))
        halves, of_rows, known = (np.array(each) for each in zip(*parts, strict=True))
    share = 1.0 - len(lists.rows) / n
    unknown: BoolArray = np.any(np.isnan(ratios) & lists.ends, axis=1)
    dimensions = []
    for place, value in enumerate(found):
        estimate = error = None
        if math.isfinite(value):
            reach = _rounding(lists, d) * value**2
            if share > 0.0:
                deviation = _deviation(of_rows[:, place])
                if not math.isfinite(deviation):
                    dimensions.append(Dimension(None, None, counts[place]))
                    continue
                reach += CONFIDENT * math.sqrt(share) * deviation
            bounds: Bounds = "interval95" if share > 0.0 else "exact"
            if unknown[place]:  # rows with many copies around them may have other dimensions
                bounds = "estimate"
            estimate = Estimate(
                value, max(0.0, value - reach), value + reach, bounds, "nearest neighbours"
            )
            # What random rows add is in the bracket.
            deviation = _deviation(halves[:, place]) * math.sqrt(1.0 - share)
            error = deviation if math.isfinite(deviation) else None
            if error is not None and (
                abs(np.median(halves[:, place]) / value - 1.0) > SHIFT
                or np.median(known[:, place]) < KNOWN
            ):
                error = None
        dimensions.append(Dimension(estimate, error, counts[place]))
    return Dimensions(dimensions[0], tuple(dimensions[1:]))


def _score(ratios: Float64Array) -> Float64Array:
    """Return TwoNN from the first and the maximum likelihood from the others; NaN for none."""
    first, *others = ratios
    return np.array([two_nearest(first), *map(maximum_likelihood, others)])


def _share_known(of_half: Float64Array, of_all: Float64Array) -> Float64Array:
    """Return the share of rows with enough neighbours in a half, of those with enough in all."""
    found, among = (np.isfinite(ratios).sum(axis=1) for ratios in (of_half, of_all))
    return np.asarray(found / np.maximum(among, 1))


def _deviation(values: Float64Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def _rounding(lists: NeighbourDistances, d: int) -> float:
    """Bound the rounding of a mean of logarithms of ratios.

    Distances have small relative errors, those under the cosine metric small absolute ones: these
    matter where neighbours are very near.
    """
    relative = 4.0 * (d + 8.0) * EPSILON
    if not lists.cosine or not lists.known.any():
        return relative
    return relative * (1.0 + float(np.exp(-2.0 * lists.logarithms[lists.known]).mean()))
