"""Intrinsic dimensions equal their formulas, find known ones, and their errors cover."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from latentscale.intrinsic_dimension.estimators import (
    NeighbourDistances,
    neighbour_distances,
    with_content_keys,
)
from latentscale.intrinsic_dimension.scores import Dimensions, score_dimensions
from latentscale.neighbours.exact import nearest
from latentscale.sampling.halves import divide
from latentscale.tiles.distances import Metric, as_points

NEIGHBOURS = (5, 10, 20)


def searched(
    rows: np.ndarray, length: int, metric: Metric = "euclidean", asked: np.ndarray | None = None
) -> NeighbourDistances:
    points, ids = with_content_keys(as_points(rows, metric)), np.arange(len(rows))
    asked = ids if asked is None else asked
    found = nearest(points.take(asked), points, length, query_ids=asked, candidate_ids=ids)
    return neighbour_distances(asked, found, metric)


def scored(
    rows: np.ndarray, seed: int | None = None, length: int = 64, **search: object
) -> Dimensions:
    lists = searched(rows, min(length, len(rows) - 1), **search)  # type: ignore[arg-type]
    return score_dimensions(lists, len(rows), rows.shape[1], NEIGHBOURS, seed)


def sorted_distances(rows: np.ndarray) -> np.ndarray:
    """Distances of every row to the others, ascending, by brute force."""
    differences = rows[:, None, :] - rows[None, :, :]
    found = np.sqrt((differences**2).sum(axis=-1))
    return np.sort(found, axis=1)[:, 1:]


def likelihood_of_levina_and_bickel(distances: np.ndarray, k: int) -> float:
    """The mean of the inverse local estimates, and its reciprocal."""
    inverse = [
        sum(math.log(own[k - 1] / own[j]) for j in range(k - 1)) / (k - 1) for own in distances
    ]
    return 1.0 / (sum(inverse) / len(inverse))


def slope_of_facco(distances: np.ndarray) -> float:
    """The steps of the paper, with a least-squares line through the origin."""
    ratio = np.sort(distances[:, 1] / distances[:, 0])
    n = len(ratio)
    kept = ratio[: int(0.9 * n)]
    y = [-math.log(1.0 - i / n) for i in range(1, len(kept) + 1)]
    return float(np.linalg.lstsq(np.log(kept)[:, None], np.array(y), rcond=None)[0][0])


SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(8, 50))]


@pytest.mark.parametrize("seed", SEEDS)
def test_they_equal_the_published_formulas(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n, d = int(generator.integers(40, 200)), int(generator.integers(2, 20))
    rows = generator.normal(size=(n, d)) * 10.0 ** generator.integers(-4, 5)
    distances, found = sorted_distances(rows), scored(rows)
    expected = [slope_of_facco(distances)]
    expected += [likelihood_of_levina_and_bickel(distances, k) for k in NEIGHBOURS]
    for value, own in zip(expected, (found.two_nearest, *found.maximum_likelihood), strict=True):
        assert own.estimate is not None
        assert own.estimate.value == pytest.approx(value, rel=1e-9)
        assert own.estimate.lower <= value <= own.estimate.upper
        assert own.estimate.bounds == "exact"
        assert own.rows == n


def cube(generator: np.random.Generator, n: int, dimension: int) -> np.ndarray:
    """A cube without edges, curled up into twice as many coordinates."""
    angles = 2.0 * math.pi * generator.random((n, dimension))
    return np.hstack([np.cos(angles), np.sin(angles)])


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_known_dimensions_are_found(dimension: int) -> None:
    found = scored(cube(np.random.default_rng(1), 4000, dimension))
    for own in (found.two_nearest, *found.maximum_likelihood):
        assert own.estimate is not None
        assert own.estimate.value == pytest.approx(dimension, rel=0.08)


def test_the_cosine_metric_measures_chords() -> None:
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(600, 6))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found, expected = scored(rows, metric="cosine"), scored(unit)
    for own, other in zip(found.maximum_likelihood, expected.maximum_likelihood, strict=True):
        assert own.estimate is not None
        assert other.estimate is not None
        assert own.estimate.value == pytest.approx(other.estimate.value, rel=1e-6)


def test_copies_of_rows_change_little() -> None:
    """Copies have no distance, and a neighbour's copies count once."""
    rows = np.random.default_rng(3).normal(size=(400, 5))
    plain, doubled = scored(rows), scored(np.concatenate([rows, rows]))
    for own, other in zip(plain.maximum_likelihood, doubled.maximum_likelihood, strict=True):
        assert own.estimate is not None
        assert other.estimate is not None
        assert own.estimate.value == pytest.approx(other.estimate.value, rel=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("levels", [1, 2, 5])
def test_different_rows_at_equal_distances_all_count(levels: int, metric: Metric) -> None:
    """Whole numbers, and signs: as quantised embeddings are."""
    rows = np.random.default_rng(levels).normal(size=(300, 24))
    rows = np.sign(rows) if levels == 1 else np.round(rows * levels / 2) + 0.25
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True) if metric == "cosine" else rows
    distances, found = sorted_distances(unit), scored(rows, metric=metric)
    assert distances[:, 0].min() > 0.1
    for k, own in zip(NEIGHBOURS, found.maximum_likelihood, strict=True):
        assert own.estimate is not None
        expected = likelihood_of_levina_and_bickel(distances, k)
        assert own.estimate.value == pytest.approx(expected, rel=1e-7)
    doubled = scored(np.concatenate([rows, rows]), metric=metric)
    assert doubled.maximum_likelihood[0].estimate is not None
    assert found.maximum_likelihood[0].estimate is not None
    assert doubled.maximum_likelihood[0].estimate.value == pytest.approx(
        found.maximum_likelihood[0].estimate.value, rel=1e-12
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_copies_up_to_a_factor_have_no_direction_of_their_own(dtype: type[np.floating]) -> None:
    rows = np.random.default_rng(3).normal(size=(400, 12)).astype(dtype)
    plain = scored(rows, metric="cosine")
    longer = scored(np.concatenate([rows, dtype(3.0) * rows]), metric="cosine")
    for own, other in zip(plain.maximum_likelihood, longer.maximum_likelihood, strict=True):
        assert own.estimate is not None
        assert other.estimate is not None
        assert other.estimate.value == pytest.approx(own.estimate.value, rel=0.02)


def test_few_rows_with_neighbours_have_no_interval() -> None:
    """Halves of them have none, so nothing says how far other random rows would move the score."""
    generator = np.random.default_rng(9)
    rows = np.concatenate([np.zeros((990, 4)), generator.normal(size=(12, 4))])
    asked = np.arange(900, 1002)
    found = scored(rows, seed=0, asked=asked)
    assert found.two_nearest.estimate is None
    assert scored(rows, seed=0).two_nearest.estimate is not None


def test_without_enough_neighbours_there_is_no_score() -> None:
    found = scored(np.arange(12.0)[:, None] ** 2)
    assert found.two_nearest.estimate is not None
    assert [own.rows for own in found.maximum_likelihood] == [12, 12, 0]
    assert found.maximum_likelihood[2].estimate is None
    equal = scored(np.ones((30, 3)), seed=0)
    assert equal.two_nearest.estimate is None
    assert equal.two_nearest.sampling_error is None


def test_halves_are_what_a_search_in_half_of_the_corpus_finds() -> None:
    rows = np.random.default_rng(4).normal(size=(220, 4))
    rows = np.concatenate([rows, rows[:80]])
    lists = searched(rows, 150)
    for place, (rows_in, near_in) in enumerate(divide(lists.rows, lists.indices, 5)):
        if place not in (0, 15):
            continue
        own = np.flatnonzero(rows_in)
        expected = score_dimensions(searched(rows[own], 40), len(own), 4, NEIGHBOURS, None)
        found = score_dimensions(lists.half(rows_in, near_in), 300, 4, NEIGHBOURS, 0)
        for ours, theirs in zip(found.maximum_likelihood, expected.maximum_likelihood, strict=True):
            assert ours.estimate is not None
            assert theirs.estimate is not None
            assert ours.rows == theirs.rows
            assert ours.estimate.value == pytest.approx(theirs.estimate.value, rel=1e-12)


def test_divisions_are_even_and_independent() -> None:
    numbers = np.arange(40_000)
    one = np.ones((40_000, 1), dtype=np.int64)
    lists = NeighbourDistances(
        numbers,
        np.zeros((40_000, 1)),
        numbers[:, None],
        0 * one,
        one,
        one.astype(bool),
        np.zeros(40_000, np.bool_),
    )
    drawn = np.array([rows for rows, _ in divide(lists.rows, lists.indices, 11)], dtype=float)
    np.testing.assert_array_equal(drawn[::2], 1.0 - drawn[1::2])
    assert all((near[:, 0] == rows).all() for rows, near in divide(lists.rows, lists.indices, 11))
    assert np.abs(drawn.mean(axis=1) - 0.5).max() < 0.01
    assert np.abs(np.corrcoef(drawn[::2]) - np.eye(20)).max() < 0.025


def normal(generator: np.random.Generator, n: int) -> np.ndarray:
    return generator.normal(size=(n, 8))


def clusters(generator: np.random.Generator, n: int) -> np.ndarray:
    centres = 3.0 * np.random.default_rng(5).normal(size=(10, 30))
    return centres[generator.integers(10, size=n)] + generator.normal(size=(n, 30)) / np.arange(
        1, 31
    )


@pytest.mark.parametrize("source", [clusters, pytest.param(normal, marks=pytest.mark.full)])
@pytest.mark.parametrize("tries", [25, pytest.param(200, marks=pytest.mark.full)])
def test_sampling_errors_cover_the_mean_over_samples(
    source: Callable[[np.random.Generator, int], np.ndarray], tries: int
) -> None:
    found = [
        scored(source(np.random.default_rng([6, seed]), 1000), seed=seed) for seed in range(tries)
    ]
    for place in range(4):
        own = [(each.two_nearest, *each.maximum_likelihood)[place] for each in found]
        values = np.array([each.estimate.value for each in own if each.estimate is not None])
        errors = np.array([each.sampling_error for each in own])
        share = np.mean(np.abs(values - values.mean()) < 1.96 * errors)
        assert 0.9 <= share <= (0.999 if tries > 100 else 1.0), (place, share)


def test_what_random_rows_add_is_in_the_bracket_alone() -> None:
    rows = clusters(np.random.default_rng(7), 3000)
    whole = scored(rows, seed=0)
    for seed in range(3):
        asked = np.sort(np.random.default_rng([8, seed]).choice(3000, 300, replace=False))
        found = scored(rows, seed=seed, asked=asked)
        for own, other in zip(found.maximum_likelihood, whole.maximum_likelihood, strict=True):
            assert own.sampling_error is not None
            assert own.sampling_error == pytest.approx(other.sampling_error, rel=0.6)


def test_brackets_of_random_rows_hold_the_score_of_all() -> None:
    rows = clusters(np.random.default_rng(7), 3000)
    whole = scored(rows)
    held = []
    for seed in range(40):
        asked = np.sort(np.random.default_rng([8, seed]).choice(3000, 300, replace=False))
        found = scored(rows, seed=seed, asked=asked)
        for own, other in zip(found.maximum_likelihood, whole.maximum_likelihood, strict=True):
            assert own.estimate is not None
            assert other.estimate is not None
            assert own.estimate.bounds == "interval95"
            held.append(own.estimate.lower <= other.estimate.value <= own.estimate.upper)
    assert np.mean(held) > 0.88


def test_lists_that_halves_cut_too_short_give_no_error() -> None:
    """With lists twice as long as k, half of the rows lack k neighbours in a random half."""
    rows = normal(np.random.default_rng(9), 500)
    k = NEIGHBOURS[-1]
    for length, known in ((2 * k, False), (3 * k, True)):
        dimension = scored(rows, 1, length).maximum_likelihood[-1]
        assert dimension.estimate is not None
        assert (dimension.sampling_error is not None) is known


def test_kinds_of_about_as_many_rows_as_neighbours_have_no_error() -> None:
    """Of 30 rows of a kind, a half has 15: its 20th neighbour is of another kind."""
    generator = np.random.default_rng(12)
    centres = 4.0 * generator.normal(size=(20, 8))
    rows = centres[np.arange(600) % 20] + 0.1 * generator.normal(size=(600, 8))
    first, *_, last = scored(rows, 3).maximum_likelihood
    assert first.estimate is not None
    assert first.sampling_error is not None
    assert last.estimate is not None
    assert last.sampling_error is None
    few = scored(rows[np.arange(600) % 20 < 2], 3).maximum_likelihood[-1]
    assert few.sampling_error is None
    many = centres[np.arange(600) % 4] + 0.1 * generator.normal(size=(600, 8))
    assert scored(many, 3).maximum_likelihood[-1].sampling_error is not None
