"""Linear CKA: against its definition with Gram matrices, left-out rows, limits, and its errors."""

from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from latentscale.alignment.linear_cka import BIASED, DEBIASED, linear_cka
from latentscale.estimate import Scored

Rows = NDArray[np.float64]


def score(x: Rows, y: Rows, name: str) -> Scored:
    found = linear_cka(x, y)[name]
    assert found is not None
    return found


def hsic0(k: Rows, g: Rows) -> float:
    centre = np.eye(len(k)) - 1.0 / len(k)
    return float(np.trace(k @ centre @ g @ centre))


def hsic1(k: Rows, g: Rows) -> float:
    """Song et al. 2012, equation 5, with matrices."""
    m, ones = len(k), np.ones(len(k))
    k, g = k - np.diag(np.diag(k)), g - np.diag(np.diag(g))
    whole = np.trace(k @ g) + (ones @ k @ ones) * (ones @ g @ ones) / ((m - 1) * (m - 2))
    return float((whole - 2.0 / (m - 2) * (ones @ k @ g @ ones)) / (m * (m - 3)))


def dense(x: Rows, y: Rows) -> dict[str, float]:
    k, g = x @ x.T, y @ y.T
    return {
        name: hsic(k, g) / np.sqrt(hsic(k, k) * hsic(g, g))
        for name, hsic in ((BIASED, hsic0), (DEBIASED, hsic1))
    }


def pairs(seed: int) -> tuple[Rows, Rows]:
    rng = np.random.default_rng(seed)
    m, d, e = int(rng.integers(10, 120)), int(rng.integers(1, 60)), int(rng.integers(1, 60))
    common = rng.normal(size=(m, 5)) * rng.uniform(0.0, 3.0)
    x = common @ rng.normal(size=(5, d)) + rng.normal(size=(m, d)) + 10.0 * rng.normal(size=d)
    y = common @ rng.normal(size=(5, e)) + rng.normal(size=(m, e))
    return x, 1e3 * y


@pytest.mark.parametrize("seed", range(50))
def test_it_equals_the_definition_and_its_jackknife_leaves_rows_out(seed: int) -> None:
    x, y = pairs(seed)
    m = len(x)
    expected = dense(x, y)
    without = [dense(np.delete(x, i, 0), np.delete(y, i, 0)) for i in range(m)]
    for name, value in expected.items():
        found = score(x, y, name)
        assert found.estimate.value == pytest.approx(value, abs=1e-9)
        assert found.estimate.lower - 1e-12 <= value <= found.estimate.upper + 1e-12
        assert found.estimate.upper - found.estimate.lower < 1e-6
        left = np.array([each[name] for each in without])
        error = np.sqrt((m - 1) / m * ((left - left.mean()) ** 2).sum())
        assert found.sampling_error == pytest.approx(error, rel=1e-6, abs=1e-9)


def test_the_debiased_terms_are_unbiased() -> None:
    # Over all orders of y the mean of the numerator is that of independent models: exactly 0.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    values = [hsic1(x @ x.T, y[list(order)] @ y[list(order)].T) for order in permutations(range(6))]
    assert np.mean(values) == pytest.approx(0.0, abs=1e-12)


def test_a_rotation_changes_nothing_and_another_model_has_nothing_in_common() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 30)) * np.linspace(0.1, 3.0, 30)
    rotation = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    for name in (BIASED, DEBIASED):
        turned = score(x, 7.0 - 0.2 * x @ rotation, name)
        assert turned.estimate.value == pytest.approx(1.0, abs=1e-12)
        assert turned.estimate.lower <= 1.0 == turned.estimate.upper
        assert turned.sampling_error == pytest.approx(0.0, abs=1e-7)
    other = rng.normal(size=(400, 300))
    assert score(x, other, BIASED).estimate.value > 0.1
    assert abs(score(x, other, DEBIASED).estimate.value) < 0.02


def test_equal_vectors_are_equal_whatever_their_mean_rounds_to() -> None:
    rng = np.random.default_rng(21)
    for m in range(10, 60):
        x, y = np.tile(rng.normal(size=(1, 16)), (m, 1)), rng.normal(size=(m, 8))
        for second in (y, np.tile(rng.normal(size=(1, 8)), (m, 1))):
            assert set(linear_cka(x, second).values()) == {None}


def test_equal_vectors_have_no_score_and_rows_must_be_paired() -> None:
    x = np.random.default_rng(2).normal(size=(20, 3))
    assert linear_cka(x, np.ones((20, 4))) == {BIASED: None, DEBIASED: None}
    lone = np.ones((20, 4))
    lone[3] = 2.0
    found = score(x, lone, BIASED)
    assert found.estimate.value == pytest.approx(dense(x, lone)[BIASED])
    assert found.sampling_error is None
    assert linear_cka(x, np.eye(20))[DEBIASED] is None
    with pytest.raises(ValueError, match="20 rows of one model and 19 of the other"):
        linear_cka(x, x[:19])
    with pytest.raises(ValueError, match="9 pairs of rows; 10 or more are needed"):
        linear_cka(x[:9], x[:9])
    with pytest.raises(ValueError, match="finite"):
        linear_cka(np.full((20, 3), np.nan), x)


def draw(rng: np.random.Generator, m: int) -> tuple[Rows, Rows]:
    """Ten clusters that the second model sees through noise, and partly mixed."""
    centres = np.random.default_rng(3).normal(size=(10, 40)) * 1.5
    label = rng.integers(0, 10, m)
    x = centres[label] + rng.normal(size=(m, 40))
    mixing = np.random.default_rng(4).normal(size=(40, 25)) / 6.0
    return x, np.tanh(x @ mixing) + 0.5 * rng.normal(size=(m, 25))


def test_sampling_errors_cover() -> None:
    rng = np.random.default_rng(5)
    found = [linear_cka(*draw(rng, 500)) for _ in range(200)]
    for name in (BIASED, DEBIASED):
        scored = [each[name] for each in found]
        values = np.array([each.estimate.value for each in scored if each])
        errors = np.array([each.sampling_error for each in scored if each])
        covered = np.abs(values - values.mean()) <= 1.96 * errors
        assert 0.90 <= covered.mean() <= 0.985


def test_random_items_stand_for_all() -> None:
    rng = np.random.default_rng(6)
    x, y = draw(rng, 5000)
    whole = score(x, y, DEBIASED)
    covered = 0
    for _ in range(100):
        drawn = rng.choice(5000, 1000, replace=False)
        sampled = linear_cka(x[drawn], y[drawn], 5000)[DEBIASED]
        assert sampled is not None
        assert sampled.estimate.bounds == "interval95"
        covered += sampled.estimate.lower <= whole.estimate.value <= sampled.estimate.upper
        assert sampled.sampling_error == pytest.approx(whole.sampling_error, rel=0.25)
    assert 90 <= covered <= 100
