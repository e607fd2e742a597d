"""The projection: its objective against another implementation, groups, and rows that are equal."""

from typing import Any

import numpy as np
import pytest

from latentscale.projection.tsne import MIN_ROWS, Projection, project
from latentscale.tiles.distances import as_points


def draw(rows: Any, metric: Any = "euclidean", **settings: Any) -> Projection:
    return project(as_points(rows, metric), np.random.default_rng(0), **settings)


def squared_distances(rows: Any) -> Any:
    return ((rows[:, None] - rows[None]) ** 2).sum(axis=2)


def joint(rows: Any, perplexity: float) -> Any:
    """The probabilities of all pairs by their definition, with all rows as neighbours."""
    n, squared = len(rows), squared_distances(rows)
    affinities = np.zeros((n, n))
    for i in range(n):
        others = np.delete(np.arange(n), i)
        low, high = 1e-10, 1e10
        for _ in range(100):
            middle = np.sqrt(low * high)
            weights = np.exp(-middle * (squared[i, others] - squared[i, others].min()))
            weights /= weights.sum()
            entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum()
            low, high = (middle, high) if entropy > np.log(perplexity) else (low, middle)
        affinities[i, others] = weights
    return (affinities + affinities.T) / (2 * n)


def divergence(probabilities: Any, places: Any) -> float:
    near = 1.0 / (1.0 + squared_distances(places.astype(float)))
    np.fill_diagonal(near, 0.0)
    shares = near / near.sum()
    known = probabilities > 0
    return float((probabilities[known] * np.log(probabilities[known] / shares[known])).sum())


def grouped(generator: np.random.Generator, n: int, groups: int, d: int = 12) -> Any:
    centres = 3.0 * generator.standard_normal((groups, d))
    chosen = generator.integers(groups, size=n)
    return centres[chosen] + generator.standard_normal((n, d)), chosen


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_it_is_as_low_as_that_of_another_implementation(seed: int) -> None:
    manifold = pytest.importorskip("sklearn.manifold")
    rows, _ = grouped(np.random.default_rng(seed), 250, 6)
    probabilities = joint(rows, 20.0)
    theirs = manifold.TSNE(perplexity=20.0, init="pca", random_state=seed, method="exact")
    ours = divergence(probabilities, draw(rows, perplexity=20.0).places)
    assert ours <= 1.1 * divergence(probabilities, theirs.fit_transform(rows))


def test_kept_neighbours_are_counted_by_the_definition() -> None:
    rows, _ = grouped(np.random.default_rng(5), 300, 4)
    found = draw(rows)
    kept = []
    for space in (rows, found.places.astype(float)):
        squared = squared_distances(space)
        np.fill_diagonal(squared, np.inf)
        kept.append(np.argsort(squared, axis=1)[:, :10])
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(*kept, strict=True)]
    assert found.kept == pytest.approx(np.mean(shares), abs=1e-12)
    assert 0.4 < found.kept < 1.0


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_groups_stay_together(metric: str) -> None:
    rows, chosen = grouped(np.random.default_rng(6), 500, 5, 30)
    squared = squared_distances(draw(rows, metric).places)
    np.fill_diagonal(squared, np.inf)
    assert (chosen[squared.argmin(axis=1)] == chosen).mean() > 0.99


def test_equal_rows_lie_side_by_side_and_one_dimension_is_enough() -> None:
    rows = np.repeat(np.random.default_rng(7).standard_normal((40, 5)), 3, axis=0)
    squared = squared_distances(draw(rows).places)
    np.fill_diagonal(squared, np.inf)
    assert (squared.argmin(axis=1) // 3 == np.arange(120) // 3).all()
    line = draw(np.arange(60.0)[:, None])
    assert line.kept > 0.9
    alike = draw(np.ones((30, 2)))
    assert np.isfinite(alike.places).all()


def test_it_is_the_same_again_and_needs_some_rows() -> None:
    rows, _ = grouped(np.random.default_rng(8), 120, 3)
    assert (draw(rows).places == draw(rows).places).all()
    with pytest.raises(ValueError, match=f"needs {MIN_ROWS} rows or more, got 19"):
        draw(rows[:19])


def test_any_of_many_equal_rows_is_a_kept_neighbour() -> None:
    rows = np.repeat(np.random.default_rng(9).standard_normal((12, 6)), 50, axis=0)
    assert draw(rows).kept > 0.95


def test_a_row_far_from_all_others_hides_nothing() -> None:
    """Of a small corpus it is among the neighbours that decide every row's bandwidth."""
    rows, chosen = grouped(np.random.default_rng(9), 80, 4)
    rows[0] *= 1e7
    drawn = draw(rows)
    squared = squared_distances(drawn.places)[1:, 1:]
    np.fill_diagonal(squared, np.inf)
    assert (chosen[1:][squared.argmin(axis=1)] == chosen[1:]).mean() > 0.95
    assert drawn.kept > 0.5


@pytest.mark.parametrize(("asked", "used"), [(5.0, 5.0), (30.0, 13.0)])
def test_a_perplexity_is_at_most_a_third_of_the_rows(asked: float, used: float) -> None:
    rows = np.random.default_rng(3).normal(size=(40, 3))
    assert draw(rows, perplexity=asked).perplexity == used
