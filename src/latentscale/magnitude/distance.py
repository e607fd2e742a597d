r"""The magnitude distance of two sets of rows.

.. math:: d_t(X, Y) = 2\,\mathrm{Mag}_t(X \cup Y) - \mathrm{Mag}_t(X) - \mathrm{Mag}_t(Y)

("Magnitude distance", arXiv 2602.08859): what each set has that the other hasn't. It is 0 for equal
sets, at least :math:`|\mathrm{Mag}(X) - \mathrm{Mag}(Y)|`, because the magnitude of a positive
definite space grows with the set, and tends to the size of the symmetric difference for large t.
Unlike the difference of two magnitudes it sees where the rows lie.

Sampling error
--------------
The delete-a-group jackknife leaves out each group of X, then each of Y; the two variances add up.
Without the points L of a set S the magnitude is

.. math:: \mathrm{Mag}(S \setminus L)
          = \mathrm{Mag}(S) - w_L^\top \bigl((K^{-1})_{LL}\bigr)^{-1} w_L ,
          \qquad w = K^{-1} \mathbf 1 ,

the Schur complement, so a group costs a solve of its own size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import ArrayLike

from latentscale.array_types import BoolArray, Float64Array, Int64Array
from latentscale.duplicates.distinct import Distinct, find_distinct
from latentscale.estimate import CONFIDENT, Estimate, Scored
from latentscale.magnitude.dense import all_distances, factorised_magnitude
from latentscale.sampling.jackknife import GROUPS, draw_groups, jackknife_error
from latentscale.tiles.distances import Metric, Points, as_points

MIN_ROWS = 2 * GROUPS
"""Fewest rows of a set that have a sampling error."""


def magnitude_distance(
    first: ArrayLike,
    second: ArrayLike,
    metric: Metric,
    scale: float,
    generator: np.random.Generator | None = None,
    *,
    rows: tuple[int, int] | None = None,
    tolerance: float = 1e-3,
) -> Scored | None:
    """Compute the magnitude distance by dense algebra.

    Parameters
    ----------
    first, second : array_like, shapes (m, d) and (n, d)
        The rows, or random ones of two corpora.
    metric : {"euclidean", "cosine", "manhattan"}
        Distance between rows.
    scale : float
        Positive.
    generator : numpy.random.Generator, optional
        Divides the rows into groups; without one there is no sampling error.
    rows : tuple of int, optional
        Rows of the two corpora from which the given ones were drawn; by default these are all. The
        distance is that of random rows, as many as given. It needs a generator.
    tolerance : float
        Relative rounding of a magnitude that is allowed.

    Returns
    -------
    Scored or None
        None if a similarity matrix isn't safely positive definite in double precision.

    Raises
    ------
    ValueError
        If random rows have no interval: without a generator, or fewer than :data:`MIN_ROWS`.

    Notes
    -----
    Needs about ``48 (m + n)²`` bytes. Costs ``2 (m + n)³`` operations with a sampling error, a
    fifth of that without.
    """
    vectors = [np.asarray(each) for each in (first, second)]
    points = as_points(np.concatenate(vectors), metric)
    distinct = find_distinct(points)
    cut = len(vectors[0])
    apart = points.take(distinct.rows)
    # Far from the origin, coordinates lose the digits that distances are made of.
    apart = apart.about(apart.rows.mean(axis=0))
    sets = [
        np.bincount(distinct.group[some], minlength=len(apart)) > 0
        for some in (slice(cut), slice(cut, None))
    ]
    distances = all_distances(apart)
    one, other, whole = (
        _magnitude(apart, distances, some, scale, tolerance)
        for some in (*sets, np.ones(len(apart), bool))
    )
    if one is None or other is None or whole is None:
        return None
    value = max(0.0, 2.0 * whole.value - one.value - other.value)
    lower = max(0.0, 2.0 * whole.lower - one.upper - other.upper)
    upper = 2.0 * whole.upper - one.lower - other.lower
    drawn = (cut, len(points) - cut)
    shares = [m / n for m, n in zip(drawn, rows or drawn, strict=True)]
    exact = shares == [1.0, 1.0]
    errors: list[float | None] = [None, None]
    if generator is not None:
        errors = _jackknife(np.exp(-scale * distances), distinct, sets, cut, generator)
        for place, group in enumerate((distinct.group[:cut], distinct.group[cut:])):
            if shares[place] == 1.0 and not (np.bincount(group) == 1).any():
                errors[place] = None  # without one of several copies nothing changes
    both = list(zip(errors, shares, strict=True))
    if any(each is None and share < 1.0 for each, share in both):
        raise ValueError(f"an interval needs a generator and {MIN_ROWS} random rows")
    reach = CONFIDENT * math.sqrt(
        math.fsum(each**2 * (1.0 - share) for each, share in both if each is not None)
    )
    error = None
    if None not in errors:
        error = math.sqrt(math.fsum(each**2 * share for each, share in both if each is not None))
    estimate = Estimate(
        value,
        max(0.0, min(lower, value) - reach),
        max(upper, value) + reach,
        "exact" if exact else "interval95",
        "cholesky",
    )
    return Scored(estimate, error)


def is_saturated(
    first: ArrayLike, second: ArrayLike, metric: Metric, scale: float, distance: float, share: float
) -> bool:
    """Return whether nearly every point stands alone, so that few near pairs decide the distance.

    Parameters
    ----------
    first, second, metric, scale
        Those of :func:`magnitude_distance`.
    distance : float
        Its value.
    share : float
        The share of its largest value, the number of points that only one set has, above which the
        distance has to be; and the magnitude of both sets, of the number of their points.

    Notes
    -----
    The magnitude of n points is at least n² over the sum of their similarities, and hardly larger
    where nearly all stand alone. Costs ``(m + n)² d`` operations and ``16 (m + n)²`` bytes if the
    distance is so large, else ``O((m + n) d)``.
    """
    vectors = [np.asarray(each) for each in (first, second)]
    points = as_points(np.concatenate(vectors), metric)
    distinct = find_distinct(points)
    group, cut = distinct.group, len(vectors[0])
    if distance <= share * len(np.setxor1d(group[:cut], group[cut:])):
        return False
    apart = points.take(distinct.rows)
    apart = apart.about(apart.rows.mean(axis=0))
    return len(apart) > share * float(np.exp(-scale * all_distances(apart)).sum())


def _magnitude(
    apart: Points, distances: Float64Array, some: BoolArray, scale: float, tolerance: float
) -> Estimate | None:
    """Return the magnitude of some of the distinct points."""
    chosen = np.flatnonzero(some)
    within = distances if some.all() else distances[np.ix_(chosen, chosen)]
    found = factorised_magnitude(apart.take(chosen), within, scale, tolerance)
    return None if found is None else found[0]


def _jackknife(
    similarities: Float64Array,
    distinct: Distinct,
    sets: list[BoolArray],
    cut: int,
    generator: np.random.Generator,
) -> list[float | None]:
    """Return the part of the sampling error that each set has; None for a set of few rows."""
    whole = _Removal.of(similarities, np.ones(len(similarities), bool))
    errors: list[float | None] = []
    for own, other, groups in zip(
        sets, sets[::-1], (distinct.group[:cut], distinct.group[cut:]), strict=True
    ):
        if len(groups) < MIN_ROWS:
            errors.append(None)
            continue
        alone = _Removal.of(similarities, own)
        division = draw_groups(len(groups), generator)
        left = []
        for index in range(GROUPS):
            kept = np.bincount(groups[division != index], minlength=len(own)) > 0
            lost = own & ~kept
            left.append(2.0 * whole.lowered(lost & ~other) - alone.lowered(lost))
        errors.append(float(jackknife_error(np.array(left), len(groups))))
    return errors


@dataclass(frozen=True)
class _Removal:
    """How much the magnitude of a set falls without some of its points."""

    inverse: Float64Array
    weights: Float64Array
    places: Int64Array

    @classmethod
    def of(cls, similarities: Float64Array, some: BoolArray) -> _Removal:
        """Invert the similarities of a set."""
        chosen = np.flatnonzero(some)
        own = similarities[np.ix_(chosen, chosen)]
        inverse = scipy.linalg.cho_solve(
            scipy.linalg.cho_factor(own), np.eye(len(own)), check_finite=False
        )
        places = np.cumsum(some) - 1
        return cls(inverse, inverse.sum(axis=0), places)

    def lowered(self, lost: BoolArray) -> float:
        """Return minus what the magnitude loses."""
        rows = self.places[lost]
        if not len(rows):
            return 0.0
        weights = self.weights[rows]
        return -float(
            weights @ scipy.linalg.solve(self.inverse[np.ix_(rows, rows)], weights, assume_a="pos")
        )
