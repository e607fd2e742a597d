r"""Vendi scores from random Fourier features: one pass over the rows, at any n.

A kernel that depends on the difference of two rows is the Fourier transform of a distribution of
frequencies (Rahimi & Recht 2007):

.. math:: k(x - y) = E\,\cos \omega^\top (x - y),

a normal distribution for the RBF kernel, and a Cauchy distribution for the Laplacian kernel (with
the Euclidean distance). D frequencies turn every row into a vector of 2D features of length 1. The
expected inner product of two such vectors is the kernel. The second moment of the features
(:mod:`latentscale.vendi.second_moments`) has the spectrum of the approximate kernel matrix.

The error of its entries is about :math:`1/\sqrt{D}`, which biases every score. Small orders are
mostly too low, because 2D features have rank 2D at most. The error falls about like 1/D, so the
value is extrapolated from D and D/2. The interval is three times the difference of the two on
either side. It is an estimate, not a bound.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from latentscale.estimate import Estimate
from latentscale.tiles.distances import Float64Array
from latentscale.vendi.kernels import KernelName
from latentscale.vendi.scores import moment_spectrum, vendi_score
from latentscale.vendi.second_moments import SecondMoment

FREQUENCIES = 1024
"""Default number of frequencies, for a second moment of 2048 × 2048."""

REACH = 3.0
"""Half the interval's length, in differences between D and D/2 (on a logarithmic scale)."""


def draw_frequencies(
    kernel: KernelName, bandwidth: float, dimension: int, count: int, generator: np.random.Generator
) -> Float64Array:
    """Draw the frequencies of a kernel.

    Parameters
    ----------
    kernel : {"rbf", "laplacian"}
        The similarity.
    bandwidth : float
        Positive.
    dimension, count : int
        Dimension of the rows; number of frequencies, which is even.
    generator : numpy.random.Generator
        Draws the frequencies.

    Returns
    -------
    ndarray of float64, shape (dimension, count)

    Raises
    ------
    ValueError
        On another kernel.
    """
    if kernel not in ("rbf", "laplacian"):
        raise ValueError(f"the {kernel} kernel has no law of frequencies")
    frequencies = generator.standard_normal((dimension, count)) / bandwidth
    if kernel == "laplacian":
        frequencies /= np.abs(generator.standard_normal(count))
    return frequencies


def fourier_features(
    rows: NDArray[np.floating], origin: Float64Array, frequencies: Float64Array
) -> NDArray[np.float32]:
    """Compute features: cosines and sines of one half of the frequencies, then of the other half.

    Parameters
    ----------
    rows : ndarray, shape (m, d)
        Finite.
    origin : ndarray of float64, shape (d,)
        A point among the rows; the same for all blocks of rows.
    frequencies : ndarray of float64, shape (d, D)
        From :func:`draw_frequencies`.

    Returns
    -------
    ndarray of float32, shape (m, 2 D)
    """
    angles = (np.asarray(rows, dtype=np.float64) - origin) @ frequencies
    half = frequencies.shape[1] // 2
    parts = [angles[:, :half], angles[:, half:]]
    columns = [turn(part) for part in parts for turn in (np.cos, np.sin)]
    features: NDArray[np.float32] = np.concatenate(columns, axis=1).astype(np.float32)
    return features


def fourier_score(moment: SecondMoment, n: int, order: float) -> Estimate:
    """Extrapolate a Vendi score from the second moment of the features.

    Parameters
    ----------
    moment : SecondMoment
        The second moment of the features of all rows.
    n : int
        Number of rows.
    order : float
        q in [0, inf].

    Returns
    -------
    Estimate
        ``bounds`` "estimate", method "fourier".
    """
    whole = vendi_score(moment_spectrum(moment, n), order)
    half = moment.dimension // 2
    logs = []
    for part in (slice(0, half), slice(half, None)):
        matrix = moment.matrix[part, part]
        total = float(np.trace(matrix))
        found = vendi_score(moment_spectrum(SecondMoment(total, matrix), n), order)
        logs.append(math.log(found.value))
    step = math.log(whole.value) - sum(logs) / 2
    spread = REACH * max(abs(step), abs(logs[0] - logs[1]) / 2)
    value = min(max(math.log(whole.value) + step, 0.0), math.log(n))
    middle = math.exp(value)
    lower, upper = max(1.0, middle * math.exp(-spread)), min(float(n), middle * math.exp(spread))
    return Estimate(middle, min(lower, middle), max(upper, middle), "estimate", "fourier")
