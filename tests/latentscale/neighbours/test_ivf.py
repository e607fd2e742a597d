"""Cells honour their cap and lose few neighbours; duplicates and odd shapes are no exception."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.neighbours import search
from latentscale.neighbours.certificate import recall_certificate
from latentscale.neighbours.exact import Neighbours, exact_neighbours
from latentscale.neighbours.ivf import (
    assign,
    cell_cap,
    find_centres,
    partition,
)
from latentscale.neighbours.refine import refine
from latentscale.neighbours.search import approximate_neighbours, cell_neighbours
from latentscale.tiles.distances import as_points
from tests import oracles

METRICS = ["euclidean", "cosine", "manhattan"]


def clustered(n, d, seed, clusters=20):
    """Clusters of very unequal size, the largest with about a third of the rows."""
    generator = np.random.default_rng(seed)
    sizes = 1.0 / np.arange(1, clusters + 1)
    owner = generator.choice(clusters, size=n, p=sizes / sizes.sum())
    return generator.standard_normal((clusters, d))[owner] * 4 + generator.standard_normal((n, d))


@pytest.mark.parametrize(("n", "d"), [(10, 2), (10**6, 128), (10**6, 4096), (10**9, 384)])
def test_cap_bounds_memory_and_number_of_cells(n, d):
    cap = cell_cap(n, d)
    assert 4096 <= cap <= 32768
    assert 8 * cap * d <= 1 << 27
    assert n / cap <= 50_000


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(2, 40),
    st.integers(0, 3),
    st.sampled_from(METRICS),
    st.integers(0, 2**31),
)
def test_no_cell_exceeds_the_cap_and_none_loses_a_row(n, d, overlap, cap, spread, metric, seed):
    generator = np.random.default_rng(seed)
    # spread 0: all rows are equal; 1 … 3: heaps of duplicates.
    rows = generator.integers(0, spread + 1, size=(n, d)) + 1.0
    cells = partition(as_points(rows, metric), overlap=overlap, cap=cap, generator=generator)
    counts = np.zeros(n, dtype=int)
    for cell in cells:
        assert 0 < len(cell) <= cap
        assert (np.diff(cell) > 0).all()
        counts[cell] += 1
    assert counts.min() >= 1
    assert counts.max() <= overlap


def test_cells_of_unequal_clusters_are_well_filled():
    points = as_points(clustered(6000, 8, 1), "euclidean")
    cells = partition(points, overlap=2, cap=500, generator=np.random.default_rng(0))
    sizes = np.array([len(cell) for cell in cells])
    assert sizes.max() <= 500
    assert sizes.sum() == 2 * 6000
    assert len(cells) < 3 * 2 * 6000 / 500


def test_centres_are_means_of_groups_of_like_size():
    sample = clustered(2000, 5, 2)
    centres = find_centres(sample, 16, np.random.default_rng(0))
    assert centres.shape == (16, 5)
    nearest = np.square(sample[:, None] - centres).sum(axis=2).argmin(axis=1)
    sizes = np.bincount(nearest, minlength=16)
    assert sizes.min() > 0
    assert sizes.max() < 4 * 2000 / 16
    # Closer to their centres by far than to the mean of all.
    within = np.square(sample - centres[nearest]).sum()
    assert within < 0.5 * np.square(sample - sample.mean(axis=0)).sum()


def test_fewer_distinct_rows_than_cells():
    sample = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], 5, axis=0)
    centres = find_centres(sample, 8, np.random.default_rng(0))
    assert sorted(map(tuple, centres)) == [(0.0, 0.0), (0.0, 2.0), (1.0, 0.0)]
    with pytest.raises(ValueError, match="both must be positive"):
        find_centres(sample, 0, np.random.default_rng(0))


def test_assign_orders_cells_by_distance():
    generator = np.random.default_rng(3)
    rows, centres = generator.standard_normal((200, 4)), generator.standard_normal((11, 4))
    owners = assign(as_points(rows, "euclidean"), centres, 3)
    distances = np.sqrt(np.square(rows[:, None] - centres).sum(axis=2))
    np.testing.assert_array_equal(owners, np.argsort(distances, axis=1)[:, :3])
    assert assign(as_points(rows, "euclidean"), centres[:2], 3).shape == (200, 2)


@pytest.mark.parametrize("metric", METRICS)
def test_one_cell_is_exact_with_duplicates(metric):
    rows = np.random.default_rng(4).integers(0, 3, size=(300, 3)) + 1.0
    rows[:80] = rows[0]
    rows[80:90, 0] = -0.0
    points = as_points(rows, metric)
    found = approximate_neighbours(points, 6, overlap=2, generator=np.random.default_rng(0))
    exact = exact_neighbours(points, 6)
    np.testing.assert_array_equal(found.distances, exact.distances)
    np.testing.assert_array_equal(found.indices, exact.indices)


@pytest.mark.parametrize("metric", METRICS)
def test_overlap_buys_recall(monkeypatch, metric):
    monkeypatch.setattr(search, "cell_cap", lambda n, d: 400)
    points = as_points(clustered(3000, 6, 5), metric)
    true = exact_neighbours(points, 5)
    recalls = []
    for overlap in (1, 2, 3):
        found = approximate_neighbours(
            points, 5, overlap=overlap, generator=np.random.default_rng(1)
        )
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
def test_refinement_equals_trying_every_neighbour_of_a_neighbour(metric):
    # Lists from a poor graph, in which no row has more than k others pointing at it.
    n, k = 60, 4
    points = as_points(clustered(n, 3, 9) + 50, metric)
    table = oracles.sorted_distances(points.rows, metric)
    near = [{j: distance for distance, j in pairs} for pairs in table]
    lists = (np.arange(n)[:, None] + np.arange(1, k + 1)) % n
    lists = np.array([sorted(row, key=near[i].get) for i, row in enumerate(lists)])
    distances = np.array([[near[i][j] for j in row] for i, row in enumerate(lists)])
    refined = refine(points, Neighbours(lists, distances, np.zeros(lists.shape, dtype=np.uint64)))
    for i in range(n):
        joined = {*lists[i], *(j for j in range(n) if i in lists[j])}
        tried = {*joined, *(second for j in joined for second in lists[j])} - {i}
        best = sorted((near[i][j], j) for j in tried)[:k]
        np.testing.assert_array_equal(refined.indices[i], [j for _, j in best])
        np.testing.assert_allclose(refined.distances[i], [d for d, _ in best], rtol=1e-12)


def test_rows_that_cells_leave_short_are_completed(monkeypatch):
    # Cells of at most 4 rows cannot hold 6 neighbours.
    monkeypatch.setattr(search, "cell_cap", lambda n, d: 4)
    points = as_points(clustered(120, 3, 6), "euclidean")
    found = approximate_neighbours(points, 6, overlap=1, generator=np.random.default_rng(0))
    exact = exact_neighbours(points, 6)
    np.testing.assert_array_equal(found.indices, exact.indices)


def test_constant_data_have_no_hub(monkeypatch):
    monkeypatch.setattr(search, "cell_cap", lambda n, d: 100)
    points = as_points(np.ones((1000, 3)), "euclidean")
    found = approximate_neighbours(points, 5, overlap=2, generator=np.random.default_rng(0))
    assert (found.distances == 0).all()
    assert np.bincount(found.indices.ravel(), minlength=1000).max() < 20


def test_one_seed_one_result(monkeypatch):
    monkeypatch.setattr(search, "cell_cap", lambda n, d: 300)
    points = as_points(clustered(1500, 4, 7), "euclidean")
    first, second = (
        approximate_neighbours(points, 4, overlap=2, generator=np.random.default_rng(3))
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.indices, second.indices)


def test_bad_settings_are_refused():
    points = as_points(np.eye(4), "euclidean")
    generator = np.random.default_rng(0)
    with pytest.raises(ValueError, match="below 4"):
        approximate_neighbours(points, 4, overlap=2, generator=generator)
    with pytest.raises(ValueError, match="overlap 0"):
        approximate_neighbours(points, 2, overlap=0, generator=generator)
    with pytest.raises(ValueError, match="cell cap 1"):
        partition(points, overlap=1, cap=1, generator=generator)


def test_descent_finds_nearly_all():
    """The one test that compiles pynndescent, up to a minute: both metrics, duplicates, repeats."""
    rows = clustered(2600, 10, 8)
    rows[:60] = rows[0]
    ids = np.arange(2600, dtype=np.int64)
    for metric in ("euclidean", "cosine"):
        points = as_points(rows, metric).keyed()
        true = exact_neighbours(points, 5)
        found, again = (
            cell_neighbours(
                points,
                ids,
                5,
                descend=True,
                generator=np.random.default_rng(2),
                exact_cell=0,
            )
            for _ in range(2)
        )
        assert recall_certificate(found.distances, true.distances).lower > 0.98
        # The heap's members draw their neighbours from one another, as in the exact search.
        np.testing.assert_array_equal(found.indices[:60], true.indices[:60])
        # Where all were found, the distances are the exact ones to the last bit.
        assert (found.distances == true.distances).all(axis=1).mean() > 0.95
        np.testing.assert_array_equal(found.indices, again.indices)
