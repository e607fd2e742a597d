"""The jackknife of a mean is known in closed form."""

import math

import numpy as np
import pytest

from latentscale.sampling.jackknife import draw_groups, jackknife_error

FEW = 2.093024 / 1.959964  # Student's quantile of 19 degrees of freedom over the normal one


def test_groups_are_random_and_of_equal_size() -> None:
    group = draw_groups(103, np.random.default_rng(0), 20)
    assert np.bincount(group + 1).tolist() == [3] + [5] * 20
    assert not np.array_equal(group, np.arange(103) % 20)


def test_the_error_of_a_mean_is_that_of_its_groups() -> None:
    values = np.random.default_rng(1).normal(size=(20, 7))
    means = values.mean(axis=1)
    left_out = (means.sum() - means) / 19
    expected = FEW * means.std(ddof=1) / math.sqrt(20)
    assert jackknife_error(left_out) == pytest.approx(expected, rel=1e-6)


def test_a_sum_that_grows_by_one_a_row_has_no_error_whatever_the_number_of_rows() -> None:
    for n in (100, 110, 119):
        group = draw_groups(n, np.random.default_rng(n))
        left_out = np.array([float((group != index).sum()) for index in range(20)])
        assert jackknife_error(left_out, n) == 0.0


@pytest.mark.parametrize("n", [40, 59, 101, 119])
def test_the_error_of_a_mean_whose_rows_do_not_fill_the_groups(n: int) -> None:
    rng = np.random.default_rng(n)
    errors = []
    for _ in range(400):
        values, group = rng.normal(size=n), draw_groups(n, rng)
        left_out = np.array([values[group != index].mean() for index in range(20)])
        errors.append(jackknife_error(left_out, n))
    found = np.sqrt(np.mean(np.square(errors))) / FEW
    assert found == pytest.approx(1 / math.sqrt(n), rel=0.04)
