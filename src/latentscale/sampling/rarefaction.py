"""Rarefaction: the score of random subsets against their size.

Random subsets of several sizes show how a score grows with the number of rows. The result is the
*rarefaction curve*, as it is called in ecology, where it counts species (Hurlbert 1971). Each
replicate is a random subset that is divided into 2, 4, 8, … equal pieces. Every size contains the
same rows, so differences between sizes depend little on the random draw. All sizes below the
largest together cost as much as the largest. Each replicate at each size can be a separate task,
which takes rows and returns a few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from latentscale.array_types import Float64Array, Int64Array
from latentscale.estimate import student_quantile

HALVINGS = 4
"""Default number of halvings; the sizes below the largest together cost as much as the largest."""


@dataclass(frozen=True)
class SubsetScores:
    """Scores of equal pieces of one replicate, at several scales or orders.

    Attributes
    ----------
    size : int
        Rows of a piece.
    values : ndarray of float64, shape (pieces, s)
        The score of each piece at each scale.
    lower : ndarray of float64, shape (s,)
        A lower bound of the score of any set that contains the pieces.
    upper : ndarray of float64, shape (s,), optional
        An upper bound of the score of any set that the pieces contain. Without bounds of this
        side, the scores of subsets that hold all rows count as exact.
    """

    size: int
    values: Float64Array
    lower: Float64Array
    upper: Float64Array | None = None


@dataclass(frozen=True)
class RarefactionCurve:
    """Score as a function of the size of a random subset.

    Attributes
    ----------
    scales : ndarray of float64, shape (s,)
        Ascending scales.
    sizes : ndarray of int64, shape (k,)
        Ascending sizes.
    values : tuple of ndarray of float64, shapes (r, s)
        The scores of the ``r`` subsets of each size.
    lower : ndarray of float64, shape (s,)
        Lower bound of the score of any set that contains the subsets.
    upper : ndarray of float64, shape (s,), optional
        Upper bound of the score of any set that all subsets of the largest size contain.
    """

    scales: Float64Array
    sizes: Int64Array
    values: tuple[Float64Array, ...]
    lower: Float64Array
    upper: Float64Array | None = None

    def at(self, places: Int64Array) -> RarefactionCurve:
        """Return the curve at some of the scales, by their places."""
        return RarefactionCurve(
            self.scales[places],
            self.sizes,
            tuple(part[:, places] for part in self.values),
            self.lower[places],
            None if self.upper is None else self.upper[places],
        )

    @property
    def means(self) -> Float64Array:
        """Mean score over the subsets of each size, shape (k, s)."""
        return np.array([values.mean(axis=0) for values in self.values])

    def intervals(self) -> tuple[Float64Array | None, ...]:
        """Compute 95 % intervals for the mean over all subsets of a size.

        Returns
        -------
        tuple of ndarray of float64, shape (2, s), or None
            Lower and upper ends by Student's distribution; None for a size with one subset.
        """
        return tuple(_interval(values) for values in self.values)


def draw_replicates(
    n: int, rows: int, replicates: int, generator: np.random.Generator
) -> Int64Array:
    """Draw random subsets without repetition.

    Parameters
    ----------
    n : int
        Distinct rows to draw from.
    rows : int
        Rows of a subset, at most ``n``.
    replicates : int
        Number of subsets, at least 1. They are disjoint if ``n`` is large enough, and drawn
        independently otherwise.
    generator : numpy.random.Generator
        Source of the draw.

    Returns
    -------
    ndarray of int64, shape (replicates, rows)
        Row numbers in random order, so that consecutive pieces are random subsets themselves.

    Raises
    ------
    ValueError
        Unless ``1 <= rows <= n`` and ``replicates >= 1``.
    """
    if not 1 <= rows <= n or replicates < 1:
        raise ValueError(
            f"cannot draw {replicates} subsets of {rows} rows from {n}: at least one subset of "
            f"1 to {n} rows"
        )
    if rows * replicates <= n:
        return generator.permutation(n)[: rows * replicates].reshape(replicates, rows)
    return np.array([generator.permutation(n)[:rows] for _ in range(replicates)])


def rarefaction_curve(scales: ArrayLike, subsamples: Sequence[SubsetScores]) -> RarefactionCurve:
    """Combine the scores of subsets of different sizes into a curve.

    Parameters
    ----------
    scales : array_like of float, shape (s,)
        The scales at which all subsets were evaluated.
    subsamples : sequence of SubsetScores
        Any number for each size, in any order.

    Raises
    ------
    ValueError
        If there are none, or a subset was evaluated on another number of scales.
    """
    scales = np.array(scales, dtype=np.float64)
    if not subsamples:
        raise ValueError("a rarefaction curve needs at least one subsample")
    for part in subsamples:
        if part.values.shape[1:] != scales.shape or part.lower.shape != scales.shape:
            raise ValueError(
                f"a subsample of {part.size} rows has {part.values.shape[1]} scales, the curve "
                f"has {len(scales)}"
            )
    sizes = sorted({part.size for part in subsamples})
    largest = [part for part in subsamples if part.size == sizes[-1]]
    uppers = [part.upper for part in largest if part.upper is not None]
    return RarefactionCurve(
        scales,
        np.array(sizes, dtype=np.int64),
        tuple(
            np.concatenate([part.values for part in subsamples if part.size == size])
            for size in sizes
        ),
        np.max([part.lower for part in subsamples], axis=0),
        np.min(uppers, axis=0) if uppers else None,
    )


def _interval(values: Float64Array) -> Float64Array | None:
    count = len(values)
    if count == 1:
        return None
    half = student_quantile(0.975, count - 1) * values.std(axis=0, ddof=1) / math.sqrt(count)
    mean = values.mean(axis=0)
    return np.array([mean - half, mean + half])
