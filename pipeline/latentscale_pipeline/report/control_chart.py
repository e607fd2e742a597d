r"""A control chart: where a score is expected from the earlier jobs of a series.

Of m earlier values with mean x̄ and standard deviation s, the next one is expected between

.. math:: \bar x \pm t_{m-1}\, s \sqrt{1 + 1/m},

the prediction interval of a normal sample. The quantile t of Student's distribution is that with
the false-alarm rate of a Shewhart chart, whose mean and standard deviation are known: 0.27 % at 3
sigmas. So the rate holds however short the series is. Where chance moves a job more than those
before it, because it has fewer rows, the variance that this adds is added. Of counts of rows, which
aren't normal, limits also hold what Fisher's exact test calls usual beside all earlier rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.scores import are_rows_of_label_alike, report_of
from latentscale_pipeline.results.model import ROLES, SHARE_OF_ROWS, Score
from latentscale_pipeline.results.part import Role

MIN_JOBS = 5
"""Fewest earlier jobs that give limits."""

ROWS_OF_EVENT = 2
"""Rows that come and go together, as two that are near each other do."""

TINY = 1e-12
"""Absolute difference that is rounding."""

SAME = 1e-6
"""Relative difference between the same score computed on two kinds of machine."""


@dataclass(frozen=True)
class ControlLimits:
    """Where a score is expected from earlier jobs.

    Attributes
    ----------
    value : float
        The score.
    centre, lower, upper : float
        The mean of the earlier values, and the limits.
    jobs : int
        Number of earlier values.
    rows : int or None
        Rows of the samples that all values are means of; None if they are of all rows.
    """

    value: float
    centre: float
    lower: float
    upper: float
    jobs: int
    rows: int | None

    @property
    def away(self) -> float:
        """Return how far the score is from the mean, in distances of a limit."""
        end = self.upper if self.value > self.centre else self.lower
        return abs((self.value - self.centre) / (end - self.centre)) if end != self.centre else 1.0

    @property
    def exceeded(self) -> bool:
        """Return whether the score is outside of the limits."""
        slack = SAME * max(abs(self.centre), abs(self.value)) + TINY
        return not self.lower - slack <= self.value <= self.upper + slack


def false_alarm_rate(sigmas: float) -> float:
    """Return how often a normal value is farther from its mean than ``sigmas`` deviations."""
    return math.erfc(sigmas / math.sqrt(2.0))


def common_rows(scores: Sequence[Score]) -> int | None:
    """Return the rows of samples on which all were measured, with their ranges if possible."""
    sizes = set.intersection(*({each.rows for each in score.samples or ()} for score in scores))
    ranges = {score.expected.rows for score in scores if score.expected is not None}
    return max(sizes & ranges or sizes, default=None)


@dataclass(frozen=True)
class JobOfSeries:
    """A job of a series: its scores, and what they were measured on.

    Attributes
    ----------
    rows : int
        Rows of its corpus.
    reference : str or None
        Fingerprint of its reference.
    scores : sequence of Score
        Its scores.
    settings : mapping
        The settings of each measure; without those that aren't known.
    weighted : mapping
        Whether the rows of a corpus have weights, by its role; None where that isn't known.
    dimensions : mapping
        Number of dimensions of a corpus, by its role; None where that isn't known.
    """

    rows: int
    reference: str | None
    scores: Sequence[Score]
    settings: Mapping[str, Any] = field(default_factory=dict)
    weighted: Mapping[Role, bool | None] = field(default_factory=dict)
    dimensions: Mapping[Role, int | None] = field(default_factory=dict)

    def rows_of(self, score: Score) -> int:
        """Return how many rows one of its scores is of: those of its label, if it has one."""
        return score.rows or self.rows


def comparable_scores(
    score: Score, job: JobOfSeries, earlier: Sequence[JobOfSeries]
) -> list[tuple[int, Score]]:
    """Return a score in earlier jobs, with their rows, without nulls and what can't be compared.

    Settings that decide it and are known of both jobs have to be equal, and the same corpora count
    by weights. Most scores need equal dimensions: others come from another model. Scores of the
    pair need the same reference, and so do those whose scale may come from it. A score that depends
    on the number of rows is compared on samples of one size: the largest of its own that at least
    half as many earlier jobs have as have the most frequent one, and enough for limits if that is
    possible. If none has any of them, those jobs are left whose corpora have as many rows; of a
    label, those in which it has.

    Parameters
    ----------
    score : Score
        The score, with a value.
    job : JobOfSeries
        Its job.
    earlier : sequence of JobOfSeries
        The oldest first.
    """
    found = [
        (each, own)
        for each in earlier
        for own in scores_in(score, [each])
        if each.reference == job.reference or not _needs_reference(score)
        if _agree(*(_deciding(one, score) for one in (each, job)))
        if _agree(*(_counting(one, score) for one in (each, job)))
        if _agree(*(_dimensions(one, score) for one in (each, job)))
    ]
    if score.size_dependent:
        found = _of_one_size(score, job, found)
    # Earlier versions didn't write how many rows a label had; they count as those of this job.
    return [(own.rows or min(each.rows, score.rows or each.rows), own) for each, own in found]


def _of_one_size(
    score: Score, job: JobOfSeries, found: Sequence[tuple[JobOfSeries, Score]]
) -> list[tuple[JobOfSeries, Score]]:
    """Return those scores that were measured on as many rows, or on samples of one size."""
    held = Counter(each.rows for _, own in found for each in own.samples or ())
    sizes = [each.rows for each in score.samples or () if held[each.rows]]
    if not sizes:
        return [each for each in found if _of_as_many_rows(score, job, *each)]
    most = max(held[size] for size in sizes)
    enough = max(most / 2, min(most, MIN_JOBS))
    size = max(size for size in sizes if held[size] >= enough)
    return [each for each in found if size in {one.rows for one in each[1].samples or ()}]


def _of_as_many_rows(score: Score, job: JobOfSeries, other: JobOfSeries, own: Score) -> bool:
    """Return whether a label has as many rows in two jobs; if that isn't known, their corpora."""
    if score.rows and own.rows:
        return are_rows_of_label_alike(score.rows, own.rows)
    return job.rows == other.rows


def _needs_reference(score: Score) -> bool:
    measure = MEASURES.get(score.measure)
    return score.of == "pair" or (measure is not None and measure.has_scale(score))


def scores_in(score: Score, jobs: Sequence[JobOfSeries]) -> list[Score]:
    """Return a score in other jobs, without nulls."""
    return [
        own
        for job in jobs
        for own in job.scores
        if _identity(own) == _identity(score) and own.value is not None
    ]


def _deciding(job: JobOfSeries, score: Score) -> Any:
    """Return the settings of a job that decide a score; None if they aren't known."""
    known, measure = job.settings.get(score.measure), MEASURES.get(score.measure)
    if measure is None or not isinstance(known, Mapping):
        return known
    return measure.deciding_settings(known, score)


def _counting(job: JobOfSeries, score: Score) -> dict[Role, bool | None]:
    """Say which of the corpora that decide a score count by weights."""
    known, measure = job.settings.get(score.measure), MEASURES.get(score.measure)
    if measure is None or not isinstance(known, Mapping):
        return {}
    roles = {*ROLES[score.of], *(["reference"] if _needs_reference(score) else [])}
    return {
        role: measure.counts_weights(known, weighted, score)
        for role, weighted in job.weighted.items()
        if role in roles
    }


def _dimensions(job: JobOfSeries, score: Score) -> dict[Role, int | None]:
    """Return the dimensions of the corpora that decide a score, unless it spans models."""
    measure = MEASURES.get(score.measure)
    if measure is not None and measure.spans_models(score):
        return {}
    return {role: d for role, d in job.dimensions.items() if role in ROLES[score.of]}


def _agree(ours: Any, theirs: Any) -> bool:
    """Return whether settings that both know are equal; versions may add some."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return all(_agree(ours[key], theirs[key]) for key in ours if key in theirs)
    return ours is None or theirs is None or ours == theirs


def _identity(score: Score) -> tuple[object, ...]:
    names = ("measure", "of", "score", "kernel", "order", "label", "scale")
    return tuple(getattr(score, name) for name in names)


def value_at(score: Score, rows: int | None) -> float:
    """Return the mean of a score over samples, or the score of all rows."""
    means = {each.rows: each.mean for each in score.samples or ()}
    return float(score.value or 0.0) if rows is None else means[rows]


def _variance(score: Score, rows: int | None) -> float:
    """Return the variance of a score, or of its mean over samples, over fresh samples."""
    if rows is None:
        return (score.sampling_error or 0.0) ** 2
    return next(each.variance * each.share for each in score.samples or () if each.rows == rows)


def _unseen(earlier: Sequence[Score], rows: int) -> float:
    """Return the deviation of a share that was the same in all samples: 0 or 1, as a rule.

    By Jeffreys' estimate, as if half a row of all had been another.
    """
    shares = [own.share for each in earlier for own in each.samples or () if own.rows == rows]
    of_a_job = rows * len(shares) / sum(shares)
    return math.sqrt(0.5 / len(earlier)) / of_a_job


def _added_variance(score: Score, earlier: Sequence[Score], rows: int | None) -> float:
    """Return by how much chance moves a score more than it moved the earlier ones."""
    if rows is None:
        errors = [each.sampling_error for each in (score, *earlier)]
        known_errors = [error for error in errors if error is not None]
        if len(known_errors) < len(errors):
            return 0.0
        own_error, *usual_errors = known_errors
        return max(0.0, own_error**2 - float(np.mean(np.square(usual_errors))))
    shares = [own.share for own in score.samples or () if own.rows == rows]
    known = [own for each in earlier for own in each.samples or () if own.rows == rows]
    variance = float(np.mean([own.variance for own in known]))
    usual = float(np.mean([own.variance * own.share for own in known]))
    return max(0.0, variance * shares[0] - usual)


def _usual_counts(
    score: Score, n: int, earlier: Sequence[tuple[int, Score]], rate: float
) -> tuple[float, float]:
    """Return between which shares of rows a count lies whose rate is that of earlier jobs."""
    from latentscale.sampling.counts import ExpectedCount  # reading results needs no scipy

    def events(rows: int, share: float) -> tuple[int, int]:
        known = max(1, rows // ROWS_OF_EVENT)
        return min(known, round(share * known)), known

    # An earlier version didn't write what a share is of; it isn't of more than all rows.
    usual = (
        events(own.share_of or min(score.share_of or rows, rows), own.value or 0.0)
        for rows, own in earlier
    )
    counts, sizes = zip(*usual, strict=True)
    own = events(score.share_of or n, score.value or 0.0)
    expected = ExpectedCount(*own, sum(counts), sum(sizes))
    return expected.least(rate), expected.most(rate)


def _deviation(score: Score, earlier: Sequence[Score], rows: int | None) -> float:
    """Return the standard deviation of earlier values, or what chance makes if they are equal."""
    values = [value_at(each, rows) for each in earlier]
    deviation = float(np.std(values, ddof=1))
    if deviation <= SAME * abs(float(np.mean(values))):
        # Counts that never changed: one of them could as well have been another.
        deviation = math.sqrt(float(np.mean([_variance(each, rows) for each in earlier])))
    if deviation == 0.0 and rows is not None and _ends(score) == (0.0, 1.0):
        deviation = _unseen(earlier, rows)
    return deviation


def _ends(score: Score) -> tuple[float | None, float | None]:
    """Return the least and the largest value that a score may have, where there are such."""
    known = report_of(score.measure).scores.get(score.score)
    return (None, None) if known is None else (known.least, known.most)


def control_limits(
    score: Score, n: int, earlier: Sequence[tuple[int, Score]], rate: float
) -> ControlLimits | None:
    """Return the limits that earlier jobs set.

    Parameters
    ----------
    score : Score
        The score, with a value.
    n : int
        Rows of its corpus.
    earlier : sequence of tuple of int and Score
        Rows and the same score of earlier jobs, with values.
    rate : float
        The false-alarm rate.

    Returns
    -------
    ControlLimits or None
        None with fewer than :data:`MIN_JOBS` earlier values.
    """
    if len(earlier) < MIN_JOBS:
        return None
    from latentscale.estimate import student_quantile  # reading results needs no scipy

    before = [own for _, own in earlier]
    rows = common_rows([score, *before])
    centre = float(np.mean([value_at(each, rows) for each in before]))
    counts = rows is None and score.unit == SHARE_OF_ROWS
    added = 0.0 if counts else _added_variance(score, before, rows)
    variance = _deviation(score, before, rows) ** 2 * (1.0 + 1.0 / len(before))
    reach = student_quantile(1.0 - rate / 2.0, len(before) - 1) * math.sqrt(variance + added)
    lower, upper = centre - reach, centre + reach
    if counts:
        fewest, largest = _usual_counts(score, n, earlier, rate)
        lower, upper = min(lower, fewest), max(upper, largest)
    least, most = _ends(score)
    return ControlLimits(
        value_at(score, rows),
        centre,
        max(lower, -math.inf if least is None else least),
        min(upper, math.inf if most is None else most),
        len(before),
        rows,
    )
