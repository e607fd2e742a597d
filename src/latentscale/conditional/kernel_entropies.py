r"""The conditional Vendi score: how many kinds of outputs there are, the prompt being known.

Row i of ``X`` is an output, row i of ``Y`` what it was made from. With kernel matrices K and L of
both, which have ones on the diagonal, and the entropy :math:`H(K) = -\mathrm{tr}(\frac{K}{m} \log
\frac{K}{m})`, Jalali, Ospanov, Gohari and Farnia (Conditional Vendi score, 2024, definitions 1 and
2) define

.. math:: \text{conditional Vendi} = \exp(H(K \circ L) - H(L)), \qquad
          \text{information Vendi} = \exp(H(K) + H(L) - H(K \circ L)).

The first is 1 if equal prompts have equal outputs. The second approaches 1 with many pairs if
outputs have nothing to do with prompts; of few pairs it is larger, so it is also computed with the
prompts of other rows. Their product is the Vendi score of the outputs.

*Sampling error.* If the weight of row i grows by the share ε, H(K) grows by
:math:`\varepsilon \sum_j -\lambda_j \log \lambda_j v_{ij}^2`, with the eigenvalues of K/m and their
vectors. The standard deviation of these influences over rows gives that of the score, to first
order. A bandwidth that is the median distance grows with row i, too: by :math:`(1 - 2 F_i) / f` in
its logarithm, where :math:`F_i` is the share of the distances of row i below the median and f the
density of the logarithms of all distances there. H then grows by that times
:math:`-\frac1m \mathrm{tr}(\log(\frac{K}{m}) \dot K)` with :math:`\dot K = -2 K \log K`, entry by
entry. Both nearly cancel where all distances are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import Scored

CONDITIONAL, INFORMATION = "conditional Vendi", "information Vendi"

ROUNDING = 1e-10
"""Error of a score from the rounding of kernels and eigenvalues, for each row."""

MIN_EIGENVALUE = 1e-18
"""Eigenvalues below are rounding; they add nothing to an entropy."""

AT_MEDIAN = math.exp(-0.5)
"""The kernel at a distance of one bandwidth."""

QUANTILES = (0.45, 0.55)
"""Quantiles of the distances between which their density at the median is measured."""


@dataclass(frozen=True)
class KernelEntropy:
    """The entropy of a kernel matrix, and what changes it.

    Attributes
    ----------
    value : float
        In nats.
    influences : ndarray of float64, shape (m,)
        Of every row, with the mean 0.
    gradient : ndarray of float64, shape (m, m)
        By the entries of the kernel matrix.
    """

    value: float
    influences: Float64Array
    gradient: Float64Array

    @classmethod
    def of(cls, kernel: Float64Array) -> KernelEntropy:
        """Compute the entropy of a kernel matrix, shape (m, m), with ones on the diagonal."""
        m = len(kernel)
        values, vectors = np.linalg.eigh(kernel / m)
        logarithms = np.log(np.maximum(values, MIN_EIGENVALUE))
        terms = -np.maximum(values, MIN_EIGENVALUE) * logarithms
        entropy = float(terms.sum())
        return cls(
            entropy,
            m * (np.square(vectors) @ terms) - entropy,
            (vectors * (-logarithms / m)) @ vectors.T,
        )


def conditional_scores(
    outputs: Float64Array,
    prompts: Float64Array,
    n: int,
    generator: np.random.Generator,
    *,
    medians: tuple[bool, bool] = (False, False),
) -> tuple[dict[str, Scored], float]:
    """Compute the conditional and the information Vendi score.

    Parameters
    ----------
    outputs, prompts : ndarray of float64, shape (m, m)
        Positive semidefinite kernel matrices of the same m items, with ones on the diagonal.
    n : int
        Items that these are a random sample of, at least m.
    generator : numpy.random.Generator
        Gives every output the prompt of another.
    medians : tuple of bool
        Whether each is an RBF kernel whose bandwidth is the median distance of these items, so that
        it differs between samples.

    Returns
    -------
    dict of str to Scored
        The scores of m items. If these are a sample, the brackets are where those of other samples
        of m lie.
    float
        The information Vendi score of the outputs beside the prompts of other rows.

    Notes
    -----
    Four decompositions and three products of m by m, and memory for nine such matrices. The scores
    depend on m: with more items, more of them differ.
    """
    m = len(outputs)
    joint = KernelEntropy.of(outputs * prompts)
    own, given = KernelEntropy.of(outputs), KernelEntropy.of(prompts)
    conditional = joint.influences - given.influences
    information = own.influences + given.influences - joint.influences
    if medians[0]:
        change, moved = _width_change(outputs), _width_influences(outputs)
        along = float(np.vdot(joint.gradient, change * prompts))
        conditional = conditional + along * moved
        information = information + (float(np.vdot(own.gradient, change)) - along) * moved
    if medians[1]:
        change, moved = _width_change(prompts), _width_influences(prompts)
        along = float(np.vdot(joint.gradient, change * outputs))
        along -= float(np.vdot(given.gradient, change))
        conditional, information = conditional + along * moved, information - along * moved
    found = {
        CONDITIONAL: _scored(joint.value - given.value, conditional, m, n),
        INFORMATION: _scored(own.value + given.value - joint.value, information, m, n),
    }
    both = own.value + given.value
    del joint, own, given
    order = generator.permutation(m)
    shuffled = _entropy(outputs * prompts[np.ix_(order, order)])
    return found, math.exp(max(both - shuffled, 0.0))


def _entropy(kernel: Float64Array) -> float:
    values = np.maximum(np.linalg.eigvalsh(kernel / len(kernel)), MIN_EIGENVALUE)
    return float(-(values * np.log(values)).sum())


def _width_change(kernel: Float64Array) -> Float64Array:
    """Return the derivative of an RBF kernel by the logarithm of its bandwidth."""
    positive = np.maximum(kernel, np.finfo(np.float64).tiny)
    return np.asarray(-2.0 * positive * np.log(positive))


def _width_influences(kernel: Float64Array) -> Float64Array:
    """Return the influence of every row on the logarithm of the median distance."""
    m = len(kernel)
    # Every row is at distance 0 of itself, which isn't a pair.
    nearer = ((kernel >= AT_MEDIAN).sum(axis=1) - 1) / (m - 1)
    exponents = -np.log(np.maximum(kernel[np.triu_indices(m, 1)], np.finfo(np.float64).tiny))
    low, high = np.quantile(exponents[exponents > 0.0], QUANTILES)
    # An exponent is half the squared distance, in bandwidths.
    slope = 0.5 * math.log(high / low) / (QUANTILES[1] - QUANTILES[0])
    return np.asarray(2.0 * (nearer.mean() - nearer) * slope)


def _scored(logarithm: float, influences: Float64Array, m: int, n: int) -> Scored:
    score = min(math.exp(max(logarithm, 0.0)), float(m))
    deviation = score * float(influences.std(ddof=1)) / math.sqrt(m)
    return Scored.of_rows(
        score, m, n, deviation, "eigenvalues", rounding=ROUNDING * m, limits=(1.0, float(m))
    )
