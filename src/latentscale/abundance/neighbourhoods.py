r"""Neighbourhoods in which one of two corpora has more or fewer rows than chance explains.

The rows of both corpora are put together, and each row has a *neighbourhood*: its k nearest rows
among all of them. If both corpora have one source, the rows of the first are as random as any
subset of that size, and so :math:`c_i`, how many of row i's neighbours are rows of the first, has
about a hypergeometric distribution. Where a kind of rows is rarer in the first corpus, its
neighbourhoods have fewer rows of the first, and where it is more frequent they have more.

A neighbourhood is *depleted* if its count has a probability of at most :data:`RARE`, as low counts
go, and *enriched* likewise. Two scores follow: the share of the second corpus's rows in depleted
neighbourhoods, which are rows of kinds that the first lacks, and the share of the first corpus's
rows in enriched ones. Neighbourhoods overlap, so unusual ones come in clumps, and the p-value of a
score isn't that of independent counts. It is the share of random divisions of all rows into two
corpora of these sizes whose score is at least as large (:mod:`latentscale.sampling.divisions`):
exact for rows that are drawn independently, whatever their distribution and the neighbourhoods.

Counts of the samples among the nearest neighbours make a two-sample test of the whole (Schilling,
*Multivariate two-sample tests based on nearest neighbors*, 1986). Testing every neighbourhood for
itself is how single-cell biology finds kinds of cells whose frequency differs (Dann et al.,
*Differential abundance testing on single-cell data using k-nearest neighbor graphs*, 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import gammaln

from latentscale.array_types import BoolArray, Float64Array, Int32Array, Int64Array
from latentscale.sampling.divisions import ExpectedByDivisions, expect_by_divisions

RARE = 1e-3
"""Probability up to which the count of a neighbourhood is unusual."""

DIVISIONS = 999
"""Random divisions of the rows."""

LINKS = 10
"""Nearest rows of a row that are of its kind, if they are unusual too."""


@dataclass(frozen=True)
class Abundance:
    """Which neighbourhoods have unusually many or few rows of the first corpus.

    Attributes
    ----------
    counts : ndarray of int64, shape (n,)
        Rows of the first corpus in the neighbourhood of every row.
    low, high : int
        The largest count of a depleted neighbourhood, and the smallest of an enriched one.
    depleted, enriched : ndarray of bool, shape (n,)
        Rows of the second corpus in depleted neighbourhoods, and of the first in enriched ones.
    shares : dict of str to ExpectedByDivisions
        Their shares of the rows of that corpus, by the names of these two.
    """

    counts: Int64Array
    low: int
    high: int
    depleted: BoolArray
    enriched: BoolArray
    shares: dict[str, ExpectedByDivisions]


def compare_neighbourhoods(
    lists: Int32Array, first: BoolArray, generator: np.random.Generator
) -> Abundance:
    """Compare two corpora by the neighbourhoods of their rows.

    Parameters
    ----------
    lists : ndarray of int32, shape (n, k)
        The nearest other rows of every row.
    first : ndarray of bool, shape (n,)
        Which rows are those of the first corpus; both corpora have some.
    generator : numpy.random.Generator
        Draws the divisions.

    Returns
    -------
    Abundance

    Notes
    -----
    Costs ``DIVISIONS * n * k`` look-ups, about a nanosecond each.
    """
    n, k = lists.shape
    sizes = int(first.sum()), int(n - first.sum())
    low, high = unusual_counts(k, n, sizes[0])
    members = first.astype(np.uint8)
    counts = _count_members(lists, members)
    unusual = {"depleted": ~first & (counts <= low), "enriched": first & (counts >= high)}
    divided = np.empty((DIVISIONS, 2))
    for place in range(DIVISIONS):
        generator.shuffle(members)
        divided[place] = _count_unusual(lists, members, low, high)
    shares = {
        name: expect_by_divisions(int(rows.sum()) / size, divided[:, place] / size, 0.5 / size)
        for place, ((name, rows), size) in enumerate(zip(unusual.items(), sizes[::-1], strict=True))
    }
    return Abundance(counts, low, high, **unusual, shares=shares)


def unusual_counts(k: int, n: int, first: int) -> tuple[int, int]:
    """Return the largest count that is unusually low, and the smallest that is unusually high.

    Parameters
    ----------
    k, n, first : int
        Rows of a neighbourhood, of both corpora, and of the first corpus.

    Returns
    -------
    tuple of int
        -1, or k + 1, if no count is.
    """
    counts = np.arange(k + 1)
    possible = (counts <= first) & (k - counts <= n - first)
    logarithms = (
        _log_choose(first, counts[possible])
        + _log_choose(n - first, k - counts[possible])
        - _log_choose(n, np.array([k]))
    )
    probabilities = np.zeros(k + 1)
    probabilities[possible] = np.exp(logarithms)
    low = np.flatnonzero(np.cumsum(probabilities) <= RARE)
    high = np.flatnonzero(np.cumsum(probabilities[::-1])[::-1] <= RARE)
    return int(low.max(initial=-1)), int(high.min(initial=k + 1))


def _log_choose(n: int, k: Int64Array) -> Float64Array:
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def group_kinds(lists: Int32Array, unusual: BoolArray) -> list[Int64Array]:
    """Divide unusual rows into kinds: those that are linked by near rows.

    Parameters
    ----------
    lists : ndarray of int32, shape (n, k)
        The nearest other rows of every row, the nearest first.
    unusual : ndarray of bool, shape (n,)
        The rows to divide.

    Returns
    -------
    list of ndarray of int64
        The rows of every kind, ascending; the largest kind comes first, of equal ones that with the
        first row.
    """
    rows = np.flatnonzero(unusual)
    near = lists[rows, :LINKS]
    linked = unusual[near]
    place = np.zeros(len(unusual), np.int64)
    place[rows] = np.arange(len(rows))
    ends = np.repeat(np.arange(len(rows)), linked.sum(axis=1)), place[near[linked]]
    graph = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(len(rows), len(rows)))
    _, kinds = connected_components(graph, directed=False)
    found = [rows[kinds == kind] for kind in range(kinds.max(initial=-1) + 1)]
    return sorted(found, key=lambda kind: (-len(kind), int(kind[0])))


@numba.njit(cache=True, nogil=True)
def _count_members(lists: Int32Array, members: np.ndarray) -> Int64Array:
    counts = np.zeros(lists.shape[0], np.int64)
    for i in range(lists.shape[0]):
        for j in range(lists.shape[1]):
            counts[i] += members[lists[i, j]]
    return counts


@numba.njit(cache=True, nogil=True)
def _count_unusual(lists: Int32Array, members: np.ndarray, low: int, high: int) -> tuple[int, int]:
    """Count depleted neighbourhoods of other rows, and enriched ones of members."""
    depleted = enriched = 0
    for i in range(lists.shape[0]):
        count = 0
        for j in range(lists.shape[1]):
            count += members[lists[i, j]]
        if members[i]:
            enriched += count >= high
        else:
            depleted += count <= low
    return depleted, enriched
