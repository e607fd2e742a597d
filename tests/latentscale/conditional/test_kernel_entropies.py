"""Conditional and information Vendi scores: closed forms, dense algebra, coverage."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import logm
from scipy.spatial.distance import cdist, pdist

from latentscale.conditional.kernel_entropies import (
    CONDITIONAL,
    INFORMATION,
    KernelEntropy,
    conditional_scores,
)

Array = NDArray[Any]


def gaussian(rows: Array, bandwidth: float) -> Array:
    return np.exp(-cdist(rows, rows, "sqeuclidean") / (2.0 * bandwidth**2))


def prompted(generator: np.random.Generator, m: int) -> tuple[Array, Array]:
    """Outputs of one of three kinds for each of five prompts, in clusters."""
    centres = (
        np.random.default_rng(0).normal(size=(5, 8)),
        np.random.default_rng(1).normal(size=(15, 6)),
    )
    prompt = generator.integers(5, size=m)
    output = 3 * prompt + generator.choice(3, size=m, p=[0.5, 0.3, 0.2])
    x = centres[1][output] + 0.2 * generator.normal(size=(m, 6))
    y = centres[0][prompt] + 0.1 * generator.normal(size=(m, 8))
    return x, y


def score(outputs: Array, prompts: Array, n: int, **medians: Any) -> dict[str, Any]:
    found, _ = conditional_scores(outputs, prompts, n, np.random.default_rng(0), **medians)
    return found


def scores(x: Array, y: Array) -> dict[str, Any]:
    return score(gaussian(x, 1.5), gaussian(y, 2.0), len(x))


def test_outputs_of_each_prompt_are_counted() -> None:
    """Four prompts with three kinds of outputs each, all equally frequent, no two alike."""
    prompts = np.repeat(np.arange(4), 30)
    outputs = 3 * prompts + np.tile(np.arange(3), 40)
    same = [(each[:, None] == each).astype(float) for each in (outputs, prompts)]
    found = score(same[0], same[1], 120)
    assert found[CONDITIONAL].estimate.value == pytest.approx(3.0)
    assert found[INFORMATION].estimate.value == pytest.approx(4.0)
    assert found[CONDITIONAL].sampling_error == pytest.approx(0.0, abs=1e-7)


def test_outputs_that_have_nothing_to_do_with_prompts() -> None:
    outputs, prompts = (each.ravel() for each in np.meshgrid(np.arange(6), np.arange(5)))
    same = [(each[:, None] == each).astype(float) for each in (outputs, prompts)]
    found = score(same[0], same[1], 30)
    assert found[CONDITIONAL].estimate.value == pytest.approx(6.0)
    assert found[INFORMATION].estimate.value == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(50))
def test_scores_are_those_of_matrix_logarithms(seed: int) -> None:
    generator = np.random.default_rng([3, seed])
    x, y = prompted(generator, 60)
    k, l = gaussian(x, 1.5), gaussian(y, 2.0)  # noqa: E741

    def entropy(kernel: Array) -> float:
        matrix = kernel / len(kernel) + 1e-15 * np.eye(len(kernel))
        return -float(np.trace(matrix @ logm(matrix)).real)

    found = score(k, l, 60)
    joint = entropy(k * l)
    assert found[CONDITIONAL].estimate.value == pytest.approx(np.exp(joint - entropy(l)), rel=1e-8)
    assert found[INFORMATION].estimate.value == pytest.approx(
        np.exp(entropy(k) + entropy(l) - joint), rel=1e-8
    )
    product = found[CONDITIONAL].estimate.value * found[INFORMATION].estimate.value
    assert product == pytest.approx(np.exp(entropy(k)), rel=1e-8)


@pytest.mark.parametrize(("d", "bandwidth"), [(1, 1.0), (6, 0.3), (6, 1.5), (50, 7.0), (50, 1e3)])
@pytest.mark.parametrize("copies", [1, 20])
def test_influences_are_those_of_leaving_each_row_out(
    d: int, bandwidth: float, copies: int
) -> None:
    rows = np.random.default_rng([4, d]).normal(size=(40, d))
    rows[:copies] = rows[0]
    kernel = gaussian(rows, bandwidth)
    found = KernelEntropy.of(kernel)

    def without(row: int) -> float:
        kept = np.delete(np.arange(40), row)
        values = np.maximum(np.linalg.eigvalsh(kernel[np.ix_(kept, kept)] / 39), 1e-18)
        return -float((values * np.log(values)).sum())

    left = np.array([without(row) for row in range(40)])
    assert found.influences == pytest.approx(39 * (left.mean() - left), rel=1e-7, abs=1e-8)


@pytest.mark.parametrize(("m", "bandwidth"), [(100, 1.2), (100, 2.0), (300, 1.2)])
def test_sampling_errors_cover_where_rows_have_little_in_common(m: int, bandwidth: float) -> None:
    """First-order influences gave two thirds of the error here, and covered in 76 to 86 %."""
    found = []
    for seed in range(60):
        generator = np.random.default_rng([12, m, seed])
        y = 4.0 * np.eye(6)[generator.integers(6, size=m)]
        x = y + generator.normal(size=(m, 6))
        found.append(score(gaussian(x, bandwidth), gaussian(y, 2.0), m)[CONDITIONAL])
    values = np.array([each.estimate.value for each in found])
    errors = np.array([each.sampling_error for each in found])
    assert 0.9 <= np.mean(np.abs(values - values.mean()) <= 1.96 * errors) <= 1.0
    assert 0.9 <= np.sqrt(np.mean(errors**2)) / values.std(ddof=1) <= 1.4


@pytest.mark.parametrize(
    ("m", "samples"), [(300, 60), pytest.param(1000, 400, marks=pytest.mark.full)]
)
def test_sampling_errors_cover(m: int, samples: int) -> None:
    """The mean over samples lies within 1.96 errors of the score in 90 to 98 % of samples."""
    found = [scores(*prompted(np.random.default_rng([5, seed]), m)) for seed in range(samples)]
    for name in (CONDITIONAL, INFORMATION):
        values = np.array([each[name].estimate.value for each in found])
        errors = np.array([each[name].sampling_error for each in found])
        assert 0.90 <= np.mean(np.abs(values - values.mean()) <= 1.96 * errors) <= 1.0


def median(rows: Array) -> float:
    return float(np.median(cdist(rows, rows)[np.triu_indices(len(rows), 1)]))


@pytest.mark.parametrize("d", [3, 30])
def test_sampling_errors_know_that_median_bandwidths_vary(d: int) -> None:
    """Without that they would be up to six times too large; now they are at most twice."""
    found = []
    mixing = np.random.default_rng(7).normal(size=(d, d)) / np.sqrt(d)
    for seed in range(60):
        generator = np.random.default_rng([8, d, seed])
        y = generator.normal(size=(200, d))
        x = y @ mixing + 0.5 * generator.normal(size=(200, d))
        kernels = gaussian(x, median(x)), gaussian(y, median(y))
        found.append(score(*kernels, 200, medians=(True, True)))
    for name in (CONDITIONAL, INFORMATION):
        values = np.array([each[name].estimate.value for each in found])
        errors = np.array([each[name].sampling_error for each in found], float)
        assert 0.85 * values.std() <= np.median(errors) <= 2.0 * values.std()
        assert np.mean(np.abs(values - values.mean()) <= 1.96 * errors) >= 0.9


def test_the_influence_of_a_median_bandwidth_is_its_derivative() -> None:
    """Weights of all rows of one kind grow by a little: the score moves as the influences say."""
    generator = np.random.default_rng(9)
    x, y = prompted(generator, 500)
    more = y[:, 0] > np.median(y[:, 0])
    share = np.where(more, 0.02, -0.02)
    found = score(gaussian(x, median(x)), gaussian(y, median(y)), 500, medians=(True, True))

    def weighted(weights: Array) -> float:
        widths = []
        for rows in (x, y):
            apart = cdist(rows, rows)[np.triu_indices(500, 1)]
            order = np.argsort(apart)
            mass = np.cumsum(np.outer(weights, weights)[np.triu_indices(500, 1)][order])
            widths.append(apart[order][np.searchsorted(mass, mass[-1] / 2)])
        k, l = gaussian(x, widths[0]), gaussian(y, widths[1])  # noqa: E741
        root = np.sqrt(weights)
        entropies = []
        for kernel in (k * l, l):
            values = np.linalg.eigvalsh(kernel * root[:, None] * root)
            values = values[values > 1e-15]
            entropies.append(-float((values * np.log(values)).sum()))
        return entropies[0] - entropies[1]

    slope = (weighted((1 + share) / 500) - weighted((1 - share) / 500)) / 2.0
    # The error is the standard deviation of the influences, so one of them is tried by itself.
    kernels = gaussian(x, median(x)), gaussian(y, median(y))
    fixed = KernelEntropy.of(kernels[0] * kernels[1]), KernelEntropy.of(kernels[1])
    at_fixed = float((fixed[0].influences - fixed[1].influences) @ share) / 500
    assert abs(slope) < 3 * found[CONDITIONAL].sampling_error
    assert slope != pytest.approx(at_fixed, rel=0.05)


def test_information_by_chance_is_that_of_shuffled_prompts() -> None:
    x, y = prompted(np.random.default_rng(10), 300)
    kernels = gaussian(x, 1.5), gaussian(y, 2.0)
    order = np.random.default_rng(1).permutation(300)
    again = score(kernels[0], kernels[1][np.ix_(order, order)], 300)
    _, chance = conditional_scores(*kernels, 300, np.random.default_rng(1))
    assert chance == pytest.approx(again[INFORMATION].estimate.value, rel=1e-9)
    assert 1.0 < chance < scores(x, y)[INFORMATION].estimate.value


def test_samples_of_the_items_bracket_each_other() -> None:
    generator = np.random.default_rng(6)
    x, y = prompted(generator, 900)
    drawn = [generator.choice(900, 200, replace=False) for _ in range(60)]
    found = [
        score(gaussian(x[rows], 1.5), gaussian(y[rows], 2.0), 900)[CONDITIONAL] for rows in drawn
    ]
    middle = np.mean([each.estimate.value for each in found])
    inside = [each.estimate.lower <= middle <= each.estimate.upper for each in found]
    assert np.mean(inside) >= 0.9
    assert all(each.estimate.bounds == "interval95" for each in found)


def test_a_median_between_two_groups_of_prompts_jumps() -> None:
    """It has no sampling error, and the bracket of random pairs allows for the jump."""
    generator = np.random.default_rng(11)
    prompts = generator.normal(size=(200, 4)) + 12.0 * (np.arange(200) % 2)[:, None]
    outputs = generator.normal(size=(200, 4))
    widths = [float(np.median(pdist(rows))) for rows in (outputs, prompts)]
    kernels = [gaussian(*each) for each in zip((outputs, prompts), widths, strict=True)]
    for n in (200, 5000):
        fixed = score(*kernels, n, medians=(True, False))
        found = score(*kernels, n, medians=(True, True))
        for name in (CONDITIONAL, INFORMATION):
            assert fixed[name].sampling_error is not None
            assert found[name].sampling_error is None
            assert found[name].estimate.value == fixed[name].estimate.value
            reach, before = (
                each[name].estimate.upper - each[name].estimate.lower for each in (found, fixed)
            )
            assert reach > 2.0 * before if n == 5000 else reach == before


def test_the_median_of_few_prompts_is_that_of_different_ones() -> None:
    """Of forty prompts with many outputs each, 1.96 errors cover the mean over samples."""
    centres = np.random.default_rng(12).normal(size=(40, 4))
    values, errors = [], []
    for seed in range(60):
        generator = np.random.default_rng([12, seed])
        y = centres[generator.integers(0, 40, 150)]
        x = y + generator.normal(size=(150, 4))
        widths = [float(np.median(distances[distances > 0])) for distances in (pdist(x), pdist(y))]
        found = score(gaussian(x, widths[0]), gaussian(y, widths[1]), 150, medians=(True, True))
        values.append([found[name].estimate.value for name in (CONDITIONAL, INFORMATION)])
        errors.append([found[name].sampling_error for name in (CONDITIONAL, INFORMATION)])
    known = np.array(errors, np.float64)
    assert np.isfinite(known).mean() > 0.9
    covered = np.abs(values - np.mean(values, axis=0)) <= 1.96 * known
    assert covered[np.isfinite(known[:, 0])].mean(axis=0).min() >= 0.88
