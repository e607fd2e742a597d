"""Products with similarity matrices against the matrices themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale.tiles import exponential_products as module
from latentscale.tiles.device import Precision
from latentscale.tiles.distances import METRICS, Metric, Points, as_points
from latentscale.tiles.exponential_products import (
    LOST_SIMILARITY,
    DistanceTiles,
    block_sums,
    exponential_block_products,
    exponential_products,
    gaussian_block_sums,
    gaussian_error,
    product_error,
    scale_grid,
    similarity_error,
    tile_sums,
)
from tests import oracles
from tests.latentscale.tiles.test_device import KINDS, draw_points
from tests.oracles import pairwise_distances


@contextmanager
def cut_into(height: int, width: int) -> Iterator[None]:
    """Cut tiles of another shape than usual."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PANEL_ROWS", height)
        patch.setattr(module, "PANEL_COLUMNS", width)
        yield


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
    products = exponential_products(points, scales, blocks)
    np.testing.assert_allclose(products, expected, rtol=0, atol=1e-11)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    d=st.integers(1, 6),
    height=st.integers(1, 5),
    width=st.integers(1, 50),
    scales=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6, unique=True),
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(
    n: int, d: int, height: int, width: int, scales: list[float], metric: Metric, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    blocks = rng.normal(size=(n, len(scales)))
    with cut_into(4 * height, width):
        products = exponential_products(as_points(rows, metric), scales, blocks)
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
    for height, width in ((64, 129), (132, 150), (304, 303)):
        with cut_into(height, width):
            products = exponential_products(points, scales, blocks)
        np.testing.assert_allclose(products, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("scales", [[2.0], [0.5, 1.0, 1.5], [0.1, 0.37]])
def test_unit_vectors_show_symmetry_and_a_unit_diagonal(
    metric: Metric, precision: Precision, scales: list[float]
) -> None:
    rows = np.random.default_rng(5).normal(size=(30, 4)) * 1e3
    rows[11] = rows[3] * (2.0 if metric == "cosine" else 1.0)
    points = as_points(rows, metric)
    with cut_into(8, 7):
        columns = [
            exponential_products(
                points, scales, np.outer(unit, np.ones(len(scales))), precision=precision
            )
            for unit in np.eye(30)
        ]
    for matrix in np.moveaxis(np.array(columns), 2, 0):
        assert (np.diag(matrix) == 1.0).all()
        assert matrix[3, 11] == 1.0
        assert (matrix == matrix.T).all()


@pytest.mark.parametrize("precision", ["single", "double"])
def test_the_same_input_gives_the_same_bits(precision: Precision) -> None:
    rng = np.random.default_rng(6)
    points = as_points(rng.normal(size=(700, 8)), "euclidean")
    blocks = rng.normal(size=(700, 19))
    scales = np.linspace(0, 1, 20)[1:]
    first = exponential_products(points, scales, blocks, precision=precision)
    again = exponential_products(points, scales, blocks, precision=precision)
    assert (first == again).all()


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


# --- two blocks -----------------------------------------------------------------------------


def similarities(a: Points, b: Points, scales: np.ndarray, precision: Precision) -> np.ndarray:
    """The implicit matrices, a column at a time."""
    columns = []
    for unit in np.eye(len(b)):
        sums, _ = exponential_block_products(
            a,
            b,
            scales,
            np.zeros((len(a), len(scales))),
            np.outer(unit, np.ones(len(scales))),
            precision=precision,
        )
        columns.append(sums)
    return np.array(columns).transpose(2, 1, 0)


SCALE_LISTS = {
    "grid": np.linspace(0.0, 3.0, 21)[1:],
    "part of a grid": np.linspace(0.0, 3.0, 21)[[2, 3, 7, 19]],
    "off the origin": np.linspace(1.03, 1.4, 5),
    "uneven": np.array([0.1, 0.33, 1.7]),
    "vast": np.array([1e-3, 1.0, 1e3, 1e6]),
}

hard = {
    "kind": st.sampled_from(KINDS),
    "d": st.one_of(st.integers(1, 12), st.sampled_from([31, 32, 129, 400])),
    "metric": st.sampled_from(METRICS),
    "precision": st.sampled_from(["single", "double"]),
    "seed": st.integers(0, 2**32 - 1),
}


@settings(max_examples=60, deadline=None)
@given(m=st.integers(1, 7), n=st.integers(1, 7), name=st.sampled_from(sorted(SCALE_LISTS)), **hard)
def test_similarities_are_within_their_bound(
    kind: str,
    m: int,
    n: int,
    d: int,
    name: str,
    metric: Metric,
    precision: Precision,
    seed: int,
) -> None:
    points = draw_points(kind, m + n, d, metric, seed)
    a, b = points.take(slice(0, m)), points.take(slice(m, None))
    # In units of the farthest distance the scales are neither all trivial nor all lost.
    distances = [
        [oracles.distance_in_extended_precision(x, y, metric) for y in b.rows] for x in a.rows
    ]
    scales = SCALE_LISTS[name] * 4.0 / (float(np.max(distances)) or 1.0)
    found = similarities(a, b, scales, precision)
    bounds = np.maximum(
        similarity_error(a, scales, precision), similarity_error(b, scales, precision)
    )
    for matrix, scale, bound in zip(found, scales, bounds, strict=True):
        truth = np.exp(-np.longdouble(scale) * np.array(distances))
        assert (np.abs(matrix - truth) <= bound * truth + LOST_SIMILARITY).all()


def test_the_bound_is_useful() -> None:
    # Unit vectors, d = 384, similarities down to exp(-30): what the solver works with.
    rng = np.random.default_rng(8)
    points = as_points(rng.normal(size=(40, 384)), "cosine")
    points = Points(points.rows, points.squared_norms, "euclidean", points.rows.mean(axis=0))
    scales = np.linspace(0.0, 20.0, 21)[1:]
    assert similarity_error(points, scales, "single").max() < 4e-3
    assert similarity_error(points, scales, "double").max() < 1e-8
    found = similarities(points, points.take(slice(40)), scales, "single")[:, ::3]
    truth = [
        oracles.similarities_by_loops(points.rows[::3], points.rows, "euclidean", scale)
        for scale in scales
    ]
    assert np.abs(found / np.array(truth) - 1).max() < 2e-5


@pytest.mark.parametrize("precision", ["single", "double"])
def test_at_an_infinite_factor_rows_are_like_themselves_alone(precision: Precision) -> None:
    points = as_points(np.random.default_rng(1).normal(size=(20, 3)), "euclidean")
    sums, _ = exponential_block_products(
        points,
        points,
        np.array([1e-300, 1e300]),
        np.ones((20, 2)),
        np.ones((20, 2)),
        precision=precision,
    )
    np.testing.assert_array_equal(sums, [[20.0, 1.0]] * 20)


def test_one_scale_is_on_no_grid() -> None:
    rows = np.append(np.random.default_rng(2).random(299), 1e9)[:, None]
    points = as_points(rows, "euclidean")
    assert similarity_error(points, [1200.0], "double").max() < 1e-6
    assert similarity_error(points, [600.0, 1200.0, 1800.0], "double").max() < 1e-6


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("metric", METRICS)
def test_blocks_add_up_to_the_whole(metric: Metric, precision: Precision) -> None:
    rng = np.random.default_rng(9)
    points = draw_points("near-duplicates", 61, 7, metric, 9)
    scales = np.array([0.9, 0.3, 0.6])
    vectors = rng.normal(size=(61, 3)) * [1e-30, 1.0, 1e20]
    vectors[5] *= 1e-12
    cuts = [slice(0, 20), slice(20, 45), slice(45, 61)]
    sums, sizes = np.zeros((61, 3)), np.zeros((61, 3))
    blocks = [points.take(cut) for cut in cuts]
    with cut_into(8, 13):
        for i, first in enumerate(cuts):
            for j, second in list(enumerate(cuts))[i:]:
                to_first, to_second = exponential_block_products(
                    blocks[i],
                    blocks[j],
                    scales,
                    vectors[first],
                    vectors[second],
                    precision=precision,
                )
                sums[first] += to_first
                sums[second] += to_second
                assert i != j or (to_second == 0).all()
    bounds = product_error(points, scales, precision)
    for k, scale in enumerate(scales):
        truth = oracles.similarities_by_loops(points.rows, points.rows, metric, scale)
        sizes = truth @ np.abs(vectors[:, k])
        assert (np.abs(sums[:, k] - truth @ vectors[:, k]) <= bounds[k] * sizes).all()
    assert bounds.max() < (1e-3 if precision == "single" else 1e-8)


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize(
    "exponents",
    [[0.5], list(0.01 * 2.0 ** np.arange(14)), list(0.3 * 2.0 ** np.arange(0, 6, 0.5)), [3.0, 0.7]],
)
def test_gaussian_sums(precision: Precision, exponents: list[float]) -> None:
    points = draw_points("near-duplicates", 40, 3, "euclidean", 10)
    a, b = points.take(slice(0, 23)), points.take(slice(23, None))
    bounds = gaussian_error(points, exponents, precision)
    assert bounds.max() < (0.03 if precision == "single" else 1e-7)
    own, nothing = gaussian_block_sums(a, a, exponents, precision=precision)
    to_a, to_b = gaussian_block_sums(a, b, exponents, precision=precision)
    assert (nothing == 0).all()
    for k, exponent in enumerate(exponents):
        for found, first, second, skip in (
            (own, a, a, True),
            (to_a, a, b, False),
            (to_b, b, a, False),
        ):
            truth = oracles.gaussian_sums_by_loops(first.rows, second.rows, exponent, skip_own=skip)
            error = np.abs(found[:, k] - truth)
            assert (error <= bounds[k] * truth + len(second) * LOST_SIMILARITY).all()


@pytest.mark.parametrize("precision", ["single", "double"])
def test_one_visit_gives_what_two_would(precision: Precision) -> None:
    rng = np.random.default_rng(11)
    points = draw_points("spread", 700, 5, "euclidean", 11)
    a, b = points.take(slice(0, 300)), points.take(slice(300, None))
    scales, exponents = np.linspace(0, 2, 6)[1:], 2.0 ** np.arange(-3, 5)
    vectors = rng.normal(size=(700, 5))
    for first, second in ((a, b), (a, a)):
        v, w = vectors[: len(first)], vectors[: len(second)]
        both = block_sums(
            first,
            second,
            scales=scales,
            vectors_a=v,
            vectors_b=w,
            exponents=exponents,
            precision=precision,
        )
        products = exponential_block_products(first, second, scales, v, w, precision=precision)
        sums = gaussian_block_sums(first, second, exponents, precision=precision)
        assert (both.products_a == products[0]).all()
        assert (both.products_b == products[1]).all()
        assert (both.gaussians_a == sums[0]).all()
        assert (both.gaussians_b == sums[1]).all()


def test_blocks_that_cannot_meet_are_refused() -> None:
    points = as_points(np.eye(3), "euclidean")
    vectors = np.ones((3, 1))
    with pytest.raises(ValueError, match="differ in their origin"):
        exponential_block_products(
            points, points.about(np.ones(3)), [1.0], vectors, vectors, precision="single"
        )
    with pytest.raises(ValueError, match="Gaussian sums are of Euclidean distances"):
        gaussian_block_sums(*[as_points(np.eye(3), "cosine")] * 2, [1.0])
    with pytest.raises(ValueError, match="exponents must be a list of finite numbers above 0"):
        gaussian_block_sums(points, points, [0.0])


@pytest.mark.parametrize("precision", ["single", "double"])
def test_kept_tiles_give_the_same_bits(precision: Precision) -> None:
    rng = np.random.default_rng(7)
    points = as_points(rng.normal(size=(100, 3)), "manhattan")
    blocks = rng.normal(size=(100, 3))
    with cut_into(32, 50):
        expected = exponential_products(points, [1.0, 2.0, 3.0], blocks, precision=precision)
        for kept_bytes in (0, 3 * 8 * 30**2, 2**20):
            tiles = DistanceTiles(points, precision=precision, kept_bytes=kept_bytes)
            for _ in range(2):
                products = tile_sums(tiles, [1.0, 2.0, 3.0], blocks).products_a
                assert (products == expected).all()
            assert sum(tile.nbytes for tile in tiles.kept) <= kept_bytes
    assert len(tiles.kept) == 8
    with pytest.raises(ValueError, match=r"one row a point and one column a scale, \(100, 1\)"):
        tile_sums(tiles, [1.0], np.ones((9, 1)))


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
    with pytest.raises(ValueError, match="unknown precision 'half'"):
        exponential_products(points, [1.0], np.ones((3, 1)), precision="half")


@pytest.mark.parametrize("precision", ["single", "double"])
def test_equal_rows_about_themselves_have_a_bound(precision: Precision) -> None:
    rows = np.ones((5, 3))
    points = as_points(rows, "euclidean").about(rows[0])
    [error] = product_error(points, [2.0], precision)
    assert 0.0 <= error < 1e-5
    products = exponential_products(points, [2.0], np.ones((5, 1)), precision=precision)
    np.testing.assert_array_equal(products, 5.0)
