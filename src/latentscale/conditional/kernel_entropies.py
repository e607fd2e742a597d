r"""The conditional Vendi score: how many kinds of outputs there are, the prompt being known.

Row i of ``X`` is an output, row i of ``Y`` what it was made from. With kernel matrices K and L of
both, which have ones on the diagonal, and the entropy :math:`H(K) = -\mathrm{tr}(\frac{K}{m} \log
\frac{K}{m})`, Jalali, Ospanov, Gohari and Farnia (Conditional Vendi score, 2024, definitions 1 and
2) define

.. math:: \text{conditional Vendi} = \exp(H(K \circ L) - H(L)), \qquad
          \text{information Vendi} = \exp(H(K) + H(L) - H(K \circ L)).

The first is 1 if equal prompts have equal outputs and the similarity of different prompts is next
to 0; else it is larger. The second approaches 1 with many pairs if
outputs have nothing to do with prompts; of few pairs it is larger, so it is also computed with the
prompts of other rows. Their product is the Vendi score of the outputs.

*Sampling error.* It is that of the delete-one jackknife. Without row i the entropy needs no other
decomposition: with the eigenvalues :math:`\lambda_j` of A = K/m and their vectors v, the
determinant of A + t without row and column i is that of A + t times
:math:`\sum_j v_{ij}^2 / (\lambda_j + t)`, and the logarithm is an integral of resolvents. So

.. math:: \mathrm{tr}(A \log A) - \mathrm{tr}(A_i \log A_i) = \int_0^\infty
          \Bigl(\frac{a_{ii}}{1 + t} - h_i(t)\Bigr) dt, \qquad
          h_i(t) = \frac{\sum_j v_{ij}^2 \lambda_j / (\lambda_j + t)^2}
                        {\sum_j v_{ij}^2 / (\lambda_j + t)} .

The integrand is analytic in the logarithm of t, so the trapezoidal rule converges as a power. The
influence function is simpler, but where rows have little in common with each other it gives two
thirds of the error.

A bandwidth that is the median distance moves with row i, too: by :math:`(1 - 2 F_i) / f` in its
logarithm, where :math:`F_i` is the share of the distances of row i below the median and f the
density of the logarithms of all distances there. H then grows by that times
:math:`-\frac1m \mathrm{tr}(\log(\frac{K}{m}) \dot K)` with :math:`\dot K = -2 K \log K`, entry by
entry. Both nearly cancel where all distances are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import Scored
from latentscale.sampling.moving_median import JumpingMedian, density_at_median

CONDITIONAL, INFORMATION = "conditional Vendi", "information Vendi"

ROUNDING = 1e-10
"""Error of a score from the rounding of kernels and eigenvalues, for each row."""

MIN_EIGENVALUE = 1e-18
"""Eigenvalues below are rounding; they add nothing to an entropy."""

LOGARITHMS = (-36.0, 36.0, 0.75)
"""First and last logarithm of the points of the trapezoidal rule, and their distance."""

AT_MEDIAN = math.exp(-0.5)
"""The kernel at a distance of one bandwidth."""


@dataclass(frozen=True)
class KernelEntropy:
    """The entropy of a kernel matrix, and what changes it.

    Attributes
    ----------
    value : float
        In nats.
    influences : ndarray of float64, shape (m,)
        Of every row, with the mean 0: m - 1 times what the entropy falls without it.
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
        values = np.maximum(values, MIN_EIGENVALUE)
        entropy = float(-(values * logarithms).sum())
        left = 1.0 - 1.0 / m
        without = (entropy - _falls(values, vectors)) / left + math.log(left)
        return cls(
            entropy,
            (m - 1) * (without.mean() - without),
            (vectors * (-logarithms / m)) @ vectors.T,
        )


def _falls(values: Float64Array, vectors: Float64Array) -> Float64Array:
    """Return what the trace of -A log A loses without each row and column, from A's spectrum."""
    shares = np.square(vectors)
    t = np.exp(np.arange(*LOGARITHMS))
    resolvents = 1.0 / (values[:, None] + t)
    h = (shares @ (values[:, None] * np.square(resolvents))) / (shares @ resolvents)
    return np.asarray(LOGARITHMS[2] * ((h - (shares @ values)[:, None] / (1.0 + t)) @ t))


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
        of m lie. Where a median jumps between samples, they have no sampling error.
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
    conditional = _Effects(joint.influences - given.influences)
    information = _Effects(own.influences + given.influences - joint.influences)
    if medians[0]:
        change, width = _width_change(outputs), _Effects.of_width(outputs)
        along = float(np.vdot(joint.gradient, change * prompts))
        conditional = conditional.plus(along, width)
        information = information.plus(float(np.vdot(own.gradient, change)) - along, width)
    if medians[1]:
        change, width = _width_change(prompts), _Effects.of_width(prompts)
        along = float(np.vdot(joint.gradient, change * outputs))
        along -= float(np.vdot(given.gradient, change))
        conditional, information = conditional.plus(along, width), information.plus(-along, width)
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


@dataclass(frozen=True)
class _Effects:
    """What moves a number between samples: single rows, and jumps of a median distance."""

    of_rows: Float64Array
    jump: float = 0.0

    def plus(self, slope: float, other: _Effects) -> _Effects:
        """Return the effects on a number that grows with another one."""
        jump = math.hypot(self.jump, slope * other.jump)
        return _Effects(self.of_rows + slope * other.of_rows, jump)

    @classmethod
    def of_width(cls, kernel: Float64Array) -> _Effects:
        """Return the effects on the logarithm of the median distance."""
        m = len(kernel)
        # The median is that of rows that differ, whose kernel is below 1.
        differs = (kernel < 1.0).sum(axis=1) / (m - 1)
        near = ((kernel < 1.0) & (kernel >= AT_MEDIAN)).sum(axis=1) / (m - 1)
        above = (near - 0.5 * differs) / differs.mean()
        # Minus the logarithm of a kernel is half the squared distance, in bandwidths.
        similarities = kernel[np.triu_indices(m, 1)]
        similarities = np.maximum(similarities[similarities < 1.0], np.finfo(np.float64).tiny)
        logarithms = 0.5 * np.log(-2.0 * np.log(similarities))
        try:
            density = density_at_median(logarithms, 0.5 + above, m)
        except JumpingMedian as jumping:
            return cls(np.zeros(m), jumping.move)
        return cls(-2.0 * above / density)


def _scored(logarithm: float, effects: _Effects, m: int, n: int) -> Scored:
    """Return a score; where a median jumps, its bracket allows for that, and it has no error."""
    score = min(math.exp(max(logarithm, 0.0)), float(m))
    deviation = math.hypot(effects.of_rows.std(ddof=1) / math.sqrt(m), effects.jump)
    found = Scored.of_rows(
        score, m, n, score * deviation, "eigenvalues", rounding=ROUNDING * m, limits=(1.0, float(m))
    )
    return replace(found, sampling_error=None) if effects.jump else found
