"""Products with similarity matrices against the matrices themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.distances import METRICS, Metric, as_points
from latentscale.exponentials import DistanceTiles, exponential_products, scale_grid
from tests.oracles import pairwise_distances


def dense_products(
    rows: np.ndarray, metric: Metric, scales: np.ndarray, blocks: np.ndarray
) -> np.ndarray:
    distances = pairwise_distances(rows, metric)
    return np.column_stack(
        [np.exp(-scale * distances) @ blocks[:, k] for k, scale in enumerate(scales)]
    )


SCALES = {
    "even": np.linspace(0.0, 2.0, 20)[1:],
    "even from zero": np.linspace(0.0, 2.0, 7),
    "even off the origin": np.linspace(1.03, 1.4, 5),
    "even with gaps": np.linspace(0.0, 2.0, 20)[[2, 3, 7, 9]],
    "gaps of three and two": np.array([0.4, 0.7, 0.9]),
    "unordered": np.array([0.9, 0.3, 0.6]),
    "uneven": np.array([0.1, 0.33, 1.7]),
    "wide": np.array([1e-6, 1.0, 1e6]),
    "one": np.array([0.7]),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", SCALES)
def test_agrees_with_the_dense_matrix(metric: Metric, name: str) -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(61, 5))
    rows[7] = rows[40] + 1e-9
    scales = SCALES[name]
    blocks = rng.normal(size=(61, len(scales)))
    expected = dense_products(rows, metric, scales, blocks)
    points = as_points(rows, metric)
    for block_rows in (1, 16, 61, 1024):
        products = exponential_products(points, scales, blocks, block_rows=block_rows)
        np.testing.assert_allclose(products, expected, rtol=0, atol=1e-11)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    d=st.integers(1, 6),
    block_rows=st.integers(1, 50),
    scales=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6, unique=True),
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(
    n: int, d: int, block_rows: int, scales: list[float], metric: Metric, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    blocks = rng.normal(size=(n, len(scales)))
    products = exponential_products(as_points(rows, metric), scales, blocks, block_rows=block_rows)
    expected = dense_products(rows, metric, np.array(scales), blocks)
    np.testing.assert_allclose(products, expected, rtol=0, atol=1e-10)


def test_strips_and_remainders_are_complete() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(303, 3))
    points = as_points(rows, "euclidean")
    scales = np.linspace(0.2, 1.0, 5)
    blocks = rng.normal(size=(303, 5))
    squared = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    expected = np.column_stack(
        [np.exp(-t * np.sqrt(squared)) @ blocks[:, k] for k, t in enumerate(scales)]
    )
    for block_rows in (129, 150, 303):
        products = exponential_products(points, scales, blocks, block_rows=block_rows)
        np.testing.assert_allclose(products, expected, rtol=0, atol=1e-11)


def test_unit_vectors_show_symmetry_and_a_unit_diagonal() -> None:
    points = as_points(np.random.default_rng(5).normal(size=(30, 4)) * 1e3, "cosine")
    matrix = np.column_stack(
        [exponential_products(points, [2.0], unit[:, None], block_rows=7) for unit in np.eye(30)]
    )
    assert (np.diag(matrix) == 1.0).all()
    assert (matrix == matrix.T).all()


def test_the_same_input_gives_the_same_bits() -> None:
    rng = np.random.default_rng(6)
    points = as_points(rng.normal(size=(200, 8)), "euclidean")
    blocks = rng.normal(size=(200, 19))
    scales = np.linspace(0, 1, 20)[1:]
    first = exponential_products(points, scales, blocks, block_rows=64)
    assert (first == exponential_products(points, scales, blocks, block_rows=64)).all()


def test_grids_are_recognised() -> None:
    grid = scale_grid(np.linspace(0.0, 9.19, 20)[1:])
    assert grid is not None
    assert grid.start == grid.step == pytest.approx(9.19 / 19)
    assert grid.powers.tolist() == [0] + [1] * 18
    grid = scale_grid(np.linspace(0.0, 9.19, 20)[[4, 6, 9]])
    assert grid is not None
    assert grid.start + grid.step * grid.powers.cumsum() == pytest.approx(
        np.linspace(0.0, 9.19, 20)[[4, 6, 9]], rel=1e-14
    )
    assert scale_grid(np.array([0.1, 0.2, 0.30001])) is None
    assert scale_grid(np.array([0.1, 0.2, 90.0])) is None


def test_kept_tiles_give_the_same_bits() -> None:
    rng = np.random.default_rng(7)
    points = as_points(rng.normal(size=(100, 3)), "manhattan")
    blocks = rng.normal(size=(100, 3))
    expected = exponential_products(points, [1.0, 2.0, 3.0], blocks, block_rows=30)
    for kept_bytes in (0, 3 * 8 * 30**2, 2**20):
        tiles = DistanceTiles(points, block_rows=30, kept_bytes=kept_bytes)
        for _ in range(2):
            products = exponential_products(points, [1.0, 2.0, 3.0], blocks, tiles=tiles)
            assert (products == expected).all()
        assert sum(tile.nbytes for tile in tiles.kept) <= kept_bytes
    assert len(tiles.kept) == 10
    with pytest.raises(ValueError, match="other points"):
        exponential_products(points.take(slice(0, 9)), [1.0], np.ones((9, 1)), tiles=tiles)


@pytest.mark.parametrize(
    ("scales", "shape", "message"),
    [
        ([-1.0], (3, 1), "at least 0"),
        ([np.nan], (3, 1), "finite"),
        ([1.0, 1.0], (3, 2), "distinct"),
        ([1.0], (2, 1), "one row a point"),
        ([1.0, 2.0], (3, 1), "one column a scale"),
    ],
)
def test_bad_input_is_refused(scales: list[float], shape: tuple[int, int], message: str) -> None:
    points = as_points(np.eye(3), "euclidean")
    with pytest.raises(ValueError, match=message):
        exponential_products(points, scales, np.ones(shape))
    with pytest.raises(ValueError, match="block_rows"):
        exponential_products(points, [1.0], np.ones((3, 1)), block_rows=0)
