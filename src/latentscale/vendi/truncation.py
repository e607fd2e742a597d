r"""The truncated Vendi score: the score of the largest eigenvalues.

Under kernels such as RBF the matrix of n rows has n positive eigenvalues, and the score grows with
n. The *t-truncated* score (Ospanov & Farnia, UAI 2025) keeps the t largest eigenvalues and
spreads the weight of the others evenly over them,

.. math:: \tilde\lambda_i = \lambda_i + \frac1t \Bigl(1 - \sum_{j \le t} \lambda_j\Bigr)
          \quad\text{for } i \le t ,

so that they still sum to 1. It is near its limit once n is a few times t, and at most t.

The map is linear and never lengthens a difference: it drops coordinates, then subtracts the mean of
the rest. So the truncated eigenvalues have at most the error of the whole spectrum.
"""

from __future__ import annotations

from dataclasses import replace

from latentscale.vendi.scores import Spectrum


def truncated_spectrum(spectrum: Spectrum, kept: int) -> Spectrum:
    """Keep the largest eigenvalues of a spectrum (Ospanov & Farnia, UAI 2025).

    Parameters
    ----------
    spectrum : Spectrum
        All eigenvalues, from :func:`latentscale.vendi.scores.moment_spectrum` or
        :func:`latentscale.vendi.scores.kernel_spectrum`.
    kept : int
        Number t of eigenvalues to keep, at least 1.

    Returns
    -------
    Spectrum
        Of t rows, for :func:`latentscale.vendi.scores.vendi_score`; ``spectrum`` itself if it has
        no more than t eigenvalues.

    Raises
    ------
    ValueError
        If ``kept`` is below 1.
    """
    if kept < 1:
        raise ValueError(f"a truncated spectrum needs at least 1 eigenvalue, got {kept}")
    if kept >= len(spectrum.eigenvalues):
        return spectrum
    largest = spectrum.eigenvalues[:kept]
    rest = max(0.0, 1.0 - float(largest.sum()))
    return replace(spectrum, eigenvalues=largest + rest / kept, size=kept)
