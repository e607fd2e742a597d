"""The Nyström preconditioner against dense algebra."""

import numpy as np
import pytest

from latentscale import preconditioning
from latentscale.distances import METRICS, Metric, Points, as_points
from latentscale.preconditioning import (
    Landmarks,
    Preconditioner,
    apply_preconditioners,
    gather_rows,
    landmark_count,
    predicted_steps,
    prepare_preconditioners,
)
from latentscale.procedures import ReadRows
from tests.oracles import pairwise_distances


def sample(n: int, metric: Metric, seed: int = 0) -> Points:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(5, 6))[rng.integers(5, size=n)] + 0.3 * rng.normal(size=(n, 6))
    points = as_points(rows, metric)
    return points.about(points.rows.mean(axis=0))


def reader(points: Points, size: int) -> ReadRows:
    blocks = [points.take(slice(start, start + size)) for start in range(0, len(points), size)]
    return lambda: iter(blocks)


def test_rows_are_gathered_in_the_order_asked_for() -> None:
    points = sample(100, "euclidean")
    positions = np.array([70, 3, 99, 0, 41])
    gathered = gather_rows(reader(points, 17), positions)
    np.testing.assert_array_equal(gathered.rows, points.rows[positions])
    np.testing.assert_array_equal(gathered.squared_norms, points.squared_norms[positions])


def test_landmarks_are_distinct_rows() -> None:
    points = sample(1000, "euclidean")
    landmarks = Landmarks.draw(1000, reader(points, 300), np.random.default_rng(1))
    assert landmarks.count == landmark_count(1000) == 100
    assert len(np.unique(landmarks.positions)) == len(landmarks.points) == 356
    np.testing.assert_array_equal(landmarks.chosen.rows, points.rows[landmarks.positions[:100]])
    assert len(landmarks.probes) == 256


@pytest.mark.parametrize("metric", METRICS)
def test_it_is_the_inverse_of_nystrom_and_a_multiple_of_one(metric: Metric) -> None:
    n = 600
    # Smoother kernels leave no more than rounding to the last landmarks.
    scales = [20.0, 50.0, 100.0] if metric == "cosine" else [0.5, 2.0, 4.0]
    points = sample(n, metric)
    read_rows = reader(points, 250)
    landmarks = Landmarks.draw(n, read_rows, np.random.default_rng(2))
    prepared = prepare_preconditioners(landmarks, scales, n, read_rows)
    assert None not in prepared
    ready = [p for p in prepared if p is not None]
    residuals = [np.random.default_rng(k).normal(size=n) for k in range(3)]
    kept = [residual.copy() for residual in residuals]
    solved, corrections = apply_preconditioners(landmarks, scales, ready, residuals, read_rows)
    distances = pairwise_distances(points.rows, metric)
    chosen = landmarks.positions[: landmarks.count]
    for k, scale in enumerate(scales):
        similarities = np.exp(-scale * distances)
        columns = similarities[:, chosen]
        approximation = columns @ np.linalg.solve(columns[chosen], columns.T)
        matrix = approximation + ready[k].sigma * np.eye(n)
        expected = ready[k].sigma * np.linalg.solve(matrix, residuals[k])
        np.testing.assert_allclose(solved[k], expected, atol=2e-3)
        # The same vector is the residual after the correction at the landmarks.
        np.testing.assert_allclose(solved[k], residuals[k] - columns @ corrections[k], atol=2e-3)
        np.testing.assert_array_equal(residuals[k], kept[k])
        left = np.diag(similarities - approximation)
        assert ready[k].sigma == pytest.approx(max(3.0 * left.mean(), 1e-4), rel=0.4)


def test_eigenvalues_come_together() -> None:
    n, scale = 600, 0.5
    points = sample(n, "euclidean")
    read_rows = reader(points, n)
    landmarks = Landmarks.draw(n, read_rows, np.random.default_rng(3))
    (prepared,) = prepare_preconditioners(landmarks, [scale], n, read_rows)
    assert isinstance(prepared, Preconditioner)
    similarities = np.exp(-scale * pairwise_distances(points.rows, "euclidean"))
    solved = np.stack(
        [
            apply_preconditioners(landmarks, [scale], [prepared], [row], read_rows)[0][0]
            for row in similarities[::20]
        ]
    )
    assert np.linalg.cond(similarities) > 4e3
    # M⁻¹K keeps vectors of noise and of the smooth directions alike at their size.
    shares = np.linalg.norm(solved / prepared.sigma, axis=1)
    assert shares.max() / shares.min() < 3.0


def test_scales_in_groups_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    points = sample(600, "euclidean")
    read_rows = reader(points, 100)
    landmarks = Landmarks.draw(600, read_rows, np.random.default_rng(4))
    together = prepare_preconditioners(landmarks, [0.5, 1.0, 2.0], 600, read_rows)
    monkeypatch.setattr(preconditioning, "GRAM_BYTES", 1)
    alone = prepare_preconditioners(landmarks, [0.5, 1.0, 2.0], 600, read_rows)
    for first, second in zip(together, alone, strict=True):
        assert first is not None
        assert second is not None
        assert first.sigma == second.sigma
        np.testing.assert_array_equal(first.factor, second.factor)


def test_smaller_scales_take_more_steps() -> None:
    points = sample(3000, "euclidean")
    landmarks = Landmarks.draw(3000, reader(points, 3000), np.random.default_rng(5))
    steps = [predicted_steps(landmarks, t, 3000, 1e-4, 50) for t in (0.1, 1.0, 10.0, 1000.0)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > 10
    assert steps[-1] <= 2
    assert predicted_steps(landmarks, 0.1, 3000, 1e-4, 4) == 4
