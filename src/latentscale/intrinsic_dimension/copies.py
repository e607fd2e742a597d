"""Lists of nearest neighbours in which copies of one row leave room for others.

Copies of a neighbour count once (:mod:`latentscale.intrinsic_dimension.estimators`), but a search
finds all of them: a row with more copies than a list is long would fill the lists of all rows near
it. So few copies of a row are looked at. There are more than one, because a random half of a corpus
nearly always has some copy of a row that has many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentscale.array_types import BoolArray, Int64Array, UInt64Array
from latentscale.intrinsic_dimension.estimators import TIED, TIED_COSINE
from latentscale.neighbours.exact import Neighbours, merge
from latentscale.tiles.distances import Metric

COPIES = 4
"""Copies of a row that are looked at."""


@dataclass(frozen=True)
class SeenRows:
    """How often each row was seen.

    Attributes
    ----------
    keys : ndarray of uint64, shape (k,)
        Keys of different rows, ascending; copies share one.
    counts : ndarray of int64, shape (k,)
        How many rows had each.
    """

    keys: UInt64Array
    counts: Int64Array

    @classmethod
    def none(cls) -> SeenRows:
        """Return that no row was seen."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.int64))

    def admit(self, keys: UInt64Array) -> tuple[BoolArray, SeenRows]:
        """Return which of further rows are among the first :data:`COPIES` with their key.

        Parameters
        ----------
        keys : ndarray of uint64, shape (n,)
            Keys of these rows, in order.

        Returns
        -------
        ndarray of bool, shape (n,)
            Which rows are.
        SeenRows
            What was seen with these.
        """
        new, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
        order = np.argsort(place, kind="stable")
        starts = np.cumsum(counts) - counts
        rank = np.empty(len(keys), np.int64)
        rank[order] = np.arange(len(keys)) - np.repeat(starts, counts)
        everything, where = np.unique(np.concatenate([self.keys, new]), return_inverse=True)
        total = np.zeros(len(everything), np.int64)
        total[where[: len(self.keys)]] = self.counts
        before = total[where[len(self.keys) :]]
        total[where[len(self.keys) :]] += counts
        return rank + before[place] < COPIES, SeenRows(everything, total)


def merge_few_copies(first: Neighbours, second: Neighbours, k: int, metric: Metric) -> Neighbours:
    """Merge lists of the same rows among different candidates, with few copies of each neighbour.

    Parameters
    ----------
    first, second : Neighbours
        With keys as from :func:`latentscale.intrinsic_dimension.estimators.with_content_keys`.
    k : int
        Neighbours to keep.
    metric : {"euclidean", "cosine", "manhattan"}
        Of the distances.

    Returns
    -------
    Neighbours
        At most :data:`COPIES` at one distance that have one key and follow each other.
    """
    joined = merge(first, second, first.indices.shape[1] + second.indices.shape[1])
    limit = 2.0 * TIED_COSINE if metric == "cosine" else TIED
    before, after = joined.distances[:, :-1], joined.distances[:, 1:]
    again: BoolArray = np.zeros(joined.indices.shape, np.bool_)
    again[:, 1:] = (
        (joined.ties[:, 1:] == joined.ties[:, :-1])
        & np.isfinite(after)
        & (before >= (1.0 - limit) * after)
    )
    if again.any():
        places = np.arange(joined.indices.shape[1])
        first_of = np.maximum.accumulate(np.where(again, 0, places), axis=1)
        extra = places - first_of >= COPIES
        order = np.argsort(extra, axis=1, kind="stable")
        none = Neighbours.none(len(joined), again.shape[1])
        joined = Neighbours(
            np.take_along_axis(np.where(extra, none.indices, joined.indices), order, axis=1),
            np.take_along_axis(np.where(extra, none.distances, joined.distances), order, axis=1),
            np.take_along_axis(np.where(extra, none.ties, joined.ties), order, axis=1),
        )
    return joined.cut(k)
