"""The convergence scale from random subsets, against Cholesky factors."""

import numpy as np
import pytest

from latentscale.duplicates.distinct import find_distinct
from latentscale.estimate import Estimate
from latentscale.magnitude.function import NoConvergenceScale, convergence_scale
from latentscale.magnitude.subsampled_convergence import (
    GRID_SCALES,
    convergence_grid,
    extrapolated_convergence_scale,
)
from latentscale.magnitude.subsamples import rarefy
from latentscale.sampling.extrapolation import Extrapolation, extrapolate
from latentscale.sampling.rarefaction import HALVINGS, draw_replicates
from latentscale.tiles.distances import Points, as_points


def extrapolation(
    scales: np.ndarray, shares: np.ndarray, points: int, width: float = 1.0
) -> Extrapolation:
    """Shares of the points, with intervals that reach to ``width`` times the odds either way."""
    odds = 1.0 / shares - 1.0
    estimates = tuple(
        Estimate(
            points / (1 + o), points / (1 + o * width), points / (1 + o / width), "estimate", "x"
        )
        for o in odds
    )
    return Extrapolation(scales, points, estimates, np.ones(len(scales)))


def subsampled_convergence_scale(
    points: Points, rows: int, replicates: int, generator: np.random.Generator
) -> Estimate:
    """Draw subsets, evaluate them on the grid and extrapolate, as the stages of a job do."""
    distinct = find_distinct(points).rows
    drawn = draw_replicates(len(distinct), rows, replicates, generator)
    scales = convergence_grid(points.take(distinct[drawn[0]]), len(distinct))
    curve = rarefy(points, scales, distinct[drawn], halvings=HALVINGS, tolerance=1e-3)
    return extrapolated_convergence_scale(extrapolate(curve, len(distinct)))


def test_a_power_law_is_crossed_where_it_should_be() -> None:
    """Odds t^-3: the share 0.95 is at 19^(1/3), and at (19 w)^(1/3) with odds w times as large."""
    scales = np.geomspace(0.5, 8.0, 9)
    found = extrapolated_convergence_scale(
        extrapolation(scales, 1 / (1 + scales**-3.0), 10_000, width=1.5)
    )
    assert found.value == pytest.approx(19 ** (1 / 3), rel=1e-10)
    assert found.lower == pytest.approx((19 / 1.5) ** (1 / 3), rel=1e-10)
    assert found.upper == pytest.approx((19 * 1.5) ** (1 / 3), rel=1e-10)
    assert (found.bounds, found.method) == ("estimate", "subsample")
    half = extrapolated_convergence_scale(
        extrapolation(np.append(0.0, scales), np.append(1e-4, 1 / (1 + scales**-3.0)), 10_000),
        target=0.5,
    )
    assert half.value == pytest.approx(1.0, rel=1e-10)


def test_scales_must_reach_far_enough() -> None:
    scales = np.geomspace(0.5, 8.0, 9)
    shares = 1 / (1 + scales**-3.0)
    for target, width in ((0.9999, 1.0), (0.99, 10.0), (0.05, 1.0)):
        with pytest.raises(NoConvergenceScale, match="use larger subsets"):
            extrapolated_convergence_scale(extrapolation(scales, shares, 1000, width), target)
    for target in (0.0, 0.0005, 1.0, np.nan):
        with pytest.raises(ValueError, match="the target share must lie between"):
            extrapolated_convergence_scale(extrapolation(scales, shares, 1000), target)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_against_cholesky(metric: str) -> None:
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(15, 20))
    rows = centres[rng.integers(15, size=2000)] + 0.4 * rng.normal(size=(2000, 20))
    points = as_points(rows, metric)  # type: ignore[arg-type]
    truth = convergence_scale(points).value
    found = subsampled_convergence_scale(points, 500, 2, rng)
    assert found.value == pytest.approx(truth, rel=0.06)
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower < 0.25 * truth


def test_the_grid_is_about_the_scale_expected() -> None:
    rng = np.random.default_rng(2)
    points = as_points(rng.uniform(size=(2000, 3)), "euclidean")
    truth = convergence_scale(points).value
    grid = convergence_grid(points.take(slice(0, 400)), 2000)
    assert len(grid) == GRID_SCALES
    assert grid[GRID_SCALES // 2] == pytest.approx(truth, rel=0.15)
    assert (np.diff(grid) > 0).all()


def test_repeated_rows_count_once() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(800, 10))
    twice = as_points(np.concatenate((rows, rows)), "euclidean")
    truth = convergence_scale(as_points(rows, "euclidean")).value
    found = subsampled_convergence_scale(twice, 400, 1, rng)
    assert found.value == pytest.approx(truth, rel=0.03)
