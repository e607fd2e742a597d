"""Scores of random subsets, extrapolated, against the scores of all rows."""

import math

import numpy as np
import pytest
from scipy.linalg.lapack import dgejsv

from latentscale.sampling.rarefaction import HALVINGS, draw_replicates
from latentscale.tiles.distances import as_points
from latentscale.vendi.rarefaction import (
    RESOLVED,
    SubsetBrackets,
    extrapolated_scores,
    subsample_scores,
)
from tests.oracles import kernel_matrix

ORDERS = (math.inf, 2.0, 1.0)


def largest_eigenvalue(rows: np.ndarray, bandwidth: float) -> float:
    return float(np.linalg.eigvalsh(kernel_matrix(rows, "rbf", bandwidth))[-1])


def subsets(
    rows: np.ndarray, bandwidth: float, size: int, generator: np.random.Generator
) -> list[SubsetBrackets]:
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
    pieces = [np.minimum(values, 2**k) for k in range(6)]
    parts = [SubsetBrackets(2**k, piece, piece, piece) for k, piece in enumerate(pieces)]
    found = extrapolated_scores(parts, ORDERS, 32)
    assert [estimate.value for estimate in found] == pytest.approx([2.0, 3.0, 4.0])


def mehler_eigenvalues(x: np.ndarray, bandwidth: float) -> np.ndarray:
    """Eigenvalues of the RBF kernel of points on a line, each to a small relative error.

    Mehler's formula factors the kernel (Rasmussen & Williams 2006, 4.3.1, for a standard normal
    density), and Jacobi rotations find the singular values of the factor, tiny ones included.
    """
    a, b = 0.25, 0.5 / bandwidth**2
    c = math.sqrt(a * a + 2 * a * b)
    total = a + b + c
    z = math.sqrt(2 * c) * x
    columns = [np.exp(-(c - a) * x * x) * (c / a) ** 0.25]
    columns.append(math.sqrt(2.0) * z * columns[0])
    for k in range(2, 60):
        columns.append(
            math.sqrt(2 / k) * z * columns[k - 1] - math.sqrt((k - 1) / k) * columns[k - 2]
        )
    weights = math.sqrt(2 * a / total) * (b / total) ** np.arange(60)
    factor = np.array(columns).T * np.sqrt(weights / len(x))
    values, _, _, scales, _, failed = dgejsv(factor, joba=0, jobu=3, jobv=3, jobr=0, jobt=0, jobp=0)
    assert failed == 0
    return (scales[0] / scales[1] * values) ** 2


def check_low_orders(seed: int) -> None:
    """Rounding hides most eigenvalues of a line, and low orders count them."""
    rng = np.random.default_rng(seed)
    n, bandwidth, orders = 700, 2.2, (2.0, 1.0, 0.3, 0.1)
    rows = rng.normal(size=(n, 1))
    points = as_points(rows, "euclidean")
    parts = [
        subsample_scores(points.take(drawn), "rbf", bandwidth, orders, 2**halving)
        for drawn in draw_replicates(n, 300, 2, rng)
        for halving in range(HALVINGS + 1)
    ]
    eigenvalues = mehler_eigenvalues(rows[:, 0], bandwidth)
    for order, found in zip(orders[2:], extrapolated_scores(parts, orders, n)[2:], strict=True):
        truth = (eigenvalues**order).sum() ** (1 / (1 - order))
        assert found.lower <= truth <= found.upper
        assert 0.9 * found.value < truth < 1.2 * found.value


@pytest.mark.parametrize("seed", range(3))
def test_low_orders_on_a_line(seed: int) -> None:
    check_low_orders(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3, 100))
def test_more_low_orders_on_a_line(seed: int) -> None:
    check_low_orders(seed)
