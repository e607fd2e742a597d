"""The baselines equal their naive definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from latentscale.baselines.frechet import frechet_distance
from latentscale.baselines.kernel_distance import kernel_distance
from latentscale.baselines.moments import (
    geometric_mean_deviation,
    internal_diversity,
    mean_similarity,
)
from latentscale.linalg.moments import merge_row_moments, row_moments
from tests import oracles


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(1, 9))
def test_moments_equal_numpys_however_the_rows_are_cut(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) + rng.normal(scale=1e4, size=d)
    cuts = np.sort(rng.integers(0, n, size=3))
    parts = [row_moments(part) for part in np.split(rows, cuts) if len(part)]
    merged = merge_row_moments(parts)
    assert merged.count == n
    np.testing.assert_allclose(merged.mean, rows.mean(axis=0), rtol=1e-12)
    expected = np.cov(rows, rowvar=False).reshape(d, d)
    np.testing.assert_allclose(merged.covariance(), expected, rtol=1e-6, atol=1e-9 * n)


def test_mean_similarity_and_gm_stds_by_hand() -> None:
    rows = np.array([[2.0, 0.0], [0.0, 5.0], [1.0, 1.0]])
    moments = row_moments(rows)
    root = math.sqrt(0.5)
    assert mean_similarity(moments).value == pytest.approx(4 * root / 6, rel=1e-14)
    assert internal_diversity(moments).value == pytest.approx(1 - (3 + 4 * root) / 9, rel=1e-14)
    deviations = [math.sqrt(2 / 3), math.sqrt(14 / 3)]
    assert geometric_mean_deviation(moments).value == pytest.approx(
        math.sqrt(deviations[0] * deviations[1]), rel=1e-14
    )


def test_gm_stds_is_zero_with_a_constant_coordinate() -> None:
    assert geometric_mean_deviation(row_moments([[1.0, 2.0], [1.0, 3.0]])).upper == 0.0


def test_similarity_refuses_zero_rows() -> None:
    with pytest.raises(ValueError, match="2 rows are zero"):
        mean_similarity(row_moments([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]))


@pytest.mark.parametrize("n", [8, 40, 400])
def test_frechet_equals_the_definition(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, 12)), rng.normal(size=(n, 12)) @ rng.normal(size=(12, 12)) + 0.5
    expected = oracles.frechet(x, y, sqrtm)
    estimate = frechet_distance(row_moments(x), row_moments(y))
    assert estimate.value == pytest.approx(expected, rel=1e-5)
    assert estimate.lower <= estimate.value <= estimate.upper <= estimate.value * (1 + 1e-4)


def test_frechet_of_known_laws() -> None:
    rows = np.array([[1.0], [-1.0]])  # variance 2
    shifted = 3.0 * rows + 4.0  # variance 18
    expected = 16 + 2 + 18 - 2 * 6
    assert frechet_distance(row_moments(rows), row_moments(shifted)).value == pytest.approx(
        expected
    )


def test_frechet_of_a_set_with_itself_is_zero_within_its_bracket() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 50))
    estimate = frechet_distance(row_moments(rows), row_moments(rows))
    assert estimate.lower == 0.0
    assert estimate.upper < 1e-3


@pytest.mark.parametrize(("n", "m"), [(2, 2), (37, 53), (1500, 1100)])
def test_kernel_distance_equals_the_definition(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, 6)), rng.normal(size=(m, 6)) + 0.3
    found = kernel_distance(x, y)
    assert found.value == pytest.approx(oracles.kernel_distance(x, y), rel=1e-9)
    if n == 37:
        blocks = [oracles.kernel_distance(x[g::18], y[g::18]) for g in range(18)]
        assert found.groups == 18
        assert found.block_value == pytest.approx(float(np.mean(blocks)), rel=1e-9)


FIELDS = ("value", "sampling_error")


def test_kernel_distance_is_unbiased_and_its_error_is_right() -> None:
    values, errors = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = kernel_distance(rng.normal(size=(200, 4)), rng.normal(size=(200, 4)) + 0.4)
        values.append(found.value)
        errors.append(found.sampling_error)
    truth = oracles.gaussian_kernel_distance(4, 0.4)
    assert abs(np.mean(values) - truth) < 3 * np.std(values) / math.sqrt(200)
    covered = np.abs(np.array(values) - truth) <= 1.96 * np.array(errors)
    assert covered.mean() >= 0.9
    assert np.mean(errors) == pytest.approx(float(np.std(values)), rel=0.15)


@pytest.mark.parametrize(("n", "m"), [(5, 5), (8, 8), (6, 300), (20, 20)])
def test_the_error_of_few_rows_covers(n: int, m: int) -> None:
    """Rows are divided into two to ten groups, for which the normal quantile is too small."""
    found = [
        kernel_distance(rng.normal(size=(n, 8)) + 1.0, rng.normal(size=(m, 8)))
        for rng in (np.random.default_rng([77, n, m, seed]) for seed in range(300))
    ]
    values, errors = (np.array([getattr(each, name) for each in found]) for name in FIELDS)
    assert np.mean(np.abs(values - values.mean()) <= 1.96 * errors) >= 0.91


def test_the_distance_of_an_array_to_itself_is_that_to_its_copy() -> None:
    rows = np.random.default_rng(5).normal(size=(50, 4)) + 1.0
    assert kernel_distance(rows, rows) == kernel_distance(rows, rows.copy())
    expected = oracles.kernel_distance(rows, rows.copy())
    assert kernel_distance(rows, rows).value == pytest.approx(expected, rel=1e-9)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="at least two rows"):
        kernel_distance(np.ones((1, 2)), np.ones((4, 2)))
    with pytest.raises(ValueError, match="equal dimensions, got 2 and 3"):
        kernel_distance(np.ones((3, 2)), np.ones((4, 3)))
    with pytest.raises(ValueError, match="equal dimensions, got 2 and 3"):
        frechet_distance(row_moments(np.eye(2)), row_moments(np.eye(3)))
    with pytest.raises(ValueError, match="rank 2"):
        row_moments(np.ones(3))
    with pytest.raises(ValueError, match="finite"):
        row_moments([[np.nan, 1.0]])
