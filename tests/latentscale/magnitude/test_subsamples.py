"""Extrapolated magnitudes against closed forms, Cholesky factors and their own intervals."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from latentscale.estimate import Estimate
from latentscale.magnitude.function import convergence_scale, magnitude_function
from latentscale.magnitude.nystrom import nystrom_magnitude
from latentscale.magnitude.subsamples import (
    LEARNING_SCALES,
    learning_scales,
    magnitude_brackets,
    subsampled_magnitude,
)
from latentscale.sampling.extrapolation import extrapolate
from latentscale.sampling.rarefaction import RarefactionCurve
from latentscale.tiles.distances import Points, as_points
from tests.oracles import dense_magnitude, pairwise_distances, random_line_magnitude


def sides(estimates: tuple[Estimate, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    value, lower, upper = (
        np.array([getattr(estimate, side) for estimate in estimates])
        for side in ("value", "lower", "upper")
    )
    return value, lower, upper


def curve_of(scales: np.ndarray, sizes: list[int], magnitudes: np.ndarray) -> RarefactionCurve:
    """One subset of each size."""
    values = tuple(row[None, :] for row in magnitudes)
    return RarefactionCurve(scales, np.array(sizes), values, magnitudes[-1])


# --- laws that the extrapolation continues exactly -------------------------------------------


def test_a_power_law_is_continued_exactly() -> None:
    """Log odds linear in log m and log t: all four continuations and the back-test agree."""
    scales, sizes = np.geomspace(0.1, 5.0, 7), [100, 200, 400, 800]
    odds = np.array([0.3 * (m / 100) ** 0.7 / scales**2 for m in sizes])
    found = extrapolate(curve_of(scales, sizes, np.array(sizes)[:, None] / (1 + odds)), 50_000)
    expected = 50_000 / (1 + 0.3 * 500**0.7 / scales**2)
    value, lower, upper = sides(found.estimates)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(lower, expected, rtol=1e-9)
    np.testing.assert_allclose(upper, expected, rtol=1e-9)


def test_a_set_like_its_subsets_at_smaller_scales() -> None:
    """A share that depends on t m^(-1/D) alone is continued where the straight line fails."""
    dimension, sizes, points = 3.0, [500, 1000, 2000, 4000], 64_000
    scales = np.geomspace(1.3, 600.0, 60)

    def odds(m: int) -> np.ndarray:
        spacing = scales * m ** (-1 / dimension)
        return spacing**-3.0 + 0.5 * spacing**-1.2

    found = extrapolate(
        curve_of(scales, sizes, np.array([m / (1 + odds(m)) for m in sizes])), points
    )
    value, lower, upper = sides(found.estimates)
    truth = points / (1 + odds(points))
    # Below, log odds go beyond those seen at any scale.
    seen = odds(points) < odds(sizes[-1])[0]
    np.testing.assert_allclose(value[seen], truth[seen], rtol=6e-3)
    assert (lower <= truth * (1 + 2e-3)).all()
    assert (upper >= truth * (1 - 2e-3)).all()
    slope = np.log(odds(sizes[-1]) / odds(sizes[-2])) / np.log(2.0)
    straight = np.log(odds(sizes[-1])) + slope * np.log(points / sizes[-1])
    assert np.abs(points / (1 + np.exp(straight)) / truth - 1)[seen].max() > 0.1


def test_random_points_on_a_line() -> None:
    scales, sizes = np.linspace(0.0, 50_000.0, 21), [200, 400, 800, 1600]
    expected = np.array([[random_line_magnitude(m, t) for t in scales] for m in [*sizes, 12_800]])
    found = extrapolate(curve_of(scales, sizes, expected[:-1]), 12_800)
    value, lower, upper = sides(found.estimates)
    assert found.estimates[0] == Estimate.exact(1.0, "definition")
    np.testing.assert_allclose(value, expected[-1], rtol=1.2e-2)
    assert (lower <= expected[-1]).all()
    assert (upper >= expected[-1]).all()


# --- coverage --------------------------------------------------------------------------------


def clustered(rng: np.random.Generator, n: int) -> np.ndarray:
    """Twelve clusters of intrinsic dimension 8."""
    maps = rng.normal(size=(12, 8, 32)) / np.sqrt(8)
    cluster = rng.integers(12, size=n)
    inside = np.einsum("nd,nda->na", rng.normal(size=(n, 8)), maps[cluster])
    return 2.0 * rng.normal(size=(12, 32))[cluster] + 0.5 * inside


def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(size=(n, 4))


def gaussian(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, 24))


def curve(rng: np.random.Generator, n: int) -> np.ndarray:
    along = rng.uniform(0, 6, size=(n, 1))
    return np.sin(along * rng.normal(size=8) * 2 + rng.uniform(0, 6, size=8))


KINDS: dict[Callable[[np.random.Generator, int], np.ndarray], float] = {
    clustered: 3.3,
    uniform: 48.0,
    gaussian: 1.8,
    curve: 3000.0,
}
"""Kinds of data, and a scale near the convergence scale of 2000 to 4000 rows."""


def coverage(
    kind: Callable[[np.random.Generator, int], np.ndarray], n: int, rows: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether each scale's interval covers the Cholesky value, its width, the value's error."""
    rng = np.random.default_rng([seed, n])
    points = as_points(kind(rng, n), "euclidean")
    scales = KINDS[kind] * np.linspace(0.0, 1.0, 13)[1:]
    found, _ = subsampled_magnitude(
        points, scales, rows=rows, replicates=min(2, n // rows), generator=rng
    )
    truth = sides(magnitude_function(points, scales, method="cholesky").estimates)[0]
    value, lower, upper = sides(found.estimates)
    assert (found.certified <= truth * (1 + 1e-9)).all()
    assert (found.certified <= lower).all()
    assert upper.max() <= n
    covered = (lower <= truth * (1 + 1e-9)) & (upper >= truth * (1 - 1e-9))
    return covered, (upper - lower) / truth, np.abs(value / truth - 1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_intervals_cover_the_truth(kind: Callable[[np.random.Generator, int], np.ndarray]) -> None:
    covered, width, error = (
        np.concatenate(column)
        for column in zip(*(coverage(kind, 1000, 250, seed) for seed in range(2)), strict=True)
    )
    assert covered.mean() >= 0.8
    assert np.median(width) <= 0.25
    assert error.mean() <= 0.05


def test_overlapping_subsets_have_seen_less_than_all() -> None:
    """Two subsets of 112 of 200 rows overlap: together they miss every fifth row."""
    covered = []
    for seed in range(12):
        rng = np.random.default_rng([9, seed])
        points = as_points(rng.normal(size=(200, 5)), "euclidean")
        scales = np.geomspace(0.3, 6.0, 14)
        found, _ = subsampled_magnitude(points, scales, rows=112, replicates=2, generator=rng)
        truth = sides(magnitude_function(points, scales, method="cholesky").estimates)[0]
        _, lower, upper = sides(found.estimates)
        covered.append((lower <= truth) & (truth <= upper))
    assert np.mean(covered) >= 0.9


@pytest.mark.full
@pytest.mark.parametrize(("share", "widest"), [(4, 0.15), (8, 0.3)])
def test_intervals_cover_the_truth_over_seeds(share: int, widest: float) -> None:
    results = [coverage(kind, 3200, 3200 // share, seed) for kind in KINDS for seed in range(5)]
    covered, width, _ = (np.concatenate(column) for column in zip(*results, strict=True))
    assert covered.mean() >= 0.9
    assert np.median(width) <= widest


# --- brackets --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few() -> Points:
    return as_points(gaussian(np.random.default_rng(1), 600), "euclidean")


def test_brackets_name_the_method_of_each_side(few: Points) -> None:
    scales = np.array([0.0, 0.05, 0.3, 1.5, 40.0])
    found, drawn = subsampled_magnitude(
        few, scales, rows=100, generator=np.random.default_rng(2), halvings=3
    )
    beside = nystrom_magnitude(few, scales, generator=np.random.default_rng(3), landmarks=100)
    brackets = magnitude_brackets(found, beside)
    assert [bracket.scale for bracket in brackets] == scales.tolist()
    assert (brackets[0].lower_by, brackets[0].upper_by) == ("definition", "definition")
    for bracket, estimate, known in zip(brackets, found.estimates, drawn.lower, strict=True):
        assert bracket.estimate == estimate
        assert bracket.certified <= bracket.estimate.lower
        assert bracket.certified == pytest.approx(known, rel=1e-12)
        expected = "subsample" if estimate.lower == bracket.certified else "rarefaction"
        assert bracket.lower_by in (expected, "definition")
        assert bracket.upper_by == ("points" if estimate.upper == 600 else bracket.upper_by)
    assert [bracket.nystrom for bracket in brackets] == list(beside.estimates)
    assert magnitude_brackets(found)[1].nystrom is None
    other = replace(beside, scales=scales + 1.0)
    with pytest.raises(ValueError, match="different scales"):
        magnitude_brackets(found, other)


def test_clipped_between_the_certified_bound_and_all_points() -> None:
    """Subsets that stop growing: the extrapolation would fall below what is certified."""
    scales, sizes = np.array([1.0, 2.0]), [10, 20, 40, 80]
    magnitudes = np.array([[5.0, 9.9], [6.0, 19.9], [6.0, 39.9], [5.9, 79.99999]])
    found = extrapolate(curve_of(scales, sizes, magnitudes), 1000)
    low, high = found.estimates
    assert low.lower == 5.9
    assert low.value >= 5.9
    assert high.upper <= 1000
    sides_by = [(b.lower_by, b.upper_by) for b in magnitude_brackets(found)]
    assert sides_by[0][0] == "subsample"


def test_the_whole_set_needs_no_extrapolation(few: Points) -> None:
    found, drawn = subsampled_magnitude(
        few, [0.5, 2.0], rows=600, generator=np.random.default_rng(4)
    )
    value, lower, upper = sides(found.estimates)
    np.testing.assert_allclose(value, drawn.values[-1][0], rtol=1e-12)
    distances = pairwise_distances(few.rows.astype("f8"), "euclidean")
    truth = np.array([dense_magnitude(distances, scale)[0] for scale in (0.5, 2.0)])
    assert np.all((lower <= truth) & (truth <= upper))
    assert np.all((value < upper) & (upper - lower < 1e-6 * value))


def test_repeated_rows_count_once(few: Points) -> None:
    twice = as_points(np.concatenate((few.rows, few.rows[:300])), "euclidean")
    found, _ = subsampled_magnitude(twice, [0.5], rows=200, generator=np.random.default_rng(5))
    assert found.points == 600
    assert found.estimates[0].upper <= 600


def test_the_same_draw_gives_the_same_numbers(few: Points) -> None:
    first, second = (
        subsampled_magnitude(few, [0.5, 1.0], rows=150, generator=np.random.default_rng(6))[0]
        for _ in range(2)
    )
    assert first.estimates == second.estimates


def test_what_cannot_be_extrapolated_is_refused(few: Points) -> None:
    scales, sizes = np.array([1.0]), [10, 20, 40]
    three = curve_of(scales, sizes, np.array([[5.0], [8.0], [12.0]]))
    with pytest.raises(ValueError, match="need 4 sizes of subsets, got 3"):
        extrapolate(three, 1000)
    with pytest.raises(ValueError, match="need 4 sizes"):
        subsampled_magnitude(few, [1.0], rows=100, generator=np.random.default_rng(0), halvings=2)
    four = curve_of(scales, [10, 20, 40, 80], np.array([[5.0], [8.0], [12.0], [20.0]]))
    with pytest.raises(ValueError, match="80 rows, more than the 79 points"):
        extrapolate(four, 79)


def test_the_scale_of_convergence_is_in_the_middle_of_these_kinds() -> None:
    """The kinds above are judged where their magnitude goes from few points to nearly all."""
    rng = np.random.default_rng(7)
    for kind, cut in KINDS.items():
        found = convergence_scale(as_points(kind(rng, 1000), "euclidean"), target=0.9).value
        assert 0.15 * cut <= found <= 1.6 * cut


@pytest.mark.parametrize(("scale", "least"), [(0.1, 7), (30.0, 7), (100.0, 6)])
def test_intervals_of_few_scales_cover(scale: float, least: int) -> None:
    """Where others have to be learnt from, and where less than a point doesn't count."""
    held = 0
    for seed in range(8):
        generator = np.random.default_rng(seed)
        points = as_points(generator.normal(size=(900, 3)), "euclidean")
        true = magnitude_function(points, [scale]).estimates[0].value
        found, curve = subsampled_magnitude(
            points, [scale], rows=256, generator=generator, replicates=2
        )
        assert found.scales.tolist() == curve.scales.tolist() == [scale]
        held += found.estimates[0].lower <= true <= found.estimates[0].upper
    assert held >= least


def test_scales_are_added_to_few_and_the_given_ones_stay() -> None:
    few = [0.0, 0.3, 7.0]
    evaluated = learning_scales(few)
    assert set(few) <= set(evaluated.tolist())
    assert (np.diff(evaluated) > 0).all()
    assert len(evaluated) == LEARNING_SCALES + 3
    assert evaluated[1] == pytest.approx(0.3 / 8)
    assert evaluated[-1] == pytest.approx(14.0)
    powers = learning_scales([1.0, 2.0, 4.0, 8.0, 16.0])
    assert (np.diff(np.log(powers)) > 1e-3).all()
    assert np.isfinite(learning_scales([1e308])).all()
    many = np.geomspace(0.1, 10.0, LEARNING_SCALES)
    np.testing.assert_array_equal(learning_scales(many), many)
    np.testing.assert_array_equal(learning_scales([0.0]), [0.0])
