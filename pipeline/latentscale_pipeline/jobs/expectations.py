"""Attach to every score of a job where it is expected by chance alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from latentscale.sampling.fresh_samples import Expectation, adjust
from latentscale_pipeline.config.section import Section
from latentscale_pipeline.measures.base import JobFacts, Results, Score
from latentscale_pipeline.measures.fresh_samples import collect_samples
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.scores import report_of
from latentscale_pipeline.report.verdict import LEVEL, headlines_of
from latentscale_pipeline.results.model import ExpectedRange
from latentscale_pipeline.views.glossary import Definition


def expect_scores(
    scores: Sequence[Score], sections: Mapping[str, Section], facts: JobFacts, results: Results
) -> list[Score]:
    """Return the scores with their expected ranges, or with the reason why they have none.

    Scores of the reference, of labels, and of jobs without a reference are returned as they are.
    """
    if "reference" not in facts.corpora:
        return list(scores)
    found: dict[int, Expectation | str] = {}
    rows = 0
    for name, expected in collect_samples(MEASURES, sections, facts, results):
        rows = expected.rows
        for place, score in enumerate(scores):
            if score.measure == name and score.of != "reference" and score.label is None:
                found[place] = expected.of(score)
    adjusted = _adjusted(scores, found)
    count = max(1, len(adjusted))
    return [
        score
        if place not in found
        else score.model_copy(update=_fields(score, found[place], rows, adjusted.get(place), count))
        for place, score in enumerate(scores)
    ]


def _adjusted(scores: Sequence[Score], found: Mapping[int, Expectation | str]) -> dict[int, float]:
    """Return the adjusted p-values of headline scores, by place."""
    headlines = {id(score) for score in headlines_of(scores)}
    places = [
        place
        for place, expectation in found.items()
        if id(scores[place]) in headlines and isinstance(expectation, Expectation)
    ]
    p = np.array([found[place].p for place in places])  # type: ignore[union-attr]
    return dict(zip(places, adjust(p).tolist(), strict=True))


def _fields(
    score: Score, expectation: Expectation | str, rows: int, p_adjusted: float | None, count: int
) -> dict[str, object]:
    if isinstance(expectation, str):
        return {"expected_reason": expectation}
    limits = report_of(score.measure).scores.get(score.score, Definition("", ""))
    given = {} if p_adjusted is None else {"p_adjusted": p_adjusted}
    return {
        "expected": ExpectedRange(
            rows=rows,
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
