r"""The squared maximum mean discrepancy, and a test of it by permutations of groups.

For a kernel k, the squared distance of the mean embeddings of two distributions P and Q is

.. math:: \mathrm{MMD}^2 = E\,k(x, x') + E\,k(y, y') - 2\,E\,k(x, y),
          \qquad x, x' \sim P,\; y, y' \sim Q

(Gretton, Borgwardt, Rasch, Schölkopf & Smola, A kernel two-sample test, JMLR 2012, lemma 6). The
estimate of all pairs of different rows is unbiased, so it lies on both sides of 0 if P = Q. Under
the RBF kernel MMD is 0 only if P = Q; under the linear kernel if the means are equal.

*Test.* Random divisions of the groups into two sides say what chance makes of the discrepancy
(:mod:`latentscale.sampling.divisions`; section 2.3 there has the same for rows). Groups of one row
give the permutation test of rows. Larger groups see the same differences, for the discrepancy is
that of all their rows; only the divisions it is compared with are fewer. A bandwidth that one of
the corpora determines is kept in all divisions. Where that corpus has few rows, the p-value is
approximate: with 20 rows under the median of their distances, 3.5 % of tests reach 0.05.

*Sampling error.* Leaving out one group of a corpus after another changes the discrepancy; the
jackknife's variances of both corpora add up. Where P = Q, the error is about the root of two times
too large, and up to 1.6 times where one corpus has few groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import BoolArray, Float64Array
from latentscale.mmd.group_sums import GroupSums
from latentscale.sampling.divisions import ExpectedByDivisions, expect_by_divisions

DIVISIONS = 9999
"""Number of random divisions; the smallest p-value is one in ten thousand."""

AT_ONCE = 1000
"""Divisions whose discrepancies are computed at a time."""

EQUAL = 1e-9
"""Difference of two discrepancies up to which they count as equal, in units of the largest."""


@dataclass(frozen=True)
class Discrepancy:
    """The squared discrepancy of two corpora, with that of random divisions of their groups.

    Attributes
    ----------
    value : float
        The unbiased estimate of MMD².
    sampling_error : float
        Standard error over fresh samples of both corpora.
    divided : ndarray of float64, shape (b,)
        The same of random divisions of the groups.
    """

    value: float
    sampling_error: float
    divided: Float64Array

    @property
    def expected(self) -> ExpectedByDivisions:
        """Return where MMD² is expected by chance, with the p-value."""
        tie = EQUAL * float(np.abs(self.divided).max())
        return expect_by_divisions(self.value, self.divided, tie)


def two_sample_discrepancy(
    sums: GroupSums, generator: np.random.Generator, *, divisions: int = DIVISIONS
) -> Discrepancy:
    """Compute MMD² of two corpora, and that of random divisions of their groups.

    Parameters
    ----------
    sums : GroupSums
        At least two groups of each corpus, which were drawn at random.
    generator : numpy.random.Generator
        Divides the groups.
    divisions : int
        Number of random divisions.

    Returns
    -------
    Discrepancy

    Raises
    ------
    ValueError
        If a corpus has fewer than two groups, or two rows without one of them.

    Notes
    -----
    Costs ``divisions g²`` multiplications.
    """
    count = len(sums.sizes)
    if min(sums.first, count - sums.first) < 2:
        raise ValueError(f"{sums.first} and {count - sums.first} groups; both need at least two")
    sides = np.arange(count) < sums.first
    if min(int(own.sum() - own.max()) for own in (sums.sizes[sides], sums.sizes[~sides])) < 2:
        raise ValueError("without one of its groups, each side needs at least two rows")
    value = float(_discrepancies(sums, sides[None].astype(np.float64))[0])
    divided = []
    for start in range(0, divisions, AT_ONCE):
        chosen = np.tile(sides, (min(AT_ONCE, divisions - start), 1))
        divided.append(_discrepancies(sums, generator.permuted(chosen, axis=1).astype(np.float64)))
    return Discrepancy(value, _jackknife_error(sums, sides), np.concatenate(divided))


def _discrepancies(sums: GroupSums, sides: Float64Array) -> Float64Array:
    """Return MMD² of divisions, shape (b, g): 1 for the groups of the first side, else 0."""
    inside = np.einsum("ij,ij->i", sides @ sums.pairs, sides)
    touching = sides @ sums.pairs.sum(axis=1)
    own, rows = sides @ sums.own, sides @ sums.sizes
    return _from_totals(
        (inside, sums.pairs.sum() - 2.0 * touching + inside, touching - inside),
        (own, sums.own.sum() - own),
        (rows, sums.sizes.sum() - rows),
    )


def _from_totals(
    pairs: tuple[Float64Array, ...],
    own: tuple[Float64Array, ...],
    rows: tuple[Float64Array, ...],
) -> Float64Array:
    """Return MMD² from sums over pairs of the first side, of the second, and of both."""
    (first, second, both), (m, n) = pairs, rows
    within = (first - own[0]) / (m * (m - 1.0)) + (second - own[1]) / (n * (n - 1.0))
    return np.asarray(within - 2.0 * both / (m * n))


def _jackknife_error(sums: GroupSums, sides: BoolArray) -> float:
    """Return the standard error by leaving out every group of both corpora in turn."""
    chosen = sides.astype(np.float64)
    to_first = sums.pairs @ chosen
    to_second = sums.pairs.sum(axis=1) - to_first
    diagonal = np.diagonal(sums.pairs)
    totals = [chosen @ to_first, (1.0 - chosen) @ to_second, chosen @ to_second]
    sizes = sums.sizes.astype(np.float64)
    own, rows = ([float(chosen @ each), float((1.0 - chosen) @ each)] for each in (sums.own, sizes))
    left = _from_totals(
        (
            totals[0] - sides * (2.0 * to_first - diagonal),
            totals[1] - ~sides * (2.0 * to_second - diagonal),
            totals[2] - np.where(sides, to_second, to_first),
        ),
        (own[0] - sides * sums.own, own[1] - ~sides * sums.own),
        (rows[0] - sides * sizes, rows[1] - ~sides * sizes),
    )
    variance = 0.0
    for part in (left[sides], left[~sides]):
        variance += (len(part) - 1) / len(part) * float(((part - part.mean()) ** 2).sum())
    return math.sqrt(variance)
