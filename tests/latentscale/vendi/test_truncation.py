"""Truncated Vendi scores: against dense algebra, their limits, their error, and growth with n."""

import math

import numpy as np
import pytest

from latentscale.tiles.distances import as_points
from latentscale.vendi.sampling_error import cosine_sampling_errors, kernel_sampling_errors
from latentscale.vendi.scores import Spectrum, kernel_spectrum, moment_spectrum, vendi_score
from latentscale.vendi.second_moments import second_moment
from latentscale.vendi.truncation import truncated_spectrum
from tests import oracles

ORDERS = [0.1, 0.5, 1.0, 2.0, math.inf]


def dense(matrix, kept, order):
    """Score a kernel matrix as the paper defines it, by plain dense algebra."""
    eigenvalues = np.sort(np.linalg.eigvalsh(matrix / len(matrix)))[::-1]
    largest = eigenvalues[:kept] + (1.0 - eigenvalues[:kept].sum()) / kept
    return oracles.hill_number(largest[largest > 1e-14], order)


@pytest.mark.parametrize("seed", range(50))
def test_brackets_contain_the_dense_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, kept = int(rng.integers(20, 90)), int(rng.integers(3, 30)), int(rng.integers(1, 20))
    rows = rng.normal(size=(n, d)) * rng.uniform(0.1, 2.0, d) + rng.normal(size=d)
    for kernel, bandwidth in (("cosine", None), ("rbf", 1.3), ("laplacian", 2.1)):
        points = as_points(rows, "cosine" if kernel == "cosine" else "euclidean")
        spectrum = truncated_spectrum(kernel_spectrum(points, kernel, bandwidth), kept)
        matrix = oracles.kernel_matrix(rows, kernel, bandwidth)
        for order in ORDERS:
            score, expected = vendi_score(spectrum, order), dense(matrix, kept, order)
            assert score.value == pytest.approx(expected, rel=1e-9)
            assert score.lower * (1 - 1e-9) <= expected <= score.upper * (1 + 1e-9)
            assert score.upper <= max(kept * (1 + 1e-9), score.value)


def test_by_hand() -> None:
    spectrum = Spectrum(np.array([0.5, 0.3, 0.15, 0.05]), 0.0, 4, 0.0)
    found = truncated_spectrum(spectrum, 2)
    np.testing.assert_allclose(found.eigenvalues, [0.6, 0.4])
    assert vendi_score(found, 2.0).value == pytest.approx(1 / (0.36 + 0.16))
    assert vendi_score(found, math.inf).value == pytest.approx(1 / 0.6)
    assert vendi_score(truncated_spectrum(spectrum, 1), 1.0).value == 1.0


def test_keeping_all_eigenvalues_changes_nothing() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 6))
    spectrum = moment_spectrum(second_moment(rows), 40)
    assert truncated_spectrum(spectrum, 6) is spectrum
    assert truncated_spectrum(spectrum, 1000) is spectrum
    with pytest.raises(ValueError, match="at least 1 eigenvalue, got 0"):
        truncated_spectrum(spectrum, 0)


def test_an_error_of_the_spectrum_grows_no_further() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        size, kept = int(rng.integers(3, 30)), int(rng.integers(1, 30))
        one = np.sort(rng.dirichlet(np.full(size, 0.3)))[::-1]
        other = np.sort(np.abs(one + rng.normal(scale=1e-3, size=size)))[::-1]
        other /= other.sum()
        both = [truncated_spectrum(Spectrum(each, 0.0, size, 0.0), kept) for each in (one, other)]
        moved = np.linalg.norm(both[0].eigenvalues - both[1].eigenvalues)
        assert moved <= np.linalg.norm(one - other) + 1e-15


def test_the_score_settles_where_the_whole_one_grows() -> None:
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(1600, 20))
    whole, truncated = [], []
    for n in (400, 1600):
        spectrum = kernel_spectrum(as_points(rows[:n], "euclidean"), "rbf", 2.0)
        whole.append(vendi_score(spectrum, 1.0).value)
        truncated.append(vendi_score(truncated_spectrum(spectrum, 20), 1.0).value)
    assert whole[1] > 2.5 * whole[0]
    assert abs(truncated[1] / truncated[0] - 1) < 0.05


@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
def test_sampling_errors_cover_the_mean_over_samples(kernel: str) -> None:
    centres = np.random.default_rng(1).normal(size=(12, 16)) * 2.0
    tries, n, kept = 60, 300 if kernel == "cosine" else 120, 8

    def sample(seed):
        rng = np.random.default_rng([7, seed])
        return centres[rng.integers(0, 12, n)] + rng.normal(size=(n, 16))

    def spectrum_of(rows):
        if kernel == "cosine":
            return moment_spectrum(second_moment(rows), n)
        return kernel_spectrum(as_points(rows, "euclidean"), kernel, 4.0)

    values, errors = [], []
    for seed in range(tries):
        rows, generator = sample(seed), np.random.default_rng(seed)
        values.append(
            [vendi_score(truncated_spectrum(spectrum_of(rows), kept), q).value for q in ORDERS]
        )
        found = (
            cosine_sampling_errors(rows, ORDERS, generator, kept=kept)
            if kernel == "cosine"
            else kernel_sampling_errors(
                as_points(rows, "euclidean"), kernel, 4.0, ORDERS, generator, kept=kept
            )
        )
        assert found.shape == (2, len(ORDERS))
        errors.append(found[1])
    covered = (np.abs(values - np.mean(values, axis=0)) <= 1.96 * np.array(errors)).mean(axis=0)
    # Of 60 tries, 53 to 60 cover with 95 % each, but for one in a hundred.
    assert covered.min() >= 53 / 60
