r"""Rows at distance 0 from each other.

Magnitude and its relatives are defined on *sets*: a repeated row adds nothing (the twin property,
Limbeck et al. 2024, section 3.1) but makes the similarity matrix singular. Rows at distance 0 are
therefore merged before anything is computed.

Under the Euclidean and Manhattan metrics these are the rows of equal values. The rows' 64-bit
hashes are sorted, and only rows of equal hash are compared, value by value.

Under the cosine metric they are the rows of equal direction. Positive multiples of one vector
differ in direction by the rounding of float32 if they were stored in it. So directions count as
equal when :math:`1 - \cos \le 10^{-14}`, that is :math:`\|u - v\| \le 1.4 \cdot 10^{-7}` for the
unit vectors. The projections of such directions onto any vector are as close. So rows are sorted by
their projection onto one fixed direction, and each is compared with the distinct rows before it in
that order. It joins the first that it equals, or becomes a distinct row itself. So no two distinct
rows are equal, although being equal in this sense isn't transitive, and the distinct rows don't
depend on the order in which the rows are given.

Projections also serve sets that don't fit in memory. They are computed block by block
(:func:`project`), and only rows whose projection nearly equals that of another row
(:func:`find_candidates`) have to be compared (:func:`merge_candidates`).

Rows that are nearly equal are distinct points. The magnitude counts them as one point until the
scale resolves their distance, so many of them make the convergence scale very large.
:func:`merge_within` merges them where that isn't wanted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np

from latentscale.array_types import Float64Array, Int64Array, UInt64Array
from latentscale.tiles.distances import Metric, Points
from latentscale.tiles.top_lists import content_keys

EQUAL_DIRECTION = 1e-14
"""Cosine distance up to which two rows have the same direction."""

PROJECTION_ROUNDING = 1e-9
"""Share by which the search window is widened for the rounding of projections."""

_WINDOW = math.sqrt(2.0 * EQUAL_DIRECTION) * (1.0 + PROJECTION_ROUNDING) + 1e-14


@dataclass(frozen=True)
class Distinct:
    """The distinct rows of a set of points.

    Attributes
    ----------
    rows : ndarray of int64, shape (m,)
        The input row that represents each distinct row, ascending: of several rows with equal
        values the first; of nearly equal ones the first in the order of projections.
    group : ndarray of int64, shape (n,)
        The distinct row that represents each input row, as a position in ``rows``.
    """

    rows: Int64Array
    group: Int64Array

    @property
    def duplicates(self) -> int:
        """Number of input rows that are represented by another row."""
        return len(self.group) - len(self.rows)

    def share(self, values: Float64Array) -> Float64Array:
        """Divide the value of each distinct row equally among the input rows that it represents."""
        sizes = np.bincount(self.group, minlength=len(self.rows))
        shares: Float64Array = (values / sizes)[self.group]
        return shares


def find_distinct(points: Points) -> Distinct:
    """Find the rows at distance 0 from an earlier row, in the points' metric.

    Parameters
    ----------
    points : Points
        ``n`` rows; unit vectors under the cosine metric.

    Returns
    -------
    Distinct
        Equal rows form one group. Under the cosine metric the directions of a group's rows equal
        that of the row that represents it, to :data:`EQUAL_DIRECTION`. Two rows that represent
        different groups are never equal.

    Notes
    -----
    Costs ``O(n log n + n d)`` time and ``O(n)`` memory beside the rows.
    """
    if points.metric == "cosine":
        leaders = _equal_directions(points)
    else:
        hashes = content_keys(points.rows)
        leaders = _equal_rows(points.rows, hashes, np.argsort(hashes, kind="stable"))
    return _groups_of(leaders)


def project(points: Points) -> Float64Array:
    """Project rows onto one fixed direction.

    Parameters
    ----------
    points : Points
        ``n`` rows under a metric.

    Returns
    -------
    ndarray of float64, shape (n,)
        Equal for equal rows, whatever block they come in.
    """
    # Squared frequencies keep regular patterns out of the weights. Rows that differ could otherwise
    # have equal projections.
    direction = np.cos(np.arange(1, points.dimension + 1, dtype=np.float64) ** 2)
    direction /= math.sqrt(float(direction @ direction))
    projections: Float64Array = np.einsum("ij,j->i", points.rows, direction)
    return projections


def find_candidates(projections: Float64Array, metric: Metric) -> Int64Array:
    """Find the rows that may be at distance 0 from another row, by their projections alone.

    Parameters
    ----------
    projections : ndarray of float64, shape (n,)
        Of all rows, from :func:`project`.
    metric : str
        The metric of the points.

    Returns
    -------
    ndarray of int64, shape (c,)
        Ascending row numbers. They include every row that has an equal, and rarely others.
    """
    order = np.argsort(projections, kind="stable")
    close = np.diff(projections[order]) <= (_WINDOW if metric == "cosine" else 0.0)
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[order[:-1][close]] = True
    chosen[order[1:][close]] = True
    return np.flatnonzero(chosen)


def merge_candidates(n: int, candidates: Int64Array, distinct: Distinct) -> Distinct:
    """Extend the distinct rows among the candidates to all ``n`` rows.

    Parameters
    ----------
    n : int
        Number of rows.
    candidates : ndarray of int64, shape (c,)
        From :func:`find_candidates`; every other row is distinct.
    distinct : Distinct
        Of the candidates, in their order.
    """
    leaders = np.arange(n)
    leaders[candidates] = candidates[distinct.rows[distinct.group]]
    return _groups_of(leaders)


def _groups_of(leaders: Int64Array) -> Distinct:
    """Form groups, given for every row the one that represents it."""
    rows, group = np.unique(leaders, return_inverse=True)
    return Distinct(rows, group)


def merge_within(points: Points, tolerance: float) -> Distinct:
    """Merge rows within a distance of each other.

    Parameters
    ----------
    points : Points
        ``n`` rows; unit vectors under the cosine metric.
    tolerance : float
        Non-negative, in units of the metric.

    Returns
    -------
    Distinct
        Each input row is within the tolerance of the row that represents it. No two distinct rows
        are within the tolerance of each other.

    Raises
    ------
    ValueError
        On a tolerance that is negative or not finite.

    Notes
    -----
    Rows are processed in the order of their projections onto one direction. Each joins the first
    distinct row within the tolerance, or becomes a distinct row itself. Costs ``O(n log n)`` and a
    comparison with each distinct row whose projection is within the tolerance. This is fast as long
    as the tolerance is small compared with the spread of the rows.
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise ValueError(f"the tolerance must be a distance of at least 0, got {tolerance}")
    rows = np.ascontiguousarray(points.rows)
    limits = {"euclidean": tolerance**2, "cosine": 2.0 * tolerance, "manhattan": tolerance}
    reaches = {"euclidean": tolerance, "cosine": math.sqrt(2.0 * tolerance), "manhattan": tolerance}
    longest = math.sqrt(float(points.squared_norms.max()))
    window = reaches[points.metric] * (1.0 + PROJECTION_ROUNDING) + 1e-14 * longest
    manhattan = points.metric == "manhattan"
    return _groups_of(
        _join_leaders(rows, project(points), window, limits[points.metric], manhattan)
    )


def _equal_directions(points: Points) -> Int64Array:
    rows = np.ascontiguousarray(points.rows)
    return _join_leaders(rows, project(points), _WINDOW, 2.0 * EQUAL_DIRECTION, False)


def _join_leaders(
    rows: Float64Array, projections: Float64Array, window: float, limit: float, manhattan: bool
) -> Int64Array:
    """Join each row to the first leader within the limit, in an order that rows alone determine."""
    order = np.lexsort((content_keys(rows), projections))
    return _lead_in_window(rows, projections, order, window, limit, manhattan)


@numba.njit(cache=True, nogil=True)
def _lead_in_window(
    rows: Float64Array,
    projections: Float64Array,
    order: Int64Array,
    window: float,
    limit: float,
    manhattan: bool,
) -> Int64Array:
    leaders = np.empty(len(order), dtype=np.int64)
    leading = np.empty(len(order), dtype=np.int64)
    first, last = 0, 0
    for row in order:
        while first < last and projections[leading[first]] < projections[row] - window:
            first += 1
        leaders[row] = -1
        for position in range(first, last):
            leader = leading[position]
            separation = 0.0
            for c in range(rows.shape[1]):
                difference = rows[row, c] - rows[leader, c]
                separation += abs(difference) if manhattan else difference * difference
                if separation > limit:
                    break
            if separation <= limit:
                leaders[row] = leader
                break
        if leaders[row] < 0:
            leaders[row] = row
            leading[last] = row
            last += 1
    return leaders


@numba.njit(cache=True, nogil=True)
def _equal_rows(rows: Float64Array, hashes: UInt64Array, order: Int64Array) -> Int64Array:
    leaders = np.empty(len(order), dtype=np.int64)
    leading = np.empty(len(order), dtype=np.int64)  # the distinct rows of the current hash
    last = 0
    for position in range(len(order)):
        row = order[position]
        if position > 0 and hashes[row] != hashes[order[position - 1]]:
            last = 0
        leaders[row] = row
        for candidate in leading[:last]:
            equal = True
            for c in range(rows.shape[1]):
                if rows[row, c] != rows[candidate, c]:
                    equal = False
                    break
            if equal:
                leaders[row] = candidate
                break
        if leaders[row] == row:
            leading[last] = row
            last += 1
    return leaders
