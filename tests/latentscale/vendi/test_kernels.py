import math

import numpy as np
import pytest

from latentscale.tiles.distances import as_points
from latentscale.vendi.kernels import METRIC_OF_KERNEL, kernel_tile
from tests import oracles

KERNELS = [("cosine", None), ("rbf", 0.7), ("laplacian", 2.5)]


@pytest.mark.parametrize(("kernel", "bandwidth"), KERNELS)
def test_a_tile_holds_the_similarity_of_every_pair(kernel, bandwidth):
    vectors = np.random.default_rng(1).normal(size=(13, 5))
    points = as_points(vectors, METRIC_OF_KERNEL[kernel])
    tile = kernel_tile(points.take(slice(0, 6)), points, kernel, bandwidth)
    expected = oracles.kernel_matrix(vectors, kernel, bandwidth)[:6]
    np.testing.assert_allclose(tile, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("kernel", "bandwidth"), KERNELS[1:])
def test_equal_rows_have_similarity_exactly_one(kernel, bandwidth):
    vectors = np.random.default_rng(2).normal(size=(4, 300)) + 1e3
    points = as_points(np.repeat(vectors, 2, axis=0), "euclidean")
    tile = kernel_tile(points, points, kernel, bandwidth)
    assert (tile[np.arange(8), np.arange(8) ^ 1] == 1.0).all()
    assert (np.diagonal(tile) == 1.0).all()


def test_known_similarities():
    points = as_points([[0.0, 0.0], [3.0, 4.0]], "euclidean")
    assert kernel_tile(points, points, "rbf", 5.0)[0, 1] == pytest.approx(math.exp(-0.5))
    assert kernel_tile(points, points, "laplacian", 5.0)[0, 1] == pytest.approx(math.exp(-1.0))
    rows = as_points([[1.0, 0.0], [1.0, 1.0], [-2.0, 0.0]], "cosine")
    np.testing.assert_allclose(
        kernel_tile(rows, rows, "cosine", None)[0], [1.0, math.sqrt(0.5), -1.0], rtol=1e-15
    )


@pytest.mark.parametrize(
    ("metric", "kernel", "bandwidth", "message"),
    [
        ("euclidean", "sigmoid", 1.0, "unknown kernel 'sigmoid'; choose one of cosine"),
        ("cosine", "rbf", 1.0, "rbf kernel needs points with metric 'euclidean', got 'cosine'"),
        ("manhattan", "laplacian", 1.0, "needs points with metric 'euclidean'"),
        ("euclidean", "cosine", None, "needs points with metric 'cosine'"),
        ("cosine", "cosine", 1.0, "no bandwidth"),
        ("euclidean", "rbf", None, "needs a positive bandwidth, got None"),
        ("euclidean", "rbf", 0.0, "needs a positive bandwidth, got 0.0"),
        ("euclidean", "laplacian", -1.0, "needs a positive bandwidth, got -1.0"),
        ("euclidean", "laplacian", math.nan, "needs a positive bandwidth, got nan"),
        ("euclidean", "rbf", math.inf, "needs a positive bandwidth, got inf"),
    ],
)
def test_unsuitable_kernels_are_refused(metric, kernel, bandwidth, message):
    points = as_points([[1.0, 2.0]], metric)
    with pytest.raises(ValueError, match=message):
        kernel_tile(points, points, kernel, bandwidth)


@pytest.mark.parametrize(("kernel", "bandwidth"), KERNELS)
def test_blocks_that_differ_are_refused(kernel, bandwidth):
    metric = METRIC_OF_KERNEL[kernel]
    a, b = as_points([[1.0, 2.0]], metric), as_points([[1.0, 2.0, 3.0]], metric)
    with pytest.raises(ValueError, match="blocks differ"):
        kernel_tile(a, b, kernel, bandwidth)
