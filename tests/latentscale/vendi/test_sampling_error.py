"""Sampling errors of Vendi scores: against brute force, and against fresh samples of a source."""

import math

import numpy as np
import pytest

from latentscale.sampling.jackknife import draw_groups
from latentscale.tiles.distances import as_points
from latentscale.vendi.sampling_error import cosine_sampling_errors, kernel_sampling_errors
from latentscale.vendi.scores import kernel_spectrum, moment_spectrum, vendi_score
from latentscale.vendi.second_moments import second_moment
from tests.oracles import kernel_matrix
from tests.oracles import vendi_score as dense_score
from tests.support.coverage import assert_covers

ORDERS = [0.5, 1.0, 2.0, math.inf]
FEW = 2.776445 / 1.959964  # Student's quantile of 4 degrees of freedom over the normal one


def brute_force(rows, kernel, bandwidth, weights, seed):
    """Score the rows without each of five equal groups, by dense algebra."""
    n = len(rows)
    group = draw_groups(n, np.random.default_rng(seed), 5)
    scores = []
    for left_out in range(5):
        kept = group != left_out
        matrix = kernel_matrix(rows[kept], kernel, bandwidth)
        masses = weights[kept] / weights[kept].sum()
        scores.append([dense_score(matrix, masses, order) for order in ORDERS])
    left = n - n // 5
    return FEW * np.sqrt(left / (n - n % 5) * ((scores - np.mean(scores, axis=0)) ** 2).sum(axis=0))


@pytest.mark.parametrize("d", [4, 60])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_cosine_kernel_against_brute_force(d: int, weighted: bool) -> None:
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(41, d)) + 1.0
    weights = rng.uniform(0.2, 2.0, 41) if weighted else np.ones(41)
    found = cosine_sampling_errors(
        rows, ORDERS, np.random.default_rng(7), weights if weighted else None, groups=5
    )
    expected = brute_force(rows, "cosine", None, weights, 7)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_other_kernels_against_brute_force(kernel: str) -> None:
    rows = np.random.default_rng(3).normal(size=(37, 5))
    found = kernel_sampling_errors(
        as_points(rows, "euclidean"), kernel, 1.7, ORDERS, np.random.default_rng(8), groups=5
    )
    np.testing.assert_allclose(found, brute_force(rows, kernel, 1.7, np.ones(37), 8), rtol=1e-6)


def test_rows_that_are_all_equal_have_no_sampling_error() -> None:
    errors = cosine_sampling_errors(np.ones((60, 3)), ORDERS, np.random.default_rng(0))
    np.testing.assert_allclose(errors, 0.0, atol=1e-12)


@pytest.mark.parametrize("heaviest", [1e3, 1e9, 1e16])
def test_a_row_with_nearly_all_weight_against_brute_force(heaviest: float) -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 12))
    weights = np.ones(60)
    weights[17] = heaviest
    found = cosine_sampling_errors(rows, ORDERS, np.random.default_rng(7), weights, groups=5)
    expected = brute_force(rows, "cosine", None, weights, 7)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_rows_without_a_weight_count_for_nothing() -> None:
    rng = np.random.default_rng(6)
    rows, weights = rng.normal(size=(300, 150)), rng.uniform(1, 2, 300)
    weights[rng.permutation(300)[:187]] = 0.0
    found = cosine_sampling_errors(rows, ORDERS, np.random.default_rng(1), weights)
    counted = weights > 0
    alone = cosine_sampling_errors(
        rows[counted], ORDERS, np.random.default_rng(1), weights[counted]
    )
    np.testing.assert_allclose(found, alone, rtol=1e-6)


def test_fewer_rows_with_a_weight_than_groups_need_are_refused() -> None:
    weights = np.zeros(60)
    weights[17] = 1.0
    for rows in (np.eye(60)[:, :9] + 1.0, np.eye(60)):
        with pytest.raises(ValueError, match="at least 40 rows with a weight, got 1"):
            cosine_sampling_errors(rows, ORDERS, np.random.default_rng(0), weights)


@pytest.mark.parametrize("n", [100, 110, 139])
def test_errors_where_rows_do_not_fill_the_groups(n: int) -> None:
    rng = np.random.default_rng(n)
    scales = np.arange(1, 257) ** -0.5
    orders = [0.1, 1.0]

    def draw() -> np.ndarray:
        return rng.normal(size=(n, 256)) * scales

    def score(rows: np.ndarray) -> list[float]:
        matrix = kernel_matrix(rows, "cosine", None)
        return [dense_score(matrix, np.full(n, 1 / n), order) for order in orders]

    errors = [cosine_sampling_errors(draw(), orders, rng) for _ in range(8)]
    spread = np.std([score(draw()) for _ in range(60)], axis=0)
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(errors), axis=0)), spread, rtol=0.4)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="20 groups need at least 40 rows, got 39"):
        cosine_sampling_errors(np.ones((39, 3)), ORDERS, np.random.default_rng(0))


def clusters(rng, n, d):
    """Draw rows of ten unequal clusters."""
    centres = np.random.default_rng(99).normal(size=(10, d))
    shares = np.arange(10, 0, -1) / 55
    return centres[rng.choice(10, n, p=shares)] + 0.5 * rng.normal(size=(n, d))


DEFAULT_ORDERS = [0.1, 0.5, 1.0, 2.0, math.inf]


def cosine_scores(rows):
    spectrum = moment_spectrum(second_moment(rows), len(rows))
    return [vendi_score(spectrum, order).value for order in DEFAULT_ORDERS]


def rbf_scores(rows):
    spectrum = kernel_spectrum(as_points(rows, "euclidean"), "rbf", 4.0)
    return [vendi_score(spectrum, order).value for order in DEFAULT_ORDERS]


def cosine_errors(rows, rng):
    return cosine_sampling_errors(rows, DEFAULT_ORDERS, rng)


def rbf_errors(rows, rng):
    points = as_points(rows, "euclidean")
    return kernel_sampling_errors(points, "rbf", 4.0, DEFAULT_ORDERS, rng)


@pytest.mark.parametrize(
    ("score", "errors", "n", "d", "samples"),
    [
        (cosine_scores, cosine_errors, 300, 16, 60),
        (rbf_scores, rbf_errors, 120, 16, 60),
        pytest.param(cosine_scores, cosine_errors, 1000, 64, 200, marks=pytest.mark.full),
        pytest.param(cosine_scores, cosine_errors, 10_000, 64, 100, marks=pytest.mark.full),
        pytest.param(rbf_scores, rbf_errors, 1000, 64, 200, marks=pytest.mark.full),
    ],
)
def test_errors_cover_fresh_samples(score, errors, n, d, samples) -> None:
    values, found = [], []
    for seed in range(samples):
        rng = np.random.default_rng([5, seed])
        rows = clusters(rng, n, d)
        values.append(score(rows))
        found.append(errors(rows, rng))
    assert_covers(np.array(values), np.array(found))
