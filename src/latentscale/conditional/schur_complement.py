r"""The Scendi score and the explained share: what is linear in prompts, and what is beyond.

Row i of ``X`` is the unit vector of an output, row i of ``Y`` that of what it was made from. Of the
second moments :math:`C_{XX}`, :math:`C_{XY}`, :math:`C_{YY}`, the Schur complement

.. math:: S = C_{XX} - C_{XY} C_{YY}^{+} C_{YX}

is the second moment of the residuals of X after the best linear prediction from Y. With its
eigenvalues λ, Ospanov, Jalali and Farnia (Scendi score: prompt-aware diversity evaluation via
Schur complement of CLIP embeddings, 2024) define

.. math:: \text{Scendi} = \exp\bigl( -\sum_j \lambda_j \log \frac{\lambda_j}{\sum_k \lambda_k}
          \bigr),

which is 1 if prompts determine outputs linearly. A direction that all outputs share counts in it.

It doesn't count in the *explained share*, the coefficient of determination of that prediction with
an intercept: one less the ratio of the traces of S and :math:`C_{XX}`, all from centred moments.
Any prompts predict some of a few outputs by chance, so the ratio is multiplied by
:math:`(m - 1) / (m - 1 - r)`, with the rank r of the prompts, as in the adjusted coefficient.

*Rank.* The rounding of stored rows makes any prompts vary a little in all directions. A direction
in which they don't vary :data:`ABOVE_NOISE` times as much as that predicts nothing.

*Sampling error.* Near the best prediction S doesn't change with the prediction, to first order. So
a row with the residual r adds what :math:`r r^\top` adds to S. Residuals of a fit are too small by
the root of :math:`1 - r/m`, so errors are divided by that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.estimate import Scored
from latentscale.tiles.distances import as_points, row_blocks

SCENDI, EXPLAINED = "Scendi", "explained share"

NEGLIGIBLE = 1e-10
"""Eigenvalue up to which residuals of unit vectors are rounding."""

ROUNDING = 1e-9
"""Error of both scores from the rounding of rows and residuals."""

MOMENT_ROUNDING = 32 * 2.0**-52
"""Rounding of a second moment and of its eigenvalues, as a share of its trace."""

FEW = 100
"""The rounding of fewer rows is counted as that of so many."""

ABOVE_NOISE = 10.0
"""How far an eigenvalue of the prompts is above that of rounding, if they vary in its direction."""

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
        None if there are fewer than two pairs of rows for each dimension that prompts have. No
        share is explained of outputs that are all equal.

    Notes
    -----
    Three passes: ``m (d + e)²`` multiply-adds; memory for ``5 (d + e)²`` numbers.
    """
    m, d = len(outputs), outputs.shape[1]
    mean = np.sum([unit.sum(axis=0) for unit in _unit_blocks(outputs, prompts)], axis=0) / m
    about_mean, rest = np.zeros((len(mean), len(mean))), np.zeros(len(mean))
    for unit in _unit_blocks(outputs, prompts):
        unit -= mean
        rest += unit.sum(axis=0) / m  # the rounding of the mean
        about_mean += unit.T @ unit
    about_mean = about_mean / m - np.outer(rest, rest)
    mean += rest
    moment = about_mean + np.outer(mean, mean)
    noise = _noise_of_storage(prompts.dtype, moment[d:, d:])
    own = max(m, FEW) * float(np.finfo(np.float64).eps) ** 2 * float(np.trace(moment[d:, d:]))
    fit = _Fit.of(moment, d, own, noise)
    if m < PAIRS_PER_DIMENSION * fit.rank:
        return None
    centred = _Fit.of(about_mean, d, own, noise)
    values, vectors = np.linalg.eigh(0.5 * (fit.left + fit.left.T))
    held = values > NEGLIGIBLE
    values = np.where(held, values, 0.0)
    total_left = max(float(values.sum()), NEGLIGIBLE)
    along = np.where(held, math.log(total_left) - np.log(np.where(held, values, 1.0)), 0.0)
    # What an eigenvalue below may add to the entropy.
    unknown = int(d - held.sum()) * NEGLIGIBLE * (1.0 - math.log(NEGLIGIBLE))
    diverse, left, spread = (np.empty(m) for _ in range(3))
    for start, unit in zip(range(0, m, BLOCK_ROWS), _unit_blocks(outputs, prompts), strict=True):
        block = slice(start, start + len(unit))
        diverse[block] = np.square(fit.residuals(unit) @ vectors) @ along
        unit -= mean
        left[block] = np.square(centred.residuals(unit)).sum(axis=1)
        spread[block] = np.square(unit[:, :d]).sum(axis=1)
    scendi, limits = math.exp(float(values @ along)), (1.0, math.inf)
    # Where an error of the residuals' second moment lies isn't known. In an eigenvalue that is
    # nearly negligible it would change the entropy most.
    unsure = fit.rounding * (1.0 - math.log(NEGLIGIBLE))
    rounding = ROUNDING * d + (unknown + unsure) * scendi
    found = {SCENDI: _scored(scendi, scendi * diverse, fit.rank, n, rounding, limits)}
    if (whole := float(spread.mean())) > NEGLIGIBLE:
        ratio = (m - 1) / max(m - 1 - centred.rank, 1) * float(left.mean()) / whole
        influences = ratio * (left / max(float(left.mean()), NEGLIGIBLE) - spread / whole)
        value, limits = min(1.0 - ratio, 1.0), (-math.inf, 1.0)
        rounding = ROUNDING * d + centred.rounding / whole
        found[EXPLAINED] = _scored(value, influences, centred.rank, n, rounding, limits)
    return found


@dataclass(frozen=True)
class _Fit:
    """The best linear prediction of outputs.

    It has slopes (d, e), the Schur complement (d, d) with the error that rounding makes in its
    trace, and the rank.
    """

    slopes: Float64Array
    left: Float64Array
    rounding: float
    rank: int

    @classmethod
    def of(cls, moment: Float64Array, d: int, own: float, noise: float) -> _Fit:
        """Fit by a joint second moment.

        ``own`` is what the rounding of unit vectors and their mean adds to the moment of prompts,
        ``noise`` what that of the stored rows does.
        """
        values, vectors = np.linalg.eigh(moment[d:, d:])
        error = max(own, MOMENT_ROUNDING * float(np.trace(moment[d:, d:])))
        held = values > ABOVE_NOISE * max(noise, error)
        along = moment[:d, d:] @ vectors[:, held]
        predicted = np.square(along).sum(axis=0) / values[held]
        slopes = (along / values[held]) @ vectors[:, held].T
        rounding = float((predicted * error / values[held]).sum())
        return cls(slopes, moment[:d, :d] - slopes @ moment[d:, :d], rounding, int(held.sum()))

    def residuals(self, rows: Float64Array) -> Float64Array:
        d = len(self.slopes)
        return np.asarray(rows[:, :d] - rows[:, d:] @ self.slopes.T)


def _noise_of_storage(dtype: np.dtype[Any], moment: Float64Array) -> float:
    """Bound the second moment, in any direction, of the rounding of stored rows.

    A coordinate x is rounded by at most eps x / 2, evenly.
    """
    if dtype.kind != "f" or not len(moment):
        return 0.0
    return float(np.finfo(dtype).eps) ** 2 / 12.0 * float(np.diagonal(moment).max())


def _scored(
    value: float,
    influences: Float64Array,
    rank: int,
    n: int,
    rounding: float,
    limits: tuple[float, float],
) -> Scored:
    m = len(influences)
    deviation = float(influences.std(ddof=1)) / math.sqrt(max(m - rank, 1))
    return Scored.of_rows(value, m, n, deviation, "moments", rounding=rounding, limits=limits)


def _unit_blocks(outputs: NDArray[Any], prompts: NDArray[Any]) -> Iterator[Float64Array]:
    for block in row_blocks(len(outputs), BLOCK_ROWS):
        yield np.hstack([as_points(rows[block], "cosine").rows for rows in (outputs, prompts)])
