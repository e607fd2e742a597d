"""Say which changes of its scores a job shows, and how many rows show smaller ones.

A change is found if a corpus that has it is told apart from its reference, or from the corpus of
another job of the same size, four times in five. The variance of a score on one sample is known
from the samples of the job; what more rows and more samples add is the variance of a mean
(:func:`latentscale.sampling.fresh_samples.variance_of_mean`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentscale.estimate import student_quantile
from latentscale.sampling.fresh_samples import found_reach
from latentscale.sampling.shares import ExpectedShare
from latentscale_pipeline.config.job import OWN_SCALES
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import CountedBetween, Expectation
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.fresh_samples import (
    DRAWN_BYTES,
    MIN_ROWS,
    SAMPLES,
    SampleSizes,
)
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.scores import freedom_of_error, score_of_share
from latentscale_pipeline.report.verdict import LEVEL, headlines_of
from latentscale_pipeline.results.model import SHARE_OF_ROWS, Score
from latentscale_pipeline.results.part import Role

MAX_SAMPLES = 1000
"""Largest number of samples that a job takes."""

MAX_ROWS = 10**12
"""Number of rows beyond which none is worth naming."""

FEWEST_EVENTS = 0.1
"""Fewest events that a share is taken for one of."""

DEFAULT_SAMPLES = 10
"""Number of samples of a job whose configuration isn't stored."""


Name = tuple[str, str, str | None]
"""What a count is of, its score, and its label."""


@dataclass(frozen=True)
class Needed:
    """Rows that show a change.

    Attributes
    ----------
    rows : int
        Rows of the corpus. The reference grows in proportion.
    samples : int
        Samples that cover them; the job's own number if it suffices.
    """

    rows: int
    samples: int


@dataclass(frozen=True)
class Power:
    """Which changes of a score a job shows.

    Attributes
    ----------
    score : Score
        The score.
    rows : int
        Rows of a sample on which it is compared; all rows of the corpus if it counts rows.
    usual : float
        What is usual of it there.
    shown : float or None
        The smallest change that is found four times in five: in shares of ``usual``, or of the rows
        for a score that counts rows; None if not even all rows would do.
    needed : Needed or None
        What shows the change that was asked for; None if no number of rows does.
    absolute : bool
        Whether ``shown`` is in the unit of the score, because usual is about 0. Nothing is needed
        for a share of that.
    """

    score: Score
    rows: int
    usual: float
    shown: float | None
    needed: Needed | None
    absolute: bool = False


@dataclass(frozen=True)
class _Sampled:
    """What samples of a job say of a score: its mean, and its variance on one sample."""

    sizes: SampleSizes
    usual: float
    variance: float
    freedom: float
    absolute: bool = False

    def smallest(self, level: float, sizes: SampleSizes) -> float:
        """Return the smallest change that is found on samples of other sizes.

        It is relative, unless the mean is about 0.
        """
        # More samples also know the variance better.
        freedom = self.freedom * sizes.groups / self.sizes.groups
        error = math.sqrt(self.variance * _share(sizes))
        return found_reach(level, freedom) * error / (1.0 if self.absolute else abs(self.usual))


def find_power(job: FinishedJob, change: float) -> list[Power]:
    """Return the power of a job for each of its headline scores of which it is known.

    Parameters
    ----------
    job : FinishedJob
        A job with samples.
    change : float
        A relative change of a score, or a share of the rows for scores that count rows; positive.

    Raises
    ------
    BadInput
        If the job has no samples, or its rows are paired.
    """
    if (job.settings or {}).get("pair"):
        raise BadInput(
            f"{job.url}: its rows are paired, so no samples say how far chance moves a score; run "
            "a job of the corpus alone"
        )
    counts = _counts(job)
    counted = {_name(each): each.expected.expectation for _, each in counts}
    headlines = headlines_of(job.scores)
    judged = {score.measure for score in headlines}
    # A job alone has no score of its labels, but jobs are compared by their shares.
    labels = [
        score_of_share(name, each, each.expected.expectation.found, job.corpora["corpus"].n)
        for name, each in counts
        if each.label is not None and name not in judged and "reference" not in job.corpora
    ]
    compared = sum(
        bool(score.expected or score.samples or _name(score) in counted)
        for score in (*headlines, *labels)
    )
    level = LEVEL / max(compared, 1)
    whole = [*_speaking(headlines), *labels]
    found = [power for score in whole if (power := _power(job, score, change, level, counted))]
    if not found:
        raise BadInput(
            f"{job.url}: no score of this job was measured on samples, so nothing says how far "
            "chance moves it; run it again with sampling.method auto, or on more rows"
        )
    return found


def scores_without_power(job: FinishedJob, found: Sequence[Power]) -> list[Score]:
    """Return the headline scores of a job of which no power is among those found."""
    known = [power.score for power in found]
    return [score for score in _speaking(headlines_of(job.scores)) if score not in known]


def _speaking(headlines: Sequence[Score]) -> list[Score]:
    """Return the scores without shares of labels for which the least usual one speaks."""
    return [score for score in headlines if score.label is None or score.expected is not None]


def _name(score: Score | CountedBetween) -> Name:
    return score.of, score.score, score.label


def _counts(job: FinishedJob) -> list[tuple[str, CountedBetween]]:
    """Return what another job with as many rows, and as many of each kind, says of the counts."""
    n = job.corpora["corpus"].n
    return [
        (name, each)
        for name, measure in MEASURES.items()
        if (part := job.results.part(name)) is not None
        for each in measure.counts_between(part, part, n, n)
    ]


def _power(
    job: FinishedJob,
    score: Score,
    change: float,
    level: float,
    counted: Mapping[Name, Expectation],
) -> Power | None:
    n = job.corpora["corpus"].n
    if score.unit == SHARE_OF_ROWS:
        return _power_of_share(job, score, change, level, counted.get(_name(score)))
    # Beside a reference, a job shows what differs from that.
    if score.expected is None and "reference" not in job.corpora and not _has_own_unit(job, score):
        whole = _power_of_all_rows(n, score, change, level)
        if whole is not None:
            return whole
    sampled = _sampled(job, score, level)
    if sampled is None or not (sampled.usual or sampled.absolute) or not sampled.variance:
        return None
    sizes = sampled.sizes
    if sampled.absolute:
        smallest = sampled.smallest(level, sizes)
        return Power(score, sizes.rows, sampled.usual, smallest, None, absolute=True)

    def shows(rows: int) -> bool:
        return sampled.smallest(level, _grown(sizes, job, rows)) <= change

    rows = _least(shows, SAMPLES * max(sizes.rows, MIN_ROWS), MAX_ROWS)
    needed = None if rows is None else Needed(rows, _grown(sizes, job, rows).groups)
    return Power(score, sizes.rows, sampled.usual, sampled.smallest(level, sizes), needed)


def _has_own_unit(job: FinishedJob, score: Score) -> bool:
    """Return whether another job would measure a score at another bandwidth, that of its rows.

    Such scores are compared on samples only.
    """
    derived = (job.settings or {}).get("scales_from", "auto") in OWN_SCALES
    return derived and (score.kernel or "").endswith("median")


def _power_of_share(
    job: FinishedJob, score: Score, change: float, level: float, between: Expectation | None
) -> Power | None:
    """Return the power for a share of rows, which jobs compare as ``between``.

    What is found falls with the root of the number of rows, or with that number where next to none
    is usual. So the share is that of as many independent events as explain what the job finds, and
    they grow with the rows.
    """
    n, beside = job.corpora["corpus"].n, 1.0
    if score.expected is not None:
        usual, shown = score.expected.centre, score.expected.smallest_found
        beside = job.corpora["reference"].n / n if "reference" in job.corpora else 1.0
    elif between is not None:
        usual, shown = between.centre, between.smallest_found(level)
    else:
        return None

    def smallest(events: float) -> float:
        return ExpectedShare(usual, usual, events, events * beside).smallest_found(level)

    # Where not even a change of all rows is found, there may be as many events as leave it so.
    explained = min(shown, 1.0 - 1e-9)
    events = _threshold(
        lambda events: smallest(events) <= explained, FEWEST_EVENTS, float(MAX_ROWS)
    )
    rows = _least(lambda rows: smallest(events * rows / n) <= change, SAMPLES * MIN_ROWS, MAX_ROWS)
    needed = None if rows is None else Needed(rows, 0)
    return Power(score, n, usual, shown if shown <= 1.0 else None, needed)


def _power_of_all_rows(n: int, score: Score, change: float, level: float) -> Power | None:
    """Return the power for a score whose sampling error on all rows is known, as compare uses it.

    The error falls with the root of the number of rows.
    """
    freedom, value, error = freedom_of_error(score), score.value, score.sampling_error
    if score.of != "corpus" or not freedom or not value or not error:
        return None
    shown = found_reach(level, 2 * freedom) * math.sqrt(2.0) * error / abs(value)
    rows = max(math.ceil(n * (shown / change) ** 2), SAMPLES * MIN_ROWS)
    return Power(score, n, value, shown, Needed(rows, 0) if rows <= MAX_ROWS else None)


def _sampled(job: FinishedJob, score: Score, level: float) -> _Sampled | None:
    """Return what samples say of a score, beside the reference or else by themselves."""
    if score.expected is not None:
        if 2 * score.expected.rows > min(corpus.n for corpus in job.corpora.values()):
            return None  # it comes from random divisions of all rows, which tell no size of change
        sizes = _sizes(job, score.expected.rows, compares=True)
        # One side may be cut at the limit of the score.
        centre = score.expected.centre
        reach = max(score.expected.upper - centre, centre - score.expected.lower)
        error = reach / student_quantile(0.975, sizes.groups)
        variance = error * error / _share(sizes)
        about_0 = score.expected.lower <= 0.0 <= score.expected.upper
        return _Sampled(sizes, centre, variance, sizes.groups, about_0)
    if score.samples and score.of == "corpus":
        largest = max(score.samples, key=lambda sampled: sampled.rows)
        sizes = _sizes(job, largest.rows, compares=False)
        return _Sampled(sizes, largest.mean, largest.variance, largest.freedom)
    return None


def _share(sizes: SampleSizes) -> float:
    """Return the variance of a difference of means, in units of that of one sample."""
    if sizes.compares:
        return sizes.share("corpus") + sizes.share("reference")
    return 2.0 * sizes.share("corpus")


def _sizes(job: FinishedJob, rows: int, *, compares: bool) -> SampleSizes:
    """Return how the samples of a job were drawn."""
    sampling = (job.settings or {}).get("sampling") or {}
    samples = int(sampling.get("samples", DEFAULT_SAMPLES))
    n = {role: corpus.n for role, corpus in job.corpora.items()}
    return _drawn(SampleSizes(rows, samples, {}, compares), job, n)


def _drawn(sizes: SampleSizes, job: FinishedJob, n: Mapping[Role, int]) -> SampleSizes:
    """Return the sizes with the rows that samples are taken from, as a job draws them."""
    widest = max(
        (corpus.d or 1) * np.dtype(corpus.dtype or "float32").itemsize
        for corpus in job.corpora.values()
    )
    largest = max(DRAWN_BYTES // widest, SAMPLES * sizes.rows)
    drawn = {
        role: min(count, sizes.groups * sizes.taken(role), largest)
        for role, count in n.items()
        if role == "corpus" or sizes.compares
    }
    return replace(sizes, drawn=drawn)


def _grown(sizes: SampleSizes, job: FinishedJob, rows: int) -> SampleSizes:
    """Return the sizes with other rows of the corpus, as many in proportion of the reference."""
    corpus = job.corpora["corpus"].n
    n = {
        role: max(rows * own.n // corpus, SAMPLES * sizes.rows) for role, own in job.corpora.items()
    }
    samples = min(max(sizes.groups, rows // sizes.rows), MAX_SAMPLES)
    return _drawn(replace(sizes, groups=samples), job, n)


def _threshold(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the number between two positive ones from which a condition holds."""
    while high > low * (1.0 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _least(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the smallest number from which a condition holds; None if it never does."""
    if holds(low):
        return low
    while low < high and not holds(min(2 * low, high)):
        low = min(2 * low, high)
    if low >= high:
        return None
    above = min(2 * low, high)
    while above - low > max(1, low // 1000):
        middle = (low + above) // 2
        low, above = (low, middle) if holds(middle) else (middle, above)
    return above
