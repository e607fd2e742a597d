"""The layout of cells of a corpus that isn't in memory."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.neighbours.cell_layout import (
    expected_sizes,
    group_cells,
    order_centres,
    shared_cell_recall,
)


def test_near_centres_follow_each_other():
    generator = np.random.default_rng(0)
    # Eight clusters of eight centres, shuffled.
    clusters = np.repeat(np.arange(8), 8)
    centres = 100.0 * generator.normal(size=(8, 5))[clusters] + generator.normal(size=(64, 5))
    shuffle = generator.permutation(64)
    order = order_centres(centres[shuffle], np.random.default_rng(1))
    assert sorted(order) == list(range(64))
    visited = clusters[shuffle][order]
    assert (np.diff(visited) != 0).sum() == 7


def test_equal_centres_and_a_single_one_are_ordered_too():
    assert list(order_centres(np.zeros((1, 3)), np.random.default_rng(0))) == [0]
    assert sorted(order_centres(np.ones((5, 2)), np.random.default_rng(0))) == [0, 1, 2, 3, 4]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.0, 50.0), min_size=1, max_size=40).map(np.array),
    st.floats(1.0, 100.0),
)
def test_groups_are_consecutive_and_within_the_limit(sizes, limit):
    group_of = group_cells(sizes, limit)
    assert group_of[0] == 0
    assert set(np.diff(group_of)) <= {0, 1}
    for group in range(group_of[-1] + 1):
        held = sizes[group_of == group]
        assert len(held[held > 0]) <= 1 or held.sum() <= limit * (1 + 1e-12)
    assert group_of[-1] + 1 <= 2 * sizes.sum() / limit + 1


def test_sizes_are_those_of_the_sample_scaled():
    owners = np.array([[0, 2], [0, 1], [2, 0], [0, 2]])
    np.testing.assert_array_equal(expected_sizes(owners, 4, 40), [40.0, 10.0, 30.0, 0.0])


def test_recall_of_shared_cells_equals_the_loops():
    generator = np.random.default_rng(3)
    owners = np.array([generator.permutation(7)[:4] for _ in range(30)])
    theirs = np.array([[generator.permutation(7)[:4] for _ in range(5)] for _ in range(30)])
    expected = [
        np.mean(
            [
                bool(set(owners[i, :overlap]) & set(theirs[i, j, :overlap]))
                for i in range(30)
                for j in range(5)
            ]
        )
        for overlap in (1, 2, 4)
    ]
    np.testing.assert_allclose(shared_cell_recall(owners, theirs, (1, 2, 4)), expected)
