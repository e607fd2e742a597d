"""The intrinsic dimension: the number of coordinates that describe rows near each other."""

from __future__ import annotations

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results
from latentscale_pipeline.measures.intrinsic_dimension.config import IntrinsicDimension
from latentscale_pipeline.measures.intrinsic_dimension.report import IntrinsicDimensionReport
from latentscale_pipeline.measures.intrinsic_dimension.results import IntrinsicDimensionResults


class IntrinsicDimensionMeasure(Measure):
    """The intrinsic dimension as a measure."""

    section = IntrinsicDimension
    results = IntrinsicDimensionResults
    report = IntrinsicDimensionReport()

    def plan(self, section: IntrinsicDimension, facts: JobFacts) -> list[Stage]:
        """Plan random rows of every corpus, and the search for their neighbours."""
        from latentscale_pipeline.measures.intrinsic_dimension.plan import plan_dimensions

        return plan_dimensions(section, facts)

    def collect(self, section: IntrinsicDimension, facts: JobFacts, results: Results) -> Findings:
        """Collect the dimensions of every corpus."""
        from latentscale_pipeline.measures.intrinsic_dimension.collect import collect_dimensions

        return collect_dimensions(section, facts, results)


MEASURE = IntrinsicDimensionMeasure()
