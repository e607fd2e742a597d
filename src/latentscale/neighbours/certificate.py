"""The certificate of recall: how many true neighbours were found, from sampled rows."""

from __future__ import annotations

from dataclasses import dataclass

import scipy  # its submodules are imported when they are first used

from latentscale.array_types import Float64Array


@dataclass(frozen=True)
class Recall:
    """The share of true neighbours that were found, with its 95 % interval.

    Attributes
    ----------
    value : float
        Recall over the sampled rows, in [0, 1].
    lower, upper : float
        Conservative 95 % confidence interval of the recall over all rows.
    sampled : int
        Number of sampled rows, the sample size of the interval.
    """

    value: float
    lower: float
    upper: float
    sampled: int


def recall_certificate(found: Float64Array, true: Float64Array) -> Recall:
    """Estimate the recall of an approximate graph from sampled rows.

    Parameters
    ----------
    found : ndarray of float64, shape (q, k)
        Distances of the neighbours found for ``q`` rows drawn at random.
    true : ndarray of float64, shape (q, k)
        Distances of their exact neighbours, ascending.

    Returns
    -------
    Recall
        The mean share of a row's found neighbours within its true ``k``-th distance, and the
        Clopper-Pearson interval with rows as the sample. The ``k`` hits of a row depend on each
        other, so they count as one draw. The mean of draws between 0 and 1 varies at most as much
        as a share of successes with the same mean (Hoeffding 1963), and the count of successes is
        rounded outwards. So the interval is conservative.

    Raises
    ------
    ValueError
        If the shapes differ or are empty.
    """
    if found.shape != true.shape or found.ndim != 2 or 0 in found.shape:
        raise ValueError(
            f"found and true distances must be alike and not empty, got shapes "
            f"{found.shape} and {true.shape}"
        )
    rows, k = found.shape
    hits = int((found <= true[:, -1:]).sum())
    low, high = hits // k, -(-hits // k)
    lower = 0.0 if low == 0 else float(scipy.special.betaincinv(low, rows - low + 1, 0.025))
    upper = 1.0 if high == rows else float(scipy.special.betaincinv(high + 1, rows - high, 0.975))
    return Recall(hits / (rows * k), lower, upper, rows)
