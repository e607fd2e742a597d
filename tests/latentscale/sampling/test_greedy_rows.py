"""Rows chosen one by one: against the plain rules in double precision, and the best of all sets."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from latentscale.sampling import greedy_rows
from latentscale.sampling.greedy_rows import farthest_first, most_diverse
from tests import oracles


def one_by_one(points: np.ndarray, count: int) -> tuple[list[int], list[float], float]:
    points = points.astype(float)
    away = np.linalg.norm(points[:, None] - points, axis=2)
    rows = [int(np.linalg.norm(points - points.mean(axis=0), axis=1).argmin())]
    distances = [np.inf]
    while len(rows) < count:
        nearest = away[rows].min(axis=0)
        nearest[rows] = -1
        rows.append(int(nearest.argmax()))
        distances.append(nearest.max())
    return rows, distances, float(away[rows].min(axis=0).max())


@pytest.mark.parametrize("block", [1, 5, 64])
@pytest.mark.parametrize("seed", range(6))
def test_the_rows_are_those_of_the_plain_rule(
    seed: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greedy_rows, "BLOCK_ROWS", block)
    points = np.random.default_rng(seed).normal(size=(200, 1 + seed)).astype("f4")
    rows, distances, radius = one_by_one(points, 60)
    found = farthest_first(points, 60)
    assert found.rows.tolist() == rows
    assert found.distances == pytest.approx(distances, abs=2e-3)
    assert found.radius == pytest.approx(radius, abs=2e-3)
    assert np.all(np.diff(found.distances) <= 1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_the_radius_is_at_most_twice_the_smallest_possible(seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(14, 2)).astype("f4")
    away = np.linalg.norm(points[:, None].astype(float) - points, axis=2)
    best = min(away[list(rows)].min(axis=0).max() for rows in itertools.combinations(range(14), 4))
    found = farthest_first(points, 4)
    assert best - 1e-3 <= found.radius <= 2 * best + 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_no_row_is_chosen_twice_where_distances_are_rounded(seed: int) -> None:
    rng = np.random.default_rng([3, seed])
    rows = np.repeat(rng.uniform(0, 255, size=(50, 784)).astype("f4"), 4, axis=0)
    found = farthest_first(rows, 150)
    assert len(set(found.rows.tolist())) == 150
    # The first fifty are one of each kind, in whatever order.
    assert len(np.unique(rows[found.rows[:50]], axis=0)) == 50


def test_the_origin_of_the_coordinates_changes_no_choice() -> None:
    rows = np.random.default_rng(8).normal(size=(300, 8)).astype("f4")
    far = rows + np.float32(1000.0)  # rounded to 6e-5
    found = farthest_first(far, 200)
    exact = far.astype("f8")
    beside = np.sqrt(np.square(exact[:, None] - exact[found.rows]).sum(axis=2))
    for k in range(1, 200):
        nearest = beside[:, :k].min(axis=1)
        assert nearest[found.rows[k]] > nearest.max() - 1e-3
        assert found.distances[k] == pytest.approx(nearest.max(), abs=2e-3)
    assert found.radius == pytest.approx(beside.min(axis=1).max(), abs=2e-3)


def test_equal_rows_come_last_and_no_row_twice() -> None:
    points = np.repeat(np.eye(4, dtype="f4"), 3, axis=0)
    found = farthest_first(points, 12)
    assert sorted(found.rows) == list(range(12))
    assert len({tuple(points[row]) for row in found.rows[:4]}) == 4
    assert found.distances[4:].max() < 2e-3
    assert found.radius == 0.0


def unit(points: np.ndarray) -> np.ndarray:
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [1, 5, 64])
@pytest.mark.parametrize("seed", range(4))
def test_each_row_raises_the_diversity_of_order_2_most(
    seed: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greedy_rows, "BLOCK_ROWS", block)
    points = unit(np.random.default_rng(seed).normal(size=(60, 6))).astype("f4")
    rows = most_diverse(points, 25).tolist()
    assert len(set(rows)) == 25

    def diversity(chosen: list[int]) -> float:
        own = unit(points[chosen].astype(float))
        return oracles.hill_number(np.linalg.eigvalsh(own @ own.T / len(chosen)), 2.0)

    for count in range(1, 25):
        others = [row for row in range(60) if row not in rows[:count]]
        best = max(diversity([*rows[:count], other]) for other in others)
        assert diversity(rows[: count + 1]) == pytest.approx(best, rel=1e-5)


def test_equal_rows_of_unit_length_are_all_chosen_in_the_end() -> None:
    points = np.repeat(np.eye(3, dtype="f4"), 4, axis=0)
    rows = most_diverse(points, 12)
    assert sorted(rows) == list(range(12))
    # Each direction once before any comes again.
    for turn in range(4):
        assert set(rows[3 * turn : 3 * turn + 3] // 4) == {0, 1, 2}


@pytest.mark.parametrize("choose", [farthest_first, most_diverse])
@pytest.mark.parametrize("count", [0, 4])
def test_a_count_that_cannot_be_is_refused(choose: Callable[..., object], count: int) -> None:
    with pytest.raises(ValueError, match="count must be from 1 to the number of rows 3, got"):
        choose(np.eye(3, dtype="f4"), count)
