"""Attach to every score of a job where it is expected by chance alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from latentscale.sampling.fresh_samples import adjust
from latentscale_pipeline.config.section import Section
from latentscale_pipeline.measures.base import (
    ExpectedScore,
    Findings,
    JobFacts,
    Results,
    Score,
)
from latentscale_pipeline.measures.fresh_samples import collect_samples
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.scores import report_of
from latentscale_pipeline.report.verdict import LEVEL, headlines_of
from latentscale_pipeline.results.model import ExpectedRange
from latentscale_pipeline.views.glossary import Definition


def expect_scores(
    findings: Sequence[Findings],
    sections: Mapping[str, Section],
    facts: JobFacts,
    results: Results,
) -> list[Score]:
    """Return all scores with their expected ranges, or with the reason why they have none.

    Scores of the reference, of labels, and of jobs without a reference are returned as they are.
    """
    scores = [score for finding in findings for score in finding.scores]
    if "reference" not in facts.corpora:
        return scores
    found: dict[int, ExpectedScore | str] = {}
    for name, expected in collect_samples(MEASURES, sections, facts, results):
        for place, score in enumerate(scores):
            if score.measure == name and score.of != "reference" and score.label is None:
                known = expected.of(score)
                found[place] = (
                    known if isinstance(known, str) else ExpectedScore(expected.rows, known)
                )
    found |= _own(findings)
    adjusted = _adjusted(scores, found)
    count = max(1, len(adjusted))
    return [
        score
        if place not in found
        else score.model_copy(update=_fields(score, found[place], adjusted.get(place), count))
        for place, score in enumerate(scores)
    ]


def _own(findings: Sequence[Findings]) -> dict[int, ExpectedScore]:
    """Return what measures themselves expect, by place among all scores."""
    own: dict[int, ExpectedScore] = {}
    first = 0
    for finding in findings:
        own |= {first + place: expected for place, expected in finding.expected.items()}
        first += len(finding.scores)
    return own


def _adjusted(
    scores: Sequence[Score], found: Mapping[int, ExpectedScore | str]
) -> dict[int, float]:
    """Return the adjusted p-values of headline scores, by place."""
    headlines = {id(score) for score in headlines_of(scores)}
    places = [
        place
        for place, expected in found.items()
        if id(scores[place]) in headlines and isinstance(expected, ExpectedScore)
    ]
    p = np.array([found[place].expectation.p for place in places])  # type: ignore[union-attr]
    return dict(zip(places, adjust(p).tolist(), strict=True))


def _fields(
    score: Score, expected: ExpectedScore | str, p_adjusted: float | None, count: int
) -> dict[str, object]:
    if isinstance(expected, str):
        return {"expected_reason": expected}
    expectation = expected.expectation
    limits = report_of(score.measure).scores.get(score.score, Definition("", ""))
    given = {} if p_adjusted is None else {"p_adjusted": p_adjusted}
    return {
        "expected": ExpectedRange(
            rows=expected.rows,
            found=expectation.found,
            centre=expectation.centre,
            lower=max(end for end in (expectation.lower, limits.least) if end is not None),
            upper=min(end for end in (expectation.upper, limits.most) if end is not None),
            z=expectation.z,
            p=expectation.p,
            smallest_found=expectation.smallest_found(LEVEL / count),
            **given,
        )
    }
