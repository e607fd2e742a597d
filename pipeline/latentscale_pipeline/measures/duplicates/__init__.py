"""Rows that occur more than once, counted in every job."""

from __future__ import annotations

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results


class DuplicatesMeasure(Measure):
    """The count of duplicate rows, which is part of every job."""

    section = None

    def plan(self, section: None, facts: JobFacts) -> list[Stage]:
        """Plan the count of every corpus."""
        from latentscale_pipeline.measures.shared.duplicate_count import duplicates_stage

        return [duplicates_stage(role, facts) for role in facts.corpora]

    def collect(self, section: None, facts: JobFacts, results: Results) -> Findings:
        """Add the counts to the corpora."""
        from latentscale_pipeline.measures.shared.duplicate_count import stage_name

        counts = {role: results(stage_name(role)).values["duplicates"] for role in facts.corpora}
        return Findings(None, corpora={role: {"duplicates": n} for role, n in counts.items()})


MEASURE = DuplicatesMeasure()
