"""Alignment: how alike two models represent the same items."""

from __future__ import annotations

from collections.abc import Sequence

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.alignment.config import Alignment
from latentscale_pipeline.measures.alignment.report import AlignmentReport
from latentscale_pipeline.measures.alignment.results import AlignmentResults
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    RowColumn,
    Score,
)


class AlignmentMeasure(Measure):
    """The alignment of two models as a measure."""

    section = Alignment
    results = AlignmentResults
    report = AlignmentReport()

    def plan(self, section: Alignment, facts: JobFacts) -> list[Stage]:
        """Plan pairs of rows, and their neighbours by both models."""
        from latentscale_pipeline.measures.alignment.plan import plan_alignment

        return plan_alignment(section, facts)

    def collect(self, section: Alignment, facts: JobFacts, results: Results) -> Findings:
        """Collect the scores of the pairs."""
        from latentscale_pipeline.measures.alignment.collect import collect_alignment

        return collect_alignment(section, facts, results)

    def spans_models(self, score: Score) -> bool:
        """Return that all can: it compares models."""
        return True

    def why_not_computed(self, section: Alignment, facts: JobFacts) -> str:
        """Return why there are too few pairs of rows."""
        from latentscale_pipeline.measures.alignment.plan import too_few_pairs

        return too_few_pairs(section, facts)

    def section_of_sample(self, section: Alignment) -> None:
        """Return nothing: samples of both corpora aren't paired."""

    def rows_of(self, found: AlignmentResults, score: Score) -> int | None:
        """Return how many pairs were compared."""
        return found.pairs

    def row_columns(self, found: AlignmentResults, role: Role) -> Sequence[RowColumn]:
        """Return how many neighbours of a row both models agree on, and how alike these are."""
        if not found.pairs:
            return ()
        rows = f"alignment/{role}_rows"
        return [
            RowColumn(name, (f"alignment/{role}_{array}",), rows=rows)
            for name, array in (("common_neighbours", "common"), ("average_overlap", "overlap"))
        ]


MEASURE = AlignmentMeasure()
