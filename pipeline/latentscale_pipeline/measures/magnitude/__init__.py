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
    Score,
)
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.measures.magnitude.report import MagnitudeReport
from latentscale_pipeline.measures.magnitude.results import MagnitudeResults

CUT_OFF, DISTANCE_SCALE = "cut-off scale of magnitude", "scale of magnitude distance"


class MagnitudeMeasure(Measure):
    """The magnitude measure."""

    section = Magnitude
    results = MagnitudeResults
    report = MagnitudeReport()
    error_rows = 100

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

    def section_of_label(self, section: Magnitude) -> Magnitude:
        """Leave out the distance, which is of whole corpora."""
        return section.model_copy(update={"distance": False})

    def row_columns(self, found: MagnitudeResults, role: Role) -> list[RowColumn]:
        """Return every row's share of the magnitude at the largest scale."""
        return [RowColumn("magnitude_weight", (f"magnitude/{role}/weights",))]

    def scales(self, found: MagnitudeResults) -> Iterator[tuple[str, float]]:
        """Yield the cut-off scale."""
        for scale in found.corpus.scales[-1:]:
            yield CUT_OFF, scale
        if found.distance is not None and found.distance.scale is not None:
            yield DISTANCE_SCALE, found.distance.scale

    def deciding_settings(self, settings: Mapping[str, Any], score: Score) -> Mapping[str, Any]:
        """Leave out the settings of the distance, except for its own score."""
        own = score.score == "distance"
        of_distance = {"distance", "distance_scale"}
        return {key: settings[key] for key in settings if own or key not in of_distance}

    def depends_on(self, score: Score, scale: str) -> bool:
        """Return whether a score is of the distance, or of the functions up to the cut-off."""
        return scale == (DISTANCE_SCALE if score.score == "distance" else CUT_OFF)

    def has_scale(self, score: Score) -> bool:
        """Return True: functions go up to the cut-off scale."""
        return True

    def read_scales(
        self, section: Magnitude, settings: Any, found: MagnitudeResults | None
    ) -> Mapping[str, float | None]:
        """Take the cut-off scale from a finished job, unless scales are listed."""
        needed: dict[str, float | None] = {}
        if isinstance(section.scales, int):
            needed["t_cut"] = None
            derived = settings is not None and isinstance(settings["scales"], int)
            if found is not None and derived and settings["metric"] == section.metric:
                needed["t_cut"] = next(reversed(found.corpus.scales), None)
        if section.distance and section.distance_scale == "median":
            given = (settings or {}).get("distance_scale", "median")
            known = found.distance.scale if found is not None and found.distance else None
            needed["bandwidth"] = 1.0 / known if known and given == "median" else None
        return needed


MEASURE = MagnitudeMeasure()
