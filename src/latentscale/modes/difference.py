r"""Kinds of rows that are more frequent in one corpus than in another.

Let :math:`C_X = \frac1n \sum_i x_i x_i^\top` be the second moment of the unit vectors of a corpus,
the kernel covariance under the cosine kernel, and :math:`C_Y` that of another. An eigenvector u of
:math:`C_X - C_Y` with a positive eigenvalue λ is a *novel mode*: a direction to which the rows of
X are closer, by λ in the mean of :math:`(u^\top x)^2`. A negative eigenvalue belongs to a *missing
mode*. Where kinds of rows are nearly orthogonal, the modes are kinds whose frequency differs, and λ
is the difference of their shares (Zhang, Li & Farnia, An interpretable evaluation of entropy-based
novelty of generative models, ICML 2024; η = 1 there). The rows with the largest
:math:`(u^\top x)^2` show what a mode is.

*Test.* The largest eigenvalue is positive for any two samples. Random divisions of groups of rows
into two sides say what chance makes of it (:mod:`latentscale.sampling.divisions`). Groups have
equally many rows on average, so of the larger corpus only as many random rows as the other one has
take part.

*Sampling error.* To first order an eigenvalue changes with the rows as the mean of
:math:`(u^\top x)^2` along its own direction does, so its variance is that of two independent means
(:func:`mode_errors`). Where no mode stands out, a fresh sample has another direction, and its
largest eigenvalue varies by less than this.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules are imported when they are first used

from latentscale.array_types import BoolArray, Float64Array, FloatArray, Int64Array
from latentscale.sampling.divisions import ExpectedByDivisions, expect_by_divisions
from latentscale.sampling.jackknife import jackknife_error

DIVISIONS = 999
"""Number of random divisions; the smallest p-value is one in a thousand."""

AT_ONCE_BYTES = 64 * 2**20
"""Memory for the differences of some random divisions."""

DENSE = 64
"""Largest dimension for which all eigenvalues are computed."""

CLOSE = 1e-6
"""Relative error of the largest eigenvalue of a random division."""

ROUNDING = 1e-12
"""Largest eigenvalue that may be rounding: moments are of unit vectors."""


@dataclass(frozen=True)
class GroupMoments:
    """Sums of outer products of unit vectors, by groups of rows.

    Attributes
    ----------
    matrices : ndarray of float64, shape (g, d, d)
        The sums.
    sizes : ndarray of int64, shape (g,)
        Rows of every group.
    first : int
        Number of groups of the first corpus, which come first.
    """

    matrices: Float64Array
    sizes: Int64Array
    first: int


@dataclass(frozen=True)
class Modes:
    """Modes that are more frequent on one side, the largest difference first.

    Attributes
    ----------
    values : ndarray of float64, shape (k,)
        Differences of the mean squared cosines, all positive.
    directions : ndarray of float64, shape (d, k)
        Unit vectors.
    shares : ndarray of float64, shape (k, 2)
        Mean squared cosine of the rows of the first and of the second corpus.
    """

    values: Float64Array
    directions: Float64Array
    shares: Float64Array


def expect_mode(found: float, divided: Float64Array) -> ExpectedByDivisions:
    """Say where the largest eigenvalue is expected by chance."""
    return expect_by_divisions(found, divided, CLOSE * found + ROUNDING)


def sum_group_moments(
    rows: Float64Array, group: Int64Array, matrices: Float64Array, sizes: Int64Array
) -> None:
    """Add the outer products of unit rows to the sums of their groups.

    Parameters
    ----------
    rows : ndarray of float64, shape (m, d)
        Unit vectors.
    group : ndarray of int64, shape (m,)
        The group of every row.
    matrices, sizes : ndarray
        As in :class:`GroupMoments`; changed in place.
    """
    for number in np.unique(group):
        own = rows[group == number]
        matrices[number] += own.T @ own
        sizes[number] += len(own)


def leading_modes(moments: GroupMoments, count: int) -> tuple[Modes, Modes]:
    """Return the largest novel and missing modes of the first corpus beside the second.

    Parameters
    ----------
    moments : GroupMoments
        Of both corpora, with at least one row each.
    count : int
        Most modes of each kind.

    Returns
    -------
    tuple of Modes
        Those more frequent in the first corpus, and those more frequent in the second.
    """
    first, second = _both_moments(moments)
    values, directions = np.linalg.eigh(first - second)
    found = []
    for sign, order in ((1.0, np.arange(len(values))[::-1]), (-1.0, np.arange(len(values)))):
        kept = order[:count][sign * values[order[:count]] > ROUNDING]
        chosen = directions[:, kept]
        shares = [np.einsum("ik,ij,jk->k", chosen, side, chosen) for side in (first, second)]
        found.append(Modes(sign * values[kept], chosen, np.clip(np.column_stack(shares), 0.0, 1.0)))
    return found[0], found[1]


def mode_errors(
    moments: GroupMoments, directions: Float64Array, rows: tuple[int, int]
) -> Float64Array:
    """Return the sampling errors of modes, by leaving out each group of rows.

    Parameters
    ----------
    moments : GroupMoments
        At least two groups of each corpus, which were drawn at random.
    directions : ndarray of float64, shape (d, k)
        Unit vectors of the modes.
    rows : tuple of int
        Rows of both corpora, of which the groups hold some.

    Returns
    -------
    ndarray of float64, shape (k,)
        Standard errors of the eigenvalues over fresh samples of as many rows of both corpora, to
        first order; enlarged for few groups.

    Notes
    -----
    Costs ``g d² k`` multiplications.
    """
    squares = np.einsum("gik,ik->gk", moments.matrices @ directions, directions)
    variance = np.zeros(directions.shape[1])
    for side, own in ((slice(moments.first), rows[0]), (slice(moments.first, None), rows[1])):
        sums, sizes = squares[side], moments.sizes[side]
        left_out = (sums.sum(axis=0) - sums) / (sizes.sum() - sizes)[:, None]
        variance += jackknife_error(left_out) ** 2 * (sizes.sum() / own)
    return np.sqrt(variance)


def moments_difference(moments: GroupMoments) -> Float64Array:
    """Return the second moment of the first corpus less that of the second."""
    first, second = _both_moments(moments)
    return first - second


def divide_groups(
    moments: GroupMoments, generator: np.random.Generator, *, divisions: int = DIVISIONS
) -> tuple[Float64Array, Float64Array]:
    """Return the largest eigenvalue of either sign over random divisions of the groups.

    Parameters
    ----------
    moments : GroupMoments
        At least two groups of each corpus, which were drawn at random.
    generator : numpy.random.Generator
        Divides the groups.
    divisions : int
        Number of random divisions.

    Returns
    -------
    tuple of ndarray of float64, shape (divisions,)
        Largest eigenvalues of the difference, and of its negative.

    Raises
    ------
    ValueError
        If a corpus has fewer than two groups.

    Notes
    -----
    A division costs ``g d²`` multiplications and some ten products with a matrix of d by d.
    The differences of some divisions take 64 MiB, or ``8 d²`` bytes.
    """
    count = len(moments.sizes)
    if min(moments.first, count - moments.first) < 2:
        raise ValueError(
            f"{moments.first} and {count - moments.first} groups; both need at least two"
        )
    sides = np.arange(count) < moments.first
    width = moments.matrices.shape[1]
    start = generator.standard_normal((width,))
    chosen = generator.permuted(np.tile(sides, (divisions, 1)), axis=1)
    weights = chosen / (chosen @ moments.sizes)[:, None]
    weights -= ~chosen / (~chosen @ moments.sizes)[:, None]
    matrices = moments.matrices.reshape(count, -1)
    # To touch new memory for each of the products takes longer than these.
    held = np.empty((min(max(1, AT_ONCE_BYTES // (8 * width**2)), divisions), width**2))
    found = [
        _extremes(difference.reshape(width, width), start)
        for some in np.split(weights, range(len(held), divisions, len(held)))
        for difference in np.matmul(some, matrices, out=held[: len(some)])
    ]
    novel, missing = np.array(found).T
    return novel, missing


def _both_moments(moments: GroupMoments) -> tuple[Float64Array, Float64Array]:
    sides = np.arange(len(moments.sizes)) < moments.first
    return _side_moment(moments, sides), _side_moment(moments, ~sides)


def _side_moment(moments: GroupMoments, chosen: BoolArray) -> Float64Array:
    """Return the second moment of the groups of one side."""
    weights = chosen / float(moments.sizes[chosen].sum())
    total: Float64Array = np.tensordot(weights, moments.matrices, axes=1)
    return total


def _extremes(matrix: Float64Array, start: Float64Array) -> tuple[float, float]:
    """Return the largest eigenvalues of a symmetric matrix and of its negative."""
    values = _outermost(matrix, start)
    return max(float(values.max()), 0.0), max(-float(values.min()), 0.0)


def _outermost(matrix: Float64Array, start: Float64Array) -> FloatArray:
    """Return the smallest and the largest eigenvalue, and maybe others."""
    if len(matrix) > DENSE and matrix.any():
        # It may not converge, and finds no start in the null space of a matrix of low rank.
        with suppress(scipy.sparse.linalg.ArpackError):
            found: FloatArray = scipy.sparse.linalg.eigsh(
                matrix, k=2, which="BE", v0=start, tol=CLOSE, return_eigenvectors=False
            )
            return found
    return np.linalg.eigvalsh(matrix)
