r"""How far a bandwidth that is the median distance moves between samples.

With :math:`F_i` the share of rows nearer to row i than the median, the rank of the median has the
standard deviation :math:`2 \operatorname{sd}(F_i) / \sqrt n` over samples. If f is the density of
the logarithms of distances at the median, the logarithm of the median moves by as much over f
(Hoeffding 1948, section 5, for the share of pairs below a value).

That holds where the density hardly changes over the ranks that the median may take. Of two about
equal groups of rows, half of all distances lie within groups and half between them. The median then
lies at the edge of a gap or in it, and jumps from one side to the other. Which share lies within
groups depends on the sizes of both in second order only, so the rank moves by about 1/n. Whole
numbers are at few different distances: the median stays, or takes the next one.
"""

from __future__ import annotations

import math

import numpy as np

from latentscale.array_types import Float64Array

WINDOW = 0.02
"""Logarithms of distances this near to the median's show their density there."""

RANKS = 4.0
"""Smallest change of the median's rank that is looked at, in units of 1/n."""

UNEVEN = 3.0
"""Factor between a move and what the density says of it, from which the median jumps."""

ROUNDING = 1e-5
"""Logarithms of distances this near to each other are the same."""

EQUAL = 0.5
"""Share of distances equal to the median, in standard deviations of its rank, from which it takes
one of few values."""

FAR = 0.25
"""Move of the logarithm from which it isn't foreseen where single rows hardly move the rank."""


class JumpingMedian(ValueError):
    """The median distance jumps between samples, so nothing moves smoothly with it.

    Attributes
    ----------
    move : float
        How far its logarithm may jump.
    """

    def __init__(self, move: float) -> None:
        super().__init__(
            "the median distance jumps between samples: distances are in two groups, or have few "
            "different values"
        )
        self.move = move


def density_at_median(
    logarithms: Float64Array, nearer: Float64Array, rows: int, weights: Float64Array | None = None
) -> float:
    """Return the density of the logarithms of distances at their median; infinite if it stays.

    Parameters
    ----------
    logarithms : ndarray of float64
        Logarithms of distances of random pairs of rows, in units of the median.
    nearer : ndarray of float64, shape (m,)
        Share of rows that are nearer to each of some rows than the median.
    rows : int
        Number of rows n whose median it is.
    weights : ndarray of float64, optional
        How many pairs each distance stands for.

    Raises
    ------
    JumpingMedian
        If no distances are about as long as the median, or their density isn't the same over the
        ranks that the median takes between samples.
    """
    given = np.ones(len(logarithms)) if weights is None else weights
    total = float(given.sum())
    density = float(given[np.abs(logarithms) < WINDOW].sum()) / (2.0 * WINDOW * total)
    deviation, by_pairs = 2.0 * float(nearer.std()) / math.sqrt(rows), RANKS / rows
    reach = min(0.25, max(2.0 * deviation, by_pairs))
    equal = float(given[np.abs(logarithms) < ROUNDING].sum()) / total
    order = np.argsort(logarithms)
    ranks = np.cumsum(given[order]) / total
    places = np.searchsorted(ranks, [0.5 - reach, 0.5, 0.5 + reach])
    low, middle, high = logarithms[order[places]]
    move = float(max(high - middle, middle - low))
    if move < ROUNDING:
        return math.inf
    uneven = not reach / UNEVEN <= move * density <= UNEVEN * reach
    far = 2.0 * deviation < by_pairs and by_pairs > FAR * density
    if density == 0.0 or uneven or far or equal > EQUAL * deviation:
        raise JumpingMedian(move)
    return density
