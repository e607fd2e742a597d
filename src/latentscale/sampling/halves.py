r"""Random halves of a corpus, for the sampling error of scores that aren't smooth.

A score is computed from random halves of the rows; the standard deviation of these values estimates
that over fresh corpora of all rows (the delete-d jackknife with d = n/2, Shao & Wu, Annals of
Statistics 1989, theorem 1). Scores of neighbours need it: leaving out few rows changes them by
jumps. Of the neighbours in a long list, those in the half are what a search in it finds, so nothing
is searched again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latentscale.array_types import BoolArray, Int64Array
from latentscale.tiles.top_lists import hash_numbers

SPLITS = 20
"""Random divisions of the corpus into halves."""


def divide(rows: Int64Array, near: Int64Array, seed: int) -> Iterator[tuple[BoolArray, BoolArray]]:
    """Yield which rows and which neighbours are in a half of the corpus, twice for each division.

    A hash of its number says in which half a row is, so divisions take no memory for the corpus.

    Parameters
    ----------
    rows : ndarray of int64, shape (m,)
        Row numbers.
    near : ndarray of int64, shape (m, l)
        Row numbers of their neighbours.
    seed : int
        Determines the halves.
    """
    hashes = [hash_numbers(each, seed) for each in (rows, near)]
    for split in range(SPLITS):
        for side in (0, 1):
            own, others = ((each >> np.uint64(split)) & np.uint64(1) == side for each in hashes)
            yield own, others
