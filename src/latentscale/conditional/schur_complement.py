r"""The Scendi score: the diversity of outputs beyond what is linear in their prompts.

Row i of ``X`` is the unit vector of an output, row i of ``Y`` that of what it was made from. Of the
second moments :math:`C_{XX}`, :math:`C_{XY}`, :math:`C_{YY}`, the Schur complement

.. math:: S = C_{XX} - C_{XY} C_{YY}^{+} C_{YX}

is the second moment of the residuals of X after the best linear prediction from Y. With its
eigenvalues λ, Ospanov, Jalali and Farnia (Scendi score: prompt-aware diversity evaluation via
Schur complement of CLIP embeddings, 2024) define

.. math:: \text{Scendi} = \exp\bigl( -\sum_j \lambda_j \log \frac{\lambda_j}{\sum_k \lambda_k}
          \bigr),

which is 1 if prompts determine outputs linearly. The *explained share* is
:math:`1 - \mathrm{tr}\, S / \mathrm{tr}\, C_{XX}`. Any prompts predict some of a few outputs by
chance, so the trace of S is multiplied by m / (m - r) there, with the rank r of :math:`C_{YY}`, as
in the adjusted coefficient of determination. The score is as its authors define it.

*Sampling error.* Near the best prediction S doesn't change with the prediction, to first order. So
a row with the residual r adds what :math:`r r^\top` adds to S.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.estimate import Scored
from latentscale.tiles.distances import as_points, row_blocks

Float64Array = NDArray[np.float64]

SCENDI, EXPLAINED = "Scendi", "explained share"

NEGLIGIBLE = 1e-10
"""Share of the largest eigenvalue up to which one is rounding."""

ROUNDING = 1e-9
"""Error of both scores from the rounding of moments and of their inverse."""

PAIRS_PER_DIMENSION = 2
"""Fewest pairs of rows for each dimension of the prompts."""

BLOCK_ROWS = 4096
"""Rows that are scaled to unit length at a time."""


def schur_scores(outputs: NDArray[Any], prompts: NDArray[Any], n: int) -> dict[str, Scored] | None:
    """Compute the Scendi score, and the share of the outputs that prompts explain linearly.

    Parameters
    ----------
    outputs, prompts : ndarray, shapes (m, d) and (m, e)
        Finite vectors of the same m items, none of them zero.
    n : int
        Items that these are a random sample of, at least m.

    Returns
    -------
    dict of str to Scored, or None
        None if there are fewer than two pairs of rows for each dimension that prompts have.

    Notes
    -----
    Two passes: ``m (d + e)²`` multiply-adds; memory for ``3 (d + e)²`` numbers.
    """
    m, d = len(outputs), outputs.shape[1]
    moment = np.zeros((d + prompts.shape[1],) * 2)
    for unit in _unit_blocks(outputs, prompts):
        moment += unit.T @ unit
    moment /= m
    inverse, rank = _inverse(moment[d:, d:])
    if m < PAIRS_PER_DIMENSION * rank:
        return None
    slopes = moment[:d, d:] @ inverse
    complement = moment[:d, :d] - slopes @ moment[d:, :d]
    values, vectors = np.linalg.eigh(0.5 * (complement + complement.T))
    values = np.maximum(values, NEGLIGIBLE)
    left = float(values.sum())
    along = math.log(left) - np.log(values)
    entropy = float(values @ along)
    squares, influences = np.empty(m), np.empty(m)
    for start, unit in zip(range(0, m, BLOCK_ROWS), _unit_blocks(outputs, prompts), strict=True):
        parts = np.square((unit[:, :d] - unit[:, d:] @ slopes.T) @ vectors)
        block = slice(start, start + len(parts))
        squares[block], influences[block] = parts.sum(axis=1), parts @ along
    scendi, adjusted = math.exp(entropy), m / max(m - rank, 1)
    explained = min(1.0, 1.0 - adjusted * float(np.trace(complement)))
    return {
        SCENDI: _scored(scendi, scendi * influences, n, ROUNDING * d, (1.0, math.inf)),
        EXPLAINED: _scored(explained, adjusted * squares, n, ROUNDING * d, (-math.inf, 1.0)),
    }


def _scored(
    value: float,
    influences: Float64Array,
    n: int,
    rounding: float,
    limits: tuple[float, float],
) -> Scored:
    m = len(influences)
    deviation = float(influences.std(ddof=1)) / math.sqrt(m)
    return Scored.of_rows(value, m, n, deviation, "moments", rounding=rounding, limits=limits)


def _unit_blocks(outputs: NDArray[Any], prompts: NDArray[Any]) -> Iterator[Float64Array]:
    for block in row_blocks(len(outputs), BLOCK_ROWS):
        yield np.hstack([as_points(rows[block], "cosine").rows for rows in (outputs, prompts)])


def _inverse(matrix: Float64Array) -> tuple[Float64Array, int]:
    """Return the pseudoinverse of a positive semidefinite matrix, and its rank."""
    values, vectors = np.linalg.eigh(matrix)
    held = values > NEGLIGIBLE * values[-1]
    return (vectors[:, held] / values[held]) @ vectors[:, held].T, int(held.sum())
