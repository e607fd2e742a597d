import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentscale.vendi.majorisation import pour_on_largest, raise_smallest


def test_pouring_fills_the_first_up_to_their_limits():
    lower, upper = np.array([0.5, 0.2, 0.1, 0.0]), np.array([0.6, 0.35, 0.3, 0.1])
    np.testing.assert_allclose(pour_on_largest(lower, upper, 0.2), [0.6, 0.3, 0.1, 0.0])
    np.testing.assert_allclose(pour_on_largest(lower, upper, 0.0), lower)
    # No room for 0.7: the rest goes to the first all the same.
    np.testing.assert_allclose(pour_on_largest(lower, upper, 0.7), [0.75, 0.35, 0.3, 0.1])


def test_raising_levels_the_smallest():
    lower = np.array([0.5, 0.2, 0.1, 0.0])
    np.testing.assert_allclose(raise_smallest(lower, 0.2), [0.5, 0.2, 0.15, 0.15])
    np.testing.assert_allclose(raise_smallest(lower, 0.0), lower)
    np.testing.assert_allclose(raise_smallest(lower, 1.2), [0.5, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(raise_smallest(lower, 3.2), [1.0, 1.0, 1.0, 1.0])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    arrays(np.float64, st.integers(1, 8), elements=st.floats(0, 1)),
    arrays(np.float64, 8, elements=st.floats(0, 1)),
    st.floats(0, 1),
)
def test_they_bracket_every_vector_between(first, second, share):
    # A candidate lies at or above the lower bound; the upper bound is made to fit it.
    lower = np.sort(first)[::-1]
    candidate = lower + second[: len(lower)] * share
    amount = float((candidate - lower).sum())
    candidate = np.sort(candidate)[::-1]
    upper = np.maximum.accumulate((candidate + 0.05)[::-1])[::-1]
    least_even, most_even = pour_on_largest(lower, upper, amount), raise_smallest(lower, amount)
    for vector in (least_even, most_even):
        assert vector.sum() == pytest.approx(lower.sum() + amount, abs=1e-12)
        assert (vector >= lower - 1e-15).all()
        assert (np.diff(vector) <= 1e-12).all()
    assert (least_even <= upper + 1e-12).all()
    assert (np.cumsum(least_even) >= np.cumsum(candidate) - 1e-12).all()
    assert (np.cumsum(candidate) >= np.cumsum(most_even) - 1e-12).all()
