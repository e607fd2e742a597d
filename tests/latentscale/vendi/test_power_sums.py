import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentscale.vendi.power_sums import Proportions, least_hill_number
from tests import oracles

ORDERS = [0.01, 0.1, 0.5, 0.9, 0.9999, 1.0, 1.0001, 1.3, 1.999]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_equal_proportions_attain_the_bound(order, count):
    # Jensen: no proportions with this sum of squares have a smaller Hill number.
    nothing = Proportions(np.zeros(0), np.zeros(0), 1000, 1.0, 1 / count)
    assert least_hill_number(nothing, order) == pytest.approx(count, rel=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_proportions_known_entirely_leave_no_gap(order):
    known = np.array([0.4, 0.3, 0.2, 0.1])
    entire = Proportions(known, known, 50, 1e-9, float(known @ known))
    bound, value = least_hill_number(entire, order), oracles.hill_number(known, order)
    assert bound <= value
    assert bound == pytest.approx(value, rel=1e-4)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    arrays(np.float64, st.integers(1, 12), elements=st.floats(1e-9, 1)),
    arrays(np.float64, 12, elements=st.floats(0.01, 1)),
    st.integers(0, 12),
    st.floats(0, 0.5),
    st.sampled_from(ORDERS),
)
def test_no_proportions_that_fit_fall_below(masses, shares, known, width, order):
    proportions = np.sort(masses / masses.sum())[::-1]
    known = min(known, len(proportions))
    lower = np.sort(proportions[:known] * shares[:known])[::-1]
    upper = np.minimum(1.0, proportions[:known] * (1 + width))
    limit = float(proportions[known:].max(initial=1e-3))
    squares = float(proportions @ proportions) * (1 + 1e-12)
    candidates = Proportions(lower, upper, len(proportions) - known + 3, limit, squares)
    bound = least_hill_number(candidates, order)
    # The plain formula magnifies the rounding of the power sum by 1 / |1 - q|.
    rounding = 1e-12 if order == 1 else 1e-12 + 2e-15 / abs(1 - order)
    assert bound <= oracles.hill_number(proportions, order) * (1 + rounding)
    assert bound >= 1 / squares


def test_knowledge_raises_the_bound():
    # Half of the mass lies in fifty equal parts. The other half has sum of squares 0.008, so a
    # mean logarithm of at most log(0.008 / 0.5), which equal parts of 0.016 attain.
    known = np.full(50, 0.01)
    squares = float(known @ known) + 0.008
    partly = Proportions(known, known, 1000, 0.08, squares)
    expected = np.sqrt(100 * 0.5 / 0.008)
    assert expected > 1.02 / squares
    assert least_hill_number(partly, 1) == pytest.approx(expected, rel=1e-4)
