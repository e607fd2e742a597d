r"""Common neighbours: whether two models find the same items near each item.

For item i, let :math:`N_k(i)` be its k nearest items by one model and :math:`N'_k(i)` those by the
other. The overlap is the mean of :math:`|N_k(i) \cap N'_k(i)| / k` over the items, the mutual
k-nearest-neighbour alignment of Huh et al. (The platonic representation hypothesis, ICML 2024,
section 3). It is 1 if a search returns the same items with both models, and :math:`k / (m - 1)` on
average if they have nothing in common.

It depends on the number of items, so it belongs to it: for many, it is that of a random sample of
m, on average. Its sampling error comes from random halves (:mod:`latentscale.sampling.halves`) and
is a quarter to two thirds too large in trials. That of the share of items with no neighbour in
common counts them in twos, since such items are near each other.
"""

from __future__ import annotations

import numpy as np

from latentscale.array_types import BoolArray, Float64Array, Int64Array
from latentscale.estimate import Scored
from latentscale.sampling.halves import divide
from latentscale.sampling.shares import share_error

MIN_ROWS = 100
"""Fewest items whose scores have a sampling error."""

OVERLAP, NONE_COMMON = "neighbour overlap", "no common neighbour"

NEAR_ROWS = 2.0
"""Items that gain or lose their common neighbours together."""

BLOCK_ENTRIES = 2**22
"""Pairs of entries of two lists that are compared at once."""


def count_common(first: Int64Array, second: Int64Array) -> Int64Array:
    """Count the entries that two lists have in common, row by row.

    Parameters
    ----------
    first, second : ndarray of int64, shapes (m, k) and (m, l)
        Numbers of items, each at most once in a row. Negative ones count for nothing.

    Returns
    -------
    ndarray of int64, shape (m,)
    """
    counts = np.empty(len(first), np.int64)
    step = max(1, BLOCK_ENTRIES // max(1, first.shape[1] * second.shape[1]))
    for start in range(0, len(first), step):
        some = slice(start, start + step)
        equal = first[some, :, None] == second[some, None, :]
        equal &= (first[some] >= 0)[:, :, None]
        counts[some] = equal.sum(axis=(1, 2))
    return counts


def average_overlap(first: Int64Array, second: Int64Array) -> Float64Array:
    r"""Return how alike two ranked lists are, the first places counting most, row by row.

    The average overlap of lists of length l is :math:`\frac1l \sum_{j=1}^l |A_j \cap B_j| / j`,
    where :math:`A_j` and :math:`B_j` are their first j entries (Fagin, Kumar and Sivakumar,
    Comparing top k lists, SODA 2003, section 3.1.2, one less their intersection metric). It ranks
    items that have no common neighbour, or equally many.

    Parameters
    ----------
    first, second : ndarray of int64, shape (m, l)
        Numbers of items, each at most once in a row and none negative.

    Returns
    -------
    ndarray of float64, shape (m,)
        From 0 for lists that have nothing in common to 1 for equal ones.
    """
    length = first.shape[1]
    # An entry that both have counts from the depth on at which both have it.
    reciprocals = np.append(1.0 / np.arange(1, length + 1), 0.0)
    counts = np.cumsum(reciprocals[::-1])[::-1][:length] / max(1, length)
    overlaps = np.empty(len(first))
    step = max(1, BLOCK_ENTRIES // max(1, length**2))
    for start in range(0, len(first), step):
        some = slice(start, start + step)
        row, place, other = np.nonzero(first[some, :, None] == second[some, None, :])
        added = counts[np.maximum(place, other)]
        overlaps[some] = np.bincount(row, added, minlength=len(first[some]))
    return overlaps


def score_neighbours(
    first: Int64Array, second: Int64Array, k: int, n: int, seed: int | None
) -> dict[str, Scored]:
    """Compute the overlap, and the share of items that have no neighbour in common.

    Parameters
    ----------
    first, second : ndarray of int64, shape (m, l)
        Numbers of each item's nearest items by both models, from 0 to m - 1, nearest first; l is at
        least k, for sampling errors better four times k.
    k : int
        Neighbours that count.
    n : int
        Items that these are a random sample of; m if they are all.
    seed : int or None
        Determines the halves; None for no sampling errors. It is needed for a sample.
    """
    m = len(first)
    common = count_common(first[:, :k], second[:, :k])
    found = {OVERLAP: float(common.mean()) / k, NONE_COMMON: float((common == 0).mean())}
    errors: dict[str, float] = {}
    if seed is not None and m >= MIN_ROWS:
        # Where all of a sample agree, halves of it don't differ either.
        least = share_error(int((common < k).sum()), m, NEAR_ROWS)
        errors[OVERLAP] = max(_deviation(first, second, k, seed), least)
        errors[NONE_COMMON] = share_error(int((common == 0).sum()), m, NEAR_ROWS)
    return {
        name: Scored.of_rows(value, m, n, errors.get(name), "nearest neighbours", limits=(0.0, 1.0))
        for name, value in found.items()
        if m == n or name in errors
    }


def _deviation(first: Int64Array, second: Int64Array, k: int, seed: int) -> float:
    """Return the standard deviation of the overlap over random halves of the items."""
    rows = np.arange(len(first), dtype=np.int64)
    halves = []
    for one, other in zip(divide(rows, first, seed), divide(rows, second, seed), strict=True):
        own = one[0]
        lists = [
            _shortened(near[own], inside[own], k)
            for near, inside in ((first, one[1]), (second, other[1]))
        ]
        # Of a long list, hardly ever fewer than k are inside.
        lengths = np.minimum(*((each >= 0).sum(axis=1) for each in lists))
        halves.append(float((count_common(*lists) / np.maximum(lengths, 1)).mean()))
    return float(np.std(halves, ddof=1))


def _shortened(near: Int64Array, inside: BoolArray, k: int) -> Int64Array:
    """Return the first k of each list that are inside; -1 where there are fewer."""
    places = np.cumsum(inside, axis=1) - 1
    shortened = np.full((len(near), k), -1, np.int64)
    row, column = np.nonzero(inside & (places < k))
    shortened[row, places[row, column]] = near[row, column]
    return shortened
