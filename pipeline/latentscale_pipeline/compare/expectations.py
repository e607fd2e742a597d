"""Say where each score of a job is expected if its rows come from the source of another's.

Scores whose sampling error is known are compared as they are if both corpora have equally many
rows, others on random samples of equally many
(:func:`latentscale.sampling.fresh_samples.expect_like`). Shares of rows are compared as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from latentscale.sampling.fresh_samples import Expectation, SampleMean, adjust, expect_like
from latentscale_pipeline.compare.difference import ComparedScore
from latentscale_pipeline.measures.base import CountedBetween, ExpectedScore
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.expected import with_expected
from latentscale_pipeline.report.scores import (
    freedom_of_error,
    report_of,
    score_of_share,
)
from latentscale_pipeline.results.model import SampledScore, Score
from latentscale_pipeline.results.part import Role

ERROR_UNKNOWN = "its sampling error isn't known, or not well enough to compare"

OTHER_SCALES = "its scale comes from the reference, which is another one in the baseline"

ROWS_TOLERANCE = 0.01
"""Share by which the rows of a label may differ in number where its sampling errors are used."""

SAMPLED = ("rows", "own scale")
"""Kinds of mismatches that neither samples of equally many rows nor counts mind."""


def expect_scores(
    scores: Sequence[ComparedScore], job: FinishedJob, baseline: FinishedJob
) -> list[ComparedScore]:
    """Return scores with the ranges in which the baseline puts those of the job.

    Of labels whose shares both jobs know, those whose shares are least usual take the place of what
    each job compares with its own reference.
    """
    counts = list(_counts(job, baseline))
    chosen = {measure for measure, each in counts if each.label is not None}
    scores = [
        *(score for score in scores if score.score.measure not in chosen),
        *(
            _of_label(measure, each, job, baseline)
            for measure, each in counts
            if each.label is not None
        ),
    ]
    known: dict[tuple[str, str, str, str | None], ExpectedScore | str] = {
        (measure, each.of, each.score, each.label): each.reason or each.expected
        for measure, each in counts
    }
    sizes = [each.corpora["corpus"].n for each in (job, baseline) if "corpus" in each.corpora]
    rows = sizes[0] if len(sizes) == 2 and sizes[0] == sizes[1] else 0
    beside = [each.corpora.get("reference") for each in (job, baseline)]
    alike = len({one.fingerprint if one else None for one in beside}) == 1
    found = {
        place: OTHER_SCALES
        if not alike and _has_scales(compared.score, job)
        else _expected(compared, known, rows)
        for place, compared in enumerate(scores)
        if compared.shared and compared.score.of != "reference"
        if compared.score.label is None or compared.score.measure in chosen
    }
    unknown = {"expected": None, "expected_reason": None}
    own = with_expected([each.score.model_copy(update=unknown) for each in scores], found)
    p = _adjusted_p(own)
    of_labels = {
        place: expected
        for place, each in enumerate(scores)
        if each.shared and each.score.label is not None and each.score.measure not in chosen
        if (expected := _of_label_rows(each, job, baseline)) is not None
    }
    judged = sum(isinstance(each, ExpectedScore) for each in of_labels.values())
    own = with_expected(own, of_labels, among=judged)
    p |= _adjusted_p([score if place in of_labels else None for place, score in enumerate(own)])
    return [
        replace(
            each,
            expected=score.expected,
            expected_reason=score.expected_reason or "",
            p=p.get(place),
            growth=_growth(each, job, baseline) if place in of_labels else 1.0,
            errors_add_up=place in p
            if place in of_labels
            else _errors_add_up(score, job, baseline),
        )
        for place, (each, score) in enumerate(zip(scores, own, strict=True))
    ]


def _adjusted_p(scores: Sequence[Score | None]) -> dict[int, float]:
    """Return p-values by place, adjusted for the number of headline scores or else of all."""
    known = {
        place: score.expected
        for place, score in enumerate(scores)
        if score is not None and score.expected is not None
    }
    among_all = adjust(np.array([expected.p for expected in known.values()])).tolist()
    return {
        place: p if expected.p_adjusted is None else expected.p_adjusted
        for (place, expected), p in zip(known.items(), among_all, strict=True)
    }


def _of_label_rows(
    compared: ComparedScore, job: FinishedJob, baseline: FinishedJob
) -> ExpectedScore | str | None:
    """Say where a score of a label's rows is expected, or why that isn't known.

    Labels have no samples of one size, so they need as many rows in both jobs, unless it is known
    how the score may grow with them. None if these numbers aren't known.
    """
    rows = _rows_of_both(compared, job, baseline)
    if rows is None:
        return None
    if compared.mismatches:
        return str(compared.mismatches[0])
    ours, theirs = rows
    if not _grows(compared.score) and abs(ours - theirs) > ROWS_TOLERANCE * theirs:
        return f"its label has {ours:,} rows here and {theirs:,} in the baseline"
    growth = _growth(compared, job, baseline)
    expected = _expect_of_all_rows(compared.job, compared.baseline, growth=growth)
    if expected is not None:
        return ExpectedScore(min(ours, theirs), expected)
    scores = compared.job, compared.baseline
    reasons = (score.sampling_error_reason for score in scores if score)
    return next(filter(None, reasons), ERROR_UNKNOWN)


def _grows(score: Score) -> bool:
    definition = report_of(score.measure).scores.get(score.score)
    return definition is not None and definition.grows_with_rows


def _growth(compared: ComparedScore, job: FinishedJob, baseline: FinishedJob) -> float:
    """Return the factor by which a score of a label may grow with its rows; 1 if it doesn't."""
    rows = _rows_of_both(compared, job, baseline)
    return rows[0] / rows[1] if rows and _grows(compared.score) else 1.0


def _rows_of_both(
    compared: ComparedScore, job: FinishedJob, baseline: FinishedJob
) -> tuple[int, int] | None:
    """Return how many rows a score is of in the job and the baseline; None if that isn't known."""
    scores = (job, compared.job), (baseline, compared.baseline)
    ours, theirs = (each.rows_of(score) if score else None for each, score in scores)
    return (ours, theirs) if ours and theirs else None


def _errors_add_up(score: Score, job: FinishedJob, baseline: FinishedJob) -> bool:
    """Return whether a score isn't an average over different numbers of rows in the two jobs."""
    definition = report_of(score.measure).scores.get(score.score)
    if definition is None or not definition.averages_rows:
        return True
    role: Role = "reference" if score.of == "reference" else "corpus"
    corpora = [each.results.corpora.by_role().get(role) for each in (job, baseline)]
    return len({corpus.n for corpus in corpora if corpus is not None}) == 1


def label_scores(
    labels: Collection[str] | None, job: FinishedJob, baseline: FinishedJob
) -> list[ComparedScore]:
    """Return the shares of labels with where the baseline puts them, each judged alone.

    With None, those of all labels of enough rows, each judged among all.
    """
    counts = [
        (each, _of_label(name, each, job, baseline))
        for name, each in _counts(job, baseline, labels)
    ]
    own = with_expected(
        [compared.score for _, compared in counts],
        {place: each.expected for place, (each, _) in enumerate(counts)},
    )
    return [
        replace(
            compared,
            expected=score.expected,
            p=None if score.expected is None else score.expected.p,
        )
        for (_, compared), score in zip(counts, own, strict=True)
    ]


def label_scores_of_job(labels: Collection[str], job: FinishedJob) -> list[Score]:
    """Return the shares of labels with where the job's reference puts them, each judged alone."""
    counts = list(_counts(job, None, labels))
    rows = job.corpora["corpus"].n
    return with_expected(
        [
            score_of_share(name, each, each.expected.expectation.found, rows)
            for name, each in counts
        ],
        {place: each.expected for place, (_, each) in enumerate(counts)},
    )


def _has_scales(score: Score, job: FinishedJob) -> bool:
    """Return whether a score depends on a scale, which samples derive beside a reference."""
    measure, part = MEASURES.get(score.measure), job.results.part(score.measure)
    if measure is None or part is None:
        return False
    return any(measure.depends_on(score, name) for name, _ in measure.scales(part))


def _counts(
    job: FinishedJob, baseline: FinishedJob | None, labels: Collection[str] | None = ()
) -> Iterator[tuple[str, CountedBetween]]:
    rows = job.results.corpora.by_role()
    usual_rows = rows if baseline is None else baseline.results.corpora.by_role()
    usual_role: Role = "reference" if baseline is None else "corpus"
    if "corpus" not in rows or usual_role not in usual_rows:
        return
    for name, measure in MEASURES.items():
        ours = job.results.part(name)
        theirs = None if baseline is None else baseline.results.part(name)
        if ours is not None and (baseline is None or theirs is not None):
            n = (rows["corpus"].n, usual_rows[usual_role].n)
            yield from ((name, each) for each in measure.counts_between(ours, theirs, *n, labels))


def _of_label(
    measure: str, each: CountedBetween, job: FinishedJob, baseline: FinishedJob
) -> ComparedScore:
    found = each.expected.expectation
    rows, usual_rows = (one.corpora["corpus"].n for one in (job, baseline))
    return ComparedScore(
        score_of_share(measure, each, found.found, rows),
        score_of_share(measure, each, found.centre, usual_rows),
    )


def _expected(
    compared: ComparedScore,
    counted: Mapping[tuple[str, str, str, str | None], ExpectedScore | str],
    rows: int,
) -> ExpectedScore | str:
    job, baseline, score = compared.job, compared.baseline, compared.score
    known = counted.get((score.measure, score.of, score.score, score.label))
    differing = [found for found in compared.mismatches if found.kind not in SAMPLED]
    if differing:
        return str(differing[0])
    unjudged = [
        each.expected_reason if each and not report_of(each.measure).is_judged(each) else None
        for each in (job, baseline)
    ]
    if known is None:
        for reason in filter(None, unjudged):
            return reason
    elif isinstance(known, str):
        return known
    else:
        # Of counts the job's own reason decides: what a baseline lacks is a difference.
        more = score.of == "corpus" and known.expectation.found > known.expectation.centre
        return unjudged[0] if unjudged[0] and not more else known
    # Errors of scores of the pair include those of a common reference, so they are too large there.
    if rows and not compared.mismatches:
        whole = _expect_of_all_rows(job, baseline)
        if whole is not None:
            return ExpectedScore(rows, whole)
    ours, theirs = (_by_rows(row) for row in (job, baseline))
    if not ours or not theirs:
        return f"the {'baseline' if ours else 'job'} has no samples of it"
    common = max(ours.keys() & theirs.keys(), default=None)
    if common is None:
        return (
            f"samples have {max(ours):,} rows here and {max(theirs):,} in the baseline; set "
            "sampling.rows in both jobs"
        )
    return ExpectedScore(common, expect_like(_mean(ours[common]), _mean(theirs[common])))


def _expect_of_all_rows(
    job: Score | None, baseline: Score | None, *, growth: float = 1.0
) -> Expectation | None:
    """Expect the score of all rows; None where a sampling error isn't known well enough.

    The score of the baseline may have grown by up to a factor, or shrunk if it is below 1. Of what
    it may be then, the nearest to the score of the job is expected.
    """
    means, variance, squares = [], 0.0, 0.0
    for score in (job, baseline):
        freedom = freedom_of_error(score) if score is not None else 0
        if score is None or score.value is None or not score.sampling_error or not freedom:
            return None
        means.append(score.value)
        variance += score.sampling_error**2
        squares += score.sampling_error**4 / freedom
    # Of the sum of both variances (Welch, Biometrika 1947).
    freedom = int(variance**2 / squares + 1e-9)
    own, usual = means
    least, most = (usual * factor for factor in sorted((1.0, growth)))
    nearest = min(max(own, least), most)
    found, like = (SampleMean(mean, variance / 2.0, 1.0, freedom) for mean in (own, nearest))
    expected = expect_like(found, like)
    return replace(
        expected,
        lower=expected.lower + least - nearest,
        upper=expected.upper + most - nearest,
    )


def _by_rows(score: Score | None) -> dict[int, SampledScore]:
    return {each.rows: each for each in (score.samples if score else None) or ()}


def _mean(sampled: SampledScore) -> SampleMean:
    return SampleMean(sampled.mean, sampled.variance, sampled.share, sampled.freedom)
