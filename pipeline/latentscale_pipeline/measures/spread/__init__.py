"""The spread: how many rows count as different at a scale, by sums of similarities; DCScore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results, Score
from latentscale_pipeline.measures.spread.config import Spread
from latentscale_pipeline.measures.spread.report import SpreadReport
from latentscale_pipeline.measures.spread.results import SpreadResults


class SpreadMeasure(Measure):
    """The spread as a measure."""

    section = Spread
    results = SpreadResults
    report = SpreadReport()

    def needs_directions(self, name: str, section: Spread) -> str:
        """Return the score that does not accept rows of zeros."""
        return "" if section.temperature is None else "DCScore (measures.spread.temperature)"

    def plan(self, section: Spread, facts: JobFacts) -> list[Stage]:
        """Plan random rows of every corpus, and the sums of their similarities to all rows."""
        from latentscale_pipeline.measures.spread.plan import plan_spread

        return plan_spread(section, facts)

    def collect(self, section: Spread, facts: JobFacts, results: Results) -> Findings:
        """Collect the scores of every corpus."""
        from latentscale_pipeline.measures.spread.collect import collect_spread

        return collect_spread(section, facts, results)

    def scales(self, found: SpreadResults) -> Iterator[tuple[str, float]]:
        """Yield the unit of length of the scales."""
        if found.corpus.bandwidth is not None:
            yield "bandwidth of spread", found.corpus.bandwidth

    def depends_on(self, score: Score, scale: str) -> bool:
        """Return whether a score is of Euclidean distances."""
        return score.score == "spread"

    def has_scale(self, score: Score) -> bool:
        """Return whether a score is of Euclidean distances."""
        return score.score == "spread"

    def read_scales(
        self, section: Spread, settings: Any, found: SpreadResults | None
    ) -> Mapping[str, float | None]:
        """Take the bandwidth from a finished job, if it is the median distance."""
        if section.bandwidth != "median":
            return {}
        derived = (settings or {}).get("bandwidth", "median") == "median"
        return {"bandwidth": found.corpus.bandwidth if found is not None and derived else None}


MEASURE = SpreadMeasure()
