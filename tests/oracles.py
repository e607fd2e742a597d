"""Naive references for the measures, written from the papers.

Nothing here imports the package under test, and nothing is clever: dense algebra, double loops and
closed forms on small inputs.
"""

from __future__ import annotations

import numpy as np

# --- distances ------------------------------------------------------------------------------

# --- heat trace and IMD ---------------------------------------------------------------------

# --- magnitude ------------------------------------------------------------------------------


def pairwise_distances(rows: np.ndarray, metric: str) -> np.ndarray:
    """All distances, one pair at a time, coordinate by coordinate."""
    n = len(rows)
    distances = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            x, y = rows[i], rows[j]
            if metric == "euclidean":
                distances[i, j] = np.sqrt(np.sum((x - y) ** 2))
            elif metric == "manhattan":
                distances[i, j] = np.sum(np.abs(x - y))
            else:
                u, v = x / np.sqrt(np.sum(x**2)), y / np.sqrt(np.sum(y**2))
                distances[i, j] = np.sum((u - v) ** 2) / 2.0
    return distances


def dense_magnitude(distances: np.ndarray, scale: float) -> tuple[float, np.ndarray, float]:
    """The sum of the inverse similarity matrix, its weights, and a bound on its rounding."""
    similarities = np.exp(-scale * distances)
    weights = np.linalg.solve(similarities, np.ones(len(similarities)))
    epsilon = np.finfo(float).eps * 10 * len(similarities)
    return float(weights.sum()), weights, float(epsilon * np.abs(weights).sum() ** 2)


def two_point_magnitude(scale: float, distance: float) -> float:
    """Two points (Leinster 2013, example 2.1.1)."""
    return 2.0 / (1.0 + np.exp(-scale * distance))


def line_magnitude(positions: np.ndarray, scale: float) -> float:
    """Points on a line: 1 plus tanh of half of each gap (Leinster 2013, corollary 2.4.7)."""
    gaps = np.diff(np.sort(np.unique(positions)))
    return float(1.0 + np.tanh(scale * gaps / 2.0).sum())


# --- Vendi ----------------------------------------------------------------------------------

# --- GeomCA ---------------------------------------------------------------------------------
