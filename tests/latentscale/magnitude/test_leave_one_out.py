"""The sampling error of an area: against dense algebra, and against fresh samples."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.spatial.distance

from latentscale.magnitude import leave_one_out
from latentscale.magnitude.function import convergence_scale, magnitude_area, magnitude_function
from latentscale.tiles.distances import as_points
from tests.support.coverage import assert_covers

TARGET = 0.95
SCALES = np.linspace(0.0, 1.5, 7)


def dense_area(rows):
    """Integrate the magnitude of distinct rows, by dense algebra."""
    distances = scipy.spatial.distance.cdist(*2 * [np.unique(rows, axis=0)])
    values = [1.0, *(np.linalg.inv(np.exp(-t * distances)).sum() for t in SCALES[1:])]
    return np.trapezoid(values, SCALES)


def left_out_of(rows, seed=0, counts=None, scales=SCALES):
    """Return the function of distinct rows, and the rows left out, read in two groups."""
    points = as_points(rows, "euclidean")
    function = magnitude_function(points, scales)
    halves = [points.take(slice(0, len(rows) // 2)), points.take(slice(len(rows) // 2, None))]
    left_out = leave_one_out.leave_rows_out(
        scales,
        function.solutions,
        np.ones(len(rows), np.int64) if counts is None else counts,
        lambda: iter(halves),
        points.take,
        np.random.default_rng(seed),
    )
    return function, left_out


def area_and_error(rows, seed=0, counts=None):
    """Return the area of distinct rows and its error."""
    function, left_out = left_out_of(rows, seed, counts)
    return magnitude_area(SCALES, function.estimates).value, left_out.area_error()


def scale_and_error(rows, seed=0, *, last=1.0):
    """Return the convergence scale and its error; the function ends at a multiple of the scale."""
    found = convergence_scale(as_points(rows, "euclidean"), target=TARGET).value
    function, left_out = left_out_of(rows, seed, scales=np.linspace(0.0, last * found, 20))
    magnitudes = np.array([estimate.value for estimate in function.estimates])
    return found, left_out.scale_error(magnitudes, TARGET)


def dense_scale(rows):
    """Find where the magnitude is a share of the rows, by dense algebra."""
    distances = scipy.spatial.distance.cdist(rows, rows)

    def missing(scale):
        return np.linalg.inv(np.exp(-scale * distances)).sum() - TARGET * len(rows)

    return scipy.optimize.brentq(missing, 1e-3, 100.0, xtol=1e-12)


def test_all_rows_against_dense_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave_one_out, "NEIGHBOURS", 59)
    rows = np.random.default_rng(2).normal(size=(60, 5))
    rows[7] += 30.0
    counts = np.ones(60, np.int64)
    counts[[3, 11]] = 2, 4  # so 64 rows in all
    every = np.repeat(rows, counts, axis=0)
    without = [dense_area(np.delete(every, row, axis=0)) for row in range(len(every))]
    expected = math.sqrt(len(every) - 1) * np.std(without)
    area, error = area_and_error(rows, counts=counts)
    assert area == pytest.approx(dense_area(rows), rel=1e-9)
    assert error == pytest.approx(expected, rel=1e-9)
    # Half of the rows, drawn, of which the outlier is certain.
    monkeypatch.setattr(leave_one_out, "LARGEST", 10)
    monkeypatch.setattr(leave_one_out, "DRAWN", 20)
    drawn = [area_and_error(rows, seed, counts)[1] for seed in range(40)]
    assert np.mean(np.square(drawn)) == pytest.approx(expected**2, rel=0.1)
    assert min(drawn) > 0.6 * expected


@pytest.mark.parametrize("last", [0.98, 1.0, 1.3])
def test_the_error_of_a_convergence_scale_against_dense_algebra(last: float) -> None:
    rows = np.random.default_rng(3).normal(size=(120, 5))
    rows[7] += 30.0
    without = [dense_scale(np.delete(rows, row, axis=0)) for row in range(len(rows))]
    found, error = scale_and_error(rows, last=last)
    assert found == pytest.approx(dense_scale(rows), rel=1e-3)
    assert error == pytest.approx(math.sqrt(len(rows) - 1) * np.std(without), rel=0.08)


def test_a_convergence_scale_beyond_what_is_known_has_no_error() -> None:
    rows = np.random.default_rng(3).normal(size=(120, 5))
    assert scale_and_error(rows, last=0.8)[1] is None
    function, left_out = left_out_of(rows, scales=np.array([0.0, 1.0, 50.0]))
    assert left_out.scale_error(np.array([e.value for e in function.estimates]), TARGET) is None
    function, left_out = left_out_of(rows, scales=np.array([0.0, 50.0]))
    assert left_out.scale_error(np.array([e.value for e in function.estimates]), TARGET) is None


def test_a_few_neighbours_are_enough() -> None:
    rows = np.random.default_rng(5).normal(size=(200, 8))
    few = area_and_error(rows)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leave_one_out, "NEIGHBOURS", 199)
        every = area_and_error(rows)[1]
    assert every <= few <= 1.1 * every


def test_where_every_point_is_there_twice_no_row_tells() -> None:
    rows = np.random.default_rng(8).normal(size=(50, 3))
    assert area_and_error(rows, counts=np.full(50, 2))[1] is None
    assert area_and_error(rows[:1], counts=np.full(1, 2))[1] == 0.0


def test_points_that_similarities_cannot_tell_apart_have_an_error() -> None:
    rows = np.random.default_rng(7).normal(size=(150, 4))
    rows[100:] = rows[:50] + 1e-17 * np.arange(1, 5)
    rows[100:, 0] = np.nextafter(rows[:50, 0], np.inf)
    area, error = area_and_error(rows)
    assert 0.0 < error < area


def clusters(rng, n):
    """Draw rows of eight unequal clusters, and one row in fifty from far away."""
    centres = 2.0 * np.random.default_rng(98).normal(size=(8, 12))
    rows = centres[rng.choice(8, n, p=np.arange(8, 0, -1) / 36)] + 0.5 * rng.normal(size=(n, 12))
    far = rng.random(n) < 0.02
    rows[far] += 5.0 * rng.normal(size=(int(far.sum()), 12))
    return rows


@pytest.mark.parametrize(
    ("n", "samples"), [(200, 50), pytest.param(1000, 200, marks=pytest.mark.full)]
)
@pytest.mark.parametrize(
    "draw",
    [
        clusters,
        pytest.param(lambda rng, n: rng.normal(size=(n, 12)), id="normal", marks=pytest.mark.full),
    ],
)
def test_errors_cover_fresh_samples(draw, n: int, samples: int) -> None:
    drawn = [draw(np.random.default_rng([6, seed]), n) for seed in range(samples)]
    for measured in (area_and_error, scale_and_error):
        found = [measured(rows, seed) for seed, rows in enumerate(drawn)]
        assert_covers(*np.array(found).T)
