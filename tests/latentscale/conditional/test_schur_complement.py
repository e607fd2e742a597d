"""The Scendi score and the explained share: least squares, closed forms, coverage."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from latentscale.conditional.schur_complement import EXPLAINED, SCENDI, schur_scores

Array = NDArray[Any]


def predicted(generator: np.random.Generator, m: int, noise: float = 0.5) -> tuple[Array, Array]:
    """Outputs that are linear in their prompts, and something of their own."""
    slopes = np.random.default_rng(0).normal(size=(6, 9))
    y = generator.normal(size=(m, 6)) + 1.0
    return y @ slopes + noise * 3.0 * generator.normal(size=(m, 9)), y


def unit(rows: Array) -> Array:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(50))
def test_scores_are_those_of_the_residuals_of_least_squares(seed: int) -> None:
    generator = np.random.default_rng([1, seed])
    x, y = predicted(generator, 150, noise=generator.uniform(0.1, 1.0))
    if seed % 3 == 0:
        y = np.hstack([y, y[:, :2]])  # of a lower rank
    residuals = unit(x) - unit(y) @ np.linalg.lstsq(unit(y), unit(x), rcond=None)[0]
    values = np.linalg.svd(residuals, compute_uv=False) ** 2 / 150
    left, rank = values.sum(), np.linalg.matrix_rank(y)
    found = schur_scores(x.astype("f4"), y.astype("f4"), 150)
    assert found is not None
    entropy = -(values * np.log(values / left)).sum()
    assert found[SCENDI].estimate.value == pytest.approx(np.exp(entropy), rel=1e-5)
    explained = 1.0 - left * 150 / (150 - rank)
    assert found[EXPLAINED].estimate.value == pytest.approx(explained, abs=1e-5)


def test_outputs_that_prompts_determine_and_outputs_without_a_tie() -> None:
    generator = np.random.default_rng(2)
    y = unit(generator.normal(size=(400, 5)))
    rotation = np.linalg.qr(generator.normal(size=(5, 5)))[0]
    found = schur_scores(y @ rotation, y, 400)
    assert found is not None
    assert found[SCENDI].estimate.value == pytest.approx(1.0, abs=1e-6)
    assert found[EXPLAINED].estimate.value == pytest.approx(1.0, abs=1e-6)
    found = schur_scores(
        generator.normal(size=(20_000, 4)), generator.normal(size=(20_000, 40)), 20_000
    )
    assert found is not None
    assert found[SCENDI].estimate.value == pytest.approx(4.0, abs=0.02)
    assert found[EXPLAINED].estimate.value == pytest.approx(0.0, abs=0.003)


def test_few_pairs_explain_nothing_by_chance() -> None:
    """The share isn't the larger for prompts of many dimensions."""
    found = []
    for seed in range(60):
        generator = np.random.default_rng([3, seed])
        outputs, prompts = generator.normal(size=(120, 8)), generator.normal(size=(120, 50))
        scored = schur_scores(outputs, prompts, 120)
        assert scored is not None
        found.append(scored[EXPLAINED].estimate.value)
    assert np.mean(found) == pytest.approx(0.0, abs=4 * np.std(found) / np.sqrt(60))
    assert schur_scores(outputs[:99], prompts[:99], 99) is None


@pytest.mark.parametrize("m", [200, 1000])
def test_sampling_errors_cover(m: int) -> None:
    found = []
    for seed in range(300):
        scored = schur_scores(*predicted(np.random.default_rng([4, seed]), m), m)
        assert scored is not None
        found.append(scored)
    for name in (SCENDI, EXPLAINED):
        values = np.array([each[name].estimate.value for each in found])
        errors = np.array([each[name].sampling_error for each in found], float)
        assert 0.90 <= np.mean(np.abs(values - values.mean()) <= 1.96 * errors) <= 0.985
