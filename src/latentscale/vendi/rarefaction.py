"""Vendi scores of random subsets, extrapolated to all rows.

A replicate is a random subset divided into 1, 2, 4, … equal pieces; every size contains the same
rows (:mod:`latentscale.sampling.rarefaction`). The scores of the pieces form a curve over the size.
It starts at the number of rows, while no two rows are similar, and ends at a constant, once every
kind of row occurs often. The magnitude's curve runs between the same extremes, so this one is
extrapolated in the same way (:mod:`latentscale.magnitude.subsamples`): the interval is the envelope
of several fits and a back-test.

Unlike the magnitude, the Vendi score of a subset isn't a bound: rows that are rare in the whole may
be over-represented in it.
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
    """Compute the scores of equal pieces of a replicate.

    Parameters
    ----------
    points : Points
        The rows of the replicate in random order, with the kernel's metric.
    kernel, bandwidth
        As in :func:`latentscale.vendi.scores.kernel_spectrum`.
    orders : sequence of float
        Descending orders, so that scores ascend, as the extrapolation requires.
    pieces : int
        Number of consecutive pieces of equal size.

    Returns
    -------
    SubsampleMagnitudes
        With orders in place of scales, and 1 as the certain lower bound.

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
    """Extrapolate the scores to all rows.

    Parameters
    ----------
    subsamples : sequence of SubsampleMagnitudes
        Scores of all sizes and replicates.
    orders : sequence of float
        The orders of these scores, descending.
    n : int
        Rows of the corpus.

    Returns
    -------
    tuple of Estimate
        ``bounds`` "estimate", method "subsample".
    """
    places = np.arange(1.0, len(orders) + 1.0)
    return extrapolate(rarefaction_curve(places, subsamples), n).estimates
