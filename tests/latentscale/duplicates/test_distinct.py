"""Rows at distance 0 are found, whatever their order and whichever the metric."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.duplicates.distinct import (
    find_candidates,
    find_distinct,
    merge_candidates,
    merge_within,
    project,
)
from latentscale.tiles.distances import METRICS, Metric, as_points
from tests.oracles import pairwise_distances


def first_of_group(rows: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the first row of each row's group."""
    _, first, group = np.unique(
        find_distinct(as_points(rows, metric)).group, return_index=True, return_inverse=True
    )
    return first[group]


def assert_groups(rows: np.ndarray, metric: Metric, expected: list[int]) -> None:
    """``expected`` names the first equal row of each row."""
    distinct = find_distinct(as_points(rows, metric))
    np.testing.assert_array_equal(distinct.rows[distinct.group], expected)
    np.testing.assert_array_equal(distinct.rows, np.unique(expected))
    assert distinct.duplicates == len(expected) - len(set(expected))


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_equal_values_are_one_point(metric: Metric) -> None:
    rows = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, -0.0], [2.0, 0.0], [0.0, 2.0], [1.0, 1e-300]])
    assert_groups(rows, metric, [0, 1, 0, 3, 1, 5])


def test_equal_directions_are_one_point() -> None:
    rows = np.array([[3.0, 0.0], [0.0, 2.0], [1.0, -0.0], [-1.0, 0.0], [0.0, 1e-200], [1.0, 1e-6]])
    assert_groups(rows, "cosine", [0, 1, 0, 3, 1, 5])


def test_directions_survive_float32() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(50, 384))
    factors = 10.0 ** rng.uniform(-4, 4, size=(4, 50, 1))
    stored = (factors * rows).astype(np.float32).reshape(-1, 384)
    order = rng.permutation(len(stored))
    origin = (np.arange(len(stored)) % 50)[order]
    expected = [int(np.flatnonzero(origin == which)[0]) for which in origin]
    np.testing.assert_array_equal(first_of_group(stored[order], "cosine"), expected)


def test_directions_further_apart_than_float32_are_kept() -> None:
    angles = np.array([0.0, 1.2e-7, 4.0e-7, 1.0])
    rows = np.column_stack([np.cos(angles), np.sin(angles)])
    np.testing.assert_array_equal(first_of_group(rows, "cosine"), [0, 0, 2, 3])


def check_near_directions(seed: int) -> None:
    """Directions about as near as counts as equal, some repeated, some stored in float32."""
    rng = np.random.default_rng(seed)
    n, d = rng.integers(2, 200), rng.integers(2, 20)
    rows = rng.normal(size=d) + 10.0 ** rng.uniform(-8, -5) * rng.normal(size=(n, d))
    rows = np.concatenate((rows, rows[: n // 3] * rng.uniform(0.1, 9.0, size=(n // 3, 1))))
    if rng.integers(2):
        rows = rows.astype(np.float32)
    distinct = find_distinct(as_points(rows, "cosine"))
    kept = rows[distinct.rows]
    assert find_distinct(as_points(kept, "cosine")).duplicates == 0
    near = pairwise_distances(np.asarray(kept, np.float64), "cosine") + np.eye(len(kept))
    assert near.min() > 0.999e-14
    order = rng.permutation(len(rows))
    mixed = find_distinct(as_points(rows[order], "cosine"))
    unit = as_points(rows, "cosine").rows
    own, again = unit[distinct.rows[distinct.group]], unit[order][mixed.rows[mixed.group]]
    np.testing.assert_array_equal(again, own[order])
    blocks = [as_points(block, "cosine") for block in np.array_split(rows, 3) if len(block)]
    candidates = find_candidates(np.concatenate([project(b) for b in blocks]), "cosine")
    if len(candidates):
        among = find_distinct(as_points(rows[candidates], "cosine"))
        merged = merge_candidates(len(rows), candidates, among)
        np.testing.assert_array_equal(merged.group, distinct.group)
        np.testing.assert_array_equal(merged.rows, distinct.rows)


@pytest.mark.parametrize("seed", range(5))
def test_near_directions(seed: int) -> None:
    check_near_directions(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 200))
def test_more_near_directions(seed: int) -> None:
    check_near_directions(seed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 1), min_size=3, max_size=3), min_size=1, max_size=40),
    st.sampled_from(["euclidean", "manhattan"]),
)
def test_agrees_with_a_dictionary(rows: list[list[int]], metric: Metric) -> None:
    seen: dict[tuple[int, ...], int] = {}
    assert_groups(
        np.array(rows), metric, [seen.setdefault(tuple(r), i) for i, r in enumerate(rows)]
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=40))
def test_multiples_of_few_directions(choices: list[tuple[int, int]]) -> None:
    directions = np.random.default_rng(0).normal(size=(6, 4))
    seen: dict[int, int] = {}
    expected = [seen.setdefault(which, i) for i, (which, _) in enumerate(choices)]
    rows = np.array([f * directions[w] for w, f in choices])
    np.testing.assert_array_equal(first_of_group(rows, "cosine"), expected)


def test_a_group_shares_its_value() -> None:
    distinct = find_distinct(as_points([[1.0], [2.0], [1.0], [1.0]], "euclidean"))
    np.testing.assert_allclose(distinct.share(np.array([3.0, 5.0])), [1.0, 5.0, 1.0, 1.0])


def test_many_equal_rows_take_no_quadratic_time() -> None:
    rows = np.ones((200_000, 2))
    rows[::2] *= -1.0
    for metric in ("euclidean", "cosine"):
        points = as_points(rows, metric)
        find_distinct(points.take(slice(0, 4)))
        start = time.process_time()
        assert find_distinct(points).duplicates == len(rows) - 2
        assert time.process_time() - start < 5.0


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_blocks_of_rows_find_the_same_as_all_together(metric: Metric) -> None:
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(300, 24))
    copies = rng.integers(0, 300, size=200)
    factors = rng.uniform(0.1, 9.0, size=(200, 1)) if metric == "cosine" else 1.0
    rows = np.vstack([rows, factors * rows[copies]])[rng.permutation(500)]
    cuts = np.sort(rng.integers(0, 500, size=6))
    blocks = [as_points(block, metric) for block in np.split(rows, cuts) if len(block)]
    candidates = find_candidates(np.concatenate([project(b) for b in blocks]), metric)
    assert len(candidates) < 400  # those without a copy are never looked at
    among = find_distinct(as_points(rows[candidates], metric))
    merged = merge_candidates(500, candidates, among)
    whole = find_distinct(as_points(rows, metric))
    np.testing.assert_array_equal(merged.rows, whole.rows)
    np.testing.assert_array_equal(merged.group, whole.group)
    assert merged.duplicates == 200


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60),
    d=st.integers(1, 5),
    tolerance=st.floats(0.0, 1.0),
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_merge_within_a_distance(
    n: int, d: int, tolerance: float, metric: Metric, seed: int
) -> None:
    rows = np.random.default_rng(seed).normal(size=(n, d))
    merged = merge_within(as_points(rows, metric), tolerance)
    distances = pairwise_distances(rows, metric)
    to_its_own = distances[np.arange(n), merged.rows[merged.group]]
    assert (to_its_own <= tolerance * (1 + 1e-9) + 1e-15).all()
    between = distances[np.ix_(merged.rows, merged.rows)]
    np.fill_diagonal(between, np.inf)
    assert (between >= tolerance * (1 - 1e-9)).all()
    assert (np.diff(merged.rows) > 0).all()
    np.testing.assert_array_equal(merged.group[merged.rows], np.arange(len(merged.rows)))


def test_a_negative_tolerance_is_refused() -> None:
    points = as_points(np.eye(3), "euclidean")
    for tolerance in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="tolerance must be a distance"):
            merge_within(points, tolerance)
    assert merge_within(points, 0.0).duplicates == 0
