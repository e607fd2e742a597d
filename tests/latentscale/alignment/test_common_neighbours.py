"""Common neighbours: against sets, limits, and the coverage of the sampling errors."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from latentscale.alignment.common_neighbours import (
    NONE_COMMON,
    OVERLAP,
    average_overlap,
    count_common,
    score_neighbours,
)


def lists(rows: NDArray[np.float64], length: int) -> NDArray[np.int64]:
    distances = cdist(rows, rows)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :length].astype(np.int64)


@pytest.mark.parametrize("seed", range(50))
def test_counts_equal_those_of_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, k = int(rng.integers(12, 150)), int(rng.integers(1, 10))
    x = rng.normal(size=(m, 5))
    first, second = lists(x, k), lists(x + rng.normal(size=(m, 5)), k)
    common = [len(set(a) & set(b)) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    np.testing.assert_array_equal(count_common(first, second), common)
    found = score_neighbours(first, second, k, m, None)
    assert found[OVERLAP].estimate.value == pytest.approx(np.mean(common) / k)
    assert found[NONE_COMMON].estimate.value == pytest.approx(np.mean(np.array(common) == 0))
    assert {each.estimate.bounds for each in found.values()} == {"exact"}
    assert {each.sampling_error for each in found.values()} == {None}


@pytest.mark.parametrize("seed", range(20))
def test_average_overlaps_are_those_of_sets_at_every_depth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, length = int(rng.integers(12, 90)), int(rng.integers(1, 11))
    x = rng.normal(size=(m, 3))
    first, second = lists(x, length), lists(x + 0.5 * rng.normal(size=(m, 3)), length)
    expected = [
        np.mean([len(set(a[:depth]) & set(b[:depth])) / depth for depth in range(1, length + 1)])
        for a, b in zip(first.tolist(), second.tolist(), strict=True)
    ]
    np.testing.assert_allclose(average_overlap(first, second), expected, atol=1e-12)
    np.testing.assert_allclose(average_overlap(first, first), 1.0)


def test_one_model_with_itself_and_with_another() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 8))
    same = score_neighbours(lists(x, 40), lists(3.0 * x + 1.0, 40), 10, 600, 1)
    assert same[OVERLAP].estimate.value == 1.0
    assert same[OVERLAP].sampling_error == pytest.approx((2 * 0.5 / 601 / 600) ** 0.5, rel=1e-3)
    other = score_neighbours(lists(x, 40), lists(rng.normal(size=(600, 8)), 40), 10, 600, 1)
    assert other[OVERLAP].estimate.value == pytest.approx(10 / 599, abs=0.004)
    assert other[NONE_COMMON].estimate.value == pytest.approx((1 - 10 / 599) ** 10, abs=0.05)


def test_a_sample_whose_items_all_agree_leaves_room_for_others() -> None:
    """One item in a thousand has other neighbours, and often none of those is drawn."""
    m, missed = 600, 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        first = (np.arange(m)[:, None] + 1 + np.arange(40)) % m
        second, odd = first.copy(), rng.random(m) < 0.001
        second[odd] = (second[odd] + m // 2) % m
        found = score_neighbours(first, second, 10, 20_000, seed)[OVERLAP].estimate
        missed += not found.lower <= 0.999 <= found.upper
    assert missed <= 3


def test_negative_entries_count_for_nothing() -> None:
    first, second = np.array([[3, -1, -1]]), np.array([[-1, 3, -1]])
    assert count_common(first, second).tolist() == [1]


def draw(rng: np.random.Generator, m: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    centres = np.random.default_rng(3).normal(size=(10, 12)) * 1.5
    x = centres[rng.integers(0, 10, m)] + rng.normal(size=(m, 12))
    return x, x + 0.8 * rng.normal(size=(m, 12))


@pytest.mark.parametrize("n", [300, pytest.param(1500, marks=pytest.mark.full)])
def test_sampling_errors_cover(n: int) -> None:
    rng = np.random.default_rng(n)
    found = []
    for seed in range(100):
        x, y = draw(rng, n)
        found.append(score_neighbours(lists(x, 40), lists(y, 40), 10, n, seed))
    for name in (OVERLAP, NONE_COMMON):
        values = np.array([each[name].estimate.value for each in found])
        errors = np.array([each[name].sampling_error for each in found], np.float64)
        covered = np.abs(values - values.mean()) <= 1.96 * errors
        assert covered.mean() >= 0.90
        assert values.std() <= np.median(errors) <= max(1.7 * values.std(), 4.0 / n)


def test_items_drawn_from_more_have_a_wider_bracket() -> None:
    x, y = draw(np.random.default_rng(7), 400)
    first, second = lists(x, 40), lists(y, 40)
    whole = score_neighbours(first, second, 10, 400, 1)[OVERLAP]
    drawn = score_neighbours(first, second, 10, 40_000, 1)[OVERLAP]
    assert whole.sampling_error is not None
    assert drawn.sampling_error == pytest.approx(whole.sampling_error / 10)
    assert drawn.estimate.bounds == "interval95"
    assert drawn.estimate.upper - drawn.estimate.value == pytest.approx(
        1.96 * np.sqrt(0.99) * whole.sampling_error, rel=1e-3
    )
