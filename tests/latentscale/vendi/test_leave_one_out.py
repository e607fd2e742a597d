"""Errors by leaving out single rows: against dense algebra, and against fresh samples."""

import math

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats

from latentscale.sampling.moving_median import JumpingMedian
from latentscale.tiles.distances import as_points
from latentscale.vendi import leave_one_out
from latentscale.vendi.leave_one_out import leave_one_out_errors
from latentscale.vendi.scores import kernel_spectrum, vendi_score
from tests.oracles import kernel_matrix
from tests.oracles import vendi_score as dense_score
from tests.support.coverage import assert_covers

ORDERS = [0.1, 0.5, 1.0, 2.0, 3.5, math.inf]


def scores(rows, kernel, bandwidth, weights, orders=ORDERS):
    matrix = kernel_matrix(rows, kernel, bandwidth)
    return np.array([dense_score(matrix, weights / weights.sum(), order) for order in orders])


def errors(vectors, kernel, bandwidth, weights=None, *, seed=0, orders=ORDERS, **how):
    points = as_points(vectors, "euclidean")
    spectrum = kernel_spectrum(points, kernel, bandwidth, weights)
    whole = {order: vendi_score(spectrum, order).value for order in orders}
    generator = np.random.default_rng(seed)
    found = leave_one_out_errors(points, kernel, bandwidth, whole, generator, weights, **how)
    return np.array([found.get(order, math.nan) for order in orders])


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
    counted = np.flatnonzero(weights)
    without = [
        scores(rows[kept], kernel, 1.7, weights[kept])
        for kept in (counted[counted != row] for row in counted)
    ]
    expected = np.sqrt(len(counted) - 1) * np.std(without, axis=0, ddof=1)
    few = scipy.stats.t.ppf(0.975, len(counted) - 1) / 1.959964
    found = errors(rows, kernel, 1.7, weights if weighted else None, rows=70)
    np.testing.assert_allclose(found, few * expected, rtol=1e-6)


def median_distance(rows, weights):
    """Return the median distance of pairs drawn by the product of the rows' weights."""
    first, second = np.triu_indices(len(rows), 1)
    distances, masses = scipy.spatial.distance.pdist(rows), weights[first] * weights[second]
    order = np.argsort(distances)
    return distances[order[np.searchsorted(np.cumsum(masses[order]), 0.5 * masses.sum())]]


@pytest.mark.parametrize("kernel", ["rbf", pytest.param("laplacian", marks=pytest.mark.full)])
def test_a_median_bandwidth_moves_as_that_of_the_rows_without_each(kernel: str) -> None:
    rng = np.random.default_rng(11)
    rows, weights = rng.normal(size=(120, 24)), rng.uniform(0.5, 2.0, 120)
    rows[5] += 4.0
    weights[7:27] = 0.0
    bandwidth = median_distance(rows, weights)
    without = []
    for row in np.flatnonzero(weights):
        kept, left = np.delete(rows, row, axis=0), np.delete(weights, row)
        without.append(scores(kept, kernel, median_distance(kept, left), left))
    expected = np.sqrt(99) * np.std(without, axis=0, ddof=1)
    pairs = 120 * 119 // 2
    found, fixed, fewer = (
        errors(rows, kernel, bandwidth, weights, rows=120, median_pairs=count)
        for count in (pairs, None, pairs // 50)
    )
    np.testing.assert_allclose(found, expected, rtol=0.15)
    assert (np.abs(fixed / expected - 1.0) > 0.2).sum() >= 4
    assert (fewer > found).all()


@pytest.mark.parametrize("pairs", [None, 4000])
def test_rows_without_weight_change_nothing(pairs: int | None) -> None:
    """However many they are, and however far away."""
    rng = np.random.default_rng(13)
    rows, weights = rng.normal(size=(200, 6)), rng.uniform(0.5, 2.0, 200)
    alone = errors(rows, "rbf", 3.0, weights, median_pairs=pairs)
    far = np.concatenate([rng.normal(size=(900, 6)) + 20.0, rows, rng.normal(size=(900, 6)) - 20.0])
    padded = np.concatenate([np.zeros(900), weights, np.zeros(900)])
    np.testing.assert_allclose(errors(far, "rbf", 3.0, padded, median_pairs=pairs), alone, 1e-6)


def test_errors_of_large_orders_near_that_of_order_infinity() -> None:
    rows = np.random.default_rng(2).normal(size=(300, 5))
    bandwidth = median_distance(rows, np.ones(300))
    orders = (1e3, 1e4, 1e6, math.inf)
    for pairs in (None, 1000):
        found = errors(rows, "rbf", bandwidth, orders=orders, median_pairs=pairs)
        assert np.abs(found / found[3] - 1.0)[0] < 1e-2
        assert np.abs(found / found[3] - 1.0)[1:3].max() < 1e-3


def test_the_variance_of_drawn_pairs_is_that_of_medians() -> None:
    rng = np.random.default_rng(12)
    rows = rng.normal(size=(200, 6))
    distances = scipy.spatial.distance.pdist(rows)
    similarities = np.exp(-0.5 * (scipy.spatial.distance.squareform(distances)) ** 2)
    every = np.arange(200), np.ones(200)
    bandwidth = np.median(distances)
    moves = leave_one_out._moves(
        "rbf", similarities ** (1 / bandwidth**2), np.ones((200, 1)), every, 500
    )
    medians = [np.median(rng.choice(distances, 500, replace=False)) for _ in range(2000)]
    assert moves.of_pairs == pytest.approx(np.var(np.log(medians)), rel=0.15)


def test_low_orders_in_few_dimensions_are_unknown() -> None:
    rows = np.random.default_rng(13).normal(size=(300, 3))
    bandwidth = float(np.median(scipy.spatial.distance.pdist(rows)))
    assert np.isfinite(errors(rows, "rbf", bandwidth)).all()
    found = errors(rows, "rbf", bandwidth, median_pairs=44_850)
    assert np.isnan(found).tolist() == [order < 0.5 for order in ORDERS]


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


def test_heavy_rows_are_always_left_out() -> None:
    rows = np.random.default_rng(13).normal(size=(300, 8))
    weights = np.ones(300)
    weights[[7, 100]] = 50.0, 20.0
    expected = errors(rows, "rbf", 2.0, weights, rows=300)
    # Each heavy row holds most of the variance, and is no more than itself.
    for seed in range(8):
        found = errors(rows, "rbf", 2.0, weights, seed=seed)
        np.testing.assert_allclose(found, expected, rtol=0.1)


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_rows_are_left_out_one_by_one(share: float, weighted: bool) -> None:
    """One of two equal rows takes no distinct row with it; half of the null space is known."""
    n, orders = 120, [0.1, 0.5, 1.0, 5.0]
    rng = np.random.default_rng(15)
    rows, copies = rng.normal(size=(n, 8)), int(share * n)
    rows[:copies] = rows[n - copies :]
    weights = rng.uniform(0.5, 2.0, size=n) if weighted else np.ones(n)
    group = np.arange(n)
    group[:copies] += n - copies
    matrix = kernel_matrix(rows, "rbf", 3.0)
    without = []
    for row in range(n):
        left = np.bincount(group, np.where(np.arange(n) == row, 0.0, weights), minlength=n)
        kept = left > 0
        masses = left[kept] / left.sum()
        among = matrix[np.ix_(kept, kept)]
        without.append([dense_score(among, masses, order) for order in orders])
    expected = np.sqrt(n - 1) * np.std(without, axis=0, ddof=1)
    found = errors(rows, "rbf", 3.0, weights, rows=n, orders=orders)
    np.testing.assert_allclose(found, expected, rtol=0.06)


def test_high_orders_of_a_heavy_row_are_no_rounding() -> None:
    orders = [8.0, 20.0, 50.0, 100.0]
    for n, weight in ((60, 60.0), (110, 19.0), (110, 1000.0)):
        rows, weights = np.random.default_rng(14).normal(size=(n, 6)), np.ones(n)
        weights[4] = weight
        without = [
            scores(np.delete(rows, row, axis=0), "rbf", 1.0, np.delete(weights, row), orders)
            for row in range(n)
        ]
        expected = np.sqrt(n - 1) * np.std(without, axis=0, ddof=1)
        found = errors(rows, "rbf", 1.0, weights, rows=n, orders=orders)
        np.testing.assert_allclose(found, expected, rtol=0.1)


def test_what_has_no_error_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(ValueError, match="without one of the rows, nothing has a weight"):
        errors(rows, "rbf", 1.0, np.eye(40)[7])
    groups = rows + 20.0 * (np.arange(40) % 2)[:, None]
    with pytest.raises(JumpingMedian, match="jumps between samples"):
        errors(
            groups, "rbf", float(np.median(scipy.spatial.distance.pdist(groups))), median_pairs=780
        )
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
    ("n", "samples"), [(250, 40), pytest.param(1000, 200, marks=pytest.mark.full)]
)
@pytest.mark.parametrize(
    "draw",
    [
        clusters,
        pytest.param(lambda rng, n: rng.normal(size=(n, 16)), id="normal", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("derived", [False, True])
def test_errors_cover_fresh_samples(draw, n: int, samples: int, derived: bool) -> None:
    values, found = [], []
    for seed in range(samples):
        rng = np.random.default_rng([8, seed])
        rows, bandwidth, pairs = draw(rng, n), 4.0, None
        if derived:
            distances = scipy.spatial.distance.pdist(rows)
            bandwidth, pairs = float(np.median(distances)), len(distances)
        spectrum = kernel_spectrum(as_points(rows, "euclidean"), "rbf", bandwidth)
        values.append([vendi_score(spectrum, order).value for order in ORDERS])
        found.append(errors(rows, "rbf", bandwidth, seed=seed, median_pairs=pairs))
    assert_covers(np.array(values), np.array(found))


def test_errors_cover_fresh_samples_with_a_few_copies() -> None:
    """Low orders nearly count different rows, so a handful of copies has most of their variance."""
    values, found = [], []
    for seed in range(40):
        rng = np.random.default_rng([9, seed])
        rows = rng.normal(size=(250, 24))
        copied = np.flatnonzero(rng.random(250) < 0.03)
        rows[copied] = rows[(copied + 1) % 250]
        spectrum = kernel_spectrum(as_points(rows, "euclidean"), "laplacian", 1.5)
        values.append(vendi_score(spectrum, 0.1).value)
        found.append(errors(rows, "laplacian", 1.5, seed=seed, orders=[0.1])[0])
    away = np.abs(np.array(values) - np.mean(values)) / np.array(found)
    assert np.mean(away < 1.96) >= 0.9
    assert np.median(found) > 0.8 * np.std(values, ddof=1)
