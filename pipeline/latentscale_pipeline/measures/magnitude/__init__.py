"""Magnitude function, its convergence scale and area, and the difference of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    RowColumn,
)
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.measures.magnitude.report import MagnitudeReport
from latentscale_pipeline.measures.magnitude.results import MagnitudeResults


class MagnitudeMeasure(Measure):
    """The magnitude measure."""

    section = Magnitude
    results = MagnitudeResults
    report = MagnitudeReport()

    def plan(self, section: Magnitude, facts: JobFacts) -> list[Stage]:
        """Plan the stages of convergence scales, magnitude functions and their difference."""
        from latentscale_pipeline.measures.magnitude.plan import plan_magnitude

        return plan_magnitude(section, facts)

    def collect(self, section: Magnitude, facts: JobFacts, results: Results) -> Findings:
        """Collect functions, convergence scales, areas and the difference."""
        from latentscale_pipeline.measures.magnitude.collect import collect_magnitude

        return collect_magnitude(section, facts, results)

    def section_of_sample(self, section: Magnitude) -> Magnitude:
        """Leave out methods for many rows."""
        return section.model_copy(update={"method": "auto"})

    def row_columns(self, found: MagnitudeResults, role: Role) -> list[RowColumn]:
        """Return every row's share of the magnitude at the largest scale."""
        return [
            RowColumn("magnitude_weight", (f"magnitude/{role}/weights",), lambda values: values)
        ]

    def scales(self, found: MagnitudeResults) -> Iterator[tuple[str, float]]:
        """Yield the cut-off scale."""
        for scale in found.corpus.scales[-1:]:
            yield "cut-off scale of magnitude", scale

    def read_scales(
        self, section: Magnitude, settings: Any, found: MagnitudeResults | None
    ) -> Mapping[str, float | None]:
        """Take the cut-off scale from a finished job, unless scales are listed."""
        if not isinstance(section.scales, int):
            return {}
        derived = settings is not None and isinstance(settings["scales"], int)
        if found is None or not derived or settings["metric"] != section.metric:
            return {"t_cut": None}
        return {"t_cut": next(reversed(found.corpus.scales), None)}


MEASURE = MagnitudeMeasure()
