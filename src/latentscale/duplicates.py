r"""Rows at distance 0 from each other.

Magnitude and its relatives are defined on *sets*: a repeated row adds nothing (the twin property,
Limbeck et al. 2024, section 3.1) but makes the similarity matrix singular. Rows at distance 0 are
therefore merged before anything is computed.

Under the Euclidean and Manhattan metrics these are the rows of equal values. A 64-bit hash of each
row is sorted and only rows of equal hash are compared, value by value.

Under the cosine metric they are the rows of equal direction. Positive multiples of one vector that
were stored in float32 differ in direction by its rounding, so directions count as equal when
:math:`1 - \cos \le 10^{-14}`, that is :math:`\|u - v\| \le 1.4 \cdot 10^{-7}` for the unit vectors.
Directions that close are as close in any projection: rows are sorted by their projection onto one
fixed direction, and each is compared with its neighbours there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from latentscale.distances import Float64Array, Points

Int64Array = NDArray[np.int64]

EQUAL_DIRECTION = 1e-14
"""Cosine distance up to which two rows have the same direction."""

PROJECTION_ROUNDING = 1e-9
"""Share by which the search window is widened for the rounding of projections."""


@dataclass(frozen=True)
class Distinct:
    """The distinct rows of a set of points.

    Attributes
    ----------
    rows : ndarray of int64, shape (m,)
        The first input row of each distinct row, ascending.
    group : ndarray of int64, shape (n,)
        Which distinct row, as a position in ``rows``, each input row equals.
    """

    rows: Int64Array
    group: Int64Array

    @property
    def duplicates(self) -> int:
        """Number of input rows that repeat an earlier one."""
        return len(self.group) - len(self.rows)

    def share(self, values: Float64Array) -> Float64Array:
        """Hand a value of each distinct row, in equal shares, to the input rows it stands for."""
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
        Equal rows form one group; under the cosine metric, rows whose direction equals (to
        :data:`EQUAL_DIRECTION`) that of the group's first row in the order of projections.

    Notes
    -----
    Costs ``O(n log n + n d)`` time and ``O(n)`` memory beside the rows.
    """
    if points.metric == "cosine":
        leaders = _equal_directions(points.rows)
    else:
        hashes = _hash_rows(np.ascontiguousarray(points.rows))
        leaders = _equal_rows(points.rows, hashes, np.argsort(hashes, kind="stable"))
    _, group = np.unique(leaders, return_inverse=True)
    firsts = np.full(int(group.max()) + 1, len(points), dtype=np.int64)
    np.minimum.at(firsts, group, np.arange(len(points)))
    order = np.argsort(firsts)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Distinct(firsts[order], rank[group])


def _equal_directions(unit: Float64Array) -> Int64Array:
    # Squared frequencies keep the weights free of patterns that vectors could be blind to.
    direction = np.cos(np.arange(1, unit.shape[1] + 1, dtype=np.float64) ** 2)
    direction /= math.sqrt(float(direction @ direction))
    projections = np.einsum("ij,j->i", unit, direction)
    window = math.sqrt(2.0 * EQUAL_DIRECTION) * (1.0 + PROJECTION_ROUNDING) + 1e-14
    order = np.argsort(projections, kind="stable")
    return _lead_in_window(unit, projections, order, window, 2.0 * EQUAL_DIRECTION)


@numba.njit(cache=True, nogil=True)
def _lead_in_window(
    rows: Float64Array,
    projections: Float64Array,
    order: Int64Array,
    window: float,
    limit: float,
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
            squared = 0.0
            for c in range(rows.shape[1]):
                difference = rows[row, c] - rows[leader, c]
                squared += difference * difference
                if squared > limit:
                    break
            if squared <= limit:
                leaders[row] = leader
                break
        if leaders[row] < 0:
            leaders[row] = row
            leading[last] = row
            last += 1
    return leaders


@numba.njit(cache=True, nogil=True)
def _hash_rows(rows: Float64Array) -> NDArray[np.uint64]:
    bits = rows.view(np.uint64)
    hashes = np.empty(rows.shape[0], dtype=np.uint64)
    for i in range(rows.shape[0]):
        state = np.uint64(0x9E3779B97F4A7C15)
        for c in range(rows.shape[1]):
            word = np.uint64(0) if rows[i, c] == 0.0 else bits[i, c]  # -0.0 equals 0.0
            state = (state ^ word) * np.uint64(0xFF51AFD7ED558CCD)
            state ^= state >> np.uint64(32)
        hashes[i] = state
    return hashes


@numba.njit(cache=True, nogil=True)
def _equal_rows(rows: Float64Array, hashes: NDArray[np.uint64], order: Int64Array) -> Int64Array:
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
