r"""Majorisation: the least even and the most even distribution of an amount.

A vector *majorises* another of equal sum when, with both sorted in descending order, each of its
partial sums is at least as large: it is the less even one. Hill numbers, and so all Vendi scores,
are Schur-concave: they fall as a vector becomes less even. If only lower bounds :math:`l_i` of the
eigenvalues and the sum of the differences are known, two spectra bracket every score: the one that
majorises all candidates and the one that all candidates majorise (Marshall, Olkin & Arnold,
*Inequalities: Theory of Majorization and Its Applications*, chapter 5).
"""

from __future__ import annotations

import numpy as np

from latentscale.array_types import Float64Array


def pour_on_largest(lower: Float64Array, upper: Float64Array, amount: float) -> Float64Array:
    """Return the least even vector: the amount goes to the first entries, up to their limits.

    Parameters
    ----------
    lower, upper : ndarray of float64, shape (k,)
        Both descending, ``0 <= lower <= upper``.
    amount : float
        Non-negative: what the entries sum to beyond ``lower``.

    Returns
    -------
    ndarray of float64, shape (k,)
        Descending. It majorises every vector of the same sum whose sorted entries lie between the
        bounds. Where the limits leave too little room, the rest goes to the first entry; the
        property still holds.
    """
    room = upper - lower
    before = np.cumsum(room) - room
    poured = np.clip(amount - before, 0.0, room)
    poured[0] += max(0.0, amount - float(room.sum()))
    return lower + poured


def raise_smallest(lower: Float64Array, amount: float) -> Float64Array:
    """Return the most even vector: the smallest entries are raised to a common level.

    Parameters
    ----------
    lower : ndarray of float64, shape (k,)
        Descending, non-negative.
    amount : float
        Non-negative: what the entries sum to beyond ``lower``.

    Returns
    -------
    ndarray of float64, shape (k,)
        Descending. It is majorised by every vector of the same sum that is at or above ``lower``.
    """
    ascending = lower[::-1]
    levels = (amount + np.cumsum(ascending)) / np.arange(1, len(lower) + 1)
    raised = np.flatnonzero(levels >= ascending)
    level = levels[raised[-1]] if len(raised) else 0.0
    return np.maximum(lower, level)
