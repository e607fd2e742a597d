"""Precision, recall, density and coverage against their definitions, one pair at a time."""

from dataclasses import astuple
from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import load_digits

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


FAR = {"no": 1.0, "far": 1e16, "very far": 1e30}


@pytest.mark.parametrize("far", FAR.values(), ids=FAR)
@pytest.mark.parametrize("step", [0.0, 0.1, 1.0])
def test_memberships_are_without_rounding(far: float, step: float) -> None:
    rng = np.random.default_rng(0)
    e, r = rng.normal(size=(60, 4)) + 1.0, rng.normal(size=(40, 4))
    if step:  # many ties, which float64 rounds if the step isn't a power of two
        e, r = step * np.rint(e), step * np.rint(r)
    e, r = e.astype(np.float32).astype(float), r.astype(np.float32).astype(float)
    r[7] *= far
    found = exact_overlap(as_points(e, "euclidean"), as_points(r, "euclidean"), 3)
    assert astuple(found) == pytest.approx(exact_by_rationals(e, r, 3), rel=1e-12)


def exact_by_rationals(e: np.ndarray, r: np.ndarray, k: int) -> tuple[float, ...]:
    """The same definitions in rational numbers."""

    def table(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x, y = (np.vectorize(Fraction, otypes=[object])(rows) for rows in (x, y))
        return ((x[:, None] - y[None]) ** 2).sum(axis=2)

    own_e, own_r = (np.sort(table(rows, rows), axis=1)[:, k] for rows in (e, r))
    between = table(e, r)
    in_r, in_e = between <= own_r, between <= own_e[:, None]
    return (
        float(in_r.any(axis=1).mean()),
        float(in_e.any(axis=0).mean()),
        float(in_r.sum() / (k * len(e))),
        float(in_r.any(axis=0).mean()),
    )


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


def test_too_few_rows_are_refused() -> None:
    points = as_points(np.eye(3), "euclidean")
    with pytest.raises(ValueError, match="below 3"):
        exact_overlap(points, points, 3)
