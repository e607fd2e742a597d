"""Scores of random subsets, extrapolated, against the scores of all rows."""

import math

import numpy as np
import pytest

from latentscale.sampling.rarefaction import HALVINGS, SubsetScores, draw_replicates
from latentscale.tiles.distances import as_points
from latentscale.vendi.rarefaction import RESOLVED, extrapolated_scores, subsample_scores
from tests.oracles import kernel_matrix

ORDERS = (math.inf, 2.0, 1.0)


def largest_eigenvalue(rows: np.ndarray, bandwidth: float) -> float:
    return float(np.linalg.eigvalsh(kernel_matrix(rows, "rbf", bandwidth))[-1])


def subsets(
    rows: np.ndarray, bandwidth: float, size: int, generator: np.random.Generator
) -> list[SubsetScores]:
    points = as_points(rows, "euclidean")
    return [
        subsample_scores(points.take(drawn), "rbf", bandwidth, ORDERS, 2**halving)
        for drawn in draw_replicates(len(rows), size, 2, generator)
        for halving in range(HALVINGS + 1)
    ]


def check_order_infinity(seed: int) -> None:
    """Rows of which hardly two are similar; the score of order infinity is that of the closest."""
    rng = np.random.default_rng(seed)
    n, size, d = 320, 64, int(rng.integers(2, 8))
    rows = rng.normal(size=(n, d))
    if rng.integers(2):
        rows[n // 2 :] = rows[: n // 2] + 0.01 * rng.normal(size=(n // 2, d))
    nearest = np.sort(np.linalg.norm(rows[:, None] - rows[None], axis=2), axis=1)[:, 1]
    bandwidth = float(np.quantile(nearest, rng.uniform(0.0, 0.9))) * rng.uniform(0.2, 1.0)
    parts = subsets(rows, bandwidth, size, rng)
    found = extrapolated_scores(parts, ORDERS, n)[0]
    truth = n / largest_eigenvalue(rows, bandwidth)
    largest = [part.size / part.values[:, 0] for part in parts if part.size == size]
    assert found.upper >= truth * (1 - 1e-9)
    if np.mean(largest) < RESOLVED:
        assert found.lower <= truth
    assert found.bounds == "estimate"


@pytest.mark.parametrize("seed", range(4))
def test_order_infinity_near_the_resolution(seed: int) -> None:
    check_order_infinity(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 200))
def test_more_order_infinity_near_the_resolution(seed: int) -> None:
    check_order_infinity(seed)


def test_a_resolved_curve_is_extrapolated() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(4, 3))[rng.integers(4, size=400)] + 0.1 * rng.normal(size=(400, 3))
    found = extrapolated_scores(subsets(rows, 0.5, 160, rng), ORDERS, len(rows))[0]
    truth = len(rows) / largest_eigenvalue(rows, 0.5)
    assert found.lower <= truth <= found.upper
    assert found.upper < 1.5 * found.lower


def test_all_rows_need_no_bounds() -> None:
    values = np.full((1, 3), [[2.0, 3.0, 4.0]])
    parts = [SubsetScores(2**k, np.minimum(values, 2**k), np.ones(3)) for k in range(6)]
    found = extrapolated_scores(parts, ORDERS, 32)
    assert [estimate.value for estimate in found] == pytest.approx([2.0, 3.0, 4.0])
