r"""Compare one score in two jobs, and decide whether the difference exceeds the uncertainty.

A difference is significant if the score is outside of the range in which it is expected from the
baseline (:mod:`latentscale_pipeline.compare.expectations`), with a p-value that is adjusted for the
number of scores. Where that range isn't known, the difference has to exceed bracket and sampling
error, as follows.

A score's bracket :math:`[l, u]` bounds the measure of *its* corpus; its sampling error :math:`s` is
the standard error over fresh samples from the same source. Let a be the job's score and b the
baseline's.

* The difference between the measures of the two corpora is in :math:`[l_a - u_b,\; u_a - l_b]`. Its
  absolute value is at least the *gap* between the brackets,
  :math:`g = \max(l_a - u_b,\; l_b - u_a,\; 0)`.
* If both corpora are samples of one source, the difference of the scores has the standard deviation
  :math:`\sqrt{s_a^2 + s_b^2}`.

A difference exceeds both if :math:`g > 1.96 \sqrt{s_a^2 + s_b^2}`. For exact
scores, whose brackets have zero width, this is the two-sided z-test at 5 %; wider brackets make a
false alarm less likely. If either sampling error is unknown, this test says nothing.
Disjoint brackets then show that the scores of the corpora differ, not that their sources differ.
For example, the exact Vendi scores of two samples of one mixture differ by about a percent.

That is one test per score, without correction for multiple testing: of twenty scores whose sources
don't differ, one is expected to appear significant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from latentscale_pipeline.compare.comparability import Mismatch
from latentscale_pipeline.measures.base import GROUPS
from latentscale_pipeline.report.scores import report_of
from latentscale_pipeline.report.verdict import LEVEL
from latentscale_pipeline.results.model import SHARE_OF_ROWS, ExpectedRange, Score
from latentscale_pipeline.views.formatting import printable
from latentscale_pipeline.views.scores import score_name, why_null

Numbers = tuple[float, float, float]

SIGNIFICANT_ERRORS = 1.959963984540054
"""The two-sided 5 % quantile of the standard normal distribution."""

DIVERSITY = GROUPS[0]
"""The group of scores of diversity."""

REPRODUCIBILITY = 1e-6
"""Relative difference between the same number computed on two kinds of machine."""


class Verdict(StrEnum):
    """The verdict on the difference of a score."""

    WITHIN_BOUNDS = "within bounds"
    NOT_SIGNIFICANT = "not significant"
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
        The score in each job; at least one isn't None.
    mismatches : tuple of Mismatch
        Reasons why the two aren't comparable.
    anyway : bool
        Whether they are compared in spite of these.
    expected : ExpectedRange or None
        Where the score is expected if the job's rows come from the baseline's source.
    expected_reason : str
        Why that isn't known; empty where nobody asks.
    p : float or None
        Its p-value, adjusted for the number of headline scores or, for others, of all scores.
    errors_add_up : bool
        Whether the sampling errors of both tell that of their difference. Those of an average over
        rows don't where the numbers of rows differ: neighbours of many are nearer. Nor do those of
        a label there.
    growth : float
        Factor by which the baseline's score may have changed, at most, because its label has
        another number of rows; the bracket of the difference has room for it.
    """

    job: Score | None
    baseline: Score | None
    mismatches: tuple[Mismatch, ...] = ()
    anyway: bool = False
    expected: ExpectedRange | None = None
    expected_reason: str = ""
    p: float | None = None
    errors_add_up: bool = True
    growth: float = 1.0

    @property
    def score(self) -> Score:
        """Return the score of the job, or of the baseline if the job doesn't have it."""
        return cast(Score, self.job or self.baseline)

    @property
    def name(self) -> str:
        """Return the name of this score for display: ``vendi cosine, order 1 (corpus)``."""
        own = score_name(self.score)
        measure = "" if own == self.score.measure else f"{printable(self.score.measure)} "
        return f"{measure}{own} ({self.score.of})"

    @property
    def shared(self) -> bool:
        """Return whether both jobs list this score, even if its value is null."""
        return self.job is not None and self.baseline is not None

    @property
    def expected_of_job(self) -> Score | None:
        """Return the job's score with where the baseline puts it, instead of its own reference."""
        if self.job is None:
            return None
        usual = {"expected": self.expected, "expected_reason": self.expected_reason or None}
        return self.job.model_copy(update=usual)

    @property
    def left_out(self) -> bool:
        """Return whether the two aren't comparable."""
        return bool(self.mismatches) and not self.anyway

    @property
    def why_not(self) -> str:
        """Return why there is no difference; empty if there is one."""
        if self.left_out:
            return "not comparable: " + "; ".join(map(str, self.mismatches))
        reasons = [
            f"{place}: {'no such score' if score is None else why_null(score)}"
            for place, score in (("job", self.job), ("baseline", self.baseline))
            if score is None or score.value is None
        ]
        return "; ".join(reasons)

    @property
    def values(self) -> tuple[float, float] | None:
        """Return the job's value and the baseline's; None if either is missing or null."""
        return None if self._numbers is None else (self._numbers[0][0], self._numbers[1][0])

    @property
    def sampled(self) -> tuple[float, float] | None:
        """Return the means of the job's and the baseline's samples of equally many rows.

        None if the scores of all rows are comparable, or samples aren't either. Shares of rows are
        read as they are, so those of all rows are compared where that is asked for.
        """
        asked = not self.left_out and self.score.unit == SHARE_OF_ROWS
        if not self.mismatches or asked or self.expected is None:
            return None
        return self.expected.found, self.expected.centre

    @property
    def difference(self) -> float | None:
        """Return the job's value minus the baseline's."""
        return None if self.values is None else _finite(self.values[0] - self.values[1])

    @property
    def improved(self) -> bool | None:
        """Return whether the score changed for the better; None if neither direction is better.

        More diversity is no better by itself: noise has the most.
        """
        told = self.expected.found - self.expected.centre if self.expected else self.difference
        if not told or self.score.better not in {"high", "low"} or self.score.of == "reference":
            return None
        if report_of(self.score.measure).group == DIVERSITY:
            return None
        return (told > 0) == (self.score.better == "high")

    @property
    def relative(self) -> float | None:
        """Return the difference divided by the baseline's absolute value; None if that is 0."""
        if self.values is None or self.difference is None or self.values[1] == 0.0:
            return None
        return _finite(self.difference / abs(self.values[1]))

    @property
    def lower(self) -> float | None:
        """Return the smallest difference that the two brackets allow."""
        return None if self._numbers is None else _finite(self._numbers[0][1] - self._numbers[1][2])

    @property
    def upper(self) -> float | None:
        """Return the largest difference that the two brackets allow."""
        return None if self._numbers is None else _finite(self._numbers[0][2] - self._numbers[1][1])

    @property
    def gap(self) -> float | None:
        """Return the distance between the brackets; the measures differ by at least this much."""
        if self._numbers is None:
            return None
        (job, low, high), (baseline, baseline_low, baseline_high) = self._numbers
        if abs(job - baseline) <= REPRODUCIBILITY * max(abs(job), abs(baseline)):
            return 0.0
        return max(low - baseline_high, baseline_low - high, 0.0)

    @property
    def sampling_error(self) -> float | None:
        """Return the standard deviation of the difference over fresh samples; None if unknown."""
        errors = [row.sampling_error if row else None for row in (self.job, self.baseline)]
        known = [error for error in errors if error is not None]
        return math.hypot(*known) if len(known) == 2 and self.errors_add_up else None

    @property
    def why_no_error(self) -> str:
        """Return why the error of the difference is unknown, where it is."""
        rows = {"job": self.job, "baseline": self.baseline}
        unknown = [place for place, row in rows.items() if row and row.sampling_error is None]
        if unknown:
            return f"sampling error unknown in the {' and in the '.join(unknown)}"
        if self.score.label is not None:
            return self.expected_reason or "scores of labels aren't told by their errors alone"
        return "the corpora differ in size, so that sampling errors don't add up"

    @property
    def beyond_bounds(self) -> bool | None:
        """Return whether the brackets are disjoint; None without two values."""
        return None if self.gap is None else self.gap > 0.0

    @property
    def significant(self) -> bool | None:
        """Return whether the difference exceeds what chance explains; None if unknown."""
        if self.p is not None:
            return self.p <= LEVEL
        if self.gap is None or self.sampling_error is None:
            return None
        return self.gap > SIGNIFICANT_ERRORS * self.sampling_error

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the difference."""
        if self.baseline is None:
            return Verdict.ONLY_IN_JOB
        if self.job is None:
            return Verdict.ONLY_IN_BASELINE
        if self.significant:
            return Verdict.SIGNIFICANT
        if self.beyond_bounds is False:
            return Verdict.WITHIN_BOUNDS
        if self.significant is None:
            unknown = self.beyond_bounds is not None
            return Verdict.SAMPLING_ERROR_UNKNOWN if unknown else Verdict.NOT_COMPUTED
        return Verdict.NOT_SIGNIFICANT

    @property
    def _numbers(self) -> tuple[Numbers, Numbers] | None:
        ours = self.job.numbers if self.job else None
        theirs = self.baseline.numbers if self.baseline else None
        if not ours or not theirs or self.left_out:
            return None
        value, lower, upper = theirs
        return ours, (value, lower * min(self.growth, 1.0), upper * max(self.growth, 1.0))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
