"""Magnitude by landmarks and Vecchia neighbours, against dense algebra."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from latentscale.estimate import Estimate
from latentscale.magnitude.nystrom import (
    NystromMagnitude,
    factorise_landmarks,
    marginal_gains,
    nystrom_magnitude,
)
from latentscale.magnitude.vecchia import vecchia_neighbours
from latentscale.tiles.distances import METRICS, Metric, as_points
from tests.oracles import dense_magnitude, marginal_gain, pairwise_distances, star_gain


def values(found: NystromMagnitude) -> np.ndarray:
    return np.array([estimate.value for estimate in found.estimates])


def dense(rows: np.ndarray, scales: list[float]) -> np.ndarray:
    """Dense magnitudes under the Euclidean metric, for more rows than loops can take."""
    distances = cdist(rows, rows)
    return np.array([dense_magnitude(distances, scale)[0] for scale in scales])


# --- exact limits ----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 25),
    d=st.integers(1, 6),
    copies=st.integers(0, 5),
    landmarks=st.integers(1, 30),
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**32 - 1),
)
def test_all_vecchia_neighbours_give_the_magnitude(
    n: int, d: int, copies: int, landmarks: int, metric: Metric, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    # Smooth similarities of many rows in few dimensions are nearly singular.
    unique = rng.normal(size=(n, d + 6 * (metric == "cosine")))
    rows = np.concatenate((unique, unique[rng.integers(n, size=copies)]))
    points = as_points(rows[rng.permutation(len(rows))], metric)
    scales = [0.0, 0.7, 3.0]
    found = nystrom_magnitude(points, scales, generator=rng, landmarks=landmarks, vecchia=len(rows))
    assert found.points == n
    distances = pairwise_distances(unique, metric)
    assert found.estimates[0] == Estimate.exact(1.0, "definition")
    for scale, estimate in zip(scales[1:], found.estimates[1:], strict=True):
        truth, _, rounding = dense_magnitude(distances, scale)
        if rounding > 1e-7 * truth:
            continue
        assert estimate.value == pytest.approx(truth, rel=1e-6)
        assert estimate.lower <= truth * (1 + 1e-9)
        assert estimate.upper == n
        assert estimate.bounds == "estimate"
        assert estimate.method == "nystrom"


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(3, 30),
    given_rows=st.integers(0, 12),
    landmarks=st.integers(1, 10),
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**32 - 1),
)
def test_gains_against_differences_of_magnitudes(
    n: int, given_rows: int, landmarks: int, metric: Metric, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 8))
    landmarks, width = min(landmarks, n - 1), 12
    points = as_points(rows, metric)
    scales = np.array([0.5, 2.0])
    others = rng.permutation(np.arange(landmarks, n))
    added, candidates = int(others[0]), others[1:][:given_rows]
    lists = np.full((1, width), -1)
    lists[0, rng.permutation(width)[: len(candidates)]] = candidates
    chosen = factorise_landmarks(points.take(slice(0, landmarks)), scales)
    gains = marginal_gains(chosen, points, np.array([added]), lists)
    assert gains.shape == (1, 2)
    distances = pairwise_distances(rows, metric)
    known = [*range(landmarks), *candidates.tolist()]
    for k, scale in enumerate(scales):
        expected = marginal_gain(np.exp(-scale * distances), known, added)
        assert gains[0, k] == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("block_rows", [17, 256])
def test_vecchia_neighbours_against_brute_force(block_rows: int) -> None:
    rng = np.random.default_rng(1)
    for metric in METRICS:
        rows = rng.normal(size=(60, 4))
        distances = pairwise_distances(rows, metric)
        found = vecchia_neighbours(as_points(rows, metric), 5, block_rows=block_rows)
        for i in range(60):
            expected = np.argsort(distances[i, :i])[:5]
            assert found.indices[i, : len(expected)].tolist() == expected.tolist()
            assert (found.indices[i, len(expected) :] == -1).all()
            np.testing.assert_allclose(
                found.distances[i, : len(expected)], distances[i, expected], rtol=1e-9
            )


# --- what an estimate can miss ---------------------------------------------------------------


def test_a_star_whose_centre_gains_more_from_more_vecchia_neighbours() -> None:
    """Given all of 1000 leaves the centre gains 6.0, given five of them 0.59."""
    leaves, scale = 1000, 3.0
    rows = np.concatenate((np.eye(leaves), np.zeros((1, leaves))))
    points = as_points(rows, "euclidean")
    centre = np.array([leaves])
    to_centre, among = np.exp(-scale), np.exp(-scale * np.sqrt(2.0))
    for known, expected in ((leaves, 6.0), (5, 0.59)):
        few = factorise_landmarks(points.take(slice(0, known - 4)), [scale])
        lists = np.arange(known - 4, known)[None, :]
        gain = marginal_gains(few, points, centre, lists)[0, 0]
        assert gain == pytest.approx(star_gain(known, to_centre, among), rel=1e-9)
        assert gain == pytest.approx(expected, abs=1e-2)


def test_low_dimension_is_its_regime() -> None:
    rng = np.random.default_rng(2)
    angle = rng.uniform(0, 6, size=1500)
    curve = np.sin(angle[:, None] * rng.normal(size=8) * 2 + rng.uniform(0, 6, size=8))
    plane = rng.uniform(size=(1500, 2)) @ rng.normal(size=(2, 6))
    for rows, scales in ((curve, [1.0, 10.0, 100.0]), (plane, [2.0, 10.0, 50.0])):
        truth = dense(rows, scales)
        found = nystrom_magnitude(
            as_points(rows, "euclidean"), scales, generator=rng, landmarks=150, vecchia=20
        )
        np.testing.assert_allclose(values(found), truth, rtol=1e-2)
        assert (found.landmark_magnitudes <= truth * (1 + 1e-9)).all()


def test_clustered_points_within_fifteen_percent() -> None:
    rng = np.random.default_rng(3)
    maps = rng.normal(size=(10, 8, 48)) / np.sqrt(8)
    cluster = rng.integers(10, size=1500)
    rows = 2.0 * rng.normal(size=(10, 48))[cluster]
    rows += 0.3 * np.einsum("nd,nda->na", rng.normal(size=(1500, 8)), maps[cluster])
    scales = [0.5, 2.0, 8.0]
    truth = dense(rows, scales)
    found = nystrom_magnitude(
        as_points(rows, "euclidean"), scales, generator=rng, landmarks=200, vecchia=20
    )
    np.testing.assert_allclose(values(found), truth, rtol=0.15)


# --- how the work is cut ---------------------------------------------------------------------


def test_tiles_do_not_matter() -> None:
    points = as_points(np.random.default_rng(4).normal(size=(400, 5)), "manhattan")

    def run(**limits: int) -> np.ndarray:
        generator = np.random.default_rng(5)
        return values(
            nystrom_magnitude(points, [0.1, 1.0], generator=generator, landmarks=30, **limits)
        )

    np.testing.assert_allclose(run(tile_rows=50), run(), rtol=1e-10)


def test_cells_find_nearly_the_same_vecchia_neighbours() -> None:
    rng = np.random.default_rng(6)
    points = as_points(rng.normal(size=(1500, 3)), "euclidean")
    scales = [1.0, 5.0, 20.0]
    whole = nystrom_magnitude(points, scales, generator=np.random.default_rng(7), landmarks=100)
    cells = nystrom_magnitude(
        points, scales, generator=np.random.default_rng(7), landmarks=100, cell_rows=400
    )
    assert (values(cells) != values(whole)).all()
    np.testing.assert_allclose(values(cells), values(whole), rtol=0.06)


def test_the_same_generator_gives_the_same_numbers() -> None:
    points = as_points(np.random.default_rng(8).normal(size=(300, 4)), "cosine")
    first, second = (
        nystrom_magnitude(points, [1.0, 9.0], generator=np.random.default_rng(9), landmarks=40)
        for _ in range(2)
    )
    assert first.estimates == second.estimates


# --- hard cases ------------------------------------------------------------------------------


def test_near_duplicates_gain_nothing() -> None:
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(120, 6))
    copies = rows[:40] + 1e-9 * rng.normal(size=(40, 6))
    found = nystrom_magnitude(
        as_points(np.concatenate((rows, copies)), "euclidean"),
        [0.5, 5.0],
        generator=rng,
        landmarks=30,
        vecchia=160,
    )
    np.testing.assert_allclose(values(found), dense(rows, [0.5, 5.0]), rtol=1e-6)
    assert found.points == 160


def test_similarities_that_are_not_numerically_definite() -> None:
    rng = np.random.default_rng(11)
    points = as_points(rng.normal(size=(400, 3)), "cosine")
    scales = [1e-4, 0.1, 5.0]
    found = nystrom_magnitude(points, scales, generator=rng, landmarks=200)
    assert found.estimates[0].value == pytest.approx(1.0, abs=1e-3)
    assert (np.diff(values(found)) > 0).all()
    assert values(found)[-1] < 400


def test_one_point() -> None:
    found = nystrom_magnitude(
        as_points([[1.0, 2.0]] * 3, "euclidean"), [0.0, 2.0], generator=np.random.default_rng(0)
    )
    assert values(found).tolist() == [1.0, 1.0]
    assert found.points == 1


def test_bad_arguments_are_refused() -> None:
    points, generator = as_points(np.eye(3), "euclidean"), np.random.default_rng(0)
    for scales in ([], [1.0, 1.0], [-1.0], [np.inf], [[1.0]]):
        with pytest.raises(ValueError, match="scales must be"):
            nystrom_magnitude(points, scales, generator=generator)
    with pytest.raises(ValueError, match="0 landmarks and 20 Vecchia neighbours"):
        nystrom_magnitude(points, [1.0], generator=generator, landmarks=0)
    with pytest.raises(ValueError, match="3 landmarks and 0 Vecchia neighbours"):
        nystrom_magnitude(points, [1.0], generator=generator, landmarks=3, vecchia=0)
