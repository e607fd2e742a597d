r"""Improved precision and recall, density and coverage, from k-nearest-neighbour balls.

The closed ball about a row of a set reaches to the k-th nearest other row of the same set. The
union of a set's balls stands for the region that the set fills (Kynkäänniemi et al. 2019). With m
rows of the set under evaluation E and n rows of the reference R,

precision
    the share of E inside some ball of R;
recall
    the share of R inside some ball of E;
density
    :math:`\frac{1}{k m} \sum_{e} \#\{r : e \in B_k(r)\}`, which a single outlier of R can't raise
    (Naeem et al. 2020, eq. 3); about 1 for equal distributions;
coverage
    the share of the rows of R whose ball contains a row of E (eq. 4);
clipped density
    density with radii of at most their median, so that outliers of R have no large balls, and with
    at most k balls counted for a row of E, in units of the same of R itself, and at most 1 (Salvy,
    Talbot & Thirion, ICLR 2026, section 4.1);
clipped coverage
    the mean over R of the number of rows of E in its ball, at most k, over k; calibrated to a share
    of good rows (section 4.2 there, :mod:`latentscale.baselines.clipping`).

The median is the lower one, a radius that occurs.

Balls are closed. (The authors' package ``prdc`` takes open balls. This differs only where distances
are equal.)

*Exact* scores visit every pair. Radii and memberships are those of exact arithmetic: pairs that are
too close to call in float64 are decided by sums without rounding
(:mod:`latentscale.tiles.expansions`).

*Approximate* scores use only the neighbours that the approximate search in cells finds. Radii come
from the neighbour lists of each set; memberships come from the neighbour lists of both sets
together. Neighbours that the search misses lower all scores a little but the clipped density, which
is in units of the reference's own and may rise. So do those that the lists have no room for where
one set is more than about twice as large as the other. The agreement of the two methods shows how
far the lists can be trusted where there are too many pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import BoolArray, Float64Array, Int64Array
from latentscale.baselines.clipping import share_of_good_rows
from latentscale.neighbours.exact import exact_neighbours
from latentscale.neighbours.search import approximate_neighbours
from latentscale.tiles.device import decide
from latentscale.tiles.distances import Points, common_unit, row_blocks
from latentscale.tiles.expansions import (
    PARTS,
    float64_is_exact,
    grow_separation,
    is_nearer,
    rounding_of_pairs,
)
from latentscale.tiles.pairs import any_order_squared

TILE_ROWS = 1024

JOINT_SHARE = 8
"""Neighbours searched among both sets together, as a multiple of k."""

OVERLAP = 3
"""Cells that each row joins in the approximate search."""


@dataclass(frozen=True)
class ManifoldOverlap:
    """The scores of a set E against a reference R; all but density are between 0 and 1."""

    precision: float
    recall: float
    density: float
    coverage: float
    clipped_density: float
    clipped_coverage: float


def exact_overlap(evaluated: Points, reference: Points, k: int) -> ManifoldOverlap:
    """Compute the scores from all pairs.

    Parameters
    ----------
    evaluated, reference : Points
        ``m`` rows of E and ``n`` of R, metric ``"euclidean"``.
    k : int
        The neighbour that sets the radius of a ball; less than either number of rows.

    Raises
    ------
    ValueError
        If there are too few rows, or the sets differ in metric or dimension.

    Notes
    -----
    Costs ``2 (m + n)² d`` operations at most and memory for tiles and k neighbours of every row.
    """
    balls_e, balls_r = _squared_radii(evaluated, k), _squared_radii(reference, k)
    near_r = _clipped(balls_r)
    origin = np.asarray(np.median(reference.rows, axis=0))
    evaluated, reference = evaluated.about(origin), reference.about(origin)
    unit = common_unit(evaluated, reference)
    m, n = len(evaluated), len(reference)
    holders, near_holders = np.zeros(m), np.zeros(m)
    recalled, held, own = np.zeros(n, dtype=bool), np.zeros(n), np.zeros(n)
    for columns in row_blocks(n, TILE_ROWS):
        r = reference.take(columns).tile_rows("single", unit)
        for rows in row_blocks(m, TILE_ROWS):
            e = evaluated.take(rows).tile_rows("single", unit)
            inside = decide(e, r, balls_r[columns], strict=False)
            holders[rows] += inside.sum(axis=1)
            held[columns] += inside.sum(axis=0)
            near_holders[rows] += decide(e, r, near_r[columns], strict=False).sum(axis=1)
            recalled[columns] |= decide(r, e, balls_e[rows], strict=False).any(axis=1)
        for rows in row_blocks(n, TILE_ROWS):
            others = reference.take(rows).tile_rows("single", unit)
            own[rows] += decide(others, r, near_r[columns], strict=False).sum(axis=1)
    return _scores(holders, near_holders, recalled, held, own - 1.0, k)  # without itself


def approximate_overlap(
    evaluated: Points, reference: Points, k: int, generator: np.random.Generator
) -> ManifoldOverlap:
    """Estimate the scores from approximate neighbours; parameters as :func:`exact_overlap`."""
    own_lists = [
        approximate_neighbours(points, k, overlap=OVERLAP, generator=generator)
        for points in (evaluated, reference)
    ]
    radii = [found.distances[:, -1] for found in own_lists]
    near = np.minimum(radii[1], np.quantile(radii[1], 0.5, method="lower"))
    m, n = len(evaluated), len(reference)
    own = np.bincount(own_lists[1].indices[own_lists[1].distances <= near[:, None]], minlength=n)
    both = _joined(evaluated, reference)
    wide = min(JOINT_SHARE * k, m + n - 1)
    lists = approximate_neighbours(both, wide, overlap=OVERLAP, generator=generator)
    first = np.repeat(np.arange(m + n), wide)
    second, distances = lists.indices.ravel(), lists.distances.ravel()
    e, r, distances = _mixed_pairs(first, second, distances, m)
    inside, clipped = distances <= radii[1][r], distances <= near[r]
    recalled = np.zeros(n, dtype=bool)
    recalled[r[distances <= radii[0][e]]] = True
    return _scores(
        np.bincount(e[inside], minlength=m),
        np.bincount(e[clipped], minlength=m),
        recalled,
        np.bincount(r[inside], minlength=n),
        own,
        k,
    )


def _squared_radii(points: Points, k: int) -> Float64Array:
    """Return the squared distance of every row's k-th neighbour, as an expansion."""
    rows = points.rows
    lists = exact_neighbours(points, max(k, min(k + 1, len(points) - 1))).indices
    certain = float64_is_exact(rows, rows)
    return _expansions(rows, lists[:, k - 1] if certain else _kth_neighbours(rows, lists, k))


def _clipped(radii: Float64Array) -> Float64Array:
    """Replace the expansions above the lower median by the median."""
    order = np.lexsort(radii.T[::-1])
    middle = (len(order) - 1) // 2
    clipped = radii.copy()
    clipped[order[middle + 1 :]] = radii[order[middle]]
    return clipped


@numba.njit(cache=True, nogil=True)
def _kth_neighbours(rows: Float64Array, lists: Int64Array, k: int) -> Int64Array:
    """Return a k-th neighbour of every row, from lists of k + 1 that are right but for rounding.

    All nearer rows are in the list, as long as the last one is farther than the k-th by more than
    the rounding. Otherwise all rows are candidates.
    """
    n = len(rows)
    found = np.empty(n, dtype=np.int64)
    nearest = np.empty(k, dtype=np.int64)  # of those that rounding can't tell from the k-th
    parts = np.empty(2 * PARTS * rows.shape[1])
    everything = np.arange(n)
    band = rounding_of_pairs(rows.shape[1])
    for i in range(n):
        x, listed = rows[i], lists[i]
        middle = any_order_squared(x, rows[listed[k - 1]])
        low, high = (1.0 - band) * middle, (1.0 + band) * middle
        last = any_order_squared(x, rows[listed[-1]])
        open_list = len(listed) > k and middle > 0.0 and last <= high
        wanted, count = k, 0
        for j in everything if open_list else listed[:k]:
            separation = any_order_squared(x, rows[j])
            if j == i or separation > high:
                continue
            if separation < low:
                wanted -= 1
                continue
            place = count
            while place > 0 and is_nearer(x, rows[j], rows[nearest[place - 1]], parts):
                if place < k:
                    nearest[place] = nearest[place - 1]
                place -= 1
            if place < k:
                nearest[place] = j
                count = min(count + 1, k)
        found[i] = nearest[wanted - 1]
    return found


@numba.njit(cache=True, nogil=True)
def _expansions(rows: Float64Array, chosen: Int64Array) -> Float64Array:
    """Return the squared distances of every row and a chosen one, the largest parts first."""
    parts = np.empty(PARTS * rows.shape[1])
    found = np.zeros((len(rows), 1))
    for i in range(len(rows)):
        count = grow_separation(parts, 0, rows[i], rows[chosen[i]], 1.0, False)
        if count > found.shape[1]:
            wider = np.zeros((len(rows), count))
            wider[:, : found.shape[1]] = found
            found = wider
        found[i, :count] = parts[:count][::-1]
    return found


def _scores(
    holders: NDArray[Any],
    near_holders: NDArray[Any],
    recalled: BoolArray,
    held: NDArray[Any],
    own: NDArray[Any],
    k: int,
) -> ManifoldOverlap:
    """Return the scores.

    Parameters
    ----------
    holders, near_holders : ndarray, shape (m,)
        Balls of R in which each row of E lies, and those of clipped radius.
    recalled : ndarray of bool, shape (n,)
        Whether each row of R lies in a ball of E.
    held : ndarray, shape (n,)
        Rows of E in the ball of each row of R.
    own : ndarray, shape (n,)
        Balls of other rows of R, of clipped radius, in which each row of R lies.
    k : int
        Neighbours in a ball.
    """
    m, n = len(holders), len(held)
    fidelity, usual = (np.minimum(each, k).mean() / k for each in (near_holders, own))
    return ManifoldOverlap(
        precision=float((holders > 0).mean()),
        recall=float(recalled.mean()),
        density=float(holders.mean()) / k,
        coverage=float((held > 0).mean()),
        clipped_density=min(1.0, float(fidelity / usual)),
        clipped_coverage=share_of_good_rows(float(np.minimum(held, k).mean()) / k, m, n, k),
    )


def _joined(a: Points, b: Points) -> Points:
    return Points(
        np.concatenate([a.rows, b.rows]),
        np.concatenate([a.squared_norms, b.squared_norms]),
        a.metric,
    )


def _mixed_pairs(
    first: Int64Array, second: Int64Array, distances: Float64Array, m: int
) -> tuple[Int64Array, Int64Array, Float64Array]:
    """Return the pairs of a row of E and a row of R, each once."""
    mixed = (first < m) != (second < m)
    low, high = np.minimum(first, second)[mixed], np.maximum(first, second)[mixed] - m
    _, once = np.unique(np.stack([low, high]), axis=1, return_index=True)
    return low[once], high[once], distances[mixed][once]
