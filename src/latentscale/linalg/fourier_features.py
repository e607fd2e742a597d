r"""Random Fourier features: vectors whose inner products are similarities.

A kernel that depends on the difference of two rows is the Fourier transform of a distribution of
frequencies (Rahimi & Recht 2007):

.. math:: k(x - y) = E\,\cos \omega^\top (x - y),

a normal distribution for the RBF kernel, and a Cauchy distribution for the Laplacian kernel (with
the Euclidean distance). D frequencies turn every row into a vector of 2D cosines and sines, of
length :math:`\sqrt{D}`. The expected inner product of two such vectors is D times the kernel.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float32Array, Float64Array

FourierKernel = Literal["rbf", "laplacian"]


def draw_frequencies(
    kernel: FourierKernel,
    bandwidth: float,
    dimension: int,
    count: int,
    generator: np.random.Generator,
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
) -> Float32Array:
    """Compute features: cosines and sines of one half of the frequencies, then of the other half.

    Parameters
    ----------
    rows : ndarray, shape (m, d)
        Finite.
    origin : ndarray of float64, shape (d,)
        Any point; the same for all blocks of rows. Near the rows, angles are rounded less.
    frequencies : ndarray of float64, shape (d, D)
        From :func:`draw_frequencies`.

    Returns
    -------
    ndarray of float32, shape (m, 2 D)
        To about 2e-7.

    Notes
    -----
    Angles are reduced to one turn in double precision. Cosines and sines of single precision then
    lose nothing that the features would hold, and cost an eighth.
    """
    turns = (np.asarray(rows, dtype=np.float64) - origin) @ (frequencies / (2.0 * math.pi))
    turns -= np.rint(turns)
    turns *= 2.0 * math.pi
    angles = turns.astype(np.float32)
    half = frequencies.shape[1] // 2
    features = np.empty((len(angles), 2 * frequencies.shape[1]), np.float32)
    for part in (slice(0, half), slice(half, None)):
        start = 2 * part.start
        width = angles[:, part].shape[1]
        np.cos(angles[:, part], out=features[:, start : start + width])
        np.sin(angles[:, part], out=features[:, start + width : start + 2 * width])
    return features
