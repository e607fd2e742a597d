"""What the report says of the spread."""

from __future__ import annotations

from latentscale_pipeline.measures.base import NO_VALUE, MeasureReport
from latentscale_pipeline.measures.spread.results import SpreadOfCorpus, SpreadResults
from latentscale_pipeline.measures.spread.scores import SCORES
from latentscale_pipeline.results.model import Score
from latentscale_pipeline.views.figure import present
from latentscale_pipeline.views.formatting import format_number


class SpreadReport(MeasureReport):
    """The number of rows that count as different at a scale."""

    group = "Diversity"
    title = "Spread"
    question = (
        "How many rows count as different, at some scales: rows that are near each other share one."
    )
    source = "Willerton 2015 (spread); Zhu et al., ICML 2025 (DCScore)"
    scores = SCORES

    def is_judged(self, score: Score) -> bool:
        """Return whether a verdict is about a score: not where rows of samples all stand alone."""
        return not (score.expected_reason or "").startswith(NO_VALUE)

    def notes(self, found: SpreadResults) -> list[str]:
        """Say when the scores of two corpora are comparable."""
        if found.reference is None:
            return []
        said = (
            "Large scales resolve single rows, so the spread grows with their number: compare "
            "corpora of equally many rows."
        )
        return [said]

    def methods(self, found: SpreadResults) -> list[tuple[str, str]]:
        """Return which rows were summed, and the unit of the scales."""
        return [(f"spread, {style.name}", _method(part)) for style, part in present(found)]


def _method(part: SpreadOfCorpus) -> str:
    rows = "random rows" if part.rows < part.n else "rows"
    width = "" if part.bandwidth is None else f", σ = {format_number(part.bandwidth)}"
    return f"similarities of {part.rows:,} {rows} to all{width}"
