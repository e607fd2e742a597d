"""Cells honour their cap and lose few neighbours; duplicates and odd shapes are no exception."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.neighbours.ivf import (
    assign,
    cell_cap,
    find_centres,
    partition,
)
from latentscale.tiles.distances import as_points

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


def test_bad_settings_are_refused():
    points = as_points(np.eye(4), "euclidean")
    generator = np.random.default_rng(0)
    with pytest.raises(ValueError, match="cell cap 1"):
        partition(points, overlap=1, cap=1, generator=generator)
