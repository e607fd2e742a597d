"""Leaves are searched exactly, and what they miss is found by refinement."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from latentscale.neighbours.certificate import recall_certificate
from latentscale.neighbours.exact import Neighbours, exact_neighbours, nearest
from latentscale.neighbours.ivf import assign
from latentscale.neighbours.leaf_search import search_leaves
from latentscale.neighbours.leaves import divide_into_leaves, nearest_leaders
from latentscale.neighbours.refine import join_both_ways, refine
from latentscale.neighbours.search import approximate_neighbours, search_rows
from latentscale.tiles.distances import as_points
from tests import oracles

METRICS = ["euclidean", "cosine", "manhattan"]


def clustered(n, d, seed, clusters=20):
    """Clusters of very unequal size, the largest with about a third of the rows."""
    generator = np.random.default_rng(seed)
    sizes = 1.0 / np.arange(1, clusters + 1)
    owner = generator.choice(clusters, size=n, p=sizes / sizes.sum())
    return generator.standard_normal((clusters, d))[owner] * 4 + generator.standard_normal((n, d))


def search(points, k, overlap=2, leaf_rows=150, seed=0, **rest):
    return search_rows(
        points.keyed(),
        k,
        overlap=overlap,
        leaf_rows=leaf_rows,
        generator=np.random.default_rng(seed),
        **rest,
    )


# --- leaves ----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 20),
    st.integers(0, 3),
    st.sampled_from(METRICS),
    st.integers(0, 2**31),
)
def test_no_leaf_is_too_large_and_none_loses_a_row(n, d, overlap, size, spread, metric, seed):
    generator = np.random.default_rng(seed)
    # spread 0: all rows are equal; 1 … 3: heaps of duplicates.
    points = as_points(generator.integers(0, spread + 1, size=(n, d)) + 1.0, metric)
    counts = np.zeros(n, dtype=int)
    for leaf in divide_into_leaves(points, overlap=overlap, leaf_rows=size, generator=generator):
        assert 0 < len(leaf) <= 2 * size
        assert (np.diff(leaf) > 0).all()
        counts[leaf] += 1
    assert counts.min() >= 1
    assert counts.max() <= overlap


@pytest.mark.parametrize("metric", METRICS)
def test_leaders_are_the_nearest(metric):
    generator = np.random.default_rng(3)
    points = as_points(generator.standard_normal((1500, 4)), metric)
    leaders = points.take(np.arange(0, 1500, 20))
    distances = np.array([[d for d, _ in pairs] for pairs in pairs_of(points, leaders, metric)])
    found = nearest_leaders(points, leaders, 3)
    np.testing.assert_array_equal(found, np.argsort(distances, axis=1, kind="stable")[:, :3])


def pairs_of(points, leaders, metric):
    """Return distances to every leader, by coordinates."""
    difference = points.rows[:, None] - leaders.rows
    table = {
        "euclidean": np.sqrt(np.square(difference).sum(axis=2)),
        "cosine": 0.5 * np.square(difference).sum(axis=2),
        "manhattan": np.abs(difference).sum(axis=2),
    }[metric]
    return [[(distance, j) for j, distance in enumerate(row)] for row in table]


def test_leaders_too_close_to_call_are_decided_in_float64():
    # Differences far below single precision, about an origin far away.
    generator = np.random.default_rng(4)
    points = as_points(1.0 + 1e-9 * generator.standard_normal((400, 3)), "euclidean")
    leaders = as_points(1.0 + 1e-9 * generator.standard_normal((30, 3)), "euclidean")
    np.testing.assert_array_equal(
        nearest_leaders(points, leaders, 2), assign(points, leaders.rows, 2)
    )


# --- the search of leaves --------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 5, 70])
def test_leaves_are_searched_exactly(metric, k):
    points = as_points(clustered(300, 6, 5), metric).keyed()
    generator = np.random.default_rng(0)
    leaves = [np.sort(generator.choice(300, 60, replace=False)) for _ in range(8)]
    found = search_leaves(points, leaves, k)
    table = oracles.sorted_distances(points.rows, metric)
    for i in range(300):
        mates = {int(j) for leaf in leaves if i in leaf for j in leaf} - {i}
        near = [(distance, j) for distance, j in table[i] if j in mates][:k]
        assert found.indices[i].tolist() == [j for _, j in near] + [-1] * (k - len(near))
        np.testing.assert_allclose(
            found.distances[i, : len(near)], [d for d, _ in near], rtol=1e-12
        )
        assert np.isinf(found.distances[i, len(near) :]).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "kind", ["integers", "far clusters", "close to call", "long and short", "one column"]
)
def test_one_leaf_has_the_neighbours_of_an_exact_search(metric, kind):
    generator = np.random.default_rng(6)
    rows = {
        "integers": lambda: np.unique(generator.integers(0, 4, size=(1100, 5)), axis=0) + 1.0,
        "far clusters": lambda: clustered(700, 5, 1) + 1e8 * generator.integers(1, 3, (700, 1)),
        "close to call": lambda: 1.0 + 1e-8 * generator.standard_normal((700, 5)),
        "long and short": lambda: (
            generator.standard_normal((700, 5)) * 10.0 ** generator.integers(-40, 40, (700, 1))
        ),
        "one column": lambda: generator.standard_normal((700, 1)),
    }[kind]()
    points = as_points(rows, metric)
    found, exact = search(points, 6, leaf_rows=1000), exact_neighbours(points, 6)
    np.testing.assert_array_equal(found.distances, exact.distances)
    np.testing.assert_array_equal(found.ties, exact.ties)
    np.testing.assert_array_equal(found.indices, exact.indices)


def test_rounding_of_products_changes_nothing(monkeypatch):
    points = as_points(clustered(1500, 20, 7) + 30, "euclidean")
    first = search(points, 4)
    from latentscale.tiles.host import short_lists

    def rounded(a, b, out):
        out[:] = a.astype(np.float64) @ b.T.astype(np.float64)
        out *= 1.0 + 2.0**-24 * np.random.default_rng(1).integers(-3, 4, size=out.shape)

    monkeypatch.setattr(short_lists, "inner_products", rounded)
    second = search(points, 4)
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_array_equal(first.distances, second.distances)


# --- refinement ------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_refinement_equals_trying_every_neighbour_of_a_neighbour(metric):
    # Lists from a poor graph, in which no row has more than k others pointing at it.
    n, k = 60, 4
    points = as_points(clustered(n, 3, 9) + 50, metric).keyed()
    table = oracles.sorted_distances(points.rows, metric)
    near = [{j: distance for distance, j in pairs} for pairs in table]
    lists = (np.arange(n)[:, None] + np.arange(1, k + 1)) % n
    lists = np.array([sorted(row, key=near[i].get) for i, row in enumerate(lists)])
    distances = np.array([[near[i][j] for j in row] for i, row in enumerate(lists)])
    joined = [{*lists[i].tolist(), *(j for j in range(n) if i in lists[j])} for i in range(n)]
    refined = Neighbours(lists, distances, np.zeros(lists.shape, dtype=np.uint64))
    refine(points, refined, [np.array([i]) for i in range(n)], 1)
    for i in range(n):
        tried = {*joined[i], *(second for j in joined[i] for second in joined[j])} - {i}
        best = sorted((near[i][j], j) for j in tried)[:k]
        np.testing.assert_array_equal(refined.indices[i], [j for _, j in best])
        np.testing.assert_allclose(refined.distances[i], [d for d, _ in best], rtol=1e-12)


def test_rounds_of_refinement_skip_only_what_was_compared():
    # What a full second pass over all pairs of ends would still find is next to nothing.
    points = as_points(clustered(3000, 8, 10), "euclidean")
    true = exact_neighbours(points, 5)
    recalls = [
        recall_certificate(search(points, 5, rounds=rounds).distances, true.distances).value
        for rounds in (0, 1, 2, 3)
    ]
    assert recalls[0] < recalls[1] < recalls[2] <= recalls[3]
    assert recalls[2] > 0.99


def test_of_the_rows_that_point_at_a_hub_some_are_followed_whatever_their_order():
    n, followed = 50, 3
    keys = np.random.default_rng(0).integers(0, 2**63, size=n).astype(np.uint64)

    def followed_keys(keys):
        lists = np.zeros((n, followed), dtype=np.int64)
        lists[:, 1:] = -1
        lists[0] = -1
        edges = np.full((n, 2 * followed), -1, dtype=np.int32)
        new = np.zeros(edges.shape, dtype=np.bool_)
        join_both_ways(lists, np.ones_like(lists, dtype=np.bool_), keys, edges, new)
        assert (edges[1:, 0] == 0).all()
        assert (edges[0, :followed] == -1).all()
        assert new[0, followed:].all()
        return keys[edges[0, followed:]]

    shuffled = np.concatenate([keys[:1], np.random.default_rng(1).permutation(keys[1:])])
    found = followed_keys(keys)
    assert len(set(found.tolist()) & set(keys[1:].tolist())) == followed
    np.testing.assert_array_equal(found, followed_keys(shuffled))


# --- the whole search ------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_overlap_buys_recall(metric):
    points = as_points(clustered(3000, 10, 5), metric)
    true = exact_neighbours(points, 5)
    recalls = []
    for overlap in (1, 2, 3):
        found = search(points, 5, overlap=overlap, rounds=1)
        assert found.indices.min() >= 0
        assert (found.indices != np.arange(3000)[:, None]).all()
        assert (found.distances >= true.distances).all()
        for row in np.sort(found.indices, axis=1):
            assert (np.diff(row) > 0).all()
        recalls.append(recall_certificate(found.distances, true.distances).value)
    assert recalls[0] < recalls[1] < recalls[2]
    assert recalls[1] > 0.95
    assert recalls[2] > 0.98


@pytest.mark.parametrize("metric", METRICS)
def test_few_rows_are_searched_exactly_with_duplicates(metric):
    rows = np.random.default_rng(4).integers(0, 3, size=(300, 3)) + 1.0
    rows[:80] = rows[0]
    rows[80:90, 0] = -0.0
    points = as_points(rows, metric)
    found = approximate_neighbours(points, 6, overlap=2, generator=np.random.default_rng(0))
    exact = exact_neighbours(points, 6)
    np.testing.assert_array_equal(found.distances, exact.distances)
    np.testing.assert_array_equal(found.indices, exact.indices)


def test_rows_of_colliding_keys_are_not_equal(monkeypatch):
    from latentscale.neighbours import search as module

    monkeypatch.setattr(module, "content_keys", lambda rows: np.zeros(len(rows), dtype=np.uint64))
    points = as_points(np.repeat(clustered(100, 3, 1), 2, axis=0), "euclidean")
    found, exact = search(points, 5), exact_neighbours(points, 5)
    np.testing.assert_array_equal(found.indices, exact.indices)


@pytest.mark.parametrize(("n", "k"), [(1, 3), (2, 3), (4, 4), (30, 29), (30, 40)])
@pytest.mark.parametrize("leaf_rows", [None, 2])
def test_lists_longer_than_the_corpus_are_padded(n, k, leaf_rows):
    points = as_points(clustered(n, 3, 2), "euclidean")
    found = search(points, k, leaf_rows=leaf_rows)
    held = min(k, n - 1)
    if held:
        exact = exact_neighbours(points, held)
        np.testing.assert_array_equal(found.indices[:, :held], exact.indices)
    assert (found.indices[:, held:] == -1).all()
    assert np.isinf(found.distances[:, held:]).all()


def test_rows_that_leaves_leave_short_are_completed():
    # Leaves of at most 4 rows cannot hold 6 neighbours.
    points = as_points(clustered(120, 3, 6), "euclidean")
    found, exact = search(points, 6, overlap=1, leaf_rows=2, rounds=0), exact_neighbours(points, 6)
    np.testing.assert_array_equal(found.indices, exact.indices)


def test_constant_data_have_no_hub():
    points = as_points(np.ones((1000, 3)), "euclidean")
    found = search(points, 5, leaf_rows=100)
    assert (found.distances == 0).all()
    assert np.bincount(found.indices.ravel(), minlength=1000).max() < 20


def test_one_seed_one_result_on_any_number_of_threads():
    points = as_points(clustered(1500, 30, 7), "cosine")
    with threadpool_limits(1):
        first = search(points, 4)
    with threadpool_limits(3):
        second = search(points, 4)
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_array_equal(first.distances, second.distances)
    assert (search(points, 4, seed=1).indices != first.indices).any()


@pytest.mark.full
def test_descent_finds_nearly_all():
    """The one test that compiles pynndescent, up to a minute: both metrics, duplicates, repeats."""
    rows = clustered(2600, 10, 8)
    rows[:60] = rows[0]
    for metric, scale in (("euclidean", 1.0), ("cosine", 1.0), ("euclidean", 1e-25)):
        points = as_points(scale * rows, metric)
        true = exact_neighbours(points, 5)
        found, again = (search(points, 5, seed=2, method="nndescent") for _ in range(2))
        assert recall_certificate(found.distances, true.distances).lower > 0.98
        # The heap's members draw their neighbours from one another, as in the exact search.
        np.testing.assert_array_equal(found.indices[:60], true.indices[:60])
        # Where all were found, the distances are the exact ones to the last bit.
        assert (found.distances == true.distances).all(axis=1).mean() > 0.95
        np.testing.assert_array_equal(found.indices, again.indices)


def test_bad_settings_are_refused():
    points = as_points(np.eye(4), "euclidean")
    generator = np.random.default_rng(0)
    with pytest.raises(ValueError, match="below 4"):
        approximate_neighbours(points, 4, overlap=2, generator=generator)
    with pytest.raises(ValueError, match="overlap 0"):
        approximate_neighbours(points, 2, overlap=0, generator=generator)


# --- until the recall is reached ---------------------------------------------------------------


def isotropic(n=3000, d=24):
    """Rows for which leaves miss many neighbours."""
    return as_points(np.random.default_rng(8).standard_normal((n, d)), "euclidean")


def recall_of(found, points, k):
    return recall_certificate(found.distances, exact_neighbours(points, k).distances).value


def test_rows_are_divided_again_until_the_recall_is_reached():
    points = isotropic()
    once = recall_of(search(points, 4, overlap=2, rounds=1), points, 4)
    assert once < 0.9
    for wanted in (0.9, 0.97):
        found = search(points, 4, overlap=2, rounds=1, recall=wanted)
        # 400 rows with 4 neighbours each are checked.
        assert recall_of(found, points, 4) >= wanted - 0.015


@pytest.mark.parametrize(("enough", "rounds"), [(0.4, 0), (0.55, 1)])
def test_a_search_that_is_good_enough_goes_no_further(enough, rounds):
    # Leaves alone find 0.46 of the neighbours, and a round of refinement 0.65.
    points = isotropic()
    once = search(points, 4, overlap=2, rounds=rounds)
    checked = search(points, 4, overlap=2, rounds=1, recall=enough)
    np.testing.assert_array_equal(once.indices, checked.indices)
    others = search(points, 4, overlap=2, rounds=1 - rounds)
    assert (once.indices != others.indices).any()


def test_paths_that_were_tried_are_not_tried_again():
    points = isotropic(600).keyed()
    leaves = divide_into_leaves(points, overlap=2, leaf_rows=50, generator=np.random.default_rng(0))
    at_once, in_two = (search_leaves(points, leaves, 10) for _ in range(2))
    refine(points, at_once, leaves, 2)
    tried = refine(points, in_two, leaves, 1)
    before = in_two.indices.copy()
    refine(points, in_two, leaves, 1, tried=tried)
    np.testing.assert_array_equal(at_once.indices, in_two.indices)
    assert (before != in_two.indices).any()
    everything = in_two.indices.astype(np.int32)
    before = in_two.indices.copy()
    refine(points, in_two, leaves, 1, tried=everything)
    np.testing.assert_array_equal(before, in_two.indices)


def test_lists_are_refined_after_the_last_division():
    rows = np.random.default_rng(0).normal(size=(6000, 24))
    points = as_points(rows, "euclidean").keyed()
    checked = np.arange(0, 6000, 12)
    found = search_rows(
        points, 10, overlap=2, generator=np.random.default_rng(5), recall=0.995, leaf_rows=200
    )
    everyone = np.arange(6000)
    true = nearest(points.take(checked), points, 10, query_ids=checked, candidate_ids=everyone)
    assert recall_certificate(found.distances[checked], true.distances).value > 0.98
