"""Influences are the changes of the score when a row is left out."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from latentscale.vendi.influence import LARGE_LEVERAGE, Influence
from latentscale.vendi.scores import moment_spectrum, vendi_score
from latentscale.vendi.second_moments import second_moment
from tests import oracles

ORDERS = [0.5, 1.0, 2.0, math.inf]


def score_by_force(rows: np.ndarray, order: float, weights: np.ndarray) -> float:
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    return float(oracles.vendi_score(unit @ unit.T, weights / weights.sum(), order))


def left_out(rows: np.ndarray, order: float, weights: np.ndarray) -> np.ndarray:
    whole = score_by_force(rows, order, weights)
    return np.array(
        [
            whole - score_by_force(np.delete(rows, i, 0), order, np.delete(weights, i))
            for i in range(len(rows))
        ]
    )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_influences_are_what_leaving_a_row_out_changes(order: float, weighted: bool) -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(200, 6)) + np.array([2.0, 0, 0, 0, 0, 0])
    weights = generator.uniform(0.2, 2.0, 200) if weighted else np.ones(200)
    moment = second_moment(rows, weights)
    influence = Influence.of(moment, order)
    assert influence.score == pytest.approx(score_by_force(rows, order, weights), rel=1e-9)
    found = influence.of_rows(rows, weights)
    true = left_out(rows, order, weights)
    np.testing.assert_allclose(found, true, atol=3e-3 * np.abs(true).max())


MANY: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "one direction": lambda g: g.normal(size=(3000, 6)) + np.array([2.0, 0, 0, 0, 0, 0]),
    # Every row adds a little, which the first order doesn't see.
    "all directions": lambda g: g.normal(size=(3000, 28)),
    "equal eigenvalues": lambda g: np.repeat(np.eye(6), 200, axis=0),
    "steep": lambda g: g.normal(size=(3000, 20)) * np.geomspace(1, 0.01, 20),
}


@pytest.mark.parametrize(("order", "within"), [(0.5, 0.05), (1.0, 5e-3), (2.0, 1e-8), (5.0, 5e-3)])
@pytest.mark.parametrize("case", MANY)
def test_rows_of_small_leverages_need_two_orders(case: str, order: float, within: float) -> None:
    rows = MANY[case](np.random.default_rng(3))
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    leverages = np.sum(np.linalg.pinv(unit) * unit.T, axis=0)
    assert (leverages < LARGE_LEVERAGE).mean() > 0.8
    found = Influence.of(second_moment(rows), order).of_rows(rows[:40])

    def score(some: np.ndarray) -> float:
        values = np.linalg.eigvalsh(some.T @ some) / len(some)
        return float(oracles.hill_number(values, order))

    true = np.array([score(unit) - score(np.delete(unit, i, axis=0)) for i in range(40)])
    np.testing.assert_allclose(found, true, atol=within * np.abs(true).max())


CASES: dict[str, Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]] = {
    # Every row of many dimensions adds something.
    "growing": lambda g: (g.normal(size=(150, 120)) * np.geomspace(3, 0.1, 120), np.ones(150)),
    "few": lambda g: (g.normal(size=(30, 100)), np.ones(30)),
    "orthogonal": lambda g: (np.eye(9), np.ones(9)),
    "copies": lambda g: (np.repeat(g.normal(size=(12, 9)), 3, axis=0), np.ones(36)),
    "heavy": lambda g: (g.normal(size=(120, 50)), np.r_[1e6, 1e6, 1e6, np.ones(117)]),
    "nearly all": lambda g: (g.normal(size=(120, 50)), np.r_[1e9, np.ones(119)]),
    "frequencies": lambda g: (g.normal(size=(120, 50)), 1 / np.arange(1, 121.0)),
    "some of none": lambda g: (g.normal(size=(60, 5)), np.r_[np.zeros(10), np.ones(50)]),
}


@pytest.mark.parametrize("order", [0.5, 1.0, 1.0 + 1e-6, 2.0, 3.5, 20.0, 50.0, math.inf])
@pytest.mark.parametrize("case", CASES)
def test_any_row_may_be_left_out(case: str, order: float) -> None:
    rows, weights = CASES[case](np.random.default_rng(7))
    found = Influence.of(second_moment(rows, weights), order).of_rows(rows, weights)
    true = left_out(rows, order, weights)
    # Terms of low orders are steep where eigenvalues are small, as most are of the first case.
    within = 0.2 if order < 1 else 0.02 if order < 2 else 1e-5
    np.testing.assert_allclose(found, true, atol=within * np.abs(true).max())
    if np.ptp(true) > 1e-9:
        assert np.corrcoef(found, true)[0, 1] > 0.99


def test_a_row_by_itself_adds_most_and_copies_take_away() -> None:
    generator = np.random.default_rng(4)
    rows = np.zeros((100, 12))
    rows[:, :4] = generator.normal(size=(100, 4))
    rows[:50] = rows[0]
    rows[99] = np.eye(12)[11]
    found = Influence.of(second_moment(rows), 1.0).of_rows(rows)
    true = left_out(rows, 1.0, np.ones(100))
    assert found.argmax() == true.argmax() == 99
    assert found[99] == pytest.approx(true[99], rel=1e-9)
    assert (found[:50] < 0).all()
    assert (true[:50] < 0).all()


@pytest.mark.parametrize("order", ORDERS)
def test_rows_of_low_rank_and_single_rows_have_finite_ones(order: float) -> None:
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(60, 3)) @ generator.normal(size=(3, 40))
    weights = generator.uniform(0.1, 10.0, 60)
    found = Influence.of(second_moment(rows, weights), order).of_rows(rows, weights)
    true = left_out(rows, order, weights)
    np.testing.assert_allclose(found, true, atol=5e-3 * np.abs(true).max())
    line = rows[:1] * np.arange(1.0, 5.0)[:, None]
    found = Influence.of(second_moment(line), order).of_rows(line)
    np.testing.assert_allclose(found, 0.0, atol=1e-12)
    alone = np.array([3.0])
    assert Influence.of(second_moment(rows[:1], alone), order).of_rows(rows[:1], alone) == 0.0


def test_order_0_has_none() -> None:
    with pytest.raises(ValueError, match="order 0 has no influences"):
        Influence.of(second_moment(np.eye(3)), 0.0)


def test_large_orders_and_those_near_1() -> None:
    rows = np.random.default_rng(3).normal(size=(500, 40))
    moment = second_moment(rows)
    spectrum = moment_spectrum(moment, 500)
    for order in (200.0, 1e4, 1e8):
        influence = Influence.of(moment, order)
        assert influence.score == pytest.approx(vendi_score(spectrum, order).value, rel=1e-12)
    # From 1e4 on only the largest eigenvalue counts.
    most = Influence.of(moment, math.inf).of_rows(rows)
    np.testing.assert_allclose(Influence.of(moment, 1e6).of_rows(rows), most, rtol=1e-4, atol=1e-6)
    one = Influence.of(moment, 1.0).of_rows(rows)
    for near in (1e-5, 1e-7, 1e-9, 1e-13):
        np.testing.assert_allclose(
            Influence.of(moment, 1.0 - near).of_rows(rows), one, atol=1e-4 * np.abs(one).max()
        )
