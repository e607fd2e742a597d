"""The layout of cells of a corpus that isn't in memory."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.neighbours.cell_layout import (
    choose_groups,
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


def owners_of(rows: int, cells: int, overlap: int, seed: int) -> np.ndarray:
    """Draw different cells for each row, not far from each other."""
    generator = np.random.default_rng(seed)
    first = generator.integers(cells - overlap + 1, size=(rows, 1))
    return generator.permuted(first + np.arange(overlap), axis=1)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(4, 30),
    st.integers(1, 4),
    st.integers(0, 1000),
    st.floats(2.0, 100.0),
)
def test_groups_hold_as_many_rows_as_fit_each_counted_once(rows, cells, overlap, seed, limit):
    owners, weight = owners_of(rows, cells, overlap, seed), 2
    group_of = group_cells(owners, cells, weight * rows, limit)
    assert group_of[0] == 0
    assert set(np.diff(group_of)) <= {0, 1}

    def held_by(of: list[int]) -> int:
        return weight * sum(bool(set(row) & set(of)) for row in owners.tolist())

    for group in range(group_of[-1] + 1):
        inside = np.flatnonzero(group_of == group).tolist()
        filled = [cell for cell in inside if held_by([cell])]
        assert len(filled) <= 1 or held_by(inside) <= limit * (1 + 1e-12)
        if group < group_of[-1]:
            assert held_by([*inside, inside[-1] + 1]) > limit


def test_the_fewest_cells_that_bring_neighbours_together_are_chosen():
    # Groups of two cells. The neighbour's nearest cell is in the next group, its second isn't.
    sample = np.array([[cell, cell ^ 1] for cell in range(6) for _ in range(10)])
    owners, theirs = np.array([[1, 0], [2, 3]]), np.array([[[2, 1]], [[3, 2]]])
    shape = {"cells": 6, "n": 600, "limit": 200.0}
    few = choose_groups(sample, owners, theirs, (1, 2), **shape, recall=0.5)
    assert (few.overlap, few.recall, few.group_of.tolist()) == (1, 0.5, [0, 0, 1, 1, 2, 2])
    more = choose_groups(sample, owners, theirs, (1, 2), **shape, recall=0.9)
    assert (more.overlap, more.recall, more.group_of.tolist()) == (2, 1.0, [0, 0, 1, 1, 2, 2])
    none = choose_groups(sample, owners, theirs[:, :, ::-1][::-1], (1,), **shape, recall=0.9)
    assert (none.overlap, none.recall) == (1, 0.0)


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
