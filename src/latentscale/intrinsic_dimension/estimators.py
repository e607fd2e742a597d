r"""Intrinsic dimensions from the distances of rows to their nearest neighbours.

Near a row, the number of rows within a distance r grows like :math:`r^D`. With the distances
:math:`r_1 < r_2 < \ldots` from a row to its nearest neighbours, :math:`\ln(r_k / r_j)` has the mean
:math:`(H_{k-1} - H_{j-1}) / D` if the density is even, whatever it is.

*MLE* at k neighbours (Levina & Bickel, NIPS 2004, eq. 8) averages over j < k and over the rows. The
averages are taken before the reciprocal, as MacKay & Ghahramani (Comments on "Maximum likelihood
estimation of intrinsic dimension", 2005, eq. 4) correct it:

.. math:: \frac1D = \frac1m \sum_i \frac1{k-1} \sum_{j<k} \ln \frac{r_k(i)}{r_j(i)}

*TwoNN* (Facco et al., Scientific Reports 2017, Methods) uses :math:`\mu = r_2 /
r_1`, whose logarithm is exponentially distributed with the rate D. A line through the origin is
fitted to :math:`-\ln(1 - F(\mu))` over :math:`\ln \mu`, with the empirical distribution F, without
the tenth of the rows with the largest :math:`\mu`.

Neighbours at distance 0 are left out (cosine: those of equal direction), and copies of a neighbour
count once. Different neighbours at equal distances, as rows of whole numbers have, all count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentscale.array_types import BoolArray, Float64Array, Int64Array
from latentscale.duplicates.distinct import EQUAL_DIRECTION
from latentscale.neighbours.exact import Neighbours
from latentscale.tiles.distances import Metric, Points
from latentscale.tiles.top_lists import content_keys

KEPT = 0.9
"""Share of the rows that TwoNN fits."""

TIED, TIED_COSINE = 1e-9, 1e-5
"""Relative difference up to which distances of copies are equal. That of float32 rows which differ
by a factor is rounding of their coordinates.
"""

MIN_ROWS = 10
"""Fewest rows to which TwoNN fits a line."""


@dataclass(frozen=True)
class NeighbourDistances:
    """Distances of some rows to their nearest neighbours.

    Attributes
    ----------
    rows : ndarray of int64, shape (m,)
        Row numbers.
    logarithms : ndarray of float64, shape (m, l)
        Logarithms of the distances, ascending.
    indices : ndarray of int64, shape (m, l)
        Row numbers of the neighbours.
    order, contents : ndarray of int64, shape (m, l)
        Places of the neighbours with copies beside each other; in this order, ascending numbers
        that copies share.
    known : ndarray of bool, shape (m, l)
        Which entries are neighbours that count: of the half, and not at distance 0.
    ends : ndarray of bool, shape (m,)
        Whether a list may end before neighbours that have to be counted.
    cosine : bool
        Whether distances are chords between directions.
    """

    rows: Int64Array
    logarithms: Float64Array
    indices: Int64Array
    order: Int64Array
    contents: Int64Array
    known: BoolArray
    ends: BoolArray
    cosine: bool = False

    @property
    def counted(self) -> BoolArray:
        """Return which neighbours count: of copies one."""
        known = np.take_along_axis(self.known, self.order, axis=1)
        last = np.maximum.accumulate(np.where(known, self.contents, -1), axis=1)
        first = known.copy()
        first[:, 1:] &= self.contents[:, 1:] > last[:, :-1]
        counted = np.empty_like(known)
        np.put_along_axis(counted, self.order, first, axis=1)
        return counted

    def half(self, rows: BoolArray, neighbours: BoolArray) -> NeighbourDistances:
        """Return what a search in half of the corpus finds for the rows in it.

        Parameters
        ----------
        rows : ndarray of bool, shape (m,)
            Which rows are in the half.
        neighbours : ndarray of bool, shape (m, l)
            Which neighbours are.
        """
        return replace(
            self,
            rows=self.rows[rows],
            logarithms=self.logarithms[rows],
            indices=self.indices[rows],
            order=self.order[rows],
            contents=self.contents[rows],
            known=self.known[rows] & neighbours[rows],
            ends=self.ends[rows],
        )


def with_content_keys(points: Points) -> Points:
    """Return points with equal keys for copies; under the cosine metric, for equal directions.

    Rows of equal direction differ by rounding. Their keys are equal but for one pair in some
    thousands. Rows whose coordinates all differ by less than 1/256 may have equal keys, too.
    """
    cosine = points.metric == "cosine"
    return points.keyed(content_keys(np.round(256.0 * points.rows) if cosine else points.rows))


def neighbour_distances(
    rows: Int64Array, found: Neighbours, metric: Metric, ends: BoolArray | None = None
) -> NeighbourDistances:
    """Return lists of nearest neighbours, as the estimators need them.

    Parameters
    ----------
    rows : ndarray of int64, shape (m,)
        Row numbers.
    found : Neighbours
        Of rows with the keys of :func:`with_content_keys`. Under the cosine metric distances are
        one minus the cosine, and the length of the chord is taken instead.
    metric : {"euclidean", "cosine", "manhattan"}
        Of the distances.
    ends : ndarray of bool, shape (m,), optional
        Which lists may end before neighbours that have to be counted; by default none.
    """
    distances = found.distances
    least = EQUAL_DIRECTION if metric == "cosine" else 0.0
    known = np.isfinite(distances) & (distances > least)
    logarithms = np.log(distances, where=known, out=np.zeros_like(distances))
    if metric == "cosine":
        logarithms *= 0.5
    # Copies of one neighbour may have another between them, at the same distance but for rounding.
    limit = TIED_COSINE if metric == "cosine" else TIED
    tied = np.cumsum(np.diff(logarithms, axis=1, prepend=-np.inf) > limit, axis=1)
    order = np.lexsort((found.ties, tied), axis=1)
    group = np.take_along_axis(tied, order, axis=1).astype(np.int64)
    ties = np.take_along_axis(found.ties, order, axis=1)
    other = np.ones(order.shape, dtype=np.bool_)
    other[:, 1:] = (group[:, 1:] > group[:, :-1]) | (ties[:, 1:] != ties[:, :-1])
    contents = np.cumsum(other, axis=1, dtype=np.int64)
    return NeighbourDistances(
        rows,
        logarithms,
        found.indices,
        order,
        contents,
        known,
        np.zeros(len(rows), np.bool_) if ends is None else ends,
        metric == "cosine",
    )


def mean_log_ratios(lists: NeighbourDistances, neighbours: Sequence[int]) -> Float64Array:
    r"""Return the mean of :math:`\ln(r_k / r_j)` over j < k, of every row.

    Parameters
    ----------
    lists : NeighbourDistances
        Of m rows.
    neighbours : sequence of int
        The numbers k, each at least 2.

    Returns
    -------
    ndarray of float64, shape (len(neighbours), m)
        NaN for rows with fewer than k neighbours.
    """
    found = np.full((len(neighbours), len(lists.rows)), np.nan)
    if not lists.known.size:
        return found
    counted = lists.counted
    rank = np.cumsum(counted, axis=1)
    sums = np.cumsum(np.where(counted, lists.logarithms, 0.0), axis=1)
    for place, k in enumerate(neighbours):
        enough = np.flatnonzero(rank[:, -1] >= k)
        last = (rank[enough] >= k).argmax(axis=1)
        farthest = lists.logarithms[enough, last]
        found[place, enough] = farthest - (sums[enough, last] - farthest) / (k - 1)
    return found


def maximum_likelihood(ratios: Float64Array) -> float:
    """Return the dimension from :func:`mean_log_ratios`.

    NaN if no row has enough neighbours, or those of every row are equally far.
    """
    known = ratios[np.isfinite(ratios)]
    mean = float(known.mean()) if len(known) else 0.0
    return 1.0 / mean if mean > TIED else math.nan


def two_nearest(ratios: Float64Array) -> float:
    """Return the dimension by TwoNN, from :func:`mean_log_ratios` with two neighbours.

    NaN if fewer than :data:`MIN_ROWS` rows have two neighbours, or the two of nearly all rows are
    equally far.
    """
    known = np.sort(ratios[np.isfinite(ratios)])
    if len(known) < MIN_ROWS:
        return math.nan
    used = int(KEPT * len(known))
    x = known[:used]
    y = -np.log1p(-np.arange(1, used + 1) / len(known))
    return float(x @ y) / float(x @ x) if x[-1] > TIED else math.nan
