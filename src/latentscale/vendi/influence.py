r"""The influence of every row on the Vendi score under the cosine kernel.

It is what the score loses if the row is left out. Let :math:`M = \sum_i p_i x_i x_i^\top` be the
second moment of unit rows whose weights :math:`p_i` sum to 1, with eigenvalues :math:`\lambda_j`.
Without row i it is :math:`(M - p_i x_i x_i^\top) / (1 - p_i)`. To first order in
:math:`w = p_i / (1 - p_i)` the logarithm of the score, the entropy :math:`H_q` of the eigenvalues,
changes by

.. math::

    w \left(H_1 + x_i^\top \log(M) x_i\right), \qquad
    \frac{q w}{1 - q} \left(1 - \frac{x_i^\top M^{q - 1} x_i}{\sum_j \lambda_j^q}\right)

for order 1 and for other finite orders. The second order has the divided differences of
:math:`f'`, for the term :math:`f` of an eigenvalue. They are taken as :math:`f''` at the geometric
mean of two eigenvalues, which is exact for order 2 and for equal ones. So one product with the
eigenvectors gives the influence of most rows.

It is wrong for rows that the eigenvalues along them largely are of: those of a large leverage
:math:`p_i x_i^\top M^{-1} x_i`, which is 1 for a row with a direction of its own. As the leverages
add up to the rank of M, few rows have large ones. What such a row changes is found by Lanczos'
recurrence with M from it: with the tridiagonal matrix T of some steps, the sum of
:math:`f(\lambda_j)` changes by :math:`\operatorname{tr} f(T - p_i e_1 e_1^\top) -
\operatorname{tr} f(T)`. That is exact for polynomials of a degree below twice the steps, and so for
whole orders from 2 on. At orders above 127 the score is taken to change with the largest eigenvalue
alone, as at order infinity; without the row that is the largest root of the secular equation
(Golub, SIAM Review 15, 1973).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.vendi.scores import Shares, hill_number
from latentscale.vendi.second_moments import SecondMoment, unit_block

NEAR_ONE = 1e-8
"""Distance from order 1 below which the formulas of order 1 are the more accurate."""

NEGLIGIBLE = 1e-12
"""Share of the largest eigenvalue below which one is rounding: no row has a part along it."""

LARGE_LEVERAGE = 0.01
"""Leverage above which two orders aren't enough."""

STEPS, MOST_STEPS = 12, 64
"""Steps of Lanczos' recurrence: half of the order, within these limits."""

LARGEST_ORDER = 2 * MOST_STEPS - 1
"""Largest order at which they are enough."""

STEP_ROWS = 128
"""Rows that are stepped through at a time, so that they fit a cache."""

CANCELLED = 1e-9
"""Share of a sum below which what is left of it, after another was subtracted, is rounding."""

BISECTIONS = 60
"""Halvings of the interval between the two largest eigenvalues."""


@dataclass(frozen=True)
class Influence:
    r"""The influence of a row, as a function of its direction and weight.

    Attributes
    ----------
    order : float
        Order of the score.
    score : float
        The Vendi score of all rows.
    values : ndarray of float64, shape (r,)
        Eigenvalues of the second moment that aren't 0, ascending; their sum is 1.
    vectors : ndarray of float64, shape (d, r)
        The eigenvectors.
    total : float
        Sum of the weights of all rows.
    """

    order: float
    score: float
    values: Float64Array
    vectors: Float64Array
    total: float

    @classmethod
    def of(cls, moment: SecondMoment, order: float) -> Influence:
        """Derive the influence on a score from the second moment of all rows.

        Parameters
        ----------
        moment : SecondMoment
            Of all rows; its total is positive.
        order : float
            Order q in [0, inf].

        Returns
        -------
        Influence
            Costs one eigendecomposition of d by d.

        Raises
        ------
        ValueError
            If the order is 0, whose score counts directions and has no derivative.
        """
        if order == 0:
            raise ValueError("the score of order 0 has no influences; choose a positive order")
        values, vectors = np.linalg.eigh(moment.matrix / moment.total)
        held = values > NEGLIGIBLE * values[-1]
        values, vectors = values[held] / values[held].sum(), vectors[:, held]
        order = 1.0 if abs(order - 1.0) < NEAR_ONE else order
        return cls(order, hill_number(values, order), values, vectors, moment.total)

    def of_rows(self, vectors: NDArray[Any], weights: Float64Array | None = None) -> Float64Array:
        """Return how much the score loses without each row.

        Parameters
        ----------
        vectors : ndarray, shape (n, d)
            Some of the rows, none of them zero.
        weights : ndarray of float64, shape (n,), optional
            Their weights, each at most the total; 1 by default.

        Returns
        -------
        ndarray of float64, shape (n,)
            In items. Negative for rows that are like many others, and 0 for one that has all the
            weight. Costs ``n d²`` operations, and some ``100 d`` for each row of a large leverage,
            of which there are fewer than ``100 d`` among all rows; more at orders above 23.
        """
        rows = unit_block(vectors, None) @ self.vectors
        masses = np.ones(len(rows)) if weights is None else weights
        others = self.total - masses
        found = np.zeros(len(rows))
        if self.order > LARGEST_ORDER:
            large = np.flatnonzero(others > 0)
        else:
            shares = np.divide(masses, others, out=np.zeros(len(rows)), where=others > 0)
            squares = rows**2
            # Those of rows of large leverages may be large, and are replaced.
            changes = np.clip(self._changes(squares, shares), -1.0, 1.0)
            found = -self.score * np.expm1(changes)
            leverages = masses / self.total * (squares @ (1.0 / self.values))
            large = np.flatnonzero((leverages > LARGE_LEVERAGE) & (others > 0))
        for start in range(0, len(large), STEP_ROWS):
            some = large[start : start + STEP_ROWS]
            found[some] = self.score - self._scores_without(rows[some], masses[some] / self.total)
        return found

    def _changes(self, squares: Float64Array, shares: Float64Array) -> Float64Array:
        """Return what the logarithm of the score changes by without each row, to second order."""
        q = self.order
        if q == 1:
            logarithms = np.log(self.values)
            first = shares * (squares @ logarithms - self.values @ logarithms)
            roots = squares @ self.values**-0.5
            return np.asarray(first + shares**2 * (1.0 - roots**2) / 2.0)
        # In units of the largest, as powers of a large order may be below all numbers.
        largest = self.values[-1]
        units = self.values / largest
        total = (units**q).sum()
        along = squares @ units ** (q - 1.0) / largest
        roots = squares @ units ** (q / 2.0 - 1.0) / largest
        first = q * shares * (total - along) / total
        bends = q * (q - 1.0) * shares**2 * (total - 2.0 * along + roots**2) / total
        return np.asarray(np.log1p(np.maximum(first + bends / 2.0, -0.5)) / (1.0 - q))

    def _scores_without(self, rows: Float64Array, parts: Float64Array) -> Float64Array:
        """Return the score without each row, given along the eigenvectors and as a share."""
        if self.order > LARGEST_ORDER:
            falls = self.values[-1] * (1.0 - parts) / self._largest_without(rows, parts)
            power = 1.0 if math.isinf(self.order) else self.order / (self.order - 1.0)
            return np.asarray(self.score * falls**power)
        steps = min(max(STEPS, math.ceil((self.order + 1.0) / 2.0)), len(self.values))
        before, after = _ritz_values(rows, self.values, parts, steps)
        found = np.empty(len(rows))
        for part in np.unique(parts).tolist():  # most often all rows have the same
            alike = np.flatnonzero(parts == part)
            shares = Shares(self.order, self.values[-1] / (1.0 - part))
            whole, more, less = (
                self._sum_terms(shares, values / (1.0 - part))
                for values in (self.values, after[alike], before[alike])
            )
            for i, left in zip(alike.tolist(), (whole + more - less).tolist(), strict=True):
                if abs(left) < CANCELLED * abs(whole):
                    found[i] = self._score_without(rows[i], part)
                else:
                    found[i] = shares.number(left)
        return found

    def _sum_terms(self, shares: Shares, values: Float64Array) -> Float64Array:
        """Return the sum of the terms of eigenvalues along the last axis, without those of 0."""
        terms = np.zeros_like(values)
        held = values > NEGLIGIBLE * shares.unit
        terms[held] = shares.of(values[held])
        return np.asarray(terms.sum(axis=-1))

    def _score_without(self, row: Float64Array, part: float) -> float:
        """Return the score without one row that has nearly all the weight, from all eigenvalues."""
        values = np.linalg.eigvalsh(np.diag(self.values) - part * np.outer(row, row))
        values = values[values > len(values) * np.finfo(np.float64).eps]
        return hill_number(values / values.sum(), self.order) if len(values) else 1.0

    def _largest_without(self, rows: Float64Array, parts: Float64Array) -> Float64Array:
        """Return the largest eigenvalue without each row, by bisection."""
        squares = parts[:, None] * rows**2
        low = np.full(len(rows), self.values[-2] if len(self.values) > 1 else 0.0)
        high = np.full(len(rows), self.values[-1])
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            gaps = self.values - middle[:, None]
            above = (squares / np.where(gaps == 0, np.inf, gaps)).sum(axis=1) < 1.0
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return low


def _ritz_values(
    rows: Float64Array, values: Float64Array, parts: Float64Array, steps: int
) -> tuple[Float64Array, Float64Array]:
    """Return the eigenvalues of T and of T less a part of its first entry, for each row.

    Rows are given along the eigenvectors of eigenvalues, so that a step takes no product.
    """
    n = len(rows)
    matrices = np.zeros((n, steps, steps))
    current = rows / np.linalg.norm(rows, axis=1)[:, None]
    earlier, beta = np.zeros_like(current), np.zeros(n)
    for step in range(steps):
        following = current * values - beta[:, None] * earlier
        alpha = np.einsum("ij,ij->i", following, current)
        matrices[:, step, step] = alpha
        if step + 1 == steps:
            break
        following -= alpha[:, None] * current
        beta = np.linalg.norm(following, axis=1)
        # An invariant subspace: what follows is rounding, and apart from it.
        beta[beta < NEGLIGIBLE * values[-1]] = 0.0
        matrices[:, step + 1, step] = beta
        scale = np.divide(1.0, beta, out=np.zeros(n), where=beta > 0)
        earlier, current = current, following * scale[:, None]
    before: Float64Array = np.asarray(np.linalg.eigvalsh(matrices), np.float64)
    matrices[:, 0, 0] -= parts
    return before, np.asarray(np.linalg.eigvalsh(matrices), np.float64)
