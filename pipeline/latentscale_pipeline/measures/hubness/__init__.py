"""Hubness: how unevenly rows are nearest neighbours of others."""

from __future__ import annotations

from collections.abc import Sequence

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    RowColumn,
)
from latentscale_pipeline.measures.hubness.config import Hubness
from latentscale_pipeline.measures.hubness.report import HubnessReport
from latentscale_pipeline.measures.hubness.results import HubnessResults


class HubnessMeasure(Measure):
    """Hubness as a measure."""

    section = Hubness
    results = HubnessResults
    report = HubnessReport()
    error_rows = 100
    without_error = ("hubness",)

    def plan(self, section: Hubness, facts: JobFacts) -> list[Stage]:
        """Plan random rows of every corpus, and their neighbours among each other."""
        from latentscale_pipeline.measures.hubness.plan import plan_hubness

        return plan_hubness(section, facts)

    def collect(self, section: Hubness, facts: JobFacts, results: Results) -> Findings:
        """Collect the scores of every corpus."""
        from latentscale_pipeline.measures.hubness.collect import collect_hubness

        return collect_hubness(section, facts, results)

    def row_columns(self, found: HubnessResults, role: Role) -> Sequence[RowColumn]:
        """Return of how many rows each is among the nearest neighbours."""
        arrays = (f"hubness/{role}/occurrences",)
        rows = f"hubness/{role}/rows"
        return [RowColumn("neighbour_of", arrays, rows=rows)]


MEASURE = HubnessMeasure()
