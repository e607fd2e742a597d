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
    x, y = x.astype("f4").astype(float), y.astype("f4").astype(float)
    residuals = unit(x) - unit(y) @ np.linalg.lstsq(unit(y), unit(x), rcond=None)[0]
    values = np.linalg.svd(residuals, compute_uv=False) ** 2 / 150
    left, rank = values.sum(), np.linalg.matrix_rank(y)
    found = schur_scores(x.astype("f4"), y.astype("f4"), 150)
    with_intercept = np.column_stack([unit(y), np.ones(150)])
    beyond = unit(x) - with_intercept @ np.linalg.lstsq(with_intercept, unit(x), rcond=None)[0]
    assert found is not None
    entropy = -(values * np.log(values / left)).sum()
    assert found[SCENDI].estimate.value == pytest.approx(np.exp(entropy), rel=1e-5)
    variance = np.square(unit(x) - unit(x).mean(axis=0)).sum()
    explained = 1.0 - np.square(beyond).sum() / variance * 149 / (149 - rank)
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


def test_directions_without_a_residual_add_nothing() -> None:
    rng = np.random.default_rng(22)
    m, d = 300, 768
    prompts = rng.normal(size=(m, 3))
    prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
    frame = np.linalg.qr(rng.normal(size=(d, 4)))[0]
    signs = rng.choice([-1.0, 1.0], size=(m, 1))
    outputs = np.sqrt(0.5) * (prompts @ frame[:, :3].T + signs @ frame[:, 3:].T)
    fitted = signs - prompts @ np.linalg.lstsq(prompts, signs, rcond=None)[0]
    left = 0.5 * float(np.mean(fitted**2))
    found = schur_scores(outputs, prompts, m)
    assert found is not None
    estimate = found[SCENDI].estimate
    assert estimate is not None
    # One eigenvalue has no entropy beside itself.
    assert left > 0.4
    assert estimate.value == pytest.approx(1.0, abs=1e-9)
    assert estimate.lower <= 1.0 <= estimate.upper < 1.0 + 1e-5


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


def test_what_all_outputs_share_is_not_explained() -> None:
    """Nor is anything by a constant prompt; equal outputs have no variance to explain."""
    generator = np.random.default_rng(5)
    outputs, prompts = generator.normal(size=(2, 4000, 16)) + 1.0
    found = schur_scores(outputs, prompts, 4000)
    assert found is not None
    assert found[EXPLAINED].estimate.value == pytest.approx(0.0, abs=0.004)
    found = schur_scores(outputs, np.ones((4000, 3)), 4000)
    assert found is not None
    assert found[EXPLAINED].estimate.value == pytest.approx(0.0, abs=1e-3)
    found = schur_scores(np.ones((400, 3)), prompts[:400], 400)
    assert found is not None
    assert found.keys() == {SCENDI}


@pytest.mark.parametrize("kind", ["f2", "f4"])
@pytest.mark.parametrize(("decay", "centre"), [(0.0, 0.0), (1.0, 0.0), (1.0, 3.0), (0.0, 300.0)])
def test_small_directions_of_prompts_predict(kind: str, decay: float, centre: float) -> None:
    """Scores of stored rows are those of least squares, in half precision as well."""
    generator = np.random.default_rng(7)
    m, d = 1500, 128
    if (kind, centre) == ("f2", 300.0):
        centre = 10.0  # rounding is 1e-3 of the mean
    hidden = generator.normal(size=(m, d))
    y = (hidden * np.arange(1, d + 1.0) ** -decay) @ np.linalg.qr(generator.normal(size=(d, d)))[0]
    x = hidden @ generator.normal(size=(d, 12)) / np.sqrt(d) + 0.3 * generator.normal(size=(m, 12))
    y = np.column_stack([y + 0.0, np.full(m, centre)]).astype(kind)
    found = schur_scores(x, y, m)
    assert found is not None
    u, v = unit(x), unit(y.astype(float))
    residuals = u - v @ np.linalg.lstsq(v, u, rcond=None)[0]
    values = np.linalg.svd(residuals, compute_uv=False) ** 2 / m
    entropy = -(values * np.log(values / values.sum())).sum()
    scendi = found[SCENDI].estimate
    assert scendi.value == pytest.approx(np.exp(entropy), abs=1e-6)
    assert scendi.lower <= np.exp(entropy) <= scendi.upper
    shares = []
    for rank in (d, d + 1):  # The last column hardly varies.
        cu, cv = u - u.mean(axis=0), v[:, :rank] - v[:, :rank].mean(axis=0)
        beyond = cu - cv @ np.linalg.lstsq(cv, cu, rcond=None)[0]
        left = np.square(beyond).sum() / np.square(cu).sum()
        shares.append(1.0 - (m - 1) / (m - 1 - rank) * left)
    share = found[EXPLAINED].estimate
    assert any(share.lower - 1e-9 <= one <= share.upper + 1e-9 for one in shares)
    assert share.upper - share.lower < 1e-6


def test_the_rank_of_half_precision_is_not_that_of_its_rounding() -> None:
    generator = np.random.default_rng(6)
    prompts = generator.normal(size=(3000, 5)) @ generator.normal(size=(5, 64))
    outputs = generator.normal(size=(3000, 20))
    found = [schur_scores(outputs, prompts.astype(kind), 3000) for kind in ("f2", "f4", "f8")]
    values = [each[SCENDI].estimate.value for each in found if each is not None]
    assert values == pytest.approx([values[2]] * 3, rel=2e-3)
    assert schur_scores(outputs[:100], prompts[:100].astype("f2"), 100) is not None


@pytest.mark.parametrize("m", [12, 200, 3000])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i2"])
def test_prompts_in_one_direction_explain_nothing(m: int, kind: str) -> None:
    generator = np.random.default_rng([8, m])
    lengths = generator.integers(1, 10, size=(m, 1))
    direction = generator.normal(size=300) if kind == "f8" else generator.integers(1, 9, size=300)
    outputs = generator.normal(size=(m, 6)) + lengths
    for prompts in (lengths * direction, np.tile(direction, (m, 1))):
        found = schur_scores(outputs, prompts.astype(kind), m)
        assert found is not None
        assert found[EXPLAINED].estimate.value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("centre", [1e3, 1e5, 1e6])
def test_brackets_hold_far_from_the_origin(centre: float) -> None:
    generator = np.random.default_rng(9)
    y = generator.normal(size=(1000, 5)) + centre
    x = np.tanh(y - centre) @ generator.normal(size=(5, 7)) + generator.normal(size=(1000, 7))
    u, v = unit(x), unit(y)
    cu, cv = u - u.mean(axis=0), v - v.mean(axis=0)
    beyond = cu - cv @ np.linalg.lstsq(cv, cu, rcond=1e-9)[0]
    share = 1.0 - 999 / (999 - 5) * np.square(beyond).sum() / np.square(cu).sum()
    found = schur_scores(x, y, 1000)
    assert found is not None
    estimate = found[EXPLAINED].estimate
    assert estimate.lower <= share <= estimate.upper < estimate.lower + 1e-3


@pytest.mark.parametrize(("m", "extra"), [(200, 0), (1000, 0), (130, 54)])
def test_sampling_errors_cover(m: int, extra: int) -> None:
    found = []
    for seed in range(300):
        generator = np.random.default_rng([4, seed])
        outputs, prompts = predicted(generator, m)
        prompts = np.hstack([prompts, generator.normal(size=(m, extra))])
        scored = schur_scores(outputs, prompts, m)
        assert scored is not None
        found.append(scored)
    for name in (SCENDI, EXPLAINED):
        values = np.array([each[name].estimate.value for each in found])
        errors = np.array([each[name].sampling_error for each in found], float)
        assert 0.90 <= np.mean(np.abs(values - values.mean()) <= 1.96 * errors) <= 0.985
