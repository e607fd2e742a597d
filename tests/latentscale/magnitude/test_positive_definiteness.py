"""Bounds of the smallest eigenvalue against dense eigenvalues."""

import numpy as np
import pytest
from scipy.special import erf

from latentscale.magnitude.positive_definiteness import (
    EXPONENTS,
    Separations,
    box_magnitude,
    is_numerically_singular,
    separation_exponents,
    smallest_eigenvalues,
    sphere_magnitude,
)
from tests.oracles import pairwise_distances, precise_cosine_magnitudes

SCALES = np.geomspace(1e-2, 1e2, 9)


def separations_of(distances: np.ndarray, mean_square: float | None = None) -> Separations:
    exponents = separation_exponents(mean_square or float((distances**2).mean()))
    sums = [np.exp(-s * distances**2).sum(axis=1).max() - 1.0 for s in exponents]
    return Separations(tuple(exponents.tolist()), tuple(sums))


@pytest.mark.parametrize("dimension", [1, 2, 5, 30])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_below_the_smallest_eigenvalue(dimension: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(120, dimension)) * 10.0 ** rng.uniform(-2, 0, size=(120, 1))
    distances = pairwise_distances(rows, "euclidean")
    bounds = smallest_eigenvalues(SCALES, separations_of(distances))
    assert (bounds >= 0).all()
    for scale, bound in zip(SCALES, bounds, strict=True):
        assert bound <= np.linalg.eigvalsh(np.exp(-scale * distances))[0] * (1 + 1e-9)


def test_bounds_are_sharp_for_separated_points() -> None:
    rows = np.random.default_rng(4).normal(size=(200, 20))
    distances = pairwise_distances(rows, "euclidean")
    bounds = smallest_eigenvalues(SCALES, separations_of(distances))
    truth = np.array([np.linalg.eigvalsh(np.exp(-scale * distances))[0] for scale in SCALES])
    assert (bounds <= truth).all()
    assert (truth < 2.0 * bounds).all()


def test_two_points_in_closed_form() -> None:
    """The bound's integral is 1 - e^{-td} where every exponent is known: λ_min itself."""
    exponents = 4.0 ** np.arange(-30.0, 30.0, 0.01)
    separations = Separations(tuple(exponents.tolist()), tuple(np.exp(-exponents).tolist()))
    bounds = smallest_eigenvalues(SCALES, separations)
    np.testing.assert_allclose(bounds, 1.0 - np.exp(-SCALES), rtol=1e-3)
    assert (bounds <= 1.0 - np.exp(-SCALES)).all()


def test_beyond_the_last_exponent_its_sum_counts() -> None:
    separations = Separations((1.0, 4.0), (3.0, 0.5))
    lowest = 0.5 * erf(SCALES / 4.0)
    assert (smallest_eigenvalues(SCALES, separations) >= lowest * (1 - 1e-9)).all()


def test_nothing_known_is_no_bound() -> None:
    np.testing.assert_array_equal(smallest_eigenvalues(SCALES, Separations((), ())), 0.0)
    crowded = Separations((1.0, 4.0), (30.0, 20.0))
    np.testing.assert_array_equal(smallest_eigenvalues(SCALES, crowded), 0.0)


def test_exponents_belong_to_the_spread() -> None:
    exponents = separation_exponents(4.0)
    assert len(exponents) == EXPONENTS
    assert exponents[0] == 0.25
    np.testing.assert_allclose(exponents[1:] / exponents[:-1], 4.0)
    for spread in (0.0, 1e-305, np.inf):
        assert len(separation_exponents(spread)) == 0


def test_separations_survive_json() -> None:
    separations = Separations((1.0, 4.0), (3.0, 0.5))
    assert Separations.load(separations.values()) == separations


def test_the_magnitude_of_spheres_in_closed_form() -> None:
    for scale in (1e-6, 0.3, 5.0, 600.0):
        two_points = 2.0 / (1.0 + np.exp(-2.0 * scale))
        sphere = 2.0 * scale / -np.expm1(-2.0 * scale)
        assert sphere_magnitude(scale, 1) == pytest.approx(two_points, rel=1e-7)
        assert sphere_magnitude(scale, 3) == pytest.approx(sphere, rel=1e-7)
    assert sphere_magnitude(1e-3, 4000) == pytest.approx(np.exp(1e-3), rel=1e-6)
    assert sphere_magnitude(1e12, 384) > 1e100


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 384])
def test_no_set_of_directions_has_more_than_the_sphere(dimension: int) -> None:
    rows = np.random.default_rng(5).normal(size=(8 if dimension > 1 else 2, dimension))
    rows[0] = -rows[1]
    for scale, truth in zip(SCALES, precise_cosine_magnitudes(rows, SCALES.tolist()), strict=True):
        assert truth <= sphere_magnitude(scale, dimension)


def test_singular_in_float64() -> None:
    rows = np.random.default_rng(6).normal(size=(60, 2))
    distances = pairwise_distances(rows, "cosine")
    assert is_numerically_singular(distances, 1.0)
    assert is_numerically_singular(np.zeros((2, 2)), 1.0)
    assert not is_numerically_singular(distances, 1e9)
    assert not is_numerically_singular(np.zeros((1, 1)), 1.0)
    assert not is_numerically_singular(1.0 - np.eye(60), 1.0)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("seed", range(5))
def test_no_set_of_points_has_more_than_its_box(metric: str, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(60, 1 + seed))
    sides = np.ptp(rows, axis=0)
    for scale in (1e-3, 1e-2, 0.1, 1.0):
        similarities = np.exp(-scale * pairwise_distances(rows, metric))
        assert np.linalg.solve(similarities, np.ones(60)).sum() <= box_magnitude(scale, sides)
    if seed == 0:  # a line filled with points has a magnitude of 1 + t L / 2
        assert box_magnitude(1e-3, sides) == pytest.approx(1 + 5e-4 * sides[0], rel=1e-5)


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.filterwarnings("error")
def test_bounds_at_vanishing_scales(dimension: int) -> None:
    for scale in (5e-324, 1e-310, 1e-200):
        assert 1.0 <= sphere_magnitude(scale, dimension) < 1.0 + 1e-7
        assert 1.0 <= box_magnitude(scale, np.ones(dimension)) < 1.0 + 1e-14
