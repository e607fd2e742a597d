"""Heat trace of the neighbour graph, and the intrinsic distance (IMD) of two corpora."""

from __future__ import annotations

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results, Score
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.measures.heat.report import HeatReport
from latentscale_pipeline.measures.heat.results import HeatResults


class HeatMeasure(Measure):
    """The measure of heat traces and IMD."""

    section = Heat
    results = HeatResults
    report = HeatReport()
    finds_neighbours = True

    def plan(self, section: Heat, facts: JobFacts) -> list[Stage]:
        """Plan the stages of neighbours, graphs, heat traces and IMD."""
        from latentscale_pipeline.measures.heat.plan import plan_heat

        return plan_heat(section, facts)

    def spans_models(self, score: Score) -> bool:
        """Return that all can: they are of graphs of neighbours."""
        return True

    def section_of_sample(self, section: Heat) -> Heat:
        """Leave out searches for many rows."""
        return section.model_copy(update={"neighbours": "auto"})

    def collect(self, section: Heat, facts: JobFacts, results: Results) -> Findings:
        """Collect traces, graphs and IMD."""
        from latentscale_pipeline.measures.heat.collect import collect_heat

        return collect_heat(section, facts, results)


MEASURE = HeatMeasure()
