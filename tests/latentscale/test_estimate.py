"""An estimate is a value inside its bracket; as a float it is the value."""

import math

import pytest

from latentscale.estimate import Estimate, student_quantile


def test_an_estimate_converts_to_its_value() -> None:
    estimate = Estimate(2.5, 2.0, 3.5, "interval95", "probes", 0.3)
    assert float(estimate) == 2.5
    assert math.sqrt(Estimate.exact(9.0, "sum")) == 3.0


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ((3.0, 1.0, 2.0), "bracket must contain its value"),
        ((0.0, 1.0, 2.0), "bracket must contain its value"),
        ((math.nan, 1.0, 2.0), "finite numbers"),
        ((1.0, 1.0, math.inf), "finite numbers"),
    ],
)
def test_what_is_no_bracket_is_refused(numbers: tuple[float, float, float], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Estimate(*numbers, "estimate", "none")


def test_quantiles_of_student_are_those_of_tables() -> None:
    assert student_quantile(0.975, 1) == pytest.approx(12.7062, abs=1e-4)
    assert student_quantile(0.975, 10) == pytest.approx(2.2281, abs=1e-4)
    assert student_quantile(0.975, math.inf) == pytest.approx(1.9600, abs=1e-4)
