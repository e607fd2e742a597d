r"""Where a score of two corpora is expected, from random divisions of their groups.

If two corpora have one source, and both are divided at random into groups of equally many rows,
then any division of the groups into two sides is as likely as the actual one. So the share of
random divisions, the actual one included, whose score is at least as large is a p-value. The test
is one-sided: it is for scores that are large where the corpora differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.estimate import student_quantile
from latentscale.sampling.fresh_samples import POWER

LEVEL = 0.05
"""Share of divisions beyond the end of the expected range."""


@dataclass(frozen=True)
class ExpectedByDivisions:
    """A score, and where random divisions put it.

    Attributes
    ----------
    found, centre : float
        The score, and the mean of those of random divisions.
    lower, upper : float
        The least of a random division, and the end of the range that holds 95 % of them.
    z, p : float
        The difference in standard deviations of random divisions; the p-value.
    divided : ndarray of float64, shape (b,)
        The scores of random divisions.
    """

    found: float
    centre: float
    lower: float
    upper: float
    z: float
    p: float
    divided: Float64Array

    def smallest_found(self, level: float) -> float:
        """Return the difference that is found four times in five at a level of p."""
        reach = float(np.quantile(self.divided, 1.0 - level)) - self.centre
        return reach + student_quantile(POWER, math.inf) * float(self.divided.std())


def expect_by_divisions(found: float, divided: Float64Array, tie: float) -> ExpectedByDivisions:
    """Say where a score is expected by chance.

    Parameters
    ----------
    found : float
        The score of the actual division.
    divided : ndarray of float64, shape (b,)
        Those of random divisions, at least one.
    tie : float
        Difference up to which two scores count as equal.
    """
    centre, spread = float(divided.mean()), float(divided.std())
    as_large = int((divided >= found - tie).sum())
    return ExpectedByDivisions(
        found=found,
        centre=centre,
        lower=min(float(divided.min()), found),
        upper=float(np.quantile(divided, 1.0 - LEVEL)),
        z=(found - centre) / spread if spread else 0.0,
        p=(1 + as_large) / (1 + len(divided)),
        divided=divided,
    )
