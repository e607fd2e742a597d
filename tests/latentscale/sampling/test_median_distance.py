import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentscale.sampling.median_distance import _pair_of_rank, median_bandwidth
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
