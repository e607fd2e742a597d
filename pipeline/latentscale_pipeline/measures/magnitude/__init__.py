"""Magnitude function, its convergence scale and area, and the difference of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, MeasureReport, Results
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.results.part import Part


class MagnitudeMeasure(Measure):
    """How magnitude takes part in a job."""

    section = Magnitude

    def plan(self, section: Magnitude, facts: JobFacts) -> list[Stage]:
        """Plan convergence scale and function of every corpus, and the difference of two."""
        from latentscale_pipeline.measures.magnitude.plan import plan_magnitude

        return plan_magnitude(section, facts)

    def collect(self, section: Magnitude, facts: JobFacts, results: Results) -> Findings:
        """Collect functions, convergence scales, areas and the difference."""
        from latentscale_pipeline.measures.magnitude.collect import collect_magnitude

        return collect_magnitude(section, facts, results)

    def scales(self, found: Any) -> Iterator[tuple[str, Any]]:
        """Yield the largest scale."""
        yield "cut-off scale of magnitude", found["corpus"]["scales"][-1]

    def read_scales(
        self, section: Magnitude, settings: Any, found: Any
    ) -> Mapping[str, float | None]:
        """Take the cut-off scale from a finished job, unless scales are listed."""
        if not isinstance(section.scales, int):
            return {}
        derived = settings is not None and isinstance(settings["scales"], int)
        if not derived or settings["metric"] != section.metric:
            return {"t_cut": None}
        scales = found["corpus"]["scales"]
        return {"t_cut": scales[-1] if scales else None}

    def results_model(self) -> type[Part]:
        """Return the model of its part of the results."""
        from latentscale_pipeline.measures.magnitude.results import MagnitudeResults

        return MagnitudeResults

    def report(self) -> MeasureReport:
        """Return what the report says of it."""
        from latentscale_pipeline.measures.magnitude.report import MagnitudeReport

        return MagnitudeReport()


MEASURE = MagnitudeMeasure()
