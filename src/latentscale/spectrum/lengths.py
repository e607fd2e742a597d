"""The lengths of rows: mean, spread and a histogram, from one pass.

The histogram has the same bins for every corpus, 16 an octave, so histograms of parts are added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentscale.array_types import Float64Array, Int64Array
from latentscale.tiles.distances import row_blocks

BLOCK_ROWS = 4096
"""Rows that are turned into float64 at once."""

PER_OCTAVE = 16
"""Bins of lengths from one power of two to the next."""

MIN_POWER, MAX_POWER = -160, 160
"""Powers of two between which lengths are told apart; float32 rows are well inside."""

BINS = PER_OCTAVE * (MAX_POWER - MIN_POWER)


@dataclass(frozen=True)
class Lengths:
    """Euclidean lengths of a set of rows.

    Attributes
    ----------
    count : int
        Number of rows.
    mean, scatter : float
        Mean length, and sum of the squared deviations from it.
    least, largest : float
        The extremes.
    bins : ndarray of int64, shape (BINS,)
        Rows by length, between the ends of :func:`bin_ends`; rows of length 0 are in none.
    """

    count: int
    mean: float
    scatter: float
    least: float
    largest: float
    bins: Int64Array

    @property
    def deviation(self) -> float:
        """Standard deviation of the lengths, with the divisor ``count``."""
        return math.sqrt(self.scatter / self.count)


def bin_ends() -> Float64Array:
    """Return the lower ends of all bins and the upper end of the last, shape (BINS + 1,)."""
    return np.asarray(np.exp2(np.arange(BINS + 1) / PER_OCTAVE + MIN_POWER))


def row_lengths(vectors: ArrayLike) -> Lengths:
    """Measure the rows of a block.

    Parameters
    ----------
    vectors : array_like, shape (n, d)
        Finite, of any float type, at least one row. Squares are summed in float64.
    """
    rows = np.asarray(vectors)
    return merge_lengths(_of_block(rows[block]) for block in row_blocks(len(rows), BLOCK_ROWS))


def merge_lengths(parts: Iterable[Lengths]) -> Lengths:
    """Join the lengths of disjoint sets of rows, in the order given; at least one."""
    return reduce(_join, parts)


def _of_block(rows: NDArray[np.floating]) -> Lengths:
    block = np.asarray(rows, dtype=np.float64)
    found = np.sqrt(np.einsum("ij,ij->i", block, block))
    mean = float(found[0] + (found - found[0]).mean())
    place = np.floor((np.log2(found[found > 0.0]) - MIN_POWER) * PER_OCTAVE)
    counts = np.bincount(np.clip(place, 0, BINS - 1).astype(np.int64), minlength=BINS)
    scatter = float(((found - mean) ** 2).sum())
    return Lengths(len(found), mean, scatter, float(found.min()), float(found.max()), counts)


def _join(a: Lengths, b: Lengths) -> Lengths:
    count, difference = a.count + b.count, b.mean - a.mean
    return Lengths(
        count,
        a.mean + difference * (b.count / count),
        a.scatter + b.scatter + difference**2 * (a.count / count * b.count),
        min(a.least, b.least),
        max(a.largest, b.largest),
        a.bins + b.bins,
    )
