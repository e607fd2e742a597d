r"""The delete-a-group jackknife: the sampling error of any smooth score of a corpus.

The rows are divided at random into G equal groups, and the score is computed G times, each time
without one group. Shao & Tu (The Jackknife and Bootstrap, 1995, section 2.3) give the variance of
the score over fresh samples,

.. math:: s^2 = \frac{G - 1}{G} \sum_g \bigl(\theta_{(g)} - \bar\theta\bigr)^2 ,

with G - 1 degrees of freedom. Groups that differ by one row would add the growth of the score from
row to row, which can be many times its error. So rows that don't fill the groups are never left
out, and the factor is (n / g - 1) / G, with g rows in a group and n in all.

It suits scores that change smoothly with the rows. Counts of neighbours and extremes are not such
scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.sampling.subsets import allowance_for_few

PartT = TypeVar("PartT")

GROUPS = 20
"""Number of groups."""


def draw_groups(n: int, generator: np.random.Generator, groups: int = GROUPS) -> NDArray[np.intp]:
    """Assign ``n`` rows to groups of equal size at random.

    Returns
    -------
    ndarray of intp, shape (n,)
        The group of each row, from 0 to ``min(groups, n) - 1``; -1 for rows that don't fill them.
    """
    numbers = np.arange(n, dtype=np.intp)
    filled = n - n % groups if n > groups else n
    return np.asarray(generator.permutation(np.where(numbers < filled, numbers % groups, -1)))


def leave_each_out(
    parts: Sequence[PartT], merge: Callable[[Sequence[PartT]], PartT], *outside: PartT
) -> Iterator[PartT]:
    """Yield what all parts but one are together, for each of two or more parts in their order.

    Parameters
    ----------
    parts : sequence
        What is known of each group.
    merge : callable
        Joins a sequence of such parts.
    *outside
        Parts that are never left out.

    Notes
    -----
    Merges ``G log2(G)`` times, and holds ``log2(G)`` merged parts.
    """
    if len(parts) == 1:
        yield merge(outside)
        return
    half = len(parts) // 2
    for kept, others in ((parts[:half], parts[half:]), (parts[half:], parts[:half])):
        yield from leave_each_out(kept, merge, merge([*outside, *others]))


def jackknife_error(left_out: Float64Array, rows: int | None = None) -> Float64Array:
    """Return the sampling errors of scores, from their values without each group.

    Parameters
    ----------
    left_out : ndarray of float64, shape (G, ...)
        The scores without group ``g``, ``G >= 2``.
    rows : int, optional
        Number of rows that :func:`draw_groups` divided; by default, as many as fill the groups.

    Returns
    -------
    ndarray of float64, shape (...)
        Standard errors over fresh samples of as many rows, enlarged for few groups so that 1.96
        times one equals Student's interval.
    """
    groups = len(left_out)
    parts = groups if rows is None else rows / (rows // groups)
    return np.asarray(allowance_for_few(groups - 1) * math.sqrt(parts - 1) * left_out.std(axis=0))
