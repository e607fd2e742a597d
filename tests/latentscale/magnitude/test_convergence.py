"""The convergence scale by groups of scales, against dense root finding and closed forms."""

import json
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest

from latentscale.duplicates.distinct import find_distinct, merge_within
from latentscale.linalg.iterations import PairSums, iterate_in_memory
from latentscale.magnitude import conjugate_gradients, convergence, dense
from latentscale.magnitude.convergence import ConvergenceScale, ConvergenceSearch
from latentscale.magnitude.dense import NoConvergenceScale, dense_convergence_scale
from latentscale.tiles.distances import METRICS, Metric, Points, as_points
from latentscale.tiles.exponential_products import exponential_products, gaussian_block_sums


def centred(rows: np.ndarray, metric: Metric = "euclidean") -> Points:
    points = as_points(rows, metric)
    points = points.take(find_distinct(points).rows)
    return points.about(points.rows.mean(axis=0))


def start(points: Points, target: float = 0.95) -> ConvergenceSearch:
    return ConvergenceSearch.start(
        len(points),
        target=target,
        read_rows=lambda: iter((points,)),
        generator=np.random.default_rng(0),
    )


def search(points: Points, target: float = 0.95) -> ConvergenceScale:
    return iterate_in_memory(start(points, target), points)


def clusters(n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(8, d))[rng.integers(8, size=n)] + 0.2 * rng.normal(size=(n, d))


@pytest.mark.parametrize("target", [0.1, 0.95])
@pytest.mark.parametrize("metric", METRICS)
def test_it_agrees_with_dense_root_finding(metric: Metric, target: float) -> None:
    points = centred(clusters(800, 12, 1), metric)
    truth = dense_convergence_scale(points, target, 1e-3).value
    found = search(points, target)
    assert found.estimate.value == pytest.approx(truth, rel=2e-4)
    assert found.estimate.lower <= truth <= found.estimate.upper
    # The cosine kernel is so smooth that small scales stay open within the limit of products.
    width = 3e-2 if (metric, target) == ("cosine", 0.1) else 1e-3
    assert found.estimate.upper - found.estimate.lower <= width * truth
    assert found.estimate.bounds == ("estimate" if metric == "cosine" else "certified") or (
        metric == "manhattan" and target == 0.1
    )


def test_few_products_are_enough() -> None:
    found = search(centred(np.random.default_rng(2).normal(size=(1500, 30))))
    assert found.products <= 6
    assert found.estimate.bounds == "certified"


def test_a_poor_first_guess_is_made_good() -> None:
    points = centred(np.random.default_rng(3).normal(size=(400, 8)))
    truth = dense_convergence_scale(points, 0.95, 1e-3).value
    for factor in (1e-6, 0.1, 3.0, 1e4):
        with mock.patch.object(convergence, "_extrapolated_scale", return_value=factor * truth):
            found = search(points)
        assert found.estimate.lower <= truth <= found.estimate.upper
        assert found.estimate.value == pytest.approx(truth, rel=2e-4)


def test_few_near_duplicates_leave_it_where_it_is() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(960, 8))
    points = centred(np.concatenate((rows, rows[:40] + 1e-5 * rng.normal(size=(40, 8)))))
    alone = dense_convergence_scale(centred(rows), 950 / 960, 1e-3).value
    found = search(points)
    assert found.estimate.value == pytest.approx(alone, rel=1e-3)


def test_many_near_duplicates_move_it_unless_they_are_merged() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(1000, 8))
    points = centred(np.concatenate((rows, rows[:500] + 1e-5)))
    found = search(points)
    # 500 pairs at distance δ = 1e-5 √8 and 500 points: 500 + 1000 / (1 + e^{-tδ}) = 1425.
    expected = math.log(925 / 75) / (1e-5 * math.sqrt(8.0))
    assert found.estimate.value == pytest.approx(expected, rel=1e-3)
    assert found.estimate.lower <= expected * (1 + 1e-6)
    assert found.estimate.upper >= expected * (1 - 1e-6)
    merged = points.take(merge_within(points, 1e-4).rows)
    assert len(merged) == 1000
    assert search(merged).estimate.value < 1e-4 * expected


def test_two_points_in_closed_form() -> None:
    found = search(centred(np.array([[0.0], [2.0]])))
    expected = math.log(19.0) / 2.0
    assert found.estimate.value == pytest.approx(expected, rel=1e-4)
    assert found.estimate.lower <= expected <= found.estimate.upper


def test_unresolvable_points_have_none() -> None:
    rows = np.concatenate((np.zeros((30, 1)), np.arange(1.0, 31.0)[:, None] * 1e-250, [[1.0]]))
    with (
        mock.patch.object(convergence, "_extrapolated_scale", return_value=1.0),
        pytest.raises(NoConvergenceScale, match="no finite scale separates"),
    ):
        search(centred(rows))


def test_a_restored_search_goes_on_with_the_same_bits() -> None:
    points = centred(clusters(600, 5, 6))
    with mock.patch.object(conjugate_gradients, "SINGLE_ROWS", 0):
        undisturbed = search(points)
        iteration = start(points)
        while (request := iteration.request) is not None:
            values = json.loads(json.dumps(iteration.values(), allow_nan=False))
            arrays = {name: array.copy() for name, array in iteration.arrays().items()}
            products = exponential_products(
                points, request.scales, request.vectors, precision=request.precision
            )
            sums, _ = gaussian_block_sums(points, points, request.exponents, precision="single")
            iteration = ConvergenceSearch.load(arrays, values).advance(
                PairSums(products, sums, lambda: iter((points,)))
            )
    assert iteration.outcome == undisturbed


def test_there_is_no_outcome_before_the_end() -> None:
    with pytest.raises(RuntimeError, match="isn't finished"):
        _ = start(centred(clusters(50, 3, 7))).outcome


def test_few_factors_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(4).standard_normal((400, 12))
    calls = []
    factorise = dense.factorised_magnitude

    def count(*given: Any) -> Any:
        calls.append(given)
        return factorise(*given)

    monkeypatch.setattr(dense, "factorised_magnitude", count)
    found = dense.dense_convergence_scale(as_points(rows, "euclidean"), 0.95, 1e-3)
    assert len(calls) <= 6
    distances = np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    magnitude = np.linalg.solve(np.exp(-found.value * distances), np.ones(400)).sum()
    assert magnitude == pytest.approx(0.95 * 400, rel=1e-8)
