"""The jackknife of a mean is known in closed form."""

import math

import numpy as np
import pytest

from latentscale.sampling.jackknife import draw_groups, jackknife_error

FEW = 2.093024 / 1.959964  # Student's quantile of 19 degrees of freedom over the normal one


def test_groups_are_random_and_of_equal_size() -> None:
    group = draw_groups(103, np.random.default_rng(0), 20)
    assert sorted(np.bincount(group)) == [5] * 17 + [6] * 3
    assert not np.array_equal(group, np.arange(103) % 20)


def test_the_error_of_a_mean_is_that_of_its_groups() -> None:
    values = np.random.default_rng(1).normal(size=(20, 7))
    means = values.mean(axis=1)
    left_out = (means.sum() - means) / 19
    expected = FEW * means.std(ddof=1) / math.sqrt(20)
    assert jackknife_error(left_out) == pytest.approx(expected, rel=1e-6)
