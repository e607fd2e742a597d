"""Conditional diversity: what the rows that others were made from leave open."""

from __future__ import annotations

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results
from latentscale_pipeline.measures.conditional.config import Conditional
from latentscale_pipeline.measures.conditional.report import ConditionalReport
from latentscale_pipeline.measures.conditional.results import ConditionalResults


class ConditionalMeasure(Measure):
    """The conditional diversity as a measure."""

    section = Conditional
    results = ConditionalResults
    report = ConditionalReport()
    error_freedom = 99

    def needs_directions(self, name: str, section: Conditional) -> str:
        """Return that rows of zeros have no direction."""
        return name

    def plan(self, section: Conditional, facts: JobFacts) -> list[Stage]:
        """Plan pairs of rows, and their scores."""
        from latentscale_pipeline.measures.conditional.plan import plan_conditional

        return plan_conditional(section, facts)

    def collect(self, section: Conditional, facts: JobFacts, results: Results) -> Findings:
        """Collect the scores of the pairs."""
        from latentscale_pipeline.measures.conditional.collect import collect_conditional

        return collect_conditional(section, facts, results)

    def section_of_sample(self, section: Conditional) -> None:
        """Return nothing: samples of both corpora aren't paired."""


MEASURE = ConditionalMeasure()
