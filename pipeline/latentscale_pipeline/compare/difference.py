r"""One score in two jobs, and whether it differs beyond the uncertainty.

A score's bracket :math:`[l, u]` bounds the measure of *its* corpus; its sampling error :math:`s` is
the standard error over fresh samples from the same source. Of a job's score a and the baseline's b
two things can be said:

* the measures of the two corpora differ by something in :math:`[l_a - u_b,\; u_a - l_b]`, at least
  by the *gap* between the brackets, :math:`g = \max(l_a - u_b,\; l_b - u_a,\; 0)`;
* if both corpora are samples of one source, the scores differ with a standard deviation of
  :math:`\sqrt{s_a^2 + s_b^2}`.

A difference is *significant* when it is beyond both: :math:`g > 1.96 \sqrt{s_a^2 + s_b^2}`. For
exact scores (zero width) that is the two-sided z-test at 5 %; brackets that have a width make a
false alarm rarer still. Where either sampling error is unknown nothing is called significant:
brackets that don't touch then say that the corpora's numbers differ, not that their sources do.
The Vendi scores of two samples of one mixture, exact as they are, differ by about a percent.

One test is made for each score: of twenty that don't differ, one will seem to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from latentscale_pipeline.compare.comparability import Mismatch
from latentscale_pipeline.results.model import Score
from latentscale_pipeline.views.formatting import printable
from latentscale_pipeline.views.scores import score_name, why_null

Numbers = tuple[float, float, float]

SIGNIFICANT_ERRORS = 1.959963984540054
"""Standard errors beyond which a normal variable lies in 5 % of all cases, both sides together."""

REPRODUCIBILITY = 1e-6
"""Relative difference that another kind of machine may make in the same number."""


class Verdict(StrEnum):
    """The verdict on the difference of a score."""

    WITHIN_BOUNDS = "within bounds"
    WITHIN_SAMPLING_ERROR = "within sampling error"
    SIGNIFICANT = "significant"
    SAMPLING_ERROR_UNKNOWN = "beyond bounds, sampling error unknown"
    NOT_COMPUTED = "not computed"
    ONLY_IN_JOB = "only in the job"
    ONLY_IN_BASELINE = "only in the baseline"


@dataclass(frozen=True)
class ComparedScore:
    """A score of the job, of the baseline, or of both.

    Attributes
    ----------
    job, baseline : Score or None
        The same score in either; at least one is there.
    mismatches : tuple of Mismatch
        What keeps the two from being compared, where they are compared all the same.
    """

    job: Score | None
    baseline: Score | None
    mismatches: tuple[Mismatch, ...] = ()

    @property
    def score(self) -> Score:
        """The score in the job, or in the baseline where the job doesn't have it."""
        return cast(Score, self.job or self.baseline)

    @property
    def name(self) -> str:
        """What a person calls this score: ``vendi cosine, order 1 (corpus)``."""
        own = score_name(self.score)
        measure = "" if own == self.score.measure else f"{printable(self.score.measure)} "
        return f"{measure}{own} ({self.score.of})"

    @property
    def shared(self) -> bool:
        """Whether both jobs list this score, be it null."""
        return self.job is not None and self.baseline is not None

    @property
    def why_not(self) -> str:
        """Why there is no difference; empty when there is one."""
        reasons = [
            f"{place}: {'no such score' if score is None else why_null(score)}"
            for place, score in (("job", self.job), ("baseline", self.baseline))
            if score is None or score.value is None
        ]
        return "; ".join(reasons)

    @property
    def values(self) -> tuple[float, float] | None:
        """The job's value and the baseline's; None where either is missing or null."""
        return None if self._numbers is None else (self._numbers[0][0], self._numbers[1][0])

    @property
    def difference(self) -> float | None:
        """The job's value minus the baseline's."""
        return None if self.values is None else _finite(self.values[0] - self.values[1])

    @property
    def relative(self) -> float | None:
        """The difference as a share of the baseline's absolute value; None when that is 0."""
        if self.values is None or self.difference is None or self.values[1] == 0.0:
            return None
        return _finite(self.difference / abs(self.values[1]))

    @property
    def lower(self) -> float | None:
        """The least difference that both brackets allow."""
        return None if self._numbers is None else _finite(self._numbers[0][1] - self._numbers[1][2])

    @property
    def upper(self) -> float | None:
        """The largest difference that both brackets allow."""
        return None if self._numbers is None else _finite(self._numbers[0][2] - self._numbers[1][1])

    @property
    def gap(self) -> float | None:
        """How far the brackets are apart: the least that the two corpora's numbers differ by."""
        if self._numbers is None:
            return None
        (job, low, high), (baseline, baseline_low, baseline_high) = self._numbers
        if abs(job - baseline) <= REPRODUCIBILITY * max(abs(job), abs(baseline)):
            return 0.0
        return max(low - baseline_high, baseline_low - high, 0.0)

    @property
    def sampling_error(self) -> float | None:
        """Standard deviation of the difference over fresh samples; None when it is unknown."""
        errors = [row.sampling_error if row else None for row in (self.job, self.baseline)]
        known = [error for error in errors if error is not None]
        return math.hypot(*known) if len(known) == 2 else None

    @property
    def beyond_bounds(self) -> bool | None:
        """Whether the brackets don't touch; None without two values."""
        return None if self.gap is None else self.gap > 0.0

    @property
    def significant(self) -> bool | None:
        """Whether the difference is beyond bounds and sampling error; None when that is unknown."""
        if self.gap is None or self.sampling_error is None:
            return None
        return self.gap > SIGNIFICANT_ERRORS * self.sampling_error

    @property
    def verdict(self) -> Verdict:
        """What can be said of the difference."""
        if self.baseline is None:
            return Verdict.ONLY_IN_JOB
        if self.job is None:
            return Verdict.ONLY_IN_BASELINE
        if self.beyond_bounds is None:
            return Verdict.NOT_COMPUTED
        if not self.beyond_bounds:
            return Verdict.WITHIN_BOUNDS
        if self.significant is None:
            return Verdict.SAMPLING_ERROR_UNKNOWN
        return Verdict.SIGNIFICANT if self.significant else Verdict.WITHIN_SAMPLING_ERROR

    @property
    def _numbers(self) -> tuple[Numbers, Numbers] | None:
        ours = self.job.numbers if self.job else None
        theirs = self.baseline.numbers if self.baseline else None
        return (ours, theirs) if ours and theirs else None


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
