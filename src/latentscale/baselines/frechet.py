r"""The Fréchet distance of two corpora: the distance of two normal distributions.

.. math::
   d^2 = \|\mu_a - \mu_b\|^2 + \operatorname{tr} C_a + \operatorname{tr} C_b
       - 2 \operatorname{tr} (C_a^{1/2} C_b C_a^{1/2})^{1/2}

(Dowson and Landau 1982; known as "FID" with the embeddings of one network, Heusel et al. 2017). The
normal distributions have the means and covariances of the two corpora. The trace of the root is the
sum of the singular values of :math:`C_a^{1/2} C_b^{1/2}`. The error of a singular value is a
rounding of the largest one. Eigenvalues of the product of two covariances would lose half of the
remaining digits where the covariances are singular, as they are with fewer rows than dimensions.

The distance is biased: with samples of n rows it exceeds the distance of the distributions by at
least about :math:`\operatorname{tr} C / n`. Only values at equal sample sizes can be compared.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigh, svdvals

from latentscale.array_types import Float64Array
from latentscale.estimate import Estimate
from latentscale.linalg.moments import Moments

EPSILON = float(np.finfo(np.float64).eps)


def frechet_distance(a: Moments, b: Moments) -> Estimate:
    """Return the squared Fréchet distance of normal distributions with the corpora's moments.

    Parameters
    ----------
    a, b : Moments
        Moments of at least two rows each, of equal dimension.

    Returns
    -------
    Estimate
        In squared units of the embeddings. ``bounds`` is "exact"; the bracket is the rounding of
        float64.

    Raises
    ------
    ValueError
        If dimensions differ or there are fewer than two rows.

    Notes
    -----
    Costs about ``30 d³`` floating point operations and memory for ``6 d²`` numbers.
    """
    if a.dimension != b.dimension:
        raise ValueError(
            f"the Fréchet distance needs equal dimensions, got {a.dimension} and {b.dimension}"
        )
    first, second = a.covariance(), b.covariance()
    difference = a.mean - b.mean
    spread = float(np.trace(first) + np.trace(second))
    first_root, largest_first = _root(first)
    second_root, largest_second = _root(second)
    overlap = float(svdvals(first_root @ second_root, overwrite_a=True).sum())
    value = max(0.0, float(difference @ difference) + spread - 2.0 * overlap)
    # The error of an eigenvalue near 0 is a rounding of the largest one. The error of its root is
    # the root of that, and is multiplied with the other factor.
    rounding = 4.0 * a.dimension * EPSILON * (spread + float(difference @ difference))
    rounding += 2.0 * a.dimension * math.sqrt(EPSILON * largest_first * largest_second)
    # The means of blocks stand in the covariances as well.
    moved = float(np.linalg.norm(a.mean_error) + np.linalg.norm(b.mean_error))
    length = math.sqrt(float(difference @ difference))
    rounding += 2.0 * moved * (length + math.sqrt(spread)) + moved**2
    return Estimate(value, max(0.0, value - rounding), value + rounding, "exact", "moments")


def _root(covariance: Float64Array) -> tuple[Float64Array, float]:
    """Return the square root of a covariance and its largest eigenvalue."""
    eigenvalues, vectors = eigh(covariance)
    root: Float64Array = (vectors * np.sqrt(np.maximum(eigenvalues, 0.0))) @ vectors.T
    return root, float(max(eigenvalues[-1], 0.0))
