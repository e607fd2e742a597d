"""Heat trace of the neighbour graph, and the intrinsic distance (IMD) of two corpora."""

from __future__ import annotations

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, MeasureReport, Results
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.results.part import Part


class HeatMeasure(Measure):
    """How heat traces and IMD take part in a job."""

    section = Heat

    def plan(self, section: Heat, facts: JobFacts) -> list[Stage]:
        """Plan neighbours, graph and trace of every corpus, and IMD when there are two."""
        from latentscale_pipeline.measures.heat.plan import plan_heat

        return plan_heat(section, facts)

    def collect(self, section: Heat, facts: JobFacts, results: Results) -> Findings:
        """Collect traces, graphs and IMD."""
        from latentscale_pipeline.measures.heat.collect import collect_heat

        return collect_heat(section, facts, results)

    def results_model(self) -> type[Part]:
        """Return the model of its part of the results."""
        from latentscale_pipeline.measures.heat.results import HeatResults

        return HeatResults

    def report(self) -> MeasureReport:
        """Return what the report says of them."""
        from latentscale_pipeline.measures.heat.report import HeatReport

        return HeatReport()


MEASURE = HeatMeasure()
