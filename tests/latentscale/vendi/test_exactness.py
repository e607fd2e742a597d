"""Brackets of Vendi scores that have no sampling hold the score of the stored rows."""

import math

import numpy as np
import pytest

from latentscale.linalg.fourier_features import draw_frequencies, fourier_features
from latentscale.tiles.distances import as_points
from latentscale.vendi.fourier import FeatureSpectra, _with_unseen, fourier_score
from latentscale.vendi.lanczos import kernel_scores
from latentscale.vendi.scores import (
    kernel_spectrum,
    moment_spectrum,
    nystrom_spectrum,
    vendi_bracket,
    vendi_score,
)
from latentscale.vendi.second_moments import second_moment
from tests import oracles

ORDERS = (0.5, 1.0, 2.0, 5.0, math.inf)
FULL = pytest.mark.full
SEEDS = [*range(3), *(pytest.param(seed, marks=FULL) for seed in range(3, 100))]


def with_one_far_row(near, far, order):
    """The score of rows and one row that is similar to none: one more eigenvalue, 1/n."""
    n = len(near) + 1
    shares = np.append(near * ((n - 1) / n), 1 / n)
    return oracles.hill_number(shares[shares > 1e-14], order)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_a_far_row_doesnt_absorb_the_others(seed, kernel):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(generator.integers(40, 120), 8)).astype(np.float32)
    place = int(generator.integers(len(rows)))
    rows[place] = 10.0 ** generator.uniform(6, 37) * generator.choice([-1, 1], 8)
    matrix = oracles.kernel_matrix(np.delete(rows, place, 0).astype(float), kernel, 2.0)
    near = np.linalg.eigvalsh(matrix / len(matrix))
    points = as_points(rows, "euclidean")
    dense = kernel_spectrum(points, kernel, 2.0)
    nystrom = nystrom_spectrum(points, kernel, 2.0, 30, generator)
    for order in ORDERS:
        truth = with_one_far_row(near, rows[place], order)
        found, bracket = vendi_score(dense, order), vendi_bracket(nystrom, order)
        assert found.lower * (1 - 1e-12) <= truth <= found.upper * (1 + 1e-12)
        assert found.upper - found.lower < 1e-4 * truth
        assert bracket.lower * (1 - 1e-12) <= truth <= bracket.upper * (1 + 1e-12)


def test_far_rows_near_each_other_are_told_apart():
    generator = np.random.default_rng(0)
    near = generator.normal(size=(50, 4))
    far = near + 1e8  # in double precision their differences are kept to 1e-8
    truth = 2 * oracles.vendi_score(oracles.kernel_matrix(near, "rbf", 1.0), np.full(50, 0.02), 1)
    points = as_points(np.concatenate([near, far]), "euclidean")
    found = vendi_score(kernel_spectrum(points, "rbf", 1.0), 1)
    assert found.value == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_eigenvalues_below_the_rounding_are_in_the_bracket(seed):
    # An RBF matrix of distinct rows is positive definite, so its rank is the number of rows,
    # whatever floating point can tell.
    generator = np.random.default_rng(seed)
    n = int(generator.integers(130, 200))
    rows = generator.normal(size=(n, 2))
    points, mixed = as_points(rows, "euclidean"), generator.permutation(n)
    dense = kernel_spectrum(points, "rbf", 1.7)
    permuted = kernel_spectrum(points.take(mixed), "rbf", 1.7)
    nystrom = nystrom_spectrum(points, "rbf", 1.7, 60, generator)
    random = kernel_scores(points, "rbf", 1.7, [0.0], generator)[0.0]
    for rank in (vendi_score(dense, 0), vendi_bracket(nystrom, 0), random):
        assert rank.lower <= n == pytest.approx(rank.upper, rel=1e-9)
    assert vendi_score(dense, 0).value < n
    for order in (0.0, 0.1, *ORDERS):
        one, other = vendi_score(dense, order), vendi_score(permuted, order)
        assert other.lower <= one.value <= other.upper


def test_a_second_moment_counts_no_more_eigenvalues_than_rows():
    rows = np.random.default_rng(1).normal(size=(40, 100))
    spectrum = moment_spectrum(second_moment(rows, precision="single"), 40)
    assert len(spectrum.eigenvalues) == 40
    rank = vendi_score(spectrum, 0)
    assert (rank.value, rank.upper) == (40, 40)


def test_random_features_count_no_more_eigenvalues_than_rows():
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(120, 6))
    frequencies = draw_frequencies("rbf", 1.0, 6, 512, generator)
    moment = second_moment(fourier_features(rows, np.zeros(6), frequencies), precision="single")
    truth = vendi_score(kernel_spectrum(as_points(rows, "euclidean"), "rbf", 1.0), 0.5)
    spectra = FeatureSpectra.of(moment, 120)
    found = fourier_score(spectra, 120, 0.5)
    assert found.lower <= truth.value <= found.upper
    assert fourier_score(spectra, 120, 0).value == pytest.approx(120)


def test_features_that_are_too_few_say_so():
    """Of a kernel that tells all rows apart they show their own number, not that of the rows."""
    generator = np.random.default_rng(6)
    rows = generator.normal(size=(3000, 16))
    frequencies = draw_frequencies("rbf", 0.02, 16, 32, generator)
    moment = second_moment(fourier_features(rows, np.zeros(16), frequencies), precision="single")
    for order in (0.1, 0.5, 1.0, 2.0, math.inf):
        found = fourier_score(FeatureSpectra.of(moment, 3000), 3000, order)
        assert found.lower < 3000 == found.upper


@pytest.mark.parametrize("far", [1e3, 1e4, 1e5])
def test_the_interval_allows_for_rare_frequencies(far):
    """Under a bandwidth of thousands of distances few frequencies make the score."""
    for seed in range(8):
        generator = np.random.default_rng(seed)
        rows = generator.normal(size=(200, 4))
        dense = kernel_spectrum(as_points(rows, "euclidean"), "laplacian", 2.7 * far)
        frequencies = draw_frequencies("laplacian", 2.7 * far, 4, 256, generator)
        features = fourier_features(rows, np.zeros(4), frequencies)
        spectra = FeatureSpectra.of(second_moment(features, precision="single"), 200)
        for order in (0.5, 1.0, 2.0, 5.0, math.inf):
            found, truth = fourier_score(spectra, 200, order), vendi_score(dense, order).value
            assert found.lower <= truth <= found.upper
            assert order < 1 or found.upper < 1.5 * truth


def test_the_allowance_for_rare_frequencies_falls_with_the_order():
    score, share, n = 1.2, 3 / 1024, 1200
    orders = [0.0, 0.3, 1 - 1e-5, 1.0, 1 + 1e-7, 1.001, 1.5, 2.0, 50.0, 2000.0, math.inf]
    found = [_with_unseen(score, order, share, n) for order in orders]
    assert np.all(np.diff(found) < 1e-4)
    assert found[0] == 1200
    # Two equal shares of n eigenvalues: 1 - m in one of them alone, m in all.
    spectrum = np.full(n, share / n)
    spectrum[0] += 1 - share
    for order in (0.3, 1.0, 1.001, 2.0, 50.0, math.inf):
        assert _with_unseen(1.0, order, share, n) >= oracles.hill_number(spectrum, order)
    assert _with_unseen(50.0, 2000.0, share, 10000) == pytest.approx(50.0, rel=0.01)


def test_intervals_of_random_features_cover_the_dense_scores():
    rows = np.random.default_rng(3).normal(size=(400, 64))
    dense = kernel_spectrum(as_points(rows, "euclidean"), "rbf", 11.0)
    orders, covered = (1.0, 2.0, math.inf), []
    for seed in range(30):
        frequencies = draw_frequencies("rbf", 11.0, 64, 64, np.random.default_rng(seed))
        features = fourier_features(rows, np.zeros(64), frequencies)
        spectra = FeatureSpectra.of(second_moment(features, precision="single"), 400)
        found = [fourier_score(spectra, 400, order) for order in orders]
        truth = [vendi_score(dense, order).value for order in orders]
        covered.append([e.lower <= t <= e.upper for e, t in zip(found, truth, strict=True)])
    assert np.mean(covered, axis=0).min() >= 0.9
