"""Errors by leaving out single rows: against dense algebra, and against fresh samples."""

import math

import numpy as np
import pytest

from latentscale.tiles.distances import as_points
from latentscale.vendi import leave_one_out
from latentscale.vendi.leave_one_out import leave_one_out_errors
from latentscale.vendi.scores import kernel_spectrum, vendi_score
from tests.oracles import kernel_matrix
from tests.oracles import vendi_score as dense_score
from tests.support.coverage import assert_covers

ORDERS = [0.1, 0.5, 1.0, 2.0, 3.5, math.inf]


def scores(rows, kernel, bandwidth, weights):
    matrix = kernel_matrix(rows, kernel, bandwidth)
    return np.array([dense_score(matrix, weights / weights.sum(), order) for order in ORDERS])


def errors(vectors, kernel, bandwidth, weights=None, *, seed=0, **how):
    points = as_points(vectors, "euclidean")
    spectrum = kernel_spectrum(points, kernel, bandwidth, weights)
    whole = {order: vendi_score(spectrum, order).value for order in ORDERS}
    generator = np.random.default_rng(seed)
    found = leave_one_out_errors(points, kernel, bandwidth, whole, generator, weights, **how)
    return np.array([found[order] for order in ORDERS])


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("weighted", [False, True])
def test_all_rows_against_dense_algebra(
    kernel: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leave_one_out, "MAX_STEPS", 70)
    monkeypatch.setattr(leave_one_out, "STEADY", 0.0)
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(70, 6)) + 3.0
    weights = rng.uniform(0.2, 2.0, 70) if weighted else np.ones(70)
    # A row without weight, and one like no other.
    weights[3] *= not weighted
    rows[5] += 100.0
    without = [
        scores(rows[kept], kernel, 1.7, weights[kept])
        for kept in (np.arange(70) != row for row in range(70))
    ]
    expected = np.sqrt(69) * np.std(without, axis=0, ddof=1)
    few = 1.994945 / 1.959964  # Student's quantile of 69 degrees of freedom over the normal one
    found = errors(rows, kernel, 1.7, weights if weighted else None, rows=70)
    np.testing.assert_allclose(found, few * expected, rtol=1e-6)


def test_few_steps_are_enough() -> None:
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(400, 12))
    for kernel in ("rbf", "laplacian"):
        few = errors(rows, kernel, 4.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leave_one_out, "MIN_STEPS", 100)
            patch.setattr(leave_one_out, "MAX_STEPS", 100)
            many = errors(rows, kernel, 4.0)
        np.testing.assert_allclose(few, many, rtol=0.05)


def test_equal_rows_have_no_error() -> None:
    np.testing.assert_allclose(errors(np.ones((100, 3)), "rbf", 1.0), 0.0, atol=1e-9)


def test_a_row_with_nearly_all_weight_leaves_an_error() -> None:
    rows = np.random.default_rng(1).normal(size=(120, 3))
    rows[0] += 1e3
    weights = np.ones(120)
    weights[0] = 1e9
    found = errors(rows, "rbf", 1.0, weights, rows=120)
    assert np.isfinite(found).all()
    assert (found > 0.0).all()


def test_what_has_no_error_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(ValueError, match="without one of the rows, nothing has a weight"):
        errors(rows, "rbf", 1.0, np.eye(40)[7])
    monkeypatch.setattr(leave_one_out, "KEPT_BYTES", 1000)
    with pytest.raises(ValueError, match="the kernel matrix of 40 rows doesn't fit the memory"):
        errors(rows, "rbf", 1.0)


def clusters(rng, n):
    """Draw rows of ten unequal clusters, and one row in fifty from far away."""
    centres = np.random.default_rng(99).normal(size=(10, 16))
    shares = np.arange(10, 0, -1) / 55
    rows = centres[rng.choice(10, n, p=shares)] + 0.5 * rng.normal(size=(n, 16))
    far = rng.random(n) < 0.02
    rows[far] += 4.0 * rng.normal(size=(int(far.sum()), 16))
    return rows


@pytest.mark.parametrize(
    ("n", "samples"), [(300, 80), pytest.param(1000, 200, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("draw", [clusters, lambda rng, n: rng.normal(size=(n, 16))])
def test_errors_cover_fresh_samples(draw, n: int, samples: int) -> None:
    values, found = [], []
    for seed in range(samples):
        rng = np.random.default_rng([8, seed])
        rows = draw(rng, n)
        spectrum = kernel_spectrum(as_points(rows, "euclidean"), "rbf", 4.0)
        values.append([vendi_score(spectrum, order).value for order in ORDERS])
        found.append(errors(rows, "rbf", 4.0, seed=seed))
    assert_covers(np.array(values), np.array(found))
