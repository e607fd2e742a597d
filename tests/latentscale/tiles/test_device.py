"""Tiles against pairs taken one by one: values within their bounds, decisions without rounding."""

import ast
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentscale
from latentscale.tiles.device import (
    EXPONENTIAL_ERROR,
    FOLDED_COLUMNS,
    MIN_SIMILARITY,
    RECOMPUTED_SHARE,
    Precision,
    rounding_share,
    rounding_unit,
    separations,
)
from latentscale.tiles.distances import METRICS, Metric, Points, as_points, common_unit, within
from latentscale.tiles.host import exponentials as host_exponentials
from tests import oracles

PRECISIONS: list[Precision] = ["single", "double"]

KINDS = ["spread", "far off", "tight clusters", "near-duplicates", "one line", "tiny", "huge"]


def draw_rows(kind: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Rows that are hard in one way each."""
    rows = rng.normal(size=(n, d))
    if kind == "far off":
        rows += 1e4 * rng.normal(size=d)
    elif kind == "tight clusters":
        rows = 3.0 * rows[rng.integers(min(n, 3), size=n)] + 1e-4 * rng.normal(size=(n, d))
    elif kind == "near-duplicates":
        rows[: n // 2] = rows[n - n // 2 :] + 1e-5 * rng.normal(size=(n // 2, d)) / np.sqrt(d)
    elif kind == "one line":
        rows = rng.normal(size=(n, 1)) * rng.normal(size=d) + 1.0
    elif kind == "tiny":
        rows *= 1e-30
    elif kind == "huge":
        rows *= 1e30
    return rows


def draw_points(kind: str, n: int, d: int, metric: Metric, seed: int) -> Points:
    """Points about their mean."""
    points = as_points(draw_rows(kind, n, d, np.random.default_rng(seed)), metric)
    return points.about(points.rows.mean(axis=0))


drawn = {
    "kind": st.sampled_from(KINDS),
    "d": st.one_of(st.integers(1, 12), st.sampled_from([31, 32, 129, 400])),
    "metric": st.sampled_from(METRICS),
    "seed": st.integers(0, 2**32 - 1),
}


# --- values ---------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(n=st.integers(2, 12), m=st.integers(1, 9), precision=st.sampled_from(PRECISIONS), **drawn)
def test_separations_are_within_their_bound(
    kind: str, n: int, m: int, d: int, metric: Metric, precision: Precision, seed: int
) -> None:
    points = draw_points(kind, n + m, d, metric, seed)
    a, b = points.take(slice(0, m)), points.take(slice(m, None))
    unit = common_unit(a, b) if precision == "single" else 1.0
    first, second = a.tile_rows(precision, unit), b.tile_rows(precision, unit)
    tile = np.empty((m, n), dtype=first.matrix.dtype)
    separations(first, second, tile)
    gamma = rounding_share(d, precision)
    relative = gamma / (RECOMPUTED_SHARE[precision] - gamma) + 2 * rounding_unit(precision)
    for i in range(m):
        for j in range(n):
            truth = oracles.distance_in_extended_precision(a.rows[i], b.rows[j], metric)
            truth = {"euclidean": truth**2, "cosine": 2 * truth, "manhattan": truth}[metric]
            truth /= first.separation_unit
            error = abs(tile[i, j] - truth)
            size = first.sizes[i] + second.sizes[j]
            assert error <= gamma * size + 1e-44
            assert error <= relative * truth + 1e-44


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["spread", "near-duplicates", "tight clusters"])
def test_one_block_with_itself_is_symmetric(
    kind: str, metric: Metric, precision: Precision
) -> None:
    points = draw_points(kind, 301, 67, metric, 1)
    rows = points.tile_rows(precision, common_unit(points, points) if precision == "single" else 1)
    tile = np.empty((301, 301), dtype=rows.matrix.dtype)
    separations(rows, rows, tile, itself=True)
    assert (tile == tile.T).all()
    assert (np.diag(tile) == 0).all()
    assert (tile + np.eye(301) > 0).all()


@pytest.mark.parametrize("metric", METRICS)
def test_equal_rows_are_at_separation_zero(metric: Metric) -> None:
    rows = np.random.default_rng(2).normal(size=(20, 33)) + 50.0
    points = as_points(rows, metric).about(np.full(33, 0.123))
    unit = common_unit(points, points)
    tile = np.empty((20, 20), dtype=np.float32)
    separations(points.tile_rows("single", unit), points.tile_rows("single", unit), tile)
    assert (np.diag(tile) == 0).all()


def test_blocks_agree_wherever_they_are_cut() -> None:
    # Longer rows in one of two blocks change the unit, and no bit.
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(40, 24))
    rows[39] *= 1000.0
    points = as_points(rows, "euclidean").about(rng.normal(size=24))
    a, b = points.take(slice(0, 20)), points.take(slice(20, 39))
    tiles = []
    for other in (a, points):
        unit = common_unit(other, b)
        tile = np.empty((20, 19), dtype=np.float32)
        separations(a.tile_rows("single", unit), b.tile_rows("single", unit), tile)
        tiles.append(tile * np.float32(unit) ** 2)
    assert (tiles[0] == tiles[1]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponentials_are_within_three_roundings(dtype: type) -> None:
    precision: Precision = "single" if dtype is np.float32 else "double"
    rng = np.random.default_rng(4)
    clip = -np.log(MIN_SIMILARITY[precision])
    for largest in (1e-6, 1e-3, 1.0, 10.0, clip):
        x = (largest * rng.random((200, FOLDED_COLUMNS))).astype(dtype)
        got = np.empty_like(x)
        exponential = getattr(host_exponentials, f"_exponentials_{precision}")
        for i in range(len(x)):
            exponential(x[i], 1.0, got[i], FOLDED_COLUMNS)
        truth = np.exp(-x.astype(np.longdouble))
        worst = np.abs(got / truth - 1).max() / rounding_unit(precision)
        assert worst <= EXPONENTIAL_ERROR
    ends = np.array([0.0, 2 * clip, 1e30] + [0.0] * (FOLDED_COLUMNS - 3), dtype=dtype)
    got = np.empty_like(ends)
    exponential(ends, 1.0, got, FOLDED_COLUMNS)
    assert got[0] == 1.0
    np.testing.assert_allclose(got[1:3], MIN_SIMILARITY[precision], rtol=1e-4)


# --- decisions ------------------------------------------------------------------------------


def separation(x: np.ndarray, y: np.ndarray, metric: Metric) -> Fraction:
    """What decides, without rounding."""
    gaps = [abs(Fraction(a) - Fraction(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return sum(gaps if metric == "manhattan" else [gap * gap for gap in gaps], Fraction(0))


def limit_of(threshold: float, metric: Metric) -> Fraction:
    """What a separation is compared with."""
    exact = Fraction(threshold)
    return {"euclidean": exact * exact, "cosine": 2 * exact, "manhattan": exact}[metric]


def nearest_threshold(limit: Fraction, metric: Metric) -> float:
    """Return the float64 number next to the distance of a separation."""
    return math.sqrt(limit) if metric == "euclidean" else float(limit_of(1.0, metric) ** -1 * limit)


@settings(max_examples=80, deadline=None)
@given(n=st.integers(2, 12), m=st.integers(1, 9), nudge=st.sampled_from([-1, 0, 1]), **drawn)
def test_decisions_are_without_rounding(
    kind: str, n: int, m: int, d: int, metric: Metric, nudge: int, seed: int
) -> None:
    points = draw_points(kind, n + m, d, metric, seed)
    a, b = points.take(slice(0, m)), points.take(slice(m, None))
    # The threshold is one of the distances themselves, or the number next to it.
    threshold = nearest_threshold(separation(a.rows[0], b.rows[-1], metric), metric)
    if nudge:
        threshold = max(float(np.nextafter(threshold, nudge * np.inf)), 0.0)
    limit = limit_of(threshold, metric)
    table = np.array([[separation(x, y, metric) for y in b.rows] for x in a.rows])
    assert (within(a, b, threshold, strict=True) == (table < limit)).all()
    assert (within(a, b, threshold, strict=False) == (table <= limit)).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("step", [1.0, 0.1])
def test_many_pairs_at_the_threshold(metric: Metric, step: float) -> None:
    # A grid: hundreds of pairs are at the threshold exactly, so whole tiles are open.
    rows = np.stack(np.meshgrid(*[np.arange(1.0, 6.0)] * 3), axis=-1).reshape(-1, 3)
    points = as_points(step * rows + 1000.0, metric)
    table = np.array([[separation(x, y, metric) for y in points.rows] for x in points.rows])
    threshold = nearest_threshold(table[0, 1], metric)
    limit = limit_of(threshold, metric)
    assert (within(points, points, threshold, strict=False) == (table <= limit)).all()
    assert (within(points, points, threshold, strict=True) == (table < limit)).all()


@pytest.mark.parametrize("threshold", [0.0, 1e-200, 1e200])
def test_extreme_thresholds(threshold: float) -> None:
    rows = np.random.default_rng(5).normal(size=(30, 5))
    rows[3] = rows[7]
    points = as_points(rows, "euclidean")
    close = within(points, points, threshold, strict=False)
    equal = np.eye(30, dtype=bool)
    equal[3, 7] = equal[7, 3] = True
    assert (close == (True if threshold > 1 else equal)).all()


def test_blocks_that_differ_are_refused() -> None:
    points = as_points(np.eye(3), "euclidean")
    with pytest.raises(ValueError, match="blocks differ: euclidean in 3 dimensions"):
        within(points, as_points(np.eye(2), "euclidean"), 1.0, strict=True)
    with pytest.raises(ValueError, match="blocks differ in their origin"):
        latentscale.tiles.distances.distance_tile(points.about(np.ones(3)), points)
    same = latentscale.tiles.distances.distance_tile(
        points.about(np.ones(3)), points.about(np.ones(3))
    )
    assert same[0, 1] == pytest.approx(np.sqrt(2.0))


# --- the seam -------------------------------------------------------------------------------


def test_only_the_backend_knows_what_it_runs_on() -> None:
    root = Path(latentscale.__file__).parent
    for path in root.rglob("*.py"):
        if path.parent.name == "backend":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("latentscale.tiles.device."), path
