"""Two levels of cells, against all distances."""

import numpy as np
import pytest

from latentscale.neighbours.cell_layout import order_centres
from latentscale.neighbours.ivf import find_centres
from latentscale.neighbours.two_level_cells import (
    TwoLevelCells,
    assign_two_level_cells,
    count_coarse_cells,
    place_two_level_cells,
)
from latentscale.tiles.distances import as_points

METRICS = ["euclidean", "cosine", "manhattan"]


def clustered(n: int, d: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centres = 5 * generator.normal(size=(12, d))
    return centres[generator.integers(12, size=n)] + generator.normal(size=(n, d))


def all_distances(rows: np.ndarray, centres: np.ndarray, metric: str) -> np.ndarray:
    if metric == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1)[:, None]
    apart = np.abs(rows[:, None] - centres)
    return apart.sum(axis=2) if metric == "manhattan" else np.sqrt(np.square(apart).sum(axis=2))


def placed(rows: np.ndarray, metric: str, cells: int, coarse: int) -> TwoLevelCells:
    return place_two_level_cells(rows, metric, cells, coarse, np.random.default_rng(1))


def test_few_cells_are_in_one_coarse_cell() -> None:
    assert [count_coarse_cells(cells) for cells in (1, 512, 513, 65536)] == [1, 1, 23, 256]
    rows = clustered(500, 4, 0)
    found = placed(rows, "euclidean", 20, 1)
    generator = np.random.default_rng(1)
    centres = find_centres(rows, 20, generator)
    np.testing.assert_array_equal(found.centres, centres[order_centres(centres, generator)])
    assert found.starts.tolist() == [0, 20]


@pytest.mark.parametrize("metric", METRICS)
def test_coarse_cells_have_cells_in_proportion_and_hold_them(metric: str) -> None:
    rows = clustered(4000, 6, 2)
    found = placed(rows, metric, 200, 12)
    assert len(found.coarse) == 12
    assert found.starts[0] == 0
    assert 200 - 12 < found.starts[-1] == len(found.centres) <= 200
    owner = all_distances(rows, found.coarse, "cosine" if metric == "cosine" else "euclidean")
    shares = np.bincount(owner.argmin(axis=1), minlength=12) / 4000
    np.testing.assert_allclose(np.diff(found.starts), 200 * shares, atol=1)
    # A mean of rows of a convex cell is in it.
    inside = np.square(found.centres[:, None] - found.coarse).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(inside, np.repeat(np.arange(12), np.diff(found.starts)))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("searched", [3, 12])
def test_cells_are_the_nearest_of_the_nearest_coarse_cells(metric: str, searched: int) -> None:
    rows = clustered(300, 6, 3)
    cells = placed(rows, metric, 100, 12)
    near = np.argsort(all_distances(rows, cells.coarse, metric), axis=1)[:, :searched]
    coarse_of = np.repeat(np.arange(12), np.diff(cells.starts))
    distances = all_distances(rows, cells.centres, metric)
    looked_at = (coarse_of[None, :, None] == near[:, None, :]).any(axis=2)
    expected = np.argsort(np.where(looked_at, distances, np.inf), axis=1)[:, :4]
    found = assign_two_level_cells(
        as_points(rows, metric), cells, 4, searched=searched, most_rows=70
    )
    np.testing.assert_array_equal(found, expected)
    if searched == 12:
        np.testing.assert_array_equal(found, np.argsort(distances, axis=1)[:, :4])


def test_rows_of_small_coarse_cells_look_everywhere() -> None:
    rows = clustered(300, 6, 4)
    cells = placed(rows, "euclidean", 24, 12)
    assert np.diff(cells.starts).min() < 5
    found = assign_two_level_cells(as_points(rows, "euclidean"), cells, 5, searched=1)
    assert (np.diff(np.sort(found, axis=1), axis=1) > 0).all()
    distances = all_distances(rows, cells.centres, "euclidean")
    home = all_distances(rows, cells.coarse, "euclidean").argmin(axis=1)
    small = np.diff(cells.starts)[home] < 5
    np.testing.assert_array_equal(found[small], np.argsort(distances[small], axis=1)[:, :5])
    everywhere = assign_two_level_cells(as_points(rows[:2], "euclidean"), cells, 99, searched=1)
    assert everywhere.shape == (2, len(cells.centres))


def test_equal_rows_get_equal_cells_wherever_they_are() -> None:
    generator = np.random.default_rng(5)
    # Small integers: equal distances from many centres.
    rows = generator.integers(0, 3, size=(400, 4)).astype(float)
    centres = np.array(np.meshgrid(*[[0.5, 1.5]] * 4)).reshape(4, -1).T
    cells = TwoLevelCells(centres, centres[::4] + 0.1, np.arange(0, 17, 4))
    limits = {"searched": 2, "most_rows": 70}
    found = assign_two_level_cells(as_points(rows, "euclidean"), cells, 3, **limits)
    order = generator.permutation(400)
    again = assign_two_level_cells(as_points(rows[order], "euclidean"), cells, 3, **limits)
    np.testing.assert_array_equal(again, found[order])
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(found, found[first[group.ravel()]])


def test_more_cells_than_distinct_rows() -> None:
    rows = np.repeat([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]], 5, axis=0)
    cells = placed(rows, "euclidean", 12, 3)
    assert sorted(map(tuple, cells.centres)) == [(0.0, 0.0), (0.0, 4.0), (4.0, 0.0)]
    assert assign_two_level_cells(as_points(rows, "euclidean"), cells, 2).shape == (15, 2)
