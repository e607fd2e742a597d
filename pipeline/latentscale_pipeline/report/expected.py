"""Write into scores where they are expected, with p-values adjusted for their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from latentscale.sampling.fresh_samples import adjust
from latentscale_pipeline.measures.base import Expectation, ExpectedScore
from latentscale_pipeline.report.scores import report_of
from latentscale_pipeline.report.verdict import LEVEL, headlines_of
from latentscale_pipeline.results.definitions import ScoreDefinition
from latentscale_pipeline.results.model import ExpectedRange, Score


def with_expected(scores: Sequence[Score], found: Mapping[int, ExpectedScore | str]) -> list[Score]:
    """Return scores with the ranges in which they are expected.

    Parameters
    ----------
    scores : sequence of Score
        The scores of a job.
    found : mapping
        Where scores are expected, or why that isn't known, by place. The p-values of the headline
        scores among them are adjusted for their number.
    """
    found = {place: _resolved(scores[place], one) for place, one in found.items()}
    adjusted = _adjusted(scores, found)
    count = max(1, len(adjusted))
    return [
        score
        if place not in found
        else score.model_copy(update=_fields(score, found[place], adjusted.get(place), count))
        for place, score in enumerate(scores)
    ]


@dataclass(frozen=True)
class _Resolved:
    """Where a score is expected whose values count as equal within some reach."""

    expectation: Expectation
    reach: float

    @property
    def found(self) -> float:
        return self.expectation.found

    @property
    def centre(self) -> float:
        return self.expectation.centre

    @property
    def lower(self) -> float:
        return self.expectation.lower - self.reach

    @property
    def upper(self) -> float:
        return self.expectation.upper + self.reach

    @property
    def z(self) -> float:
        return 0.0 if self._is_within else self.expectation.z

    @property
    def p(self) -> float:
        return 1.0 if self._is_within else self.expectation.p

    @property
    def _is_within(self) -> bool:
        return abs(self.found - self.centre) <= self.reach

    def smallest_found(self, level: float) -> float:
        return max(self.reach, self.expectation.smallest_found(level))


def _resolved(score: Score, expected: ExpectedScore | str) -> ExpectedScore | str:
    """Let values count as equal that differ by no more than the score's resolution."""
    definition = report_of(score.measure).scores.get(score.score)
    if isinstance(expected, str) or definition is None or not definition.resolution:
        return expected
    reach = definition.resolution * abs(expected.expectation.centre)
    return ExpectedScore(expected.rows, _Resolved(expected.expectation, reach))


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
    limits = report_of(score.measure).scores.get(score.score, ScoreDefinition("", ""))
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
