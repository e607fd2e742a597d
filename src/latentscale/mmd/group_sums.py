r"""Sums of a kernel over pairs of groups of rows.

Two corpora are divided at random into groups. From

.. math:: S_{gh} = \sum_{x \in g} \sum_{y \in h} k(x, y)

follow the maximum mean discrepancy of the two, that of every other division of the groups into
two sides, and that without any group (:mod:`latentscale.mmd.two_sample`). Up to some ten thousand
rows all pairs are visited. A kernel with features, :math:`k(x, y) = \phi(x)^\top \phi(y)`, needs
only the sums of the features of every group, one pass over the rows: :math:`\phi` is the row itself
for the linear kernel, its unit vector for the cosine kernel, and random Fourier features
(:mod:`latentscale.linalg.fourier_features`), which approximate it, for the RBF kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from latentscale.array_types import Float64Array, Int64Array
from latentscale.tiles.device import exponentials
from latentscale.tiles.distances import Points, squared_tile

BLOCK_ROWS = 1024
"""Rows a side of a block of similarities, except for larger groups."""


@dataclass(frozen=True)
class GroupSums:
    """Sums of a kernel over pairs of groups.

    Attributes
    ----------
    pairs : ndarray of float64, shape (g, g)
        Sums over all pairs of a row of one group and a row of another, or of the same.
    own : ndarray of float64, shape (g,)
        Sums of the similarities of the rows to themselves.
    sizes : ndarray of int64, shape (g,)
        Rows of every group.
    first : int
        Number of groups of the first corpus, which come first.
    """

    pairs: Float64Array
    own: Float64Array
    sizes: Int64Array
    first: int


def sum_rbf_pairs(points: Points, sizes: Int64Array, bandwidth: float) -> Float64Array:
    """Sum the RBF kernel over all pairs of rows, by groups.

    Parameters
    ----------
    points : Points
        Rows under the Euclidean metric, group after group, with an origin among them.
    sizes : ndarray of int64, shape (g,)
        Rows of every group, at least one.
    bandwidth : float
        Positive, in the units of the vectors.

    Returns
    -------
    ndarray of float64, shape (g, g)
        Symmetric. An entry of n pairs is exact up to n times about 1e-13.

    Notes
    -----
    Costs half of all pairs, and memory for a block of 1024² similarities, or for two groups.
    """
    ends = np.cumsum(sizes)
    blocks = _blocks(ends)
    sums = np.zeros((len(sizes), len(sizes)))
    factor = -0.5 / bandwidth**2
    for place, a in enumerate(blocks):
        for b in blocks[place:]:
            tile = squared_tile(points.take(_rows(ends, a)), points.take(_rows(ends, b)))
            exponentials(tile, factor)
            starts = [np.append(0, np.cumsum(sizes[groups])[:-1]) for groups in (a, b)]
            found = np.add.reduceat(np.add.reduceat(tile, starts[1], axis=1), starts[0], axis=0)
            sums[a, b] = found
            if a is not b:
                sums[b, a] = found.T
    return 0.5 * (sums + sums.T)


def _blocks(ends: Int64Array) -> list[slice]:
    """Cut groups into runs of about as many rows as a block has."""
    marks = np.unique(np.searchsorted(ends, np.arange(0, ends[-1], BLOCK_ROWS), side="right"))
    bounds = [*marks.tolist(), len(ends)]
    return [slice(i, j) for i, j in pairwise(bounds) if i < j]


def _rows(ends: Int64Array, groups: slice) -> slice:
    start = int(ends[groups.start - 1]) if groups.start else 0
    return slice(start, int(ends[groups.stop - 1]))


def sum_feature_pairs(sums: Float64Array) -> Float64Array:
    """Return the sums of a kernel over pairs of groups from those of its features.

    Parameters
    ----------
    sums : ndarray of float64, shape (g, p)
        Of every group, the sum of the features of its rows.
    """
    return np.asarray(sums @ sums.T)
