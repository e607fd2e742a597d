r"""The influence of every row on the Vendi score under the cosine kernel.

Let :math:`M = \sum_i p_i x_i x_i^\top` be the second moment of unit rows whose weights
:math:`p_i` sum to 1, with eigenvalues :math:`\lambda_j`. Without row i it is
:math:`M + w (M - x_i x_i^\top)`, :math:`w = p_i / (1 - p_i)`. To first order in :math:`w` the
logarithm of the score, the entropy :math:`H_q` of the eigenvalues, changes by

.. math::

    w \left(H_1 + x_i^\top \log(M) x_i\right), \qquad
    \frac{q w}{1 - q} \left(1 - \frac{x_i^\top M^{q - 1} x_i}{\sum_j \lambda_j^q}\right), \qquad
    w \left(\frac{(v^\top x_i)^2}{\lambda_1} - 1\right)

for order 1, for other finite orders, and for order infinity with the eigenvector v of the largest
eigenvalue. So one quadratic form gives the influence of all rows: one pass over them, without a
spectrum for each.

So influences are compared with the average row: times :math:`1 - p_i` they add up to zero, while
the score without a row is nearly always a little lower as long as it grows with n. They tell which
rows add more than others: their correlation with what leaving each row out changes is above 0.99.
A row with a direction of its own takes an eigenvalue of about its weight with it; for such a row
the first order is too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.vendi.second_moments import SecondMoment, unit_block

NEAR_ONE = 1e-8
"""Distance from order 1 below which the formulas of order 1 are the more accurate."""

NEGLIGIBLE = 1e-12
"""Share of the largest eigenvalue below which one is rounding: no row has a part along it."""


@dataclass(frozen=True)
class Influence:
    r"""The influence of a row, as a function of its direction.

    Attributes
    ----------
    score : float
        The Vendi score of all rows.
    constant : float
        What every row adds.
    matrix : ndarray of float64, shape (d, d)
        The quadratic form.
    total : float
        Sum of the weights of all rows.
    """

    score: float
    constant: float
    matrix: Float64Array
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
        if math.isinf(order):
            entropy, constant = -math.log(values[-1]), -1.0
            along = np.where(np.arange(len(values)) == len(values) - 1, 1.0 / values[-1], 0.0)
        elif abs(order - 1.0) < NEAR_ONE:
            entropy = constant = -float(values @ np.log(values))
            along = np.log(values)
        else:
            # In units of the largest, as powers of a large order may be below all numbers.
            shares = values / values[-1]
            powers, constant = float((shares**order).sum()), order / (1.0 - order)
            entropy = constant * math.log(values[-1]) + math.log(powers) / (1.0 - order)
            along = -constant / (powers * values[-1]) * shares ** (order - 1.0)
        return cls(math.exp(entropy), constant, (vectors * along) @ vectors.T, moment.total)

    def of_rows(self, vectors: NDArray[Any], weights: Float64Array | None = None) -> Float64Array:
        """Return by how much more than the average row each row adds to the score.

        Parameters
        ----------
        vectors : ndarray, shape (n, d)
            Some of the rows, none of them zero.
        weights : ndarray of float64, shape (n,), optional
            Their weights, each below the total; 1 by default.

        Returns
        -------
        ndarray of float64, shape (n,)
            In items: the score of all rows less that without the row, to first order. Negative for
            rows that are like many others, and 0 for one that has all the weight. Costs ``n d²``
            operations.
        """
        rows = unit_block(vectors, None)
        changes = self.constant + np.einsum("ij,ij->i", rows @ self.matrix, rows)
        masses = np.ones(len(rows)) if weights is None else weights
        others = self.total - masses
        shares = np.divide(masses, others, out=np.zeros(len(rows)), where=others > 0)
        return np.asarray(-self.score * changes * shares)
