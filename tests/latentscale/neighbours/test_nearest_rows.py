"""The nearest row in the same set and in another one is that of a brute-force search."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from latentscale.neighbours.leaf_search import Relation, search_relations
from latentscale.neighbours.nearest_rows import NearestRows, nearest_rows
from latentscale.tiles.distances import Metric, as_points

METRICS: list[Metric] = ["euclidean", "cosine", "manhattan"]
SCIPY = {"euclidean": "euclidean", "cosine": "cosine", "manhattan": "cityblock"}


def all_relations(owner: NDArray[Any]) -> list[Relation]:
    sets = [owner == number for number in range(int(owner.max()) + 1)]
    return [Relation(queries, candidates) for queries, candidates in product(sets, sets)]


def nearest_by_force(vectors: NDArray[Any], relation: Relation, metric: Metric) -> NDArray[Any]:
    distances = cdist(vectors, vectors, SCIPY[metric])
    np.fill_diagonal(distances, np.inf)
    distances[:, ~relation.candidates] = np.inf
    distances[~relation.queries] = np.inf
    return np.asarray(distances.min(axis=1))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 150),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 3),
    st.sampled_from(METRICS),
    st.integers(0, 2**31),
)
def test_one_leaf_is_searched_exactly(
    n: int, d: int, sets: int, spread: int, metric: Metric, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    # spread 0: all rows are equal; 1 and more: many of them are.
    vectors = generator.integers(0, spread + 1, size=(n, d)) + 1.0
    relations = all_relations(generator.integers(0, sets, n))
    found = nearest_rows(as_points(vectors, metric), relations, overlap=2, generator=generator)
    for relation, near in zip(relations, found, strict=True):
        expected = nearest_by_force(vectors, relation, metric)
        np.testing.assert_allclose(near.distances, expected, rtol=1e-9, atol=1e-12)
        has = np.isfinite(expected)
        np.testing.assert_array_equal(near.rows >= 0, has)
        assert relation.candidates[near.rows[has]].all()
        assert (near.rows[has] != np.flatnonzero(has)).all()


@pytest.mark.parametrize("metric", METRICS)
def test_leaves_find_what_is_near_and_never_less_than_the_truth(metric: Metric) -> None:
    generator = np.random.default_rng(1)
    vectors = generator.standard_normal((40, 8))[generator.integers(0, 40, 3000)] * 4.0
    vectors += generator.standard_normal(vectors.shape)
    vectors[:200] = vectors[200:400] + 1e-3 * generator.standard_normal((200, 8))
    vectors[400:600] = vectors[5]
    relations = all_relations(generator.integers(0, 2, 3000))
    points = as_points(vectors, metric)
    searched = list(nearest_rows(points, relations, overlap=3, generator=generator, leaf_rows=150))
    again = nearest_rows(
        points, relations, overlap=3, generator=np.random.default_rng(7), leaf_rows=150
    )
    near_rows = np.zeros(3000, dtype=bool)
    near_rows[:600] = True
    for relation, found, other in zip(relations, searched, again, strict=True):
        expected = nearest_by_force(vectors, relation, metric)
        asked = relation.queries
        assert (found.distances >= expected * (1 - 1e-9) - 1e-12).all()
        hit = found.distances <= expected * (1 + 1e-9) + 1e-12
        assert hit[asked].mean() > 0.85
        close = asked & near_rows & (expected < 0.02)
        assert close.sum() > 100
        assert hit[close].all()
        # Other leaves find other rows, and the nearest of both is nearer.
        found.offer(np.flatnonzero(asked), other.rows[asked], other.distances[asked])
        better = found.distances <= expected * (1 + 1e-9) + 1e-12
        assert better[asked].mean() >= hit[asked].mean()


def test_other_candidates_than_queries_never_include_the_row_itself() -> None:
    generator = np.random.default_rng(2)
    points = as_points(generator.standard_normal((300, 5)), "euclidean")
    queries, candidates = np.ones(300, dtype=bool), generator.random(300) < 0.4
    relation = Relation(queries, candidates)
    leaves = [np.arange(300)]
    [near] = search_relations(points, leaves, 1, [relation])
    expected = nearest_by_force(points.rows, relation, "euclidean")
    np.testing.assert_allclose(near.distances[:, 0], expected, rtol=1e-12)
    assert candidates[near.indices[:, 0]].all()


def test_of_rows_at_one_distance_the_lower_number_stays() -> None:
    found = NearestRows.none(4)
    places = np.arange(4)
    found.offer(places, np.array([5, 7, -1, 3]), np.array([1.0, 2.0, np.inf, 4.0]))
    found.offer(places, np.array([6, 2, -1, 9]), np.array([1.0, 2.0, np.inf, 3.0]))
    assert found.rows.tolist() == [5, 2, -1, 9]
    assert found.distances.tolist() == [1.0, 2.0, np.inf, 3.0]
