"""Scores that other tools report: similarity, FID, KID, precision, recall and the like."""

from __future__ import annotations

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results
from latentscale_pipeline.measures.baselines.config import Baselines
from latentscale_pipeline.measures.baselines.report import BaselinesReport
from latentscale_pipeline.measures.baselines.results import BaselinesResults


class BaselinesMeasure(Measure):
    """The baselines as a measure."""

    section = Baselines
    results = BaselinesResults
    report = BaselinesReport()

    def plan(self, section: Baselines, facts: JobFacts) -> list[Stage]:
        """Plan the moments of every corpus and, with a reference, the comparison."""
        from latentscale_pipeline.measures.baselines.plan import plan_baselines

        return plan_baselines(section, facts)

    def collect(self, section: Baselines, facts: JobFacts, results: Results) -> Findings:
        """Collect the scores of every corpus and of the pair."""
        from latentscale_pipeline.measures.baselines.collect import collect_baselines

        return collect_baselines(section, facts, results)


MEASURE = BaselinesMeasure()
