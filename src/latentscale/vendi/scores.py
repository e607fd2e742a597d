r"""The Vendi scores: the effective number of dissimilar rows.

A kernel :math:`k` with :math:`k(x, x) = 1` turns n rows into a matrix
:math:`K_{ij} = k(x_i, x_j)`; the eigenvalues :math:`\lambda_i` of :math:`K/n` are non-negative and
sum to 1. The Vendi score of order q (Pasarkar & Dieng 2024, eq. 8) is the exponential of their
Rényi entropy,

.. math:: VS_q = \Bigl(\sum_{\lambda_i > 0} \lambda_i^q\Bigr)^{1/(1 - q)},

with the limits :math:`VS_1 = \exp(-\sum \lambda_i \log \lambda_i)` (Friedman & Dieng 2023,
definition 3.1), :math:`VS_\infty = 1/\lambda_{\max}` and :math:`VS_0` the rank. It lies between 1
(all rows equal) and n (all similarities 0), and falls with q (eq. 9). Small orders are sensitive to
rare rows. With probabilities :math:`p_i` in place of 1/n the matrix is :math:`K_{ij} \sqrt{p_i
p_j}` (Friedman & Dieng, definition 7.1).

Three ways to the eigenvalues
-----------------------------
*Moments.* With the cosine kernel :math:`K/n` has the same non-zero eigenvalues as a d by d matrix,
the second moment of the unit rows (:mod:`latentscale.vendi.second_moments`), so
:func:`moment_spectrum` gives every order at any n. A moment may be summed in single precision where
that is accurate enough for the orders (:func:`sufficient_precision`). The bracket includes its
error.

*Dense.* :func:`kernel_spectrum` builds K from tiles and diagonalises it.

*Nyström.* :func:`nystrom_spectrum` projects K on random landmark rows. The remainder is positive
semidefinite, so each eigenvalue of the projection is a lower bound of the true one, and the sum of
all the differences is known. :func:`vendi_bracket` turns this into a certified interval.

Rounding
--------
A solver returns zero eigenvalues as noise of about machine epsilon, and small orders amplify this
noise: :math:`(10^{-16})^{0.1} = 0.025`. A :class:`Spectrum` therefore contains the tolerance of the
computation. The value counts eigenvalues at or below it as zero; the bracket doesn't, because some
of them may be positive.

If the computed matrix has an error of Frobenius norm :math:`\epsilon`, the differences
:math:`\delta_i` of the eigenvalues satisfy :math:`\sum \delta_i^2 \le \epsilon^2` (Hoffman and
Wielandt 1953). So :math:`|\sum f(\lambda_i) - \sum f(\hat\lambda_i)| \le
\epsilon\,\|f'\|_2`, with each derivative taken where it is largest within :math:`\epsilon`.
Eigenvalues within :math:`\epsilon` of 0 may be anything from 0 on.

The error :math:`\epsilon` is the sum of three: that of the entries
(:class:`latentscale.vendi.kernels.SimilarityRounding`, or the rounding of a second moment), that of
the solver, n roundings of :math:`\|A\|_F`, and that of scaling the eigenvalues to their true sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import ArrayLike

from latentscale.array_types import Float64Array, Int64Array
from latentscale.estimate import Estimate
from latentscale.tiles.device import Precision
from latentscale.tiles.distances import Points, block_pairs, row_blocks
from latentscale.vendi.eigenvalues import symmetric_eigenvalues
from latentscale.vendi.kernels import (
    SUMS_ROUNDING,
    Kernel,
    KernelNorm,
    SimilarityRounding,
    check_kernel,
    check_semidefinite,
    kernel_tile,
)
from latentscale.vendi.majorisation import pour_on_largest, raise_smallest
from latentscale.vendi.power_sums import Proportions, least_hill_number
from latentscale.vendi.second_moments import (
    BLOCK_ROWS,
    SecondMoment,
    checked_weights,
    second_moment,
)

TILE_ROWS = 1024
"""Rows of a kernel tile: 8 MiB of similarities."""

SINGLE_TOLERANCE = 5e-7
"""Largest relative error that single precision may add to a score."""

EVALUATION = 1e-13
"""Relative rounding of the Hill number of given proportions."""

MEDIAN_ROWS = 1000
"""Rows whose median is the origin of distances."""

AS_INFINITE = 1e17
"""Order from which the score is that of infinity, to the last digit."""

EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a normalised kernel matrix.

    Attributes
    ----------
    eigenvalues : ndarray of float64
        Descending, non-negative, summing to 1. If there are fewer than ``size``, the others are
        zero.
    tolerance : float
        Numerical-rank tolerance: eigenvalues at or below it count as zero.
    size : int
        Number of rows of the corpus.
    error : float
        Bound of the Euclidean norm of the eigenvalues' errors.
    """

    eigenvalues: Float64Array
    tolerance: float
    size: int
    error: float


@dataclass(frozen=True)
class NystromSpectrum:
    r"""Bounds of the eigenvalues of a normalised kernel matrix, from landmark rows.

    Attributes
    ----------
    eigenvalues : ndarray of float64
        Eigenvalues of the projected matrix, descending and positive, at most one for each landmark.
        The i-th is a lower bound of the i-th eigenvalue of the whole matrix.
    norm : KernelNorm
        Of the whole matrix.
    landmarks : ndarray of int64, ascending
        Row numbers of the landmarks.
    """

    eigenvalues: Float64Array
    norm: KernelNorm
    landmarks: Int64Array

    @property
    def lost_trace(self) -> float:
        """Sum of the differences from the true eigenvalues, between 0 and 1."""
        return max(0.0, 1.0 - math.fsum(self.eigenvalues))


def moment_spectrum(moment: SecondMoment, n: int) -> Spectrum:
    """Compute the cosine kernel's spectrum from the second moment (Friedman & Dieng 2023, 3.3).

    Parameters
    ----------
    moment : SecondMoment
        The second moment of all rows of the corpus.
    n : int
        Number of those rows.

    Returns
    -------
    Spectrum
        With ``d`` eigenvalues, or ``n`` if there are fewer rows.

    Raises
    ------
    ValueError
        If ``n`` isn't positive or the weights sum to 0.

    Notes
    -----
    Costs ``O(d^3)``, whatever ``n``.
    """
    if n < 1:
        raise ValueError(f"the number of rows must be at least 1, got {n}")
    if not moment.total > 0:
        raise ValueError("all weights are 0: there is nothing to measure")
    # At most n eigenvalues are positive, so the others are rounding.
    eigenvalues = np.asarray(scipy.linalg.eigvalsh(moment.matrix / moment.total), dtype=np.float64)[
        -n:
    ]
    in_single = moment.rounding.error / moment.total
    spectrum = _spectrum(
        eigenvalues,
        max(moment.dimension, min(n, BLOCK_ROWS)),
        n,
        in_single + _moment_rounding(moment.dimension, n),
    )
    return replace(spectrum, tolerance=max(spectrum.tolerance, in_single))


def sufficient_precision(vectors: ArrayLike, orders: Sequence[float], n: int) -> Precision:
    """Choose the precision of a second moment of many rows from a sample of them.

    Parameters
    ----------
    vectors : array_like, shape (m, d)
        Some of the rows; preferably several times as many as dimensions.
    orders : sequence of float
        Orders of the scores that will be computed.
    n : int
        Number of all rows.

    Returns
    -------
    {"single", "double"}
        ``single`` if the rounding of ``n`` rows changes no score of the sample by more than
        :data:`SINGLE_TOLERANCE`. This fails where eigenvalues are near 0 and small orders count
        them.
    """
    sample = second_moment(vectors, precision="single")
    whole = replace(sample.rounding, mass=n, squared_masses=float(n) * BLOCK_ROWS)
    shares = SecondMoment(1.0, sample.matrix / sample.total, whole.share(1.0 / n))
    spectrum = moment_spectrum(shares, n)
    for order in orders:
        estimate = vendi_score(spectrum, order)
        if estimate.upper - estimate.lower > 2.0 * SINGLE_TOLERANCE * estimate.value:
            return "double"
    return "single"


def spectrum_of_rows(rows: Float64Array, total: float) -> Spectrum:
    """Compute the cosine kernel's spectrum from few rows.

    Parameters
    ----------
    rows : ndarray of float64, shape (m, d)
        Rows scaled so that their lengths are the roots of their weights.
    total : float
        Sum of the weights, positive.

    Returns
    -------
    Spectrum
        With as many eigenvalues as rows or dimensions, whichever are fewer.
    """
    m, d = rows.shape
    product = rows @ rows.T if m <= d else rows.T @ rows
    return _spectrum(
        scipy.linalg.eigvalsh(product / total), max(m, d), m, _moment_rounding(d, max(m, d))
    )


def kernel_spectrum(
    points: Points,
    kernel: Kernel,
    bandwidth: float | None = None,
    weights: ArrayLike | None = None,
) -> Spectrum:
    """Compute the spectrum of any kernel by dense diagonalisation.

    Parameters
    ----------
    points : Points
        The ``n`` rows, with the kernel's metric.
    kernel : {"cosine", "rbf", "laplacian"} or callable
        The similarity.
    bandwidth : float or None
        Positive; None for the cosine kernel and for functions.
    weights : array_like, shape (n,), optional
        Non-negative and finite, not all zero; scaled to probabilities (definition 7.1).

    Returns
    -------
    Spectrum
        With ``n`` eigenvalues.

    Raises
    ------
    ValueError
        On a kernel that doesn't suit the points (:func:`latentscale.vendi.kernels.check_kernel`), a
        function that isn't positive semidefinite on the rows, or bad weights.

    Notes
    -----
    Needs ``8 n^2`` bytes for the matrix, which the solver overwrites, and ``O(n)`` workspace
    beyond a tile and a copy of the rows. Costs ``4/3 n^3`` operations, half of them bound by
    memory bandwidth.
    """
    check_kernel(points, kernel, bandwidth)
    n = len(points)
    masses = np.ones(n) if weights is None else checked_weights(weights, n)
    total = math.fsum(masses)
    if total == 0:
        raise ValueError("all weights are 0: there is nothing to measure")
    masses = masses / total
    roots = np.sqrt(masses)
    points = _centred(points, kernel)
    rounding = SimilarityRounding.of(points, kernel, bandwidth)
    squared_errors = []
    # Only the lower triangle is read; column-major, so that LAPACK works in place.
    matrix = np.empty((n, n), order="F")
    for columns, rows in block_pairs(n, TILE_ROWS):
        tile = kernel_tile(points.take(rows), points.take(columns), kernel, bandwidth)
        found = rounding.take(rows).of_tile(
            tile,
            rounding.take(columns),
            (masses[rows], masses[columns]),
            diagonal=rows == columns,
        )
        squared_errors.append(found if rows == columns else 2.0 * found)
        tile *= roots[rows, None]
        tile *= roots[columns]
        matrix[rows, columns] = tile
    np.fill_diagonal(matrix, masses)
    eigenvalues = symmetric_eigenvalues(matrix)
    check_semidefinite(float(eigenvalues[0]), kernel)
    return _spectrum(eigenvalues, n, n, math.sqrt(math.fsum(squared_errors)))


def vendi_score(spectrum: Spectrum, order: float) -> Estimate:
    """Return the Vendi score of order q of a known spectrum (Pasarkar & Dieng 2024, eq. 8).

    Parameters
    ----------
    spectrum : Spectrum
        From :func:`moment_spectrum` or :func:`kernel_spectrum`.
    order : float
        q in [0, inf]. 0 gives the numerical rank, 1 the exponential of the Shannon entropy,
        ``math.inf`` the reciprocal of the largest eigenvalue.

    Returns
    -------
    Estimate
        Exact: the bracket is the rounding of the spectrum. Below order 1 it can be wide: no
        computation in floating point tells tiny eigenvalues from 0, and small orders count them.

    Raises
    ------
    ValueError
        On a negative or NaN order.
    """
    check_order(order)
    positive = spectrum.eigenvalues[spectrum.eigenvalues > spectrum.tolerance]
    score = hill_number(positive / positive.sum(), order)
    # Rounding may raise the score of completely dissimilar rows slightly above their number.
    score = min(score, float(spectrum.size))
    lower, upper = _within_reach(spectrum.eigenvalues, spectrum.error, order)
    most = float(min(spectrum.size, len(spectrum.eigenvalues)))
    slack = EVALUATION if order > 0 else 0.0  # ranks are whole
    lower, upper = lower * (1.0 - slack), upper * (1.0 + slack)
    lower, upper = max(1.0, min(lower, score)), min(max(upper, score), max(score, most))
    return Estimate(score, lower, upper, "exact", "exact")


def _within_reach(eigenvalues: Float64Array, error: float, order: float) -> tuple[float, float]:
    """Return the smallest and largest Hill number of spectra within a distance of a given one."""
    largest = float(eigenvalues[0])
    if order == math.inf:
        return 1.0 / (largest + error), 1.0 / max(largest - error, 1.0 / len(eigenvalues))
    near = eigenvalues[eigenvalues <= 2.0 * error]
    far = eigenvalues[eigenvalues > 2.0 * error]
    if order == 0:
        return float(max(1, len(far))), float(len(eigenvalues))
    if order > 2:
        # The largest eigenvalue alone bounds them, also where powers of errors overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            found = _by_slopes(near, far, error, Shares(order, largest))
        least, most = _within_reach(eigenvalues, error, math.inf)
        most **= order / (order - 1.0)
        return float(np.fmax(found[0], least)), float(np.fmin(found[1], most))
    return _by_slopes(near, far, error, Shares(order))


def _by_slopes(
    near: Float64Array, far: Float64Array, error: float, shares: Shares
) -> tuple[float, float]:
    """Bound a Hill number by the slopes of its terms, of eigenvalues near 0 and far from it."""
    # Both spectra sum to 1, so a common part of all slopes has no effect, except for the errors of
    # the eigenvalues near 0.
    highest, least = shares.slope(far - error), shares.slope(far + error)
    middle, spread = 0.5 * (highest + least), 0.5 * (highest - least)
    common = float(middle.mean())
    reach = error * float(np.linalg.norm(np.abs(middle - common) + np.abs(spread)))
    top = near + error
    reach += abs(common) * min(float(top.sum()), error * math.sqrt(len(near)))
    value = float(shares.of(far).sum())
    low = value - reach + float(np.minimum(shares.of(top), 0.0).sum())
    high = value + reach + float(np.maximum(shares.of(np.minimum(top, shares.peak)), 0.0).sum())
    return shares.number(low), shares.number(high)


@dataclass(frozen=True)
class Shares:
    """The term of each proportion in an entropy of an order in (0, inf), a concave function.

    Proportions sum to 1, so any multiple of p may be subtracted from a term. Near order 1 the term
    is that of Tsallis' entropy, (p^q - p) / (1 - q), whose slope stays finite there. Farther away
    it is p^q / (1 - q). The powers of large orders are those of proportions in units of the
    largest, as others would be below all numbers.
    """

    order: float
    unit: float = 1.0

    @property
    def subtracted(self) -> float:
        """Multiple of p that is subtracted from p^q."""
        return 1.0 if abs(self.order - 1.0) < 0.5 else 0.0

    @property
    def peak(self) -> float:
        """Proportion with the largest term."""
        if self.order == 1:
            return 1.0 / math.e
        inner = self.subtracted / self.order
        return inner ** (1.0 / (self.order - 1.0)) if inner else math.inf

    def of(self, p: Float64Array) -> Float64Array:
        """Return the terms of positive proportions."""
        if self.order == 1:
            return np.asarray(-p * np.log(p))
        if self.subtracted:
            return np.asarray(p * np.expm1((self.order - 1.0) * np.log(p)) / (1.0 - self.order))
        return np.asarray((p / self.unit) ** self.order / (1.0 - self.order))

    def slope(self, p: Float64Array) -> Float64Array:
        """Return the derivatives of the terms."""
        if self.order == 1:
            return np.asarray(-1.0 - np.log(p))
        power = self.order / self.unit * (p / self.unit) ** (self.order - 1.0)
        return np.asarray((power - self.subtracted) / (1.0 - self.order))

    def number(self, entropy: float) -> float:
        """Return the Hill number of an entropy; infinite where no proportions attain it."""
        if self.order == 1:
            return math.exp(entropy)
        if self.subtracted:
            excess = (1.0 - self.order) * entropy
            return math.exp(math.log1p(excess) / (1.0 - self.order)) if excess > -1 else math.inf
        power_sum = max((1.0 - self.order) * entropy, 0.0)
        if power_sum == 0:
            return 0.0 if self.order < 1 else math.inf
        power = 1.0 / (1.0 - self.order)
        return float(power_sum**power * self.unit ** (self.order * power))


def nystrom_spectrum(
    points: Points,
    kernel: Kernel,
    bandwidth: float | None,
    landmarks: int,
    generator: np.random.Generator,
) -> NystromSpectrum:
    r"""Compute lower bounds of the spectrum of any kernel, from random landmark rows.

    With C the similarities of all rows to the landmarks and W those among the landmarks,
    :math:`\hat K = C W^{+} C^\top` satisfies :math:`0 \preceq \hat K \preceq K`. W is shifted by a
    multiple of machine epsilon. The inequality still holds, and the shift exceeds the rounding of
    the inverse. The computed similarities have an error of Frobenius norm :math:`\epsilon`. With
    :math:`\epsilon` added to their diagonal they are positive semidefinite, so the inequality holds
    for them too, and each eigenvalue may be too high by :math:`2 \epsilon`.

    Parameters
    ----------
    points : Points
        The ``n`` rows, with the kernel's metric.
    kernel : {"cosine", "rbf", "laplacian"} or callable
        The similarity.
    bandwidth : float or None
        Positive; None for the cosine kernel and for functions.
    landmarks : int
        Number of rows to project on, from 1 to ``n``.
    generator : numpy.random.Generator
        Draws the landmarks; all sets are equally likely.

    Returns
    -------
    NystromSpectrum

    Raises
    ------
    ValueError
        On a kernel that doesn't suit the points, or a number of landmarks out of range.

    Notes
    -----
    Costs one pass over all pairs of rows for the squares, ``n m^2`` multiplications and
    ``O(m^3)``; needs a few arrays of ``m`` by ``m`` and a tile.
    """
    check_kernel(points, kernel, bandwidth)
    n = len(points)
    if not 1 <= landmarks <= n:
        raise ValueError(f"landmarks must be from 1 to the {n} rows, got {landmarks}")
    points = _centred(points, kernel)
    norm = _kernel_norm(points, kernel, bandwidth)
    added = n * norm.error
    chosen = np.sort(generator.choice(n, landmarks, replace=False))
    anchors = points.take(chosen)
    core = kernel_tile(anchors, anchors, kernel, bandwidth)
    core = np.tril(core, -1) + np.tril(core, -1).T
    np.fill_diagonal(core, 1.0 + added)
    strengths, directions = scipy.linalg.eigh(core)
    shift = landmarks * EPSILON * float(strengths[-1])
    whitening = directions / np.sqrt(np.maximum(strengths, 0.0) + shift)
    gram = np.zeros((landmarks, landmarks))
    for block in row_blocks(n, TILE_ROWS):
        tile = kernel_tile(points.take(block), anchors, kernel, bandwidth)
        inside = (chosen >= block.start) & (chosen < block.stop)
        tile[chosen[inside] - block.start] = core[inside]
        features = tile @ whitening
        gram += features.T @ features
    ascending = np.asarray(scipy.linalg.eigvalsh(gram), dtype=np.float64)
    # Each eigenvalue may be too high by the rounding of the solver, and of the similarities: by
    # their error, and by as much again that was added to the diagonal.
    rounding = landmarks * EPSILON * float(ascending[-1]) + 2.0 * added
    bounds = (ascending[::-1] - rounding) / n
    positive = bounds[bounds > 0]
    return NystromSpectrum(positive, norm, chosen.astype(np.int64, copy=False))


def vendi_bracket(nystrom: NystromSpectrum, order: float) -> Estimate:
    r"""Compute a Vendi score of order q, with certified bounds, from a projected spectrum.

    Parameters
    ----------
    nystrom : NystromSpectrum
        From :func:`nystrom_spectrum`.
    order : float
        q in [0, inf].

    Returns
    -------
    Estimate
        ``certified``; order 2 is exact.

    Raises
    ------
    ValueError
        On a negative or NaN order.

    Notes
    -----
    The true eigenvalues are :math:`\lambda_i = \hat\lambda_i + e_i` with :math:`e_i \ge 0` (Weyl),
    :math:`\sum e_i = \tau`, the lost trace, and :math:`\sum \lambda_i^2 = s` known, so that
    :math:`\lambda_i \le \sqrt{\hat\lambda_i^2 + s - \sum \hat\lambda_j^2}`. Two extreme spectra
    bound all of them. Adding :math:`\tau` to the largest eigenvalues, each up to its limit, gives a
    spectrum that majorises all others. Raising the smallest eigenvalues to a common level gives one
    that all others majorise. Hill numbers are Schur-concave, so the two give the lower and the
    upper bound.

    The sum of squares narrows this bracket: below order 2 the smallest score with that sum is
    bounded by duality (:mod:`latentscale.vendi.power_sums`), above it :math:`VS_q \le VS_2 = 1/s`,
    and :math:`\lambda^q` lies on one side of :math:`\lambda^2 \lambda_{\max}^{q-2}`.

    The value is the score of a smooth continuation of the known eigenvalues with the true sum and
    sum of squares.
    """
    check_order(order)
    if order == 2:
        return nystrom.norm.score()
    norm, known, lost = nystrom.norm, nystrom.eigenvalues, nystrom.lost_trace
    n = norm.size
    slack = SUMS_ROUNDING + n * EPSILON if order > 0 else 0.0  # ranks are whole
    excess = max(0.0, norm.most - math.fsum(known**2))
    padded = np.concatenate([known, np.zeros(n - len(known))])
    limits = np.sqrt(padded**2 + excess)
    poured = pour_on_largest(padded, limits, lost)
    level = raise_smallest(padded, lost)
    lower, upper = _tighten(
        hill_number(poured[poured > 0] / poured.sum(), order),
        hill_number(level[level > 0] / level.sum(), order),
        order,
        norm.least,
        Proportions(
            lower=known,
            upper=np.minimum(limits, padded + lost)[: len(known)],
            others=n - len(known),
            limit=min(float(limits[-1]), lost) if lost > 0 else 1.0,
            squares=norm.most,
        ),
    )
    lower, upper = lower * (1.0 - slack), upper * (1.0 + slack)
    likely = _likely_spectrum(known, lost, norm.squares, n)
    likely = likely[likely > n * EPSILON * likely[0]]
    value = hill_number(likely / likely.sum(), order)
    return Estimate(min(max(value, lower), upper), lower, upper, "certified", "nystrom")


def hill_number(proportions: Float64Array, order: float) -> float:
    r"""Return the Hill number of order q, :math:`(\sum p_i^q)^{1/(1-q)}`.

    Parameters
    ----------
    proportions : ndarray of float64
        Positive, summing to 1.
    order : float
        q in [0, inf].

    Returns
    -------
    float
        Between 1 and the number of proportions. Powers neither overflow nor underflow, and nothing
        cancels at orders near 1.
    """
    largest = float(proportions.max())
    if order > AS_INFINITE:
        return 1.0 / largest
    if order == 0:
        return float(len(proportions))
    logarithms = np.log(proportions)
    if order == 1:
        return math.exp(-float(proportions @ logarithms))
    if abs(order - 1) < 0.1:
        excess = float(proportions @ np.expm1((order - 1) * logarithms))
        return math.exp(math.log1p(excess) / (1 - order))
    top = math.log(largest)
    scaled = float(np.exp(order * (logarithms - top)).sum())
    return math.exp((order * top + math.log(scaled)) / (1 - order))


def order_name(order: float) -> str:
    """Return the name of an order as in reports: ``"0.1"``, ``"1"``, ``"inf"``.

    Raises
    ------
    ValueError
        On a negative or NaN order.
    """
    check_order(order)
    return repr(float(order)).removesuffix(".0")


def check_order(order: float) -> None:
    """Raise a ValueError for an order outside [0, inf]."""
    if not order >= 0:
        raise ValueError(f"the order of a Vendi score is a number from 0 to inf, got {order}")


def _centred(points: Points, kernel: Kernel) -> Points:
    """Give Euclidean points an origin among them, which reduces the rounding of distances.

    The error of a squared distance is a share of the squared norms, so vectors far from the
    origin would add noise to the kernel that small orders count. A median isn't moved by a few far
    rows.
    """
    if points.metric != "euclidean" or callable(kernel):
        return points
    few = points.rows[:: -(-len(points) // MEDIAN_ROWS)]
    return points.about(np.asarray(np.median(few, axis=0)))


def _kernel_norm(points: Points, kernel: Kernel, bandwidth: float | None) -> KernelNorm:
    n = len(points)
    rounding = SimilarityRounding.of(points, kernel, bandwidth)
    masses = np.full(n, 1.0 / n)
    sums, errors = [], []
    for first, second in block_pairs(n, TILE_ROWS):
        tile = kernel_tile(points.take(first), points.take(second), kernel, bandwidth)
        twice = 1.0 if first == second else 2.0
        sums.append(twice * float(np.vdot(tile, tile)))
        found = rounding.take(first).of_tile(
            tile,
            rounding.take(second),
            (masses[first], masses[second]),
            diagonal=first == second,
        )
        errors.append(twice * found)
    return KernelNorm(math.fsum(sums) / n**2, math.sqrt(math.fsum(errors)), n)


def _tighten(
    lower: float, upper: float, order: float, squares: float, proportions: Proportions
) -> tuple[float, float]:
    """Narrow the bounds of a score by the sum of squares and the largest eigenvalue."""
    largest = math.log(float(proportions.upper[0]))
    if 0 < order < 2:
        lower = max(lower, least_hill_number(proportions, order))
    elif order > 2:
        upper = min(upper, 1.0 / squares)
    # A power between the two orders: p^q >= p^2 largest^(q - 2) for q < 2, <= for q > 2.
    if 1 < order < 2:
        logarithm = math.log(squares) + (order - 2) * largest - SUMS_ROUNDING
        upper = math.exp(min(math.log(upper), logarithm / (1 - order)))
    elif 2 < order < math.inf:
        logarithm = math.log(proportions.squares) + (order - 2) * largest
        lower = max(lower, math.exp(logarithm / (1 - order)))
    return lower, upper


def _likely_spectrum(known: Float64Array, lost: float, squares: float, n: int) -> Float64Array:
    """Return a smooth continuation of the known spectrum with the given sum of squares.

    One part of the lost trace scales the known eigenvalues up. The other part is a tail that falls
    geometrically from the last of them, or is constant where a geometric tail doesn't fit.
    """
    length = n - len(known)
    if lost == 0 or length == 0:
        return known
    ratio = max(0.0, 1.0 - float(known[-1]) / lost)
    tail: Float64Array = ratio ** np.arange(length, dtype=np.float64)
    tail *= lost / tail.sum()
    growth = lost / float(known.sum())
    known_squares, tail_squares = float(known @ known), float(tail @ tail)

    def surplus(share: float) -> float:
        grown = known_squares * (1.0 + share * growth) ** 2
        return grown + tail_squares * (1.0 - share) ** 2 - squares

    if surplus(0.0) >= 0:
        share = 0.0
    elif surplus(1.0) <= 0:
        share = 1.0
    else:
        share = float(scipy.optimize.brentq(surplus, 0.0, 1.0))
    return np.concatenate([known * (1.0 + share * growth), tail * (1.0 - share)])


def _moment_rounding(dimension: int, n: int) -> float:
    """Bound the Frobenius norm of the rounding of a second moment in double, divided by its trace.

    Rows are scaled to unit length, at most :data:`BLOCK_ROWS` products are added one after the
    other, and then the blocks.
    """
    return (min(n, BLOCK_ROWS) + n / BLOCK_ROWS + 2 * dimension + 16) * 0.5 * EPSILON


def _spectrum(ascending: ArrayLike, roundings: int, n: int, error: float) -> Spectrum:
    """Return the spectrum of a matrix with a known error, from the solver's eigenvalues."""
    found = np.asarray(ascending, dtype=np.float64)[::-1]
    error += len(found) * EPSILON * float(np.linalg.norm(found))
    eigenvalues = np.maximum(found, 0.0)
    total = float(eigenvalues.sum())
    # Scaling to the true sum moves each eigenvalue in proportion to its size.
    error += abs(total - 1.0) * float(np.linalg.norm(eigenvalues))
    eigenvalues /= total
    return Spectrum(eigenvalues, roundings * EPSILON * float(eigenvalues[0]), n, error)
