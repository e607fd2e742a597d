"""Epsilon: a percentile of sampled distances between two corpora."""

from __future__ import annotations

import math

import numpy as np

from latentscale.array_types import Float64Array, Int64Array
from latentscale.estimate import CONFIDENT, Estimate
from latentscale.geomca.scores import BLOCK_ROWS
from latentscale.sampling.jackknife import jackknife_error
from latentscale.tiles.distances import Points, distance_tile, row_blocks

SAMPLE_ROWS = 2000
"""Rows a side from which epsilon is estimated: four million distances."""


JACKKNIFE_GROUPS = 20
"""Groups of the jackknife, which are left out of the samples in turn."""


EPSILON_METHOD = "percentile of sampled distances"


def draw_samples(
    n: int, generator: np.random.Generator, sample_rows: int = SAMPLE_ROWS
) -> tuple[Int64Array, Int64Array]:
    """Draw two disjoint random samples of a reference.

    Parameters
    ----------
    n : int
        Rows of the reference, at least two.
    generator : numpy.random.Generator
        Draws the samples.
    sample_rows : int
        Rows of each sample. A reference of fewer than twice as many rows is divided in half.

    Returns
    -------
    tuple of two ndarrays of int64, shape (k,)
        Row numbers, unordered.

    Raises
    ------
    ValueError
        With fewer than two rows or no sample rows.
    """
    if n < 2:
        raise ValueError("epsilon needs a reference of at least 2 rows; give it as a number")
    if sample_rows < 1:
        raise ValueError(f"sample_rows must be at least 1, got {sample_rows}")
    k = min(n // 2, sample_rows)
    drawn = generator.choice(n, 2 * k, replace=False)
    return drawn[:k], drawn[k:]


def estimate_epsilon(left: Points, right: Points, percentile: float) -> Estimate:
    """Estimate a percentile of the distances between two disjoint random samples.

    Parameters
    ----------
    left, right : Points
        Two samples of the reference, of equal size (:func:`draw_samples`).
    percentile : float
        p of section 3.1, in [0, 100]; the paper takes 1 to 10.

    Returns
    -------
    Estimate
        Positive, in the units of the metric. The interval covers the variation over fresh samples:
        its ends are the percentiles as far away as the rank of a distance moves (Woodruff 1952),
        by a delete-one-group jackknife, so they lie on either side of a gap in the distances. A
        single pair of rows gives no interval; ``bounds`` is then "estimate".

    Raises
    ------
    ValueError
        On samples of different sizes, a percentile outside [0, 100], or when the percentile is 0.

    Notes
    -----
    Takes ``24 k**2`` bytes for ``k`` rows a sample, and one tile.
    """
    k = len(left)
    if len(right) != k:
        raise ValueError(f"the samples differ in size: {k} and {len(right)} rows")
    if not 0 <= percentile <= 100:
        raise ValueError(f"the percentile must be in [0, 100], got {percentile}")
    distances = np.empty((k, k))
    for rows in row_blocks(k, BLOCK_ROWS):
        for columns in row_blocks(k, BLOCK_ROWS):
            distances[rows, columns] = distance_tile(left.take(rows), right.take(columns))
    epsilon = float(np.percentile(distances, percentile))
    if epsilon == 0:
        raise ValueError(
            f"percentile {percentile} of the reference's distances is 0 (duplicate rows); "
            "raise the percentile or give epsilon as a number"
        )
    if k < 2:
        return Estimate(epsilon, epsilon, epsilon, "estimate", EPSILON_METHOD)
    share = percentile / 100.0
    # Where leaving out rows hardly moves the rank, as of equal classes, pairs alone do.
    by_pairs = 2.0 * math.sqrt(share * (1.0 - share)) / k
    reach = 100.0 * CONFIDENT * max(_rank_error(distances, epsilon), by_pairs)
    ends = np.clip([percentile - reach, percentile + reach], 0.0, 100.0)
    lower, upper = (float(end) for end in np.percentile(distances, ends))
    # Other samples have nearer and farther pairs than any here.
    if ends[0] == 0.0:
        lower = 0.0
    if ends[1] == 100.0:
        upper = max(upper, 2.0 * epsilon - lower)
    error = (upper - lower) / (2.0 * CONFIDENT)
    return Estimate(epsilon, lower, upper, "interval95", EPSILON_METHOD, error)


def _rank_error(distances: Float64Array, epsilon: float) -> float:
    """Return the standard error of a distance's rank, by leaving out pairs of rows in groups."""
    # The i-th rows of both samples form a pair. These pairs are independent of one another.
    k = len(distances)
    groups = np.array_split(np.arange(k), min(k, JACKKNIFE_GROUPS))
    errors = []
    for within in (distances < epsilon, distances <= epsilon):
        by_row, by_column = within.sum(axis=1), within.sum(axis=0)
        without = []
        for group in groups:
            gone = by_row[group].sum() + by_column[group].sum() - within[np.ix_(group, group)].sum()
            without.append(float(by_row.sum() - gone) / (k - len(group)) ** 2)
        errors.append(float(jackknife_error(np.array(without))))
    return max(errors)
