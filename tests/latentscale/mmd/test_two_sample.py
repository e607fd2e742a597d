"""MMD² by groups, against the definition and against permutations of rows."""

import numpy as np
import pytest
from scipy import stats

from latentscale.linalg.fourier_features import draw_frequencies, fourier_features
from latentscale.mmd.group_sums import GroupSums, sum_feature_pairs, sum_rbf_pairs
from latentscale.mmd.two_sample import (
    Discrepancy,
    two_sample_discrepancy,
)
from latentscale.tiles.distances import as_points


def rbf(x, y, bandwidth):
    squares = ((x[:, None, :] - y[None]) ** 2).sum(axis=2)
    return np.exp(-squares / (2 * bandwidth**2))


def unbiased(x, y, kernel):
    """MMD² by its definition: Gretton et al. 2012, equation 3."""
    m, n = len(x), len(y)
    within = sum(
        (matrix.sum() - np.trace(matrix)) / (len(matrix) * (len(matrix) - 1))
        for matrix in (kernel(x, x), kernel(y, y))
    )
    return within - 2 * kernel(x, y).sum() / (m * n)


def by_groups(x, y, size, bandwidth):
    rows = np.concatenate([x, y])
    sizes = np.full(len(rows) // size, size)
    points = as_points(rows, "euclidean").about(rows.mean(axis=0))
    pairs = sum_rbf_pairs(points, sizes, bandwidth)
    return GroupSums(pairs, sizes.astype(float), sizes, len(x) // size)


@pytest.mark.parametrize(("m", "n", "size"), [(30, 50, 1), (60, 40, 5), (2300, 1200, 100)])
def test_all_pairs_give_the_unbiased_estimate(m, n, size):
    generator = np.random.default_rng(m)
    x, y = generator.normal(size=(m, 3)) + 100, generator.normal(0.3, size=(n, 3)) + 100
    found = two_sample_discrepancy(by_groups(x, y, size, 1.5), generator, divisions=20)
    expected = unbiased(x, y, lambda a, b: rbf(a, b, 1.5))
    assert found.value == pytest.approx(expected, abs=1e-12)


def test_groups_of_any_sizes():
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(60, 2))
    sizes = np.array([1, 9, 20, 3, 27])
    points = as_points(rows, "euclidean").about(np.zeros(2))
    pairs = sum_rbf_pairs(points, sizes, 0.7)
    matrix, group = rbf(rows, rows, 0.7), np.repeat(np.arange(5), sizes)
    expected = [[matrix[np.ix_(group == g, group == h)].sum() for h in range(5)] for g in range(5)]
    np.testing.assert_allclose(pairs, expected, rtol=1e-12)
    sums = GroupSums(pairs, sizes.astype(float), sizes, 3)
    found = two_sample_discrepancy(sums, generator, divisions=10)
    x, y = rows[:30], rows[30:]
    assert found.value == pytest.approx(unbiased(x, y, lambda a, b: rbf(a, b, 0.7)), abs=1e-12)


def test_the_linear_kernel_has_the_distance_of_the_means():
    generator = np.random.default_rng(2)
    x, y = generator.normal(size=(40, 3)), generator.normal(0.5, size=(24, 3))
    features = np.concatenate([x, y]).reshape(16, 4, 3)
    own = (features**2).sum(axis=(1, 2))
    pairs = sum_feature_pairs(features.sum(axis=1))
    found = two_sample_discrepancy(
        GroupSums(pairs, own, np.full(16, 4), 10), generator, divisions=10
    )
    noise = x.var(axis=0, ddof=1).sum() / 40 + y.var(axis=0, ddof=1).sum() / 24
    expected = ((x.mean(axis=0) - y.mean(axis=0)) ** 2).sum() - noise
    assert found.value == pytest.approx(expected, rel=1e-10)


def test_divisions_and_leaving_out_by_brute_force():
    """Every discrepancy is that of some division; the error that of a jackknife by hand."""
    generator = np.random.default_rng(3)
    x, y = generator.normal(size=(12, 2)), generator.normal(1.0, size=(8, 2))
    rows = np.concatenate([x, y]).reshape(10, 2, 2)
    found = two_sample_discrepancy(by_groups(x, y, 2, 1.0), generator, divisions=50)

    def of(first, second):
        sides = (rows[list(side)].reshape(-1, 2) for side in (first, second))
        return unbiased(*sides, lambda a, b: rbf(a, b, 1.0))

    from itertools import combinations

    everything = [
        of(side, sorted(set(range(10)) - set(side))) for side in combinations(range(10), 6)
    ]
    for value in found.divided:
        assert min(abs(value - other) for other in everything) < 1e-12
    left = [
        [of(sorted(set(range(6)) - {g}), range(6, 10)) for g in range(6)],
        [of(range(6), sorted(set(range(6, 10)) - {g})) for g in range(6, 10)],
    ]
    variance = sum(
        (len(part) - 1) / len(part) * ((np.array(part) - np.mean(part)) ** 2).sum() for part in left
    )
    assert found.sampling_error == pytest.approx(np.sqrt(variance), rel=1e-9)


def test_p_counts_the_actual_division():
    found = Discrepancy(2.0, 0.1, np.array([0.0, 1.0, 2.0, 3.0]))
    expected = found.expected
    assert Discrepancy(9.0, 0.1, found.divided).expected.p == 1 / 5
    assert (expected.centre, expected.lower, expected.p) == (1.5, 0.0, 3 / 5)
    assert expected.smallest_found(0.05) > expected.smallest_found(0.5)


@pytest.mark.parametrize("size", [1, 4])
def test_p_is_uniform_if_the_source_is_the_same(size):
    generator = np.random.default_rng(4)
    found = []
    for _ in range(200):
        centres = generator.normal(size=(5, 3))
        rows = centres[generator.integers(5, size=100)] + 0.3 * generator.normal(size=(100, 3))
        sums = by_groups(rows[:60], rows[60:], size, 1.0)
        found.append(two_sample_discrepancy(sums, generator, divisions=199).expected.p)
    assert stats.kstest(found, "uniform").pvalue > 0.01
    assert np.mean(np.array(found) <= 0.05) < 0.1


def test_a_shift_is_found():
    generator = np.random.default_rng(5)
    x, y = generator.normal(size=(200, 4)), generator.normal(0.4, size=(200, 4))
    found = two_sample_discrepancy(by_groups(x, y, 4, 2.0), generator, divisions=999)
    assert found.expected.p == 0.001


def test_fourier_features_approximate_it():
    generator = np.random.default_rng(6)
    x, y = generator.normal(size=(400, 4)), generator.normal(0.5, size=(400, 4))
    frequencies = draw_frequencies("rbf", 2.0, 4, 4096, generator)
    features = fourier_features(np.concatenate([x, y]), np.zeros(4), frequencies)
    sums = features.reshape(80, 10, -1).sum(axis=1, dtype=np.float64) / np.sqrt(4096)
    pairs = sum_feature_pairs(sums)
    found = two_sample_discrepancy(
        GroupSums(pairs, np.full(80, 10.0), np.full(80, 10), 40), generator, divisions=99
    )
    assert found.value == pytest.approx(unbiased(x, y, lambda a, b: rbf(a, b, 2.0)), rel=0.1)
    assert found.expected.p == 0.01


def test_one_group_is_refused():
    with pytest.raises(ValueError, match="1 and 2 groups; both need at least two"):
        two_sample_discrepancy(
            GroupSums(np.eye(3), np.ones(3), np.ones(3, int), 1), np.random.default_rng(0)
        )


def test_a_side_needs_rows_without_any_of_its_groups() -> None:
    sums = GroupSums(np.ones((4, 4)), np.ones(4), np.ones(4, dtype=np.int64), 2)
    with pytest.raises(ValueError, match="each side needs at least two rows"):
        two_sample_discrepancy(sums, np.random.default_rng(0))
