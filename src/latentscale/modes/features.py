r"""Unit vectors whose second moments have the modes of a kernel.

Under the cosine kernel they are the rows, scaled to unit length. Under the RBF kernel they are
random Fourier features (:mod:`latentscale.linalg.fourier_features`), scaled by the root of the
number D of frequencies (Zhang, Li & Farnia, Unveiling differences in generative models: a scalable
differential clustering approach, 2024). The eigenvalues of a difference of second moments of these
features approach those of the kernel as D grows; leaving out one group of frequencies after another
says how near they are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array, Int64Array
from latentscale.estimate import student_quantile
from latentscale.linalg.fourier_features import fourier_features
from latentscale.tiles.distances import as_points

FREQUENCY_GROUPS = 8
"""Groups of frequencies that are left out one after another."""

SLOW = 1.1
"""Ratio of the eigenvalues of D/2 and of D from which they may fall with the root of D."""

CONFIDENCE = 0.975
"""Upper quantile of Student's distribution for the interval over frequencies."""


def unit_features(rows: NDArray[Any], frequencies: Float64Array | None) -> Float64Array:
    """Return the unit vectors of rows.

    Parameters
    ----------
    rows : ndarray, shape (m, d)
        Finite; without frequencies, none of zeros.
    frequencies : ndarray of float64, shape (d, D), optional
        Those of the RBF kernel; without them, the kernel is the cosine.

    Returns
    -------
    ndarray of float64, shape (m, d) or (m, 2 D)
        Unit vectors; features to about 1e-7.
    """
    if frequencies is None:
        return as_points(rows, "cosine").rows
    features = fourier_features(rows, np.zeros(len(frequencies)), frequencies)
    root = math.sqrt(frequencies.shape[1])
    unit: Float64Array = np.divide(features, root, dtype=np.float64)
    return unit


def eigenvalue_intervals(difference: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Say where the largest eigenvalues of a kernel are, from those of random Fourier features.

    Parameters
    ----------
    difference : ndarray of float64, shape (2 D, 2 D)
        Difference of the second moments of two corpora, with the columns of
        :func:`~latentscale.linalg.fourier_features.fourier_features` over the root of D; D is at
        least 8.

    Returns
    -------
    tuple of ndarray of float64, shape (2,)
        A 95 % interval for the largest eigenvalue of the kernel, and one for the largest of the
        negative; each contains the eigenvalue of ``difference``.

    Notes
    -----
    A jackknife over groups of frequencies. Costs eight decompositions of nearly the same size. The
    lower end also allows for eigenvalues that fall with the root of D, as those of a kernel so
    narrow that each row is alone.
    """
    count = len(difference) // 2
    whole = _ends(difference)
    columns = np.concatenate([np.tile(half, 2) for half in np.array_split(np.arange(count), 2)])
    left_out = np.array([_without(difference, columns, each) for each in range(FREQUENCY_GROUPS)])
    centre = FREQUENCY_GROUPS * whole - (FREQUENCY_GROUPS - 1) * left_out.mean(axis=0)
    error = left_out.std(axis=0) * math.sqrt(FREQUENCY_GROUPS - 1)
    reach = student_quantile(CONFIDENCE, FREQUENCY_GROUPS - 1) * error
    # Of a narrow kernel they fall with the root of D, of which the jackknife takes half off.
    half = _ends(difference[:count, :count]) + _ends(difference[count:, count:])
    slowly = (math.sqrt(2.0) * whole - half) / (math.sqrt(2.0) - 1.0) - 2.0 * reach
    least = np.where(half > SLOW * whole, np.minimum(centre - reach, slowly), centre - reach)
    lower = np.maximum(np.minimum(least, whole), 0.0)
    upper = np.maximum(centre + reach, whole)
    (novel, missing) = np.column_stack([lower, upper])
    return novel, missing


def _without(difference: Float64Array, columns: Int64Array, group: int) -> Float64Array:
    """Return the outermost eigenvalues without the frequencies of one group."""
    kept = np.flatnonzero(columns % FREQUENCY_GROUPS != group)
    return _ends(difference[np.ix_(kept, kept)]) * len(columns) / len(kept)


def _ends(matrix: Float64Array) -> Float64Array:
    """Return the largest eigenvalues of a symmetric matrix and of its negative, or 0."""
    values = np.linalg.eigvalsh(matrix)
    return np.maximum([values[-1], -values[0]], 0.0)
