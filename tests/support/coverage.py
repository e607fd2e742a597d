"""How often sampling errors cover the mean over fresh samples, against what is promised."""

import math

import numpy as np


def assert_covers(values: np.ndarray, errors: np.ndarray) -> None:
    """Expect 1.96 errors to reach the mean over samples in 90 to 98 % of the samples (first axis).

    Few samples show the share to a few percent.
    """
    covered = (np.abs(values - np.mean(values, axis=0)) <= 1.96 * errors).mean(axis=0)
    slack = 2 * math.sqrt(0.95 * 0.05 / len(values))
    assert (covered >= 0.90 - slack).all(), covered
    assert (covered <= 0.98 + slack).all(), covered
