"""Write into scores where they are expected, with p-values adjusted for their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from latentscale.sampling.fresh_samples import adjust
from latentscale_pipeline.measures.base import Expectation, ExpectedScore
from latentscale_pipeline.report.scores import report_of
from latentscale_pipeline.report.verdict import LEVEL, headlines_of
from latentscale_pipeline.results.definitions import ScoreDefinition
from latentscale_pipeline.results.model import ExpectedRange, Score


def with_expected(
    scores: Sequence[Score], found: Mapping[int, ExpectedScore | str], among: int | None = None
) -> list[Score]:
    """Return scores with the ranges in which they are expected.

    Parameters
    ----------
    scores : sequence of Score
        The scores of a job.
    found : mapping
        Where scores are expected, or why that isn't known, by place. The p-values of the headline
        scores among them are adjusted for their number.
    among : int, optional
        Number of scores that are judged together, if these aren't the headline scores.
    """
    adjusted = _adjusted(scores, found)
    count = among or max(1, len(adjusted))
    return [
        score
        if place not in found
        else score.model_copy(update=_fields(score, found[place], adjusted.get(place), count))
        for place, score in enumerate(scores)
    ]


def _reach(score: Score, expectation: Expectation) -> float:
    """Return how far a score may be from the usual one and still count as equal."""
    definition = report_of(score.measure).scores.get(score.score)
    return 0.0 if definition is None else definition.resolution * abs(expectation.centre)


def _z_and_p(score: Score, expectation: Expectation) -> tuple[float, float]:
    away, reach = abs(expectation.found - expectation.centre), _reach(score, expectation)
    return (0.0, 1.0) if 0.0 < reach >= away else (expectation.z, expectation.p)


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
    p = np.array(
        [_z_and_p(scores[place], found[place].expectation)[1] for place in places]  # type: ignore[union-attr]
    )
    return dict(zip(places, adjust(p).tolist(), strict=True))


def _fields(
    score: Score, expected: ExpectedScore | str, p_adjusted: float | None, count: int
) -> dict[str, object]:
    if isinstance(expected, str):
        return {"expected_reason": expected}
    expectation = expected.expectation
    limits = report_of(score.measure).scores.get(score.score, ScoreDefinition("", ""))
    given = {} if p_adjusted is None else {"p_adjusted": p_adjusted}
    reach, (z, p) = _reach(score, expectation), _z_and_p(score, expectation)
    lower, upper = expectation.lower - reach, expectation.upper + reach
    return {
        "expected": ExpectedRange(
            rows=expected.rows,
            found=expectation.found,
            centre=expectation.centre,
            lower=max(end for end in (lower, limits.least) if end is not None),
            upper=min(end for end in (upper, limits.most) if end is not None),
            z=z,
            p=p,
            smallest_found=max(reach, expectation.smallest_found(LEVEL / count)),
            **given,
        )
    }
