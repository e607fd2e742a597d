"""A map: some rows of the corpora, placed in the plane so that near rows stay near."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results, Role
from latentscale_pipeline.measures.projection.config import ProjectionSection
from latentscale_pipeline.measures.projection.report import ProjectionReport
from latentscale_pipeline.measures.projection.results import ProjectionResults
from latentscale_pipeline.results.model import RowsToLookAt


class ProjectionMeasure(Measure):
    """The map as a measure. It has no scores: people look at it."""

    section = ProjectionSection
    results = ProjectionResults
    report = ProjectionReport()

    def plan(self, section: ProjectionSection, facts: JobFacts) -> list[Stage]:
        """Plan random rows of each corpus, and their places."""
        from latentscale_pipeline.measures.projection.plan import plan_projection

        return plan_projection(section, facts)

    def collect(self, section: ProjectionSection, facts: JobFacts, results: Results) -> Findings:
        """Collect the places of the rows, and what the map keeps."""
        from latentscale_pipeline.measures.projection.collect import collect_projection

        return collect_projection(section, facts, results)

    def name_representatives(
        self,
        section: ProjectionSection,
        findings: Findings,
        results: Results,
        corpora: Mapping[Role, Corpus],
    ) -> Findings:
        """Add ids, labels and texts of the rows."""
        from latentscale_pipeline.measures.projection.collect import name_rows

        return name_rows(findings, corpora)

    def mark_rows(
        self,
        found: ProjectionResults,
        corpora: Mapping[Role, Corpus],
        rows: Sequence[RowsToLookAt],
    ) -> ProjectionResults:
        """Mark the rows to look at, at their places or at those of the nearest rows on the map."""
        from latentscale_pipeline.measures.projection.collect import mark_rows

        return mark_rows(found, corpora, rows)

    def section_of_sample(self, section: ProjectionSection) -> None:
        """Return None: there are no scores."""

    def section_of_label(self, section: ProjectionSection) -> None:
        """Return None: there are no scores."""


MEASURE = ProjectionMeasure()
