"""Precision, recall, density and coverage against their definitions, one pair at a time."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy.stats import betabinom
from sklearn.datasets import load_digits

from latentscale.baselines.clipping import expected_filling, share_of_good_rows
from latentscale.baselines.manifold_overlap import approximate_overlap, exact_overlap
from latentscale.tiles.distances import as_points
from tests import oracles


@pytest.mark.parametrize(("m", "n", "k"), [(7, 9, 1), (60, 45, 3), (130, 200, 5)])
def test_scores_equal_their_definitions(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m)
    e, r = rng.normal(size=(m, 3)) + 0.7, rng.normal(size=(n, 3)) * 1.3
    e[:2] = r[:2]
    found = exact_overlap(as_points(e, "euclidean"), as_points(r, "euclidean"), k)
    assert astuple(found) == pytest.approx(oracles.manifold_overlap(e, r, k), rel=1e-12)


def test_a_clean_sample_ranks_above_a_corrupted_one_and_lists_agree() -> None:
    digits, classes = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(digits))
    reference, clean = digits[order[:900]], digits[order[900:1700]]
    samples = {
        "clean": clean,
        "noisy": clean + rng.normal(scale=6.0, size=clean.shape),
        "one-sided": clean[classes[order[900:1700]] < 5],
    }
    points, scores = as_points(reference, "euclidean"), {}
    for name, rows in samples.items():
        evaluated = as_points(rows, "euclidean")
        scores[name] = exact_overlap(evaluated, points, 5)
        lists = approximate_overlap(evaluated, points, 5, np.random.default_rng(1))
        np.testing.assert_allclose(astuple(lists), astuple(scores[name]), atol=0.05)
    # Noise leaves the region of the reference; what covers only a part of it misses the rest. (The
    # balls of noisy rows are wide, so their recall says little.)
    for score, corrupted in (
        ("precision", "noisy"), ("density", "noisy"), ("coverage", "noisy"),
        ("recall", "one-sided"), ("coverage", "one-sided"),
    ):  # fmt: skip
        assert getattr(scores["clean"], score) > getattr(scores[corrupted], score) + 0.05


def test_a_set_against_itself_is_wholly_covered() -> None:
    points = as_points(np.random.default_rng(2).normal(size=(50, 2)), "euclidean")
    found = exact_overlap(points, points, 3)
    assert found.precision == found.recall == found.coverage == 1.0
    # A row lies in its own ball and in those of the rows it is a near neighbour of: k on average.
    assert found.density == pytest.approx(4 / 3)


@pytest.mark.parametrize("bad", [0.0, 0.3, 0.6])
def test_clipped_scores_are_shares_of_good_rows(bad: float) -> None:
    """Rows from elsewhere take off their share, and outliers of the reference change little."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(4):
        e, r = rng.normal(size=(800, 8)), rng.normal(size=(1000, 8))
        e[: round(bad * 800)] += 100.0
        r[:50] = 30.0 * rng.normal(size=(50, 8))
        scores = exact_overlap(as_points(e, "euclidean"), as_points(r, "euclidean"), 5)
        found.append((scores.clipped_density, scores.clipped_coverage))
    density, coverage = np.mean(found, axis=0)
    assert density == pytest.approx(1.0 - bad, abs=0.06)
    assert coverage == pytest.approx(0.95 * (1.0 - bad), abs=0.06)


@pytest.mark.parametrize("shape", [(1, 2, 1), (40, 30, 5), (200, 30, 29), (3, 500, 7)])
def test_the_expected_filling_is_that_of_beta_binomial_counts(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    counts = np.arange(m + 1)
    chance = betabinom(m, k, n - k).pmf(counts)
    expected = float(np.minimum(counts, k) @ chance) / k
    assert expected_filling(np.array([float(m)]), n, k)[0] == pytest.approx(expected, rel=1e-9)
    assert share_of_good_rows(expected, m, n, k) == pytest.approx(1.0)
    assert share_of_good_rows(0.0, m, n, k) == 0.0


def test_too_few_rows_are_refused() -> None:
    points = as_points(np.eye(3), "euclidean")
    with pytest.raises(ValueError, match="below 3"):
        exact_overlap(points, points, 3)
