"""Modes under the RBF kernel: dense algebra on the kernel of all rows is inside their interval."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from latentscale.linalg.fourier_features import draw_frequencies
from latentscale.modes.difference import GroupMoments, leading_modes, moments_difference
from latentscale.modes.features import eigenvalue_intervals, unit_features

Array = NDArray[Any]
M, N, D = 260, 200, 24


def two_corpora(seed: int) -> tuple[np.random.Generator, Array, Array, Array]:
    """Clusters, one of which is frequent in the first corpus; two have one direction."""
    generator = np.random.default_rng([41, seed])
    centres = generator.normal(size=(6, D)) / np.sqrt(D)
    centres[0] = 2.0 * centres[1]
    rows, kinds = [], []
    for n, shares in ((M, [0.25, 0.05, 0.2, 0.2, 0.2, 0.1]), (N, [0.15, 0.15, 0.2, 0.2, 0.2, 0.1])):
        kind = generator.choice(6, size=n, p=shares)
        rows.append(centres[kind] + 0.06 * generator.normal(size=(n, D)))
        kinds.append(kind)
    return generator, *rows, kinds[0]


def largest_of_the_kernel(x: Array, y: Array, bandwidth: float) -> Array:
    """The largest eigenvalue of either sign of the difference of two kernel covariances.

    With the joint kernel K and weights w of its rows, the non-zero eigenvalues are those of
    K^(1/2) diag(w) K^(1/2).
    """
    rows = np.concatenate([x, y])
    kernel = np.exp(-cdist(rows, rows, "sqeuclidean") / (2.0 * bandwidth**2))
    values, vectors = np.linalg.eigh(kernel)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    weights = np.concatenate([np.full(len(x), 1.0 / len(x)), np.full(len(y), -1.0 / len(y))])
    found = np.linalg.eigvalsh((root * weights) @ root)
    return np.array([found[-1], -found[0]])


def moments(x: Array, y: Array) -> GroupMoments:
    return GroupMoments(np.stack([x.T @ x, y.T @ y]), np.array([len(x), len(y)]), 1)


@pytest.mark.parametrize("others", [500, 100])
def test_intervals_hold_a_kernel_that_tells_all_rows_apart(others: int) -> None:
    """The eigenvalues of features then fall with the root of their number."""
    generator = np.random.default_rng([43, others])
    missed = 0
    for _ in range(8):
        frequencies = draw_frequencies("rbf", 0.05, 16, 64, generator)
        sides = [unit_features(generator.normal(size=(m, 16)), frequencies) for m in (500, others)]
        for (lower, upper), m in zip(
            eigenvalue_intervals(moments_difference(moments(*sides))), (500, others), strict=True
        ):
            missed += not lower <= 1.0 / m <= upper
    assert missed <= 2


@pytest.mark.parametrize(
    "seeds", [range(50), pytest.param(range(400), marks=pytest.mark.full)], ids=["50", "400"]
)
def test_intervals_cover_the_kernel_of_all_rows(seeds: range) -> None:
    inside, relative = [], []
    for seed in seeds:
        generator, x, y, _ = two_corpora(seed)
        bandwidth = float(np.median(cdist(x[:100], x[100:200])) * (1.0, 0.5)[seed % 2])
        frequencies = draw_frequencies("rbf", bandwidth, D, 64, generator)
        sides = moments(*(unit_features(rows, frequencies) for rows in (x, y)))
        intervals = eigenvalue_intervals(moments_difference(sides))
        for modes, (lower, upper), true in zip(
            leading_modes(sides, 1), intervals, largest_of_the_kernel(x, y, bandwidth), strict=True
        ):
            assert lower <= modes.values[0] <= upper
            inside.append(lower <= true <= upper)
            relative.append((upper - lower) / true)
    assert np.mean(inside) >= 0.93
    assert np.median(relative) < 0.4


def test_many_frequencies_have_the_eigenvalues_of_the_kernel() -> None:
    generator, x, y, _ = two_corpora(1000)
    frequencies = draw_frequencies("rbf", 1.0, D, 512, generator)
    difference = moments_difference(
        moments(*(unit_features(rows, frequencies) for rows in (x[:100], y[:80])))
    )
    values = np.linalg.eigvalsh(difference)
    true = largest_of_the_kernel(x[:100], y[:80], 1.0)
    assert [values[-1], -values[0]] == pytest.approx(true, rel=0.1)


def test_a_kind_farther_out_in_one_direction_is_a_mode_of_this_kernel_alone() -> None:
    """Two kinds with one direction differ by place: the cosine kernel sees their sum only."""
    generator, x, y, kinds = two_corpora(7)
    bandwidth = 0.5 * float(np.median(cdist(x[:100], x[100:200])))
    frequencies = draw_frequencies("rbf", bandwidth, D, 256, generator)
    found = {}
    for name, drawn in (("rbf", frequencies), ("cosine", None)):
        unit = [unit_features(rows, drawn) for rows in (x, y)]
        novel, _ = leading_modes(moments(*unit), 1)
        nearest = np.argsort(-np.abs(unit[0] @ novel.directions[:, 0]))[:20]
        found[name] = np.mean(kinds[nearest] == 0)
    assert found["rbf"] == 1.0
    assert found["cosine"] < 0.9


def test_features_are_unit_vectors_and_nothing_differs_from_itself() -> None:
    generator, x, *_ = two_corpora(3)
    frequencies = draw_frequencies("rbf", 1.0, D, 16, generator)
    for drawn in (None, frequencies):
        unit = unit_features(x, drawn)
        assert np.linalg.norm(unit, axis=1) == pytest.approx(1.0, abs=1e-6)
    intervals = eigenvalue_intervals(moments_difference(moments(unit, unit)))
    assert np.array(intervals).tolist() == [[0.0, 0.0], [0.0, 0.0]]
