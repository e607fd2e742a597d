"""The Nyström preconditioner against dense algebra."""

import numpy as np
import pytest

from latentscale.linalg.iterations import ReadRows
from latentscale.magnitude import preconditioning
from latentscale.magnitude.preconditioning import (
    Landmarks,
    LandmarkTiles,
    apply_preconditioners,
    gather_rows,
    landmark_count,
    predicted_steps,
    prepare_preconditioners,
)
from latentscale.tiles.distances import METRICS, Metric, Points, as_points
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


def dense_preconditioner(
    similarities: np.ndarray, chosen: np.ndarray, vecchia: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Invert the preconditioner by its definition; the factor of what landmarks leave beside it."""
    n = len(similarities)
    similarities = similarities + preconditioning.NUGGET * np.eye(n)
    to_landmarks = np.linalg.solve(similarities[np.ix_(chosen, chosen)], similarities[chosen])
    rest = similarities - similarities[:, chosen] @ to_landmarks
    factor = np.zeros((n, n))
    for row in np.setdiff1d(np.arange(n), chosen):
        members = [*dict.fromkeys(p for p in vecchia[row].tolist() if p != row), row]
        last = np.linalg.inv(rest[np.ix_(members, members)])[-1]
        factor[row, members] = last / np.sqrt(last[-1])
    # The landmarks' part of K⁻¹, then that of the other rows, which lifts to all.
    inverse = np.zeros((n, n))
    inverse[np.ix_(chosen, chosen)] = np.linalg.inv(similarities[np.ix_(chosen, chosen)])
    lift = np.eye(n)
    lift[chosen] -= to_landmarks
    lift[:, chosen] = 0.0
    return inverse + lift @ factor.T @ factor @ lift.T, factor


@pytest.mark.parametrize("metric", METRICS)
def test_it_is_what_dense_algebra_makes_of_its_definition(
    metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 350
    scales = [20.0, 50.0, 100.0] if metric == "cosine" else [0.5, 2.0, 4.0]
    points = sample(n, metric)
    read_rows = reader(points, 250)
    landmarks = Landmarks.draw(n, read_rows, np.random.default_rng(2))
    prepared, vecchia = prepare_preconditioners(
        landmarks, scales, n, read_rows, np.random.default_rng(3)
    )
    ready = [p for p in prepared if p is not None]
    assert len(ready) == 3
    residuals = [np.random.default_rng(k).normal(size=n) for k in range(3)]
    kept = [residual.copy() for residual in residuals]
    tiles = LandmarkTiles(landmarks, n, read_rows)
    solved = apply_preconditioners(tiles, vecchia, scales, ready, residuals)
    with monkeypatch.context() as patch:
        patch.setattr(preconditioning, "KEPT_BYTES", 0)
        again = LandmarkTiles(landmarks, n, read_rows)
        recomputed = apply_preconditioners(again, vecchia, scales, ready, residuals)
    for one, other in zip(solved, recomputed, strict=True):
        assert one.solution.tobytes() == other.solution.tobytes(), "kept distances change no bit"
    distances = pairwise_distances(points.rows, metric)
    chosen = landmarks.positions[: landmarks.count]
    for k, scale in enumerate(scales):
        similarities = np.exp(-scale * distances)
        inverse, _ = dense_preconditioner(similarities, chosen, vecchia)
        expected = inverse @ residuals[k]
        size = np.abs(expected).max()
        np.testing.assert_allclose(solved[k].solution, expected, atol=5e-3 * size)
        # The residual after the correction at the landmarks.
        correction = solved[k].correction
        assert correction is not None
        left = residuals[k] - similarities[:, chosen] @ correction
        np.testing.assert_allclose(solved[k].corrected, left, atol=2e-3)
        assert np.abs(solved[k].corrected[chosen]).max() < 0.05
        np.testing.assert_array_equal(residuals[k], kept[k])


def test_vecchia_neighbours_are_the_nearest_earlier_rows_in_one_order() -> None:
    n = 500
    points = sample(n, "euclidean")
    landmarks = Landmarks.draw(n, reader(points, 300), np.random.default_rng(4))
    _, vecchia = prepare_preconditioners(
        landmarks, [1.0], n, reader(points, 300), np.random.default_rng(5)
    )
    chosen = set(landmarks.positions[: landmarks.count].tolist())
    distances = pairwise_distances(points.rows, "euclidean")
    earlier = [set(row.tolist()) - {i} for i, row in enumerate(vecchia)]
    # An order exists: nobody precedes itself by way of others.
    waiting, done = set(range(n)), set()
    while waiting:
        free = {i for i in waiting if earlier[i] <= done}
        assert free
        done |= free
        waiting -= free
    assert all(not earlier[i] for i in chosen)
    assert not chosen & set().union(*earlier)
    full = [i for i in range(n) if len(earlier[i]) == preconditioning.VECCHIA_NEIGHBOURS]
    assert len(full) == n - len(chosen) - preconditioning.VECCHIA_NEIGHBOURS
    # Of any two rows one is earlier; so nobody nearer than the farthest one is missed by both.
    for i in full:
        reach = max(distances[i, j] for j in earlier[i])
        nearer = set(np.flatnonzero(distances[i] < reach).tolist()) - {i} - chosen
        for j in nearer - earlier[i]:
            assert i in earlier[j] or len(earlier[j]) == preconditioning.VECCHIA_NEIGHBOURS


def test_cells_and_memory_change_the_vecchia_neighbours_alone() -> None:
    n, scale = 800, 1.0
    points = sample(n, "euclidean")
    landmarks = Landmarks.draw(n, reader(points, 300), np.random.default_rng(4))
    distances = pairwise_distances(points.rows, "euclidean")

    def prepare(**limits: int) -> tuple[np.ndarray, np.ndarray]:
        prepared, vecchia = prepare_preconditioners(
            landmarks, [scale], n, reader(points, 300), np.random.default_rng(5), **limits
        )
        assert prepared[0] is not None
        return prepared[0].row_factors, vecchia

    _, whole = prepare()
    factors, vecchia = prepare(cell_rows=120, most_members=250)
    again, same = prepare(cell_rows=120, most_members=250, cells_bytes=1)
    np.testing.assert_array_equal(vecchia, same)
    np.testing.assert_array_equal(factors, again)
    assert np.mean(np.sort(vecchia, axis=1) == np.sort(whole, axis=1)) > 0.3
    chosen = landmarks.positions[: landmarks.count]
    _, expected = dense_preconditioner(np.exp(-scale * distances), chosen, vecchia)
    rows = np.arange(n)
    np.testing.assert_allclose(factors[:, -1], expected[rows, rows], rtol=1e-3, atol=1e-6)
    for k in range(preconditioning.VECCHIA_NEIGHBOURS):
        column = vecchia[:, k]
        given = column != rows
        np.testing.assert_allclose(
            factors[given, k], expected[rows[given], column[given]], atol=2e-3
        )


def test_eigenvalues_come_together() -> None:
    n, scale = 600, 0.5
    points = sample(n, "euclidean")
    read_rows = reader(points, n)
    landmarks = Landmarks.draw(n, read_rows, np.random.default_rng(3))
    (prepared,), vecchia = prepare_preconditioners(
        landmarks, [scale], n, read_rows, np.random.default_rng(4)
    )
    assert prepared is not None
    similarities = np.exp(-scale * pairwise_distances(points.rows, "euclidean"))
    tiles = LandmarkTiles(landmarks, n, read_rows)
    inverse = np.stack(
        [
            apply_preconditioners(tiles, vecchia, [scale], [prepared], [row])[0].solution
            for row in np.eye(n)
        ]
    )
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-3 * np.abs(inverse).max())
    eigenvalues = np.linalg.eigvals(inverse @ similarities).real
    assert np.linalg.cond(similarities) > 4e3
    assert eigenvalues.max() / eigenvalues.min() < 30.0


def test_smaller_scales_take_more_steps() -> None:
    points = sample(3000, "euclidean")
    landmarks = Landmarks.draw(3000, reader(points, 3000), np.random.default_rng(5))
    steps = [predicted_steps(landmarks, t, 3000, 1e-4, 50) for t in (0.1, 1.0, 10.0, 1000.0)]
    assert steps[1:] == sorted(steps[1:], reverse=True)
    assert min(steps[:2]) > 8
    assert steps[-1] <= 2
    assert predicted_steps(landmarks, 0.1, 3000, 1e-4, 4) == 4
