r"""A Nyström preconditioner for similarity matrices, with nothing of the size ``n × m`` stored.

Where points lie close together compared with the scale, the similarity matrix ``K`` has few large
eigenvalues, and conjugate gradients take a step for each of them, about :math:`\sqrt n` on data of
low intrinsic dimension. With ``m`` random landmarks ``L`` and :math:`Q Q^\top = K_{\cdot L}
K_{LL}^{-1} K_{L\cdot}` (Williams and Seeger 2001), ``K`` is close to

.. math:: M = Q Q^\top + \sigma I,

and the eigenvalues of :math:`M^{-1} K` are close to each other (Frangella, Tropp and Udell 2023).
By the Woodbury identity

.. math:: \sigma M^{-1} r = r - K_{\cdot L} v, \qquad
          v = (K_{L\cdot} K_{\cdot L} + \sigma K_{LL})^{-1} K_{L\cdot}\, r,

so that applying it takes two visits to the ``n m`` pairs of rows and landmarks, and preparing it
the ``m × m`` matrix in brackets. The vector :math:`r - K_{\cdot L} v` is the residual after ``v``
has been added to the solution at the landmarks, by regularised least squares.

:math:`\sigma` is thrice the mean of what the landmarks leave of the diagonal of ``K``: somewhat
above most of the eigenvalues of :math:`K - Q Q^\top`, which gave the fewest steps on embeddings
and on clustered data alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from latentscale.distances import Float64Array, Points, distance_tile, row_blocks
from latentscale.exponentials import block_sums
from latentscale.procedures import ReadRows

MOST_LANDMARKS = 2000
"""A landmark for ten rows up to this number: a factor then takes 32 MB and ``n m²`` operations."""

ROWS_FOR_A_LANDMARK = 10

PROBES = 256
"""Further random rows that show what the landmarks leave unexplained."""

LEFTOVER_FACTOR = 3.0
"""σ in units of the mean unexplained share."""

JITTER = 1e-7
"""Added to the diagonal of the landmarks' matrix against its rounding."""

RIDGES = 2.0**-24 * np.array([1.0, 16.0, 256.0])
"""Multiples of ``m √n``, the size of the rounding of the matrix in brackets where its parts are in
single precision, of which the first that makes it definite is added to its diagonal."""

LEAST_SIGMA = 1e-4
"""σ is at least so large, as the residuals that are divided by it err by about a hundredth."""

BLOCK_ROWS = 2048
"""Rows that meet the landmarks at a time."""

GRAM_BYTES = 2**27
"""Memory for the matrices that are built in one reading of the rows."""

PREDICTING_LANDMARKS = 1000
"""Landmarks that predict the number of steps."""


def landmark_count(n: int) -> int:
    """Landmarks for ``n`` rows."""
    return min(n // ROWS_FOR_A_LANDMARK, MOST_LANDMARKS)


@dataclass(frozen=True)
class Landmarks:
    """Random rows that stand for all.

    Attributes
    ----------
    points : Points
        ``m`` landmarks and then the probes.
    positions : ndarray of int64
        Their positions among all rows.
    count : int
        ``m``.
    """

    points: Points
    positions: NDArray[np.int64]
    count: int

    @classmethod
    def draw(cls, n: int, read_rows: ReadRows, generator: np.random.Generator) -> Landmarks:
        """Draw landmarks and probes from ``n`` distinct rows and read them."""
        count = landmark_count(n)
        positions = generator.choice(n, min(count + PROBES, n), replace=False)
        return cls(gather_rows(read_rows, positions), positions, count)

    @property
    def chosen(self) -> Points:
        """The landmarks without the probes."""
        return self.points.take(slice(0, self.count))

    @property
    def probes(self) -> Points:
        """The probes."""
        return self.points.take(slice(self.count, None))


def gather_rows(read_rows: ReadRows, positions: NDArray[np.int64]) -> Points:
    """Read the rows at these positions, in the order given."""
    order = np.argsort(positions)
    ascending = positions[order]
    parts: list[Points] = []
    start = 0
    for block in read_rows():
        low, high = np.searchsorted(ascending, (start, start + len(block)))
        parts.append(block.take(ascending[low:high] - start))
        start += len(block)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return Points(
        np.concatenate([part.rows for part in parts])[place],
        np.concatenate([part.squared_norms for part in parts])[place],
        parts[0].metric,
        parts[0].origin,
    )


@dataclass(frozen=True)
class Preconditioner:
    """The preconditioner of one scale.

    Attributes
    ----------
    factor : ndarray of float64, shape (m, m)
        Upper Cholesky factor of the matrix in brackets.
    sigma : float
    """

    factor: Float64Array
    sigma: float


def prepare_preconditioners(
    landmarks: Landmarks, scales: Sequence[float], n: int, read_rows: ReadRows
) -> list[Preconditioner | None]:
    """Prepare the preconditioner of every scale for ``n`` rows.

    Returns
    -------
    list of Preconditioner or None
        None where rounding leaves no factor.

    Notes
    -----
    Costs ``n m²`` operations a scale in single precision and memory of ``8 m²`` bytes for each
    result and, at a time, :data:`GRAM_BYTES`.
    """
    group = max(1, GRAM_BYTES // (8 * landmarks.count**2))
    prepared: list[Preconditioner | None] = []
    for start in range(0, len(scales), group):
        wanted = scales[start : start + group]
        for scale, gram in zip(wanted, _grams(landmarks, wanted, read_rows), strict=True):
            prepared.append(_factorise(landmarks, scale, gram, n))
    return prepared


def _grams(
    landmarks: Landmarks, scales: Sequence[float], read_rows: ReadRows
) -> list[Float64Array]:
    chosen = landmarks.chosen
    grams = [np.zeros((len(chosen), len(chosen))) for _ in scales]
    for block in _blocks(read_rows, chosen):
        distances = distance_tile(block, chosen).astype(np.float32)
        similarities = np.empty_like(distances)
        for scale, gram in zip(scales, grams, strict=True):
            np.multiply(distances, np.float32(-scale), out=similarities)
            np.exp(similarities, out=similarities)
            gram += similarities.T @ similarities
    return grams


def _factorise(
    landmarks: Landmarks, scale: float, gram: Float64Array, n: int
) -> Preconditioner | None:
    similarities = np.exp(-scale * distance_tile(landmarks.chosen, landmarks.chosen))
    np.fill_diagonal(similarities, 1.0 + JITTER)
    try:
        sigma = max(LEFTOVER_FACTOR * _unexplained(landmarks, scale, similarities), LEAST_SIGMA)
    except LinAlgError:
        return None
    gram += sigma * similarities
    diagonal = np.diag_indices_from(gram)
    plain = gram[diagonal]
    for ridge in RIDGES:
        gram[diagonal] = plain + ridge * landmarks.count * math.sqrt(n)
        try:
            factor, _ = cho_factor(gram, check_finite=False)
        except LinAlgError:
            continue
        return Preconditioner(factor, sigma)
    return None


def _unexplained(landmarks: Landmarks, scale: float, similarities: Float64Array) -> float:
    """Mean share of the probes' similarity to themselves that the landmarks leave unexplained."""
    half = np.linalg.cholesky(similarities)
    tile = np.exp(-scale * distance_tile(landmarks.chosen, landmarks.probes))
    explained = solve_triangular(half, tile, lower=True, check_finite=False)
    shares = 1.0 - np.einsum("ij,ij->j", explained, explained)
    return max(float(shares.mean()) if len(shares) else 1.0, JITTER)


def apply_preconditioners(
    landmarks: Landmarks,
    scales: Sequence[float],
    preconditioners: Sequence[Preconditioner],
    residuals: Sequence[NDArray[np.floating]],
    read_rows: ReadRows,
) -> tuple[list[NDArray[np.floating]], list[Float64Array]]:
    r"""Solve with the preconditioners.

    Parameters
    ----------
    landmarks : Landmarks
    scales : sequence of float
        Distinct, ascending.
    preconditioners : sequence of Preconditioner
        One a scale.
    residuals : sequence of ndarray, shape (n,)
        One a scale.
    read_rows : ReadRows

    Returns
    -------
    tuple of lists
        :math:`\sigma M^{-1} r`, of the residuals' type, and ``v``, of shape (m,).
    """
    chosen = landmarks.chosen
    moments = np.zeros((len(chosen), len(scales)))
    nothing = np.zeros_like(moments)
    start = 0
    for block in _blocks(read_rows, chosen):
        rows = slice(start, start + len(block))
        moments += block_sums(
            block,
            chosen,
            scales=scales,
            vectors_a=np.stack([residual[rows] for residual in residuals], axis=1),
            vectors_b=nothing,
            precision="single",
        ).products_b
        start = rows.stop
    corrections = np.empty_like(moments)
    for k, preconditioner in enumerate(preconditioners):
        corrections[:, k] = cho_solve((preconditioner.factor, False), moments[:, k])
    solved = [residual.copy() for residual in residuals]
    start = 0
    for block in _blocks(read_rows, chosen):
        rows = slice(start, start + len(block))
        images = block_sums(
            block,
            chosen,
            scales=scales,
            vectors_a=np.zeros((len(block), len(scales))),
            vectors_b=corrections,
            precision="single",
        ).products_a
        for k, vector in enumerate(solved):
            vector[rows] -= images[:, k].astype(vector.dtype)
        start = rows.stop
    return solved, list(corrections.T)


def _blocks(read_rows: ReadRows, like: Points) -> Iterator[Points]:
    """Read the rows in small blocks with the landmarks' origin."""
    for block in read_rows():
        for rows in row_blocks(len(block), BLOCK_ROWS):
            part = block.take(rows)
            yield part if like.origin is None else part.about(like.origin)


def predicted_steps(landmarks: Landmarks, scale: float, n: int, share: float, most: int) -> int:
    r"""Predict how many steps conjugate gradients take without a preconditioner.

    The landmarks' matrix, each landmark standing for ``n / m`` rows, with what the landmarks leave
    unexplained on its diagonal, has the large eigenvalues of ``K`` and their share in the vector of
    ones. Conjugate gradients on it, at the cost of ``m²`` a step, reach a relative gain of
    ``share`` in about as many steps as on ``K``.
    """
    m = min(landmarks.count, PREDICTING_LANDMARKS)
    few = Landmarks(
        landmarks.points.take(np.r_[0:m, landmarks.count : len(landmarks.points)]),
        landmarks.positions,
        m,
    )
    similarities = np.exp(-scale * distance_tile(few.chosen, few.chosen))
    np.fill_diagonal(similarities, 1.0 + JITTER)
    try:
        unexplained = _unexplained(few, scale, similarities)
    except LinAlgError:
        return most
    similarities *= n / m
    residual, total = np.ones(m), 0.0
    direction, squared = residual.copy(), float(m)
    for step in range(1, most):
        image = similarities @ direction + unexplained * direction
        length = squared / float(direction @ image)
        gain = length * squared
        total += gain
        if not gain > share * total:
            return step
        residual -= length * image
        remaining = float(residual @ residual)
        direction = residual + remaining / squared * direction
        squared = remaining
        if not math.isfinite(squared) or squared == 0.0:
            return step
    return most
