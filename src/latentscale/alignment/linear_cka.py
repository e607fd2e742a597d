r"""Linear CKA: whether two models see the same similarities between the same items.

Row i of ``X`` and row i of ``Y`` represent one item. With centred columns, centred kernel
alignment (Kornblith et al., Similarity of neural network representations revisited, ICML 2019) is

.. math:: \mathrm{CKA} = \frac{\|Y^\top X\|_F^2}{\|X^\top X\|_F \, \|Y^\top Y\|_F}.

It is 1 exactly if the one is a rotation of the other, scaled and moved, whatever the dimensions.
Of few items in many dimensions it is large for any two models. The *debiased* form replaces each of
the three terms by the unbiased estimator of the Hilbert–Schmidt independence criterion (Song et
al., Feature selection via dependence maximization, JMLR 2012, equation 5; Nguyen, Raghu and
Kornblith, ICLR 2021). With the Gram matrices K and L without their diagonals it is

.. math:: \mathrm{HSIC}_1 = \frac{1}{m(m-3)} \bigl[ \mathrm{tr}(K L)
          + \frac{\mathbf 1^\top K \mathbf 1 \; \mathbf 1^\top L \mathbf 1}{(m-1)(m-2)}
          - \frac{2}{m-2} \mathbf 1^\top K L \mathbf 1 \bigr],

and it is near 0 for models that have nothing in common. It may be below 0.

No matrix of m × m is formed: the sums follow from the product of d × d', and so do those without
any one of the rows, so the jackknife costs as much as the value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from latentscale.array_types import Float64Array
from latentscale.estimate import Scored

Number = TypeVar("Number", float, Float64Array)

MIN_ROWS = 10
"""Fewest pairs of rows that have a score."""

EPSILON = float(np.finfo(np.float64).eps)

BIASED, DEBIASED = "CKA", "CKA, debiased"


def linear_cka(x: ArrayLike, y: ArrayLike, n: int | None = None) -> dict[str, Scored | None]:
    """Compute linear CKA in its plain and its debiased form, with the errors of a jackknife.

    Parameters
    ----------
    x, y : array_like of float, shapes (m, d) and (m, e)
        Finite vectors of the same m items from two models, at least :data:`MIN_ROWS`.
    n : int, optional
        Items that these are a random sample of; without it they are all.

    Returns
    -------
    dict
        ``CKA`` and ``CKA, debiased``; None if the vectors of a model are all equal or, debiased,
        all equally far apart. There is no sampling error if they are without one of the items.

    Raises
    ------
    ValueError
        For different numbers of rows, or too few.

    Notes
    -----
    Costs ``2 m (d² + e² + d e)`` multiply-adds and memory for four copies of the vectors. The plain
    form depends on the number of items; that of a sample belongs to samples of m.
    """
    x, y = _centred(x), _centred(y)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} rows of one model and {len(y)} of the other; pair them first")
    m = len(x)
    if m < MIN_ROWS:
        raise ValueError(f"{m} pairs of rows; {MIN_ROWS} or more are needed")
    n = m if n is None else n
    across, own, others = _dependence(x, y), _dependence(x, x), _dependence(y, y)
    return {
        BIASED: _ratio(across.plain, own.plain, others.plain, m, n),
        DEBIASED: _ratio(across.unbiased, own.unbiased, others.unbiased, m, n),
    }


def _centred(vectors: ArrayLike) -> Float64Array:
    rows = np.array(vectors, dtype=np.float64)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError("vectors must be a finite array of rank 2")
    # The mean of equal rows may be off by a rounding; that of their differences is 0.
    rows -= rows[:1].copy()
    rows -= rows.mean(axis=0)
    largest = float(np.abs(rows).max(initial=0.0))
    return rows / largest if largest > 0.0 else rows


@dataclass(frozen=True)
class _Term:
    """A term of the ratio, the same without each of the rows, and a bound of its rounding."""

    value: float
    without: Float64Array
    rounding: float


@dataclass(frozen=True)
class _Dependence:
    plain: _Term
    unbiased: _Term


def _dependence(x: Float64Array, y: Float64Array) -> _Dependence:
    """Return both estimators of the dependence of two models, times a power of m."""
    m = len(x)
    product = x.T @ y
    # With centred rows the sums of K and L without the diagonal are those of the diagonal, negated.
    sizes_x, sizes_y = np.einsum("ij,ij->i", x, x), np.einsum("ij,ij->i", y, y)
    shared = np.einsum("ij,ij->i", x @ product, y)
    whole = float(np.vdot(product, product))
    own = sizes_x * sizes_y
    trace, sum_x, sum_y = whole - float(own.sum()), -float(sizes_x.sum()), -float(sizes_y.sum())
    crossed = float(own.sum())
    # Without row i: the sums over the pairs of the others.
    beside = shared - own
    trace_i = trace - 2.0 * beside
    sum_x_i, sum_y_i = sum_x + 2.0 * sizes_x, sum_y + 2.0 * sizes_y
    times_x = -(x @ (x.T @ sizes_y)) + own
    times_y = -(y @ (y.T @ sizes_x)) + own
    crossed_i = crossed - own - times_x - times_y + beside
    # Every entry of the product is a sum of m terms, and the square of the sizes bounds all sums.
    gamma = 4.0 * (m + x.shape[1] + y.shape[1] + 8) * EPSILON
    rounding = gamma * sum_x * sum_y
    # Without row i the columns of the others aren't centred: their mean moves by x_i / (m - 1).
    scale = m / (m - 1.0)
    plain_i = whole - 2.0 * scale * shared + scale**2 * own
    return _Dependence(
        _Term(whole, plain_i, rounding),
        _Term(
            _unbiased(trace, sum_x * sum_y, crossed, m),
            _unbiased(trace_i, sum_x_i * sum_y_i, crossed_i, m - 1),
            4.0 * rounding / (m * (m - 3.0)),
        ),
    )


def _unbiased(trace: Number, sums: Number, crossed: Number, m: int) -> Number:
    whole = trace + sums / ((m - 1.0) * (m - 2.0)) - 2.0 / (m - 2.0) * crossed
    return whole / (m * (m - 3.0))


def _ratio(across: _Term, own: _Term, others: _Term, m: int, n: int) -> Scored | None:
    least = [term.value - term.rounding for term in (own, others)]
    if min(least) <= 0.0:
        return None
    known = min(own.without.min(), others.without.min()) > 0.0
    if m < n and not known:
        return None
    value = min(max(across.value / math.sqrt(own.value * others.value), -1.0), 1.0)
    error = None
    if known:
        without = across.without / np.sqrt(own.without * others.without)
        error = math.sqrt((m - 1.0) / m * float(((without - without.mean()) ** 2).sum()))
    relative = own.rounding / least[0] + others.rounding / least[1]
    rounding = across.rounding / math.sqrt(least[0] * least[1]) + abs(value) * relative
    return Scored.of_rows(value, m, n, error, "moments", rounding=rounding, limits=(-1.0, 1.0))
