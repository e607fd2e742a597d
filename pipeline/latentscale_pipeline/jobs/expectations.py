"""Attach to every score of a job where it is expected by chance alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from latentscale_pipeline.config.section import Section
from latentscale_pipeline.measures.base import (
    ExpectedScore,
    Findings,
    JobFacts,
    Results,
    Score,
)
from latentscale_pipeline.measures.fresh_samples import Expected, collect_samples
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.expected import with_expected
from latentscale_pipeline.results.model import SampledScore

PAIRED_ROWS = "rows are paired, and p-values are for corpora that share no items"
"""Why scores have no expected ranges there."""

OF_A_LABEL = "it isn't estimated for the rows of a label"
"""Why other scores of labels have no sampling error."""

Samples = Sequence[tuple[str, Expected]]
"""What the samples of each measure say, by its name."""


def read_samples(sections: Mapping[str, Section], facts: JobFacts, results: Results) -> Samples:
    """Return what the samples of every measure say."""
    return list(collect_samples(MEASURES, sections, facts, results))


def expect_scores(findings: Sequence[Findings], samples: Samples, facts: JobFacts) -> list[Score]:
    """Return all scores with what samples say of them.

    That is their means over samples and, in a job with a reference, their expected ranges, or the
    reason why they have none. Averages over rows get their sampling error. Scores of labels are
    returned as they are.
    """
    scores = [score for finding in findings for score in finding.scores]
    found: dict[int, ExpectedScore | str] = {}
    for name, expected in samples:
        for place, score in enumerate(scores):
            if score.measure != name or score.label is not None:
                continue
            found_error = _sampling_error(score, expected, facts)
            if found_error is not None:
                names = ("sampling_error", "sampling_freedom", "sampling_method")
                fields = dict(zip(names, (*found_error, "samples"), strict=True))
                scores[place] = score = score.model_copy(update=fields)
            if score.of == "reference":
                continue
            means = [SampledScore(rows=n, **asdict(mean)) for n, mean in expected.means(score)]
            if means:
                scores[place] = score = score.model_copy(update={"samples": means})
            if "reference" in facts.corpora:
                known = expected.of(score)
                found[place] = (
                    known if isinstance(known, str) else ExpectedScore(expected.rows, known)
                )
    found |= _own(findings)
    if facts.pair is not None:
        found = dict.fromkeys(found, PAIRED_ROWS)
    return [_explain(score, facts) for score in with_expected(scores, found)]


def _sampling_error(score: Score, expected: Expected, facts: JobFacts) -> tuple[float, int] | None:
    definition = MEASURES[score.measure].report.scores.get(score.score)
    if definition is None or not definition.averages_rows or score.size_dependent:
        return None
    if score.value is None or score.sampling_error is not None or score.of == "pair":
        return None
    return expected.error(score, facts.corpora[score.of].n)


def _explain(score: Score, facts: JobFacts) -> Score:
    """Return a score with the reason why its sampling error isn't known, if it isn't."""
    if score.value is None or score.sampling_error is not None:
        return score
    if score.sampling_error_reason is not None:
        return score
    measure, rows = MEASURES[score.measure], _rows_of(score, facts)
    has_error = score.score not in measure.without_error
    few = has_error and rows is not None and rows < measure.error_rows
    if score.label is not None and rows is None:
        reason = OF_A_LABEL
    elif not facts.errors and not few:
        reason = "sampling.method is none"
    elif score.samples:
        reason = f"only that of {score.samples[0].rows:,} rows is known, from samples"
    elif score.expected is not None:
        reason = "the expected range says how far chance moves it"
    elif few:
        reason = f"it needs {measure.error_rows} rows or more"
    elif score.label is not None:
        reason = OF_A_LABEL
    else:
        reason = score.expected_reason or "it isn't estimated for this score"
    return score.model_copy(update={"sampling_error_reason": reason})


def _rows_of(score: Score, facts: JobFacts) -> int | None:
    """Return of how many rows a score is; None for one of the pair, or if that isn't known."""
    if score.label is not None:
        return score.rows or facts.label_rows.get(score.label)
    return None if score.of == "pair" else facts.corpora[score.of].n


def expect_curves(findings: Mapping[str, Findings], samples: Samples) -> dict[str, Findings]:
    """Return the findings with where chance puts the curve of each measure that has one."""
    found = dict(findings)
    for name, expected in samples:
        own = found[name]
        if own.curve is None or own.section is None:
            continue
        chance = expected.curve(own.curve[0])
        if chance is not None:
            found[name] = replace(own, section=own.section.model_copy(update={"chance": chance}))
    return found


def _own(findings: Sequence[Findings]) -> dict[int, ExpectedScore | str]:
    """Return what measures themselves expect, or why not, by place among all scores."""
    own: dict[int, ExpectedScore | str] = {}
    first = 0
    for finding in findings:
        own |= {first + place: expected for place, expected in finding.expected.items()}
        first += len(finding.scores)
    return own
