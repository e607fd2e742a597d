r"""Majorisation: the least and the most even distribution of an amount.

A vector *majorises* another of equal sum when, both sorted descending, each of its partial sums is
at least as large: it is the less even one. Hill numbers, and with them every Vendi score, fall
under majorisation (they are Schur-concave). So when only lower bounds :math:`l_i` of the
eigenvalues are known and the sum of what they lack, two spectra bracket every score: the one that
majorises all candidates and the one that all candidates majorise (Marshall, Olkin & Arnold,
*Inequalities: Theory of Majorization and Its Applications*, chapter 5).
"""

from __future__ import annotations

import numpy as np

from latentscale.tiles.distances import Float64Array


def pour_on_largest(lower: Float64Array, upper: Float64Array, amount: float) -> Float64Array:
    """Least even vector between two bounds: the amount goes to the first entries, up to limits.

    Parameters
    ----------
    lower, upper : ndarray of float64, shape (k,)
        Both descending, ``0 <= lower <= upper``.
    amount : float
        Non-negative: what the entries sum to beyond ``lower``.

    Returns
    -------
    ndarray of float64, shape (k,)
        Descending; majorises every vector whose sorted entries lie between the bounds and sum to
        the same. Where the limits leave too little room the rest goes to the first entry, which
        keeps that property.
    """
    room = upper - lower
    before = np.cumsum(room) - room
    poured = np.clip(amount - before, 0.0, room)
    poured[0] += max(0.0, amount - float(room.sum()))
    return lower + poured


def raise_smallest(lower: Float64Array, amount: float) -> Float64Array:
    """Most even vector above a bound: the smallest entries are raised to a common level.

    Parameters
    ----------
    lower : ndarray of float64, shape (k,)
        Descending, non-negative.
    amount : float
        Non-negative: what the entries sum to beyond ``lower``.

    Returns
    -------
    ndarray of float64, shape (k,)
        Descending; majorised by every vector at or above ``lower`` with the same sum.
    """
    ascending = lower[::-1]
    levels = (amount + np.cumsum(ascending)) / np.arange(1, len(lower) + 1)
    raised = np.flatnonzero(levels >= ascending)
    level = levels[raised[-1]] if len(raised) else 0.0
    return np.maximum(lower, level)
