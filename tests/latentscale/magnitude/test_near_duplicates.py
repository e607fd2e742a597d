"""Near copies are named where they set the convergence scale, and nowhere else."""

import numpy as np
import pytest

from latentscale.magnitude.function import convergence_scale
from latentscale.magnitude.near_duplicates import explain_scale
from latentscale.tiles.distances import Metric, as_points


def explain(rows: np.ndarray, metric: Metric = "euclidean") -> str | None:
    points = as_points(rows, metric)
    scale = convergence_scale(points).value
    halves = [points.take(slice(0, len(rows) // 2)), points.take(slice(len(rows) // 2, None))]
    return explain_scale(scale, len(rows), lambda: iter(halves), np.random.default_rng(0))


@pytest.mark.parametrize("dimension", [1, 2, 8, 64])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_spread_points_need_no_explanation(dimension: int, metric: Metric) -> None:
    rng = np.random.default_rng(dimension)
    assert explain(rng.normal(size=(500, dimension)), metric) is None
    assert explain(rng.uniform(size=(500, dimension)), metric) is None


def test_clusters_need_no_explanation() -> None:
    rng = np.random.default_rng(3)
    centres = 100.0 * rng.normal(size=(10, 8))
    assert explain(centres[rng.integers(10, size=500)] + rng.normal(size=(500, 8))) is None


def test_few_near_copies_need_no_explanation() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(500, 8))
    rows[:10] = rows[10:20] + 1e-5 * rng.normal(size=(10, 8))
    assert explain(rows) is None


@pytest.mark.parametrize(("copies", "said"), [(60, 0.24), (200, 0.8)])
def test_many_near_copies_are_named(copies: int, said: float) -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(500, 8))
    rows[:copies] = rows[copies : 2 * copies] + 1e-5 * rng.normal(size=(copies, 8))
    reason = explain(rows)
    assert reason is not None
    share = float(reason.split("%")[0].removeprefix("about ")) / 100
    assert share == pytest.approx(said, abs=0.06)
    assert "merge_within merges such rows" in reason
