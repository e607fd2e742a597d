"""The magnitude distance: against dense algebra, its properties, intervals and sampling errors."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from latentscale.magnitude.distance import is_saturated, magnitude_distance

NAMES = {"euclidean": "euclidean", "cosine": "cosine", "manhattan": "cityblock"}


def magnitude(rows, metric, scale):
    """Sum the inverse of the similarities of the distinct rows."""
    distinct = np.unique(rows, axis=0)
    return np.linalg.inv(np.exp(-scale * cdist(distinct, distinct, NAMES[metric]))).sum()


def dense(first, second, metric, scale):
    both = magnitude(np.concatenate([first, second]), metric, scale)
    return 2 * both - magnitude(first, metric, scale) - magnitude(second, metric, scale)


def clusters(seed, n, shift=0.0):
    centres = np.random.default_rng(0).normal(size=(8, 6)) * 2.0
    rng = np.random.default_rng([1, seed])
    return centres[rng.integers(0, 8, n)] + rng.normal(size=(n, 6)) + shift


@pytest.mark.parametrize("seed", range(50))
def test_the_bracket_contains_the_dense_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    metric = ("euclidean", "cosine", "manhattan")[seed % 3]
    first, second = (rng.normal(size=(int(rng.integers(2, 60)), 4)) for _ in range(2))
    second[: len(second) // 3] = first[rng.integers(0, len(first), len(second) // 3)]
    scale = float(rng.uniform(0.3, 3.0))
    found = magnitude_distance(first, second, metric, scale)
    assert found is not None
    assert found.estimate.value == pytest.approx(dense(first, second, metric, scale), abs=1e-9)
    # The cosines of the dense matrix are rounded, and it isn't far from singular.
    rounding = 1e-9 if metric == "cosine" else 1e-12
    assert found.estimate.lower <= dense(first, second, metric, scale) + rounding
    assert found.estimate.upper >= dense(first, second, metric, scale) - rounding
    assert (found.sampling_error, found.estimate.bounds) == (None, "exact")


def test_properties() -> None:
    first, second = clusters(1, 50), clusters(2, 60)
    assert magnitude_distance(first, first, "euclidean", 1.0).estimate.value == 0.0
    forth, back = (
        magnitude_distance(*pair, "euclidean", 0.4).estimate.value
        for pair in ((first, second), (second, first))
    )
    assert forth == pytest.approx(back, rel=1e-12)
    areas = [magnitude(rows, "euclidean", 0.4) for rows in (first, second)]
    assert forth > abs(areas[0] - areas[1])
    far = magnitude_distance(first, np.concatenate([second, first[:7]]), "euclidean", 1e3)
    assert far.estimate.value == pytest.approx(50 + 60 - 7)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_it_does_not_depend_on_the_origin(metric: str) -> None:
    """Whole coordinates stay exact wherever the rows are, and so do their distances."""
    rng = np.random.default_rng(0)
    first, second = (rng.integers(-40, 40, size=(n, 5)).astype("f4") for n in (60, 50))
    here = magnitude_distance(first, second, metric, 0.02).estimate
    far = magnitude_distance(first + 1e5, second + 1e5, metric, 0.02).estimate
    assert far.value == pytest.approx(here.value, rel=1e-12)
    assert far.upper - far.lower < 3 * (here.upper - here.lower) < 1e-6


def test_it_sees_a_shift_that_keeps_the_magnitude() -> None:
    first, second = clusters(3, 200), clusters(4, 200)
    same, moved = (
        magnitude_distance(first, rows, "euclidean", 0.15).estimate.value
        for rows in (second, second + 1.0)
    )
    assert moved > 1.5 * same


def test_the_jackknife_is_that_of_leaving_out_rows() -> None:
    from latentscale.sampling.jackknife import draw_groups, jackknife_error

    first, second = clusters(5, 60), clusters(6, 50)
    second[:20], first[:10] = first[-20:], first[10:20]  # shared rows, and copies
    found = magnitude_distance(first, second, "euclidean", 0.5, np.random.default_rng(7))
    generator, variance = np.random.default_rng(7), 0.0
    for rows, other in ((first, second), (second, first)):
        group = draw_groups(len(rows), generator)
        left = [dense(rows[group != g], other, "euclidean", 0.5) for g in range(20)]
        variance += float(jackknife_error(np.array(left), len(rows))) ** 2
    assert found.sampling_error == pytest.approx(variance**0.5, rel=1e-6)


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_sampling_errors_cover_the_mean_over_samples(shift: float) -> None:
    found = [
        magnitude_distance(
            clusters(seed, 120),
            clusters(1000 + seed, 150, shift),
            "euclidean",
            0.3,
            np.random.default_rng(seed),
        )
        for seed in range(60)
    ]
    values = np.array([each.estimate.value for each in found])
    errors = np.array([each.sampling_error for each in found])
    assert (np.abs(values - values.mean()) <= 1.96 * errors).mean() >= 0.90


def test_random_rows_have_intervals_that_cover() -> None:
    rng, found = np.random.default_rng(8), []
    pools = clusters(9, 400), clusters(10, 300, 0.5)
    for _ in range(60):
        drawn = [pool[rng.choice(len(pool), 100, replace=False)] for pool in pools]
        found.append(magnitude_distance(*drawn, "euclidean", 0.3, rng, rows=(400, 300)))
    mean = np.mean([each.estimate.value for each in found])
    assert {each.estimate.bounds for each in found} == {"interval95"}
    assert sum(each.estimate.lower <= mean <= each.estimate.upper for each in found) >= 54
    with pytest.raises(ValueError, match="an interval needs a generator and 40 random rows"):
        magnitude_distance(*drawn, "euclidean", 0.3, rows=(400, 300))
    # Few rows that are all have no part in the interval, and leave the sampling error unknown.
    few = magnitude_distance(drawn[0], pools[1][:30], "euclidean", 0.3, rng, rows=(400, 30))
    assert few.sampling_error is None
    assert few.estimate.upper > few.estimate.value * 1.01


def test_a_singular_matrix_gives_nothing() -> None:
    rows = np.array([[0.0, 0.0], [1e-160, 0.0], [1.0, 0.0]])
    assert magnitude_distance(rows, rows[:1], "euclidean", 1.0) is None


def test_rows_that_are_all_there_several_times_have_no_sampling_error() -> None:
    """Without some copies nothing changes. Of random rows, no other point is likely to be there."""
    rows, rng = clusters(1, 60), np.random.default_rng(2)
    thrice = np.repeat(rows, 3, axis=0)
    other = clusters(3, 150)
    for first, second in ((thrice, other), (other, thrice)):
        found = magnitude_distance(first, second, "euclidean", 0.3, rng)
        assert found.sampling_error is None
        assert found.estimate.bounds == "exact"
    drawn = magnitude_distance(thrice, other, "euclidean", 0.3, rng, rows=(10**6, 150))
    assert drawn.sampling_error > 0.0
    single = np.concatenate([thrice, other[:60]])
    assert magnitude_distance(single, other, "euclidean", 0.3, rng).sampling_error > 0.0


@pytest.mark.parametrize("metric", NAMES)
def test_the_largest_distance_is_the_number_of_points_apart(metric: str) -> None:
    first, second = clusters(4, 50), clusters(5, 60)
    second[:20] = first[:20]
    second[20:30] = second[30:40]
    first = np.concatenate([first, first[:7], first[-7:]])
    assert is_saturated(first, second, metric, 1e6, 59.9, 0.98)
    assert not is_saturated(first, second, metric, 1e6, 0.98 * 60, 0.98)
    assert not is_saturated(first, second, metric, 1e-3, 59.9, 0.98)
    far = magnitude_distance(first, second, metric, 1e4)
    assert far.estimate.value == pytest.approx(60.0, rel=0.1 if metric == "cosine" else 1e-6)
