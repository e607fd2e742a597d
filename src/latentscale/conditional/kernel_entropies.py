r"""The conditional Vendi score: how many kinds of outputs there are, the prompt being known.

Row i of ``X`` is an output, row i of ``Y`` what it was made from. With kernel matrices K and L of
both, which have ones on the diagonal, and the entropy :math:`H(K) = -\mathrm{tr}(\frac{K}{m} \log
\frac{K}{m})`, Jalali, Ospanov, Gohari and Farnia (Conditional Vendi score, 2024, definitions 1 and
2) define

.. math:: \text{conditional Vendi} = \exp(H(K \circ L) - H(L)), \qquad
          \text{information Vendi} = \exp(H(K) + H(L) - H(K \circ L)).

The first is 1 if equal prompts have equal outputs, and the second if outputs have nothing to do
with prompts. Their product is the Vendi score of the outputs.

*Sampling error.* If the weight of row i grows by the share ε, H(K) grows by
:math:`\varepsilon \sum_j -\lambda_j \log \lambda_j v_{ij}^2`, with the eigenvalues of K/m and their
vectors. The standard deviation of these influences over rows gives that of the score, to first
order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentscale.estimate import Scored

Float64Array = NDArray[np.float64]

CONDITIONAL, INFORMATION = "conditional Vendi", "information Vendi"

ROUNDING = 1e-10
"""Relative error of a score from the rounding of kernels and eigenvalues."""


@dataclass(frozen=True)
class KernelEntropy:
    """The entropy of a kernel matrix, and the influence of every row on it.

    Attributes
    ----------
    value : float
        In nats.
    influences : ndarray of float64, shape (m,)
        With the mean 0.
    """

    value: float
    influences: Float64Array

    @classmethod
    def of(cls, kernel: Float64Array) -> KernelEntropy:
        """Compute the entropy of a kernel matrix, shape (m, m), with ones on the diagonal."""
        values, vectors = np.linalg.eigh(kernel / len(kernel))
        values = np.maximum(values, np.finfo(np.float64).tiny)
        terms = -values * np.log(values)
        entropy = float(terms.sum())
        return cls(entropy, len(kernel) * (np.square(vectors) @ terms) - entropy)


def conditional_scores(outputs: Float64Array, prompts: Float64Array, n: int) -> dict[str, Scored]:
    """Compute the conditional and the information Vendi score.

    Parameters
    ----------
    outputs, prompts : ndarray of float64, shape (m, m)
        Positive semidefinite kernel matrices of the same m items, with ones on the diagonal.
    n : int
        Items that these are a random sample of, at least m.

    Returns
    -------
    dict of str to Scored
        The scores of m items. If these are a sample, the brackets are where those of other samples
        of m lie.

    Notes
    -----
    Three decompositions of m by m. The scores depend on m: with more items, more of them differ.
    """
    m = len(outputs)
    joint = KernelEntropy.of(outputs * prompts)
    own, given = KernelEntropy.of(outputs), KernelEntropy.of(prompts)
    logarithms = {
        CONDITIONAL: (joint.value - given.value, joint.influences - given.influences),
        INFORMATION: (
            own.value + given.value - joint.value,
            own.influences + given.influences - joint.influences,
        ),
    }
    return {
        name: _scored(math.exp(max(logarithm, 0.0)), influences, m, n)
        for name, (logarithm, influences) in logarithms.items()
    }


def _scored(score: float, influences: Float64Array, m: int, n: int) -> Scored:
    deviation = score * float(influences.std(ddof=1)) / math.sqrt(m)
    limits = (1.0, float(m))
    return Scored.of_rows(
        min(score, float(m)), m, n, deviation, "eigenvalues", rounding=ROUNDING * m, limits=limits
    )
