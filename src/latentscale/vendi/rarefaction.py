"""Vendi scores of random subsets against their size, extrapolated to all rows.

A replicate is a random subset divided into 1, 2, 4, … equal pieces; every size sees the same rows
(:mod:`latentscale.sampling.rarefaction`). The scores of the pieces follow a curve, from as many as
there are rows, while none resembles another, to a constant once every kind of row is seen often; it
is continued like the magnitude's (:mod:`latentscale.magnitude.subsamples`), which runs between the
same extremes, with the envelope of its fits and a back-test as interval.

Unlike a magnitude, a subset's Vendi score bounds nothing: rows that are rare in the whole may be
over-represented in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentscale.estimate import Estimate
from latentscale.sampling.extrapolation import extrapolate
from latentscale.sampling.rarefaction import SubsampleMagnitudes, rarefaction_curve
from latentscale.tiles.distances import Points
from latentscale.vendi.kernels import Kernel
from latentscale.vendi.scores import kernel_spectrum, vendi_score


def subsample_scores(
    points: Points, kernel: Kernel, bandwidth: float | None, orders: Sequence[float], pieces: int
) -> SubsampleMagnitudes:
    """Score equal pieces of a replicate.

    Parameters
    ----------
    points : Points
        Its rows in random order, with the kernel's metric.
    kernel, bandwidth
        As in :func:`latentscale.vendi.scores.kernel_spectrum`.
    orders : sequence of float
        Descending, so that scores ascend, as the extrapolation takes for granted.
    pieces : int
        Number of consecutive pieces of equal size.

    Returns
    -------
    SubsampleMagnitudes
        With orders in the place of scales, and 1 as the only certain lower bound.

    Raises
    ------
    ValueError
        If there are fewer rows than pieces.
    """
    if not 1 <= pieces <= len(points):
        raise ValueError(f"cannot divide {len(points)} rows into {pieces} pieces")
    size = len(points) // pieces
    values = np.empty((pieces, len(orders)))
    for piece in range(pieces):
        rows = points.take(slice(piece * size, (piece + 1) * size))
        spectrum = kernel_spectrum(rows, kernel, bandwidth)
        values[piece] = [vendi_score(spectrum, order).value for order in orders]
    return SubsampleMagnitudes(size, values, np.ones(len(orders)))


def extrapolated_scores(
    subsamples: Sequence[SubsampleMagnitudes], orders: Sequence[float], n: int
) -> tuple[Estimate, ...]:
    """Follow the scores to all rows.

    Parameters
    ----------
    subsamples : sequence of SubsampleMagnitudes
        Of all sizes and replicates.
    orders : sequence of float
        As above.
    n : int
        Rows of the corpus.

    Returns
    -------
    tuple of Estimate
        ``bounds`` "estimate", method "subsample".
    """
    places = np.arange(1.0, len(orders) + 1.0)
    return extrapolate(rarefaction_curve(places, subsamples), n).estimates
