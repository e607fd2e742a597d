"""Hubness: against brute force and scipy, its limits, its intervals and sampling errors."""

import numpy as np
import pytest
import scipy.stats
from scipy.spatial.distance import cdist

from latentscale.hubness.scores import (
    antihubs,
    count_occurrences,
    robin_hood,
    score_hubness,
    skewness,
)
from latentscale.neighbours.exact import nearest
from latentscale.tiles.distances import as_points


def lists(rows, length):
    points = as_points(rows, "euclidean")
    ids = np.arange(len(rows), dtype=np.int64)
    return nearest(points, points, length, query_ids=ids, candidate_ids=ids).indices


def clusters(seed, n):
    centres = np.random.default_rng(0).normal(size=(10, 24)) * 2.0
    rng = np.random.default_rng([1, seed])
    return centres[rng.integers(0, 10, n)] + rng.normal(size=(n, 24))


@pytest.mark.parametrize("seed", range(50))
def test_scores_equal_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(12, 150)), int(rng.integers(1, 40)), int(rng.integers(1, 10))
    rows = rng.normal(size=(n, d))
    distances = cdist(rows, rows)
    np.fill_diagonal(distances, np.inf)
    times = np.zeros(n)
    for row in np.argsort(distances, axis=1)[:, :k]:
        times[row] += 1
    np.testing.assert_array_equal(count_occurrences(lists(rows, k), k), times)
    found = score_hubness(lists(rows, k), k, n, None)
    expected = {
        "hubness": scipy.stats.skew(times),
        "Robin Hood index": 0.5 * np.abs(times - k).sum() / times.sum(),
        "antihubs": np.mean(times == 0),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        estimate = found[name].estimate
        assert estimate.value == pytest.approx(value, rel=1e-12)
        assert estimate.lower - 1e-12 <= value <= estimate.upper + 1e-12
        assert estimate.bounds == "exact"
        assert found[name].sampling_error is None


def test_limits() -> None:
    assert (skewness(np.full(9, 4.0)), robin_hood(np.full(9, 4.0))) == (0.0, 0.0)
    # One row is everyone's neighbour, k = 1: all places but one must move.
    star = np.array([99.0, 1.0, *np.zeros(98)])
    assert robin_hood(star) == pytest.approx(0.98)
    assert antihubs(star) == pytest.approx(0.98)
    assert skewness(star) > 9


def test_dimensions_make_hubs() -> None:
    rng = np.random.default_rng(3)
    found = [
        score_hubness(lists(rng.normal(size=(1000, d)), 10), 10, 1000, None) for d in (3, 20, 100)
    ]
    for name in ("hubness", "Robin Hood index", "antihubs"):
        few, more, many = (each[name].estimate.value for each in found)
        assert few < more < many


def test_random_rows_have_intervals_that_cover() -> None:
    """They are for the mean over random samples of so many rows."""
    rows, rng = clusters(0, 1600), np.random.default_rng(4)
    found = [
        score_hubness(
            lists(rows[np.sort(rng.choice(1600, 400, replace=False))], 40), 10, 1600, seed
        )
        for seed in range(80)
    ]
    for name in ("Robin Hood index", "antihubs"):
        estimates = [each[name].estimate for each in found]
        mean = np.mean([one.value for one in estimates])
        assert {one.bounds for one in estimates} == {"interval95"}
        assert sum(one.lower <= mean <= one.upper for one in estimates) >= 72
    assert {each["hubness"].estimate.bounds for each in found} == {"estimate"}


@pytest.mark.parametrize("source", ["clusters", pytest.param("normal", marks=pytest.mark.full)])
def test_sampling_errors_cover_the_mean_over_samples(source: str) -> None:
    values, errors = [], []
    for seed in range(80):
        rows = (
            clusters(seed, 500)
            if source == "clusters"
            else np.random.default_rng([7, seed]).normal(size=(500, 24))
        )
        found = score_hubness(lists(rows, 40), 10, 500, seed)
        values.append([found[name].estimate.value for name in ("Robin Hood index", "antihubs")])
        errors.append([found[name].sampling_error for name in ("Robin Hood index", "antihubs")])
        assert found["hubness"].sampling_error is None
    covered = (np.abs(values - np.mean(values, axis=0)) <= 1.96 * np.array(errors)).mean(axis=0)
    assert covered.min() >= 0.90


def test_few_rows_that_fill_all_lists_leave_no_errors() -> None:
    """Six or ten central rows among 400 make every other row an antihub, or a third of them."""
    values = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((400, 300))
        rows[rng.random(400) < 8 / 400] *= 0.3
        found = score_hubness(lists(rows, 40), 10, 400, seed)
        assert [each.sampling_error for each in found.values()] == [None] * 3
        values.append(found["antihubs"].estimate.value)
        drawn = score_hubness(lists(rows, 40), 10, 4000, seed)
        assert {each.estimate.bounds for each in drawn.values()} == {"estimate"}
    assert np.std(values) > 0.15
    plain = score_hubness(lists(rng.standard_normal((400, 300)), 40), 10, 400, 0)
    assert plain["antihubs"].sampling_error == pytest.approx(0.02, rel=0.2)


def test_random_rows_without_a_seed_have_no_score() -> None:
    assert score_hubness(lists(clusters(1, 120), 5), 5, 500, None) == {}
