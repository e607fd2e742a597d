import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentscale.sampling.median_distance import (
    _pair_of_rank,
    draw_pairs,
    median_bandwidth,
    median_distance,
)
from latentscale.tiles.distances import as_points
from tests import oracles


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    arrays(
        np.float64, st.tuples(st.integers(2, 12), st.integers(1, 4)), elements=st.integers(-9, 9)
    )
)
def test_the_median_over_all_pairs_is_exact(vectors):
    n = len(vectors)
    distances = [
        math.sqrt(oracles.squared_distance(vectors[i], vectors[j]))
        for i in range(n)
        for j in range(i)
    ]
    expected = float(np.median(distances))
    points, generator = as_points(vectors, "euclidean"), np.random.default_rng(0)
    if expected == 0:
        with pytest.raises(ValueError, match="the median distance is 0"):
            median_bandwidth(points, generator=generator)
    else:
        assert median_bandwidth(points, generator=generator) == pytest.approx(expected, rel=1e-15)


def test_the_sampled_median_is_near_the_whole_one():
    points = as_points(np.random.default_rng(3).normal(size=(400, 6)), "euclidean")
    exact = median_bandwidth(points, generator=np.random.default_rng(0))
    sampled = [
        median_bandwidth(points, generator=np.random.default_rng(seed), pairs=2000)
        for seed in range(20)
    ]
    # Standard error of a median: half the root of 1/2000 over the density there, about 0.4 / 3.4.
    assert np.abs(np.array(sampled) / exact - 1).max() < 0.03
    assert abs(np.mean(sampled) / exact - 1) < 0.005
    assert len(set(sampled)) == 20


def test_sampled_pairs_are_distinct_rows_and_seeded():
    points = as_points(np.arange(100.0)[:, None] ** 2, "euclidean")
    one, two = (
        median_bandwidth(points, generator=np.random.default_rng(5), pairs=11) for _ in range(2)
    )
    assert one == two > 0


def test_ranks_number_the_pairs():
    later, earlier = _pair_of_rank(np.arange(10))
    assert list(zip(later.tolist(), earlier.tolist(), strict=True)) == [
        (i, j) for i in range(1, 5) for j in range(i)
    ]


@pytest.mark.parametrize("i", [2, 10**4, 94_906_267, 3 * 10**9])
def test_ranks_of_huge_corpora_are_exact(i):
    first = i * (i - 1) // 2
    later, earlier = _pair_of_rank(np.array([first - 1, first, first + i - 1, first + i]))
    assert later.tolist() == [i - 1, i, i, i + 1]
    assert earlier.tolist() == [i - 2, 0, i - 1, 0]


@pytest.mark.parametrize(
    ("vectors", "metric", "pairs", "message"),
    [
        ([[1.0]], "euclidean", 10, "at least 2 rows"),
        ([[1.0], [2.0]], "cosine", 10, "Euclidean distance, got metric 'cosine'"),
        ([[1.0], [2.0]], "euclidean", 0, "pairs must be at least 1"),
    ],
)
def test_bandwidths_that_have_no_meaning_are_refused(vectors, metric, pairs, message):
    points = as_points(vectors, metric)
    with pytest.raises(ValueError, match=message):
        median_bandwidth(points, generator=np.random.default_rng(0), pairs=pairs)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(2, 10), st.integers(0, 2**31))
def test_weights_count_pairs_as_often_as_both_rows(n, seed):
    generator = np.random.default_rng(seed)
    rows, weights = generator.normal(size=(n, 3)), generator.integers(0, 4, n)
    weights[:2] += 1
    every = [
        math.sqrt(oracles.squared_distance(rows[i], rows[j]))
        for i in range(n)
        for j in range(i)
        for _ in range(weights[i] * weights[j])
    ]
    pairs = draw_pairs(n, generator, weights=weights.astype(float))
    assert median_distance(rows, pairs) == pytest.approx(float(np.median(every)), rel=1e-12)


def test_equal_weights_change_nothing():
    points = as_points(np.random.default_rng(3).normal(size=(60, 4)), "euclidean")
    for pairs in (100, 10_000):
        drawn = draw_pairs(60, np.random.default_rng(1), pairs, np.full(60, 0.3))
        alone = median_bandwidth(points, generator=np.random.default_rng(1), pairs=pairs)
        assert median_distance(points.rows, drawn) == alone


def test_pairs_are_drawn_in_proportion_to_both_weights():
    weights = np.array([0.0, 1.0, 5.0, 0.5, 3.0])
    drawn = draw_pairs(5, np.random.default_rng(2), 4, weights)
    assert drawn.weights is None
    count = 200_000
    generator = np.random.default_rng(6)
    found = np.zeros((5, 5))
    for _ in range(count // 4):
        drawn = draw_pairs(5, generator, 4, weights)
        np.add.at(found, (drawn.first, drawn.second), 1)
    found += found.T
    expected = np.outer(weights, weights)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), atol=3e-3)
    assert (found[0] == 0).all()


def test_nearly_all_weight_on_a_row_leaves_pairs_of_different_rows():
    weights = np.full(1000, 1e-18)
    weights[[0, 500, 999]] = 1.0, 1e18, 1.0
    drawn = draw_pairs(1000, np.random.default_rng(0), 5000, weights)
    assert (drawn.first != drawn.second).all()
    assert set(np.concatenate([drawn.first, drawn.second]).tolist()) <= {0, 499, 500, 999, 998, 1}
    with pytest.raises(ValueError, match="at least 2 rows that have a weight"):
        draw_pairs(3, np.random.default_rng(0), 10, np.array([0.0, 1.0, 0.0]))
