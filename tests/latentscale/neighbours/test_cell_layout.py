"""The layout of cells of a corpus that isn't in memory."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.neighbours.cell_layout import (
    FURTHER,
    choose_groups,
    count_common_groups,
    fitting_rows,
    group_cells,
    missed_in_group,
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


def test_groups_leave_room_for_what_a_sample_does_not_tell():
    assert fitting_rows(1000, 50, 1000) == math.inf, "all rows fit"
    assert fitting_rows(1000, 10**6, 10**6) == 800.0, "sizes are known well"
    generator = np.random.default_rng(0)
    for sampled, share in ((200, 0.1), (1000, 0.02), (10_000, 0.02)):
        n, most = 10**6, 20_000
        rows = fitting_rows(most, sampled, n)
        assert rows < 0.8 * most or sampled == 10_000
        # Groups that are expected to have so many rows, of which the sample has a binomial number.
        found = generator.binomial(sampled, most / n, size=100_000) * n / sampled <= rows
        assert found.mean() < share


def test_each_kind_of_rows_has_a_limit():
    # Four rows of the first kind in each cell, and one of the second in every other.
    owners = np.repeat(np.arange(8), 4)[:, None]
    kinds = np.where(np.arange(32) % 8 == 3, 1, 0)
    assert group_cells(owners, 8, 32, [100.0, 2.0], kinds).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert group_cells(owners, 8, 32, [8.0, 100.0], kinds).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert group_cells(owners, 8, 64, [16.0, 2.0], kinds).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_more_cells_are_joined_where_they_cost_little():
    sample = np.array([[cell, cell ^ 1, cell ^ 2] for cell in range(4) for _ in range(10)])
    owners, theirs = np.array([[0, 1, 2]]), np.array([[[2, 0, 3], [1, 0, 2]]])
    shape = {"cells": 4, "n": 40, "recall": 0.5}
    # All cells in one group cost nothing; in two groups a third cell would cost every row a copy.
    for limit, overlap, copies in ((40.0, 1, 1.0), (20.0, 2, 1.0)):
        found = choose_groups(sample, owners, theirs, (1, 2, 3), limit=limit, **shape)
        assert (found.overlap, found.copies) == (overlap, copies)
    # The neighbour's own second cell brings it into the group, at a few copies.
    rows = np.concatenate([np.repeat([[0, 1], [1, 0], [3, 2], [2, 3]], 50, axis=0), [[2, 0]] * 4])
    near = np.array([[[2, 0], [1, 0]]])
    found = choose_groups(rows, owners[:, :2], near, (1, 2), limit=110.0, **shape | {"n": 204})
    assert (found.overlap, found.recall) == (2, 1.0)
    assert 1.0 < found.copies <= 1.05


def test_the_fewest_cells_that_bring_neighbours_together_are_chosen():
    # A second cell lies in another group, so that every row is searched twice.
    sample = np.array([[cell, (cell + 2) % 6] for cell in range(6) for _ in range(10)])
    owners, theirs = np.array([[1, 3], [2, 4]]), np.array([[[2, 1]], [[3, 2]]])
    shape = {"cells": 6, "n": 600, "limit": 200.0}
    few = choose_groups(sample, owners, theirs, (1, 2), **shape, recall=0.5)
    assert (few.overlap, few.recall, few.group_of.tolist()) == (1, 0.5, [0, 0, 1, 1, 2, 2])
    more = choose_groups(sample, owners, theirs, (1, 2), **shape, recall=0.9)
    assert (more.overlap, more.recall, more.group_of.tolist()) == (2, 1.0, [0, 1, 2, 3, 4, 5])
    assert (few.copies, more.copies) == (1.0, 2.0)
    none = choose_groups(sample, owners, theirs[::-1], (1,), **shape, recall=0.9)
    assert (none.overlap, none.recall) == (1, 0.5)


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


def test_common_groups_are_counted_once_each() -> None:
    rng = np.random.default_rng(0)
    owners, theirs = rng.integers(5, size=(30, 4)), rng.integers(5, size=(30, 3, 4))
    expected = [
        [len(set(own.tolist()) & set(each.tolist())) for each in near]
        for own, near in zip(owners, theirs, strict=True)
    ]
    np.testing.assert_array_equal(count_common_groups(owners, theirs), expected)


def test_a_group_may_miss_more_where_others_find_the_same() -> None:
    once, often = np.array([[1, 1], [0, 1]]), np.array([[3, 2], [0, 1]])
    assert missed_in_group(once, 0.01) == pytest.approx(0.01)
    found = missed_in_group(often, 0.01)
    assert found > 0.015
    searches = 1 + FURTHER * np.array([2, 1, 0])
    assert (found**searches).mean() == pytest.approx(0.01)
    assert missed_in_group(np.zeros((1, 2), dtype=int), 0.01) == 0.01
