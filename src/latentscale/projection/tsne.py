r"""A map of a few thousand rows, on which near rows stay near: t-SNE.

Every row gives its nearest rows *affinities*, Gaussian weights whose entropy is that of
``perplexity`` equal ones (van der Maaten and Hinton 2008, "Visualizing data using t-SNE"). With
:math:`p_{ij}` their mean over both rows, as a share of all, the places :math:`y_i` minimise

.. math:: \sum_{ij} p_{ij} \log \frac{p_{ij}}{q_{ij}}, \qquad
          q_{ij} = \frac{(1 + \|y_i - y_j\|^2)^{-1}}{\sum_{k \ne l} (1 + \|y_k - y_l\|^2)^{-1}}.

The first places are the two leading principal components, which keep distant groups where they are
to each other as far as a plane can (Kobak and Berens 2019, "The art of using t-SNE for single-cell
transcriptomics"). The repulsion is summed over all pairs; for a few thousand rows that is faster
than a tree, and its rounding doesn't depend on the number of threads. It does on the processor, and
the last digits grow: another kind of machine gives another map, as good and with other places.

A map isn't a measurement. What it keeps is measured, though: the share of the nearest rows of each
row that are among its nearest in the plane.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from latentscale.array_types import Float32Array, Float64Array, Int32Array, Int64Array
from latentscale.neighbours.exact import exact_neighbours
from latentscale.tiles.distances import Points, as_points, distance_tile, row_blocks

PERPLEXITY = 30
"""Near rows that each row counts; three times as many get an affinity."""

MIN_ROWS = 20
"""Fewest rows of a map."""

KEPT_NEIGHBOURS = 10
"""Nearest rows of which the kept share is measured."""

EARLY, LATE = 100, 300
"""Steps with exaggerated affinities, which form groups, and steps without."""

EXAGGERATION = 12.0
"""Factor of the affinities in the first steps; steps are as long as it is small."""

FIRST_SPREAD, FIRST_NOISE = 1e-4, 1e-6
"""Standard deviations of the first places, and of what sets equal rows apart."""

GROWTH, DECAY, MIN_GAIN = 0.2, 0.8, 0.01
"""How the gain of a coordinate grows while it keeps its direction, and shrinks when it turns."""

BLOCK_ROWS, ROUNDING = 512, 1e-9
"""Rows whose distances are computed at once, and the relative rounding of a distance."""

HALVINGS = 40
"""Steps of the search for a row's bandwidth."""

FAR = 1e4
"""How many times the median squared distance of a row's neighbours their mean is if one is far."""

DIRECTIONS, POWERS = 8, 12
"""Directions, and products with the covariance, that give the leading two."""


@dataclass(frozen=True)
class Projection:
    """Rows in the plane.

    Attributes
    ----------
    places : ndarray of float32, shape (n, 2)
        Place of each row, centred at the origin, without a unit.
    kept : float
        Share of the ten nearest of each row in the plane that are among its ten nearest rows, or as
        near as the last of these.
    perplexity: float
        What was used: at most a third of the rows.
    """

    places: Float32Array
    kept: float
    perplexity: float


def project(
    points: Points, generator: np.random.Generator, *, perplexity: float = PERPLEXITY
) -> Projection:
    """Place rows in the plane.

    Parameters
    ----------
    points : Points
        ``n`` rows under a metric, at least :data:`MIN_ROWS`. Equal rows lie side by side.
    generator : numpy.random.Generator
        Finds the leading directions, and sets equal rows apart.
    perplexity : float
        Above 1; at most a third of the other rows are used.

    Raises
    ------
    ValueError
        If there are too few rows.

    Notes
    -----
    Takes about ``0.15 n²`` ns a step on one core, and 14 KiB a row at the default perplexity.
    """
    n = len(points)
    if n < MIN_ROWS:
        raise ValueError(f"a map needs {MIN_ROWS} rows or more, got {n}")
    perplexity = min(perplexity, (n - 1) / 3.0)
    count = min(n - 1, max(int(3.0 * perplexity), KEPT_NEIGHBOURS))
    near = exact_neighbours(points, count)
    squared = near.distances**2 if points.metric != "cosine" else 2.0 * near.distances
    starts, others, weights = _symmetric(near.indices, _affinities(squared, perplexity))
    places = _descend(_first_places(points.rows, generator), starts, others, weights)
    kept = _kept(points, near.distances[:, KEPT_NEIGHBOURS - 1], places)
    return Projection(places, kept, perplexity)


def _affinities(squared: Float64Array, perplexity: float) -> Float64Array:
    """Return the affinities of each row to its nearest rows, shape (n, k), which sum to 1."""
    squared = squared - squared[:, :1]
    scale = squared.mean(axis=1)
    # A row that is far from all others, and among the nearest of few, would hide these.
    middle = np.median(squared, axis=1)
    scale = np.where((middle > 0.0) & (scale > FAR * middle), middle, scale)
    scale = np.maximum(scale, np.finfo(np.float64).tiny)
    squared = squared / scale[:, None]
    low, high = np.full(len(squared), -20.0), np.full(len(squared), 20.0)
    wanted = np.log(perplexity)
    weights: Float64Array = np.ones_like(squared)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        weights = np.exp(-np.exp(middle)[:, None] * squared)
        total = weights.sum(axis=1)
        entropy = np.log(total) + np.exp(middle) * (weights * squared).sum(axis=1) / total
        wide = entropy > wanted
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _symmetric(
    indices: Int64Array, affinities: Float64Array
) -> tuple[Int64Array, Int32Array, Float32Array]:
    """Return the mean affinities of both rows as a sparse matrix: starts of rows, columns, values.

    The values sum to 1.
    """
    n, count = indices.shape
    rows, columns = np.repeat(np.arange(n), count), indices.ravel()
    pairs = np.concatenate([rows * n + columns, columns * n + rows])
    known, where = np.unique(pairs, return_inverse=True)
    values = np.bincount(where, np.tile(affinities.ravel(), 2)) / (2.0 * n)
    starts = np.searchsorted(known, np.arange(n + 1) * n)
    return starts, (known % n).astype(np.int32), values.astype(np.float32)


def _first_places(rows: Float64Array, generator: np.random.Generator) -> Float32Array:
    """Return the first two principal components, made small."""
    centred = rows - rows.mean(axis=0)
    directions = generator.standard_normal((rows.shape[1], min(DIRECTIONS, rows.shape[1])))
    for _ in range(POWERS):
        directions, _ = np.linalg.qr(centred.T @ (centred @ directions))
    left, values, _ = np.linalg.svd(centred @ directions, full_matrices=False)
    components = (left * values)[:, :2]
    places = np.zeros((len(rows), 2))
    places[:, : components.shape[1]] = components
    spread = places[:, 0].std()
    # Rows that are all equal may differ from their mean by rounding.
    places *= FIRST_SPREAD / spread if spread > 1e-12 * np.abs(rows).max() else 0.0
    places += FIRST_NOISE * generator.standard_normal(places.shape)
    return places.astype(np.float32)


def _descend(
    places: Float32Array, starts: Int64Array, others: Int32Array, weights: Float32Array
) -> Float32Array:
    """Minimise the divergence by gradient descent with momentum and gains."""
    n = len(places)
    x, y = np.ascontiguousarray(places[:, 0]), np.ascontiguousarray(places[:, 1])
    pull, push = np.empty((2, n), np.float32), np.empty((2, n), np.float32)
    step, gains = np.zeros((2, n), np.float32), np.ones((2, n), np.float32)
    for number in range(EARLY + LATE):
        early = number < EARLY
        exaggeration = np.float32(EXAGGERATION if early else 1.0)
        total = _repel(x, y, push)
        _attract(x, y, starts, others, weights, pull)
        gradient = exaggeration * pull - push / total
        turned = np.sign(gradient) == np.sign(step)
        gains = np.maximum(np.where(turned, DECAY * gains, gains + GROWTH), MIN_GAIN)
        rate, momentum = 4.0 * n / exaggeration, 0.5 if early else 0.8
        step = (momentum * step - rate * gains * gradient).astype(np.float32)
        x, y = x + step[0], y + step[1]
        x, y = x - x.mean(), y - y.mean()
    return np.column_stack([x, y])


@numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"}
)
def _repel(x: Float32Array, y: Float32Array, push: Float32Array) -> float:
    """Sum the squared closeness of all pairs times their differences; return its plain sum."""
    one, total = np.float32(1.0), np.float64(0.0)
    push[:] = 0.0
    for i in range(len(x)):
        closeness, across, up = np.float32(0.0), np.float32(0.0), np.float32(0.0)
        xi, yi = x[i], y[i]
        for j in range(i):
            dx, dy = xi - x[j], yi - y[j]
            near = one / (one + dx * dx + dy * dy)
            closeness += near
            right, above = near * near * dx, near * near * dy
            across += right
            up += above
            push[0, j] -= right
            push[1, j] -= above
        push[0, i] += across
        push[1, i] += up
        total += 2.0 * np.float64(closeness)
    return float(total)


@numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"}
)
def _attract(
    x: Float32Array,
    y: Float32Array,
    starts: Int64Array,
    others: Int32Array,
    weights: Float32Array,
    pull: Float32Array,
) -> None:
    one = np.float32(1.0)
    for i in range(len(x)):
        across, up = np.float32(0.0), np.float32(0.0)
        xi, yi = x[i], y[i]
        for place in range(starts[i], starts[i + 1]):
            other = others[place]
            dx, dy = xi - x[other], yi - y[other]
            weight = weights[place] / (one + dx * dx + dy * dy)
            across += weight * dx
            up += weight * dy
        pull[0, i], pull[1, i] = across, up


def _kept(points: Points, reach: Float64Array, places: Float32Array) -> float:
    """Return the share of the nearest rows in the plane that are within reach of each row.

    So a row that is as near as the last of the nearest counts, as all of a group of equal rows do.
    """
    drawn = exact_neighbours(as_points(places, "euclidean"), KEPT_NEIGHBOURS).indices
    kept = 0
    for rows in row_blocks(len(points), BLOCK_ROWS):
        distances = distance_tile(points.take(rows), points)
        found = np.take_along_axis(distances, drawn[rows], axis=1)
        kept += int((found <= reach[rows, None] * (1.0 + ROUNDING)).sum())
    return kept / drawn.size
