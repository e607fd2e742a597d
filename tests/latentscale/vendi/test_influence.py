"""Influences are the changes of the score when a row is left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from latentscale.vendi.influence import Influence
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
    np.testing.assert_allclose(found, true, atol=0.1 * np.abs(true).max())
    assert np.corrcoef(found, true)[0, 1] > 0.999


def test_ranks_are_right_where_the_score_still_grows() -> None:
    """The level isn't: every row of many dimensions adds something, and the average is left out."""
    rows = np.random.default_rng(7).normal(size=(150, 120)) * np.geomspace(3.0, 0.1, 120)
    found = Influence.of(second_moment(rows), 1.0).of_rows(rows)
    true = left_out(rows, 1.0, np.ones(150))
    assert np.corrcoef(found, true)[0, 1] > 0.99
    assert abs(found.mean()) < 1e-9 < 0.01 < true.mean()


def test_a_row_by_itself_adds_most_and_copies_take_away() -> None:
    generator = np.random.default_rng(4)
    rows = np.zeros((100, 12))
    rows[:, :4] = generator.normal(size=(100, 4))
    rows[:50] = rows[0]
    rows[99] = np.eye(12)[11]
    found = Influence.of(second_moment(rows), 1.0).of_rows(rows)
    true = left_out(rows, 1.0, np.ones(100))
    assert found.argmax() == true.argmax() == 99
    # The first order is too small where a row takes its eigenvalue with it.
    assert 0.7 < found[99] / true[99] < 1.0
    assert (found[:50] < 0).all()
    assert (true[:50] < 0).all()


@pytest.mark.parametrize("order", ORDERS)
def test_influences_add_up_to_nothing_and_rows_of_low_rank_have_finite_ones(order: float) -> None:
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(60, 3)) @ generator.normal(size=(3, 40))
    weights = generator.uniform(0.1, 10.0, 60)
    found = Influence.of(second_moment(rows, weights), order).of_rows(rows, weights)
    assert np.isfinite(found).all()
    shared = found * (1 - weights / weights.sum())
    assert abs(shared.sum()) < 1e-8 * np.abs(shared).sum()
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
