"""Modes: kinds of rows that are more frequent in the corpus or in the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results, Role, Score
from latentscale_pipeline.measures.modes.config import ModesSection
from latentscale_pipeline.measures.modes.report import ModesReport
from latentscale_pipeline.measures.modes.results import ModesResults


class ModesMeasure(Measure):
    """The measure of kinds of rows whose frequency differs."""

    section = ModesSection
    results = ModesResults
    report = ModesReport()

    def needs_directions(self, name: str, section: ModesSection) -> str:
        """Return the kernel that does not accept rows of zeros."""
        return "the cosine kernel of modes" if "cosine" in section.kernels else ""

    def plan(self, section: ModesSection, facts: JobFacts) -> list[Stage]:
        """Plan the second moments by groups, the modes and the rows that stand for them."""
        from latentscale_pipeline.measures.modes.plan import plan_modes

        return plan_modes(section, facts)

    def collect(self, section: ModesSection, facts: JobFacts, results: Results) -> Findings:
        """Collect the modes, with where chance puts the largest of them."""
        from latentscale_pipeline.measures.modes.collect import collect_modes

        return collect_modes(section, facts, results)

    def name_representatives(
        self,
        section: ModesSection,
        findings: Findings,
        results: Results,
        corpora: Mapping[Role, Corpus],
    ) -> Findings:
        """Add ids and labels of the rows that stand for modes."""
        from latentscale_pipeline.measures.modes.collect import name_rows

        return name_rows(findings, corpora)

    def section_of_sample(self, section: ModesSection) -> None:
        """Return None: random divisions of the rows say what is expected."""

    def expects(self, section: ModesSection, facts: JobFacts) -> bool:
        """Return whether there are enough rows for random divisions."""
        return not self.why_not_computed(section, facts)

    def why_not_computed(self, section: ModesSection, facts: JobFacts) -> str:
        """Return which corpus has too few rows."""
        from latentscale_pipeline.measures.modes.plan import too_few_rows

        return too_few_rows(facts)

    def scales(self, found: ModesResults) -> Iterator[tuple[str, float]]:
        """Yield the bandwidth of the RBF kernel."""
        if found.bandwidth is not None:
            yield "bandwidth of modes", found.bandwidth

    def deciding_settings(self, settings: Mapping[str, Any], score: Score) -> Mapping[str, Any]:
        """Leave out how many modes and rows are listed."""
        return {key: settings[key] for key in settings if key not in {"count", "examples"}}

    def depends_on(self, score: Score, scale: str) -> bool:
        """Return whether a score has a bandwidth."""
        return (score.kernel or "").startswith("rbf")

    def read_scales(
        self, section: ModesSection, settings: Any, found: ModesResults | None
    ) -> Mapping[str, float | None]:
        """Take the bandwidth from a finished job, if the RBF kernel uses the median distance."""
        if "rbf" not in section.kernels or section.bandwidth != "median":
            return {}
        derived = (settings or {}).get("bandwidth", "median") == "median"
        return {"bandwidth": found.bandwidth if found is not None and derived else None}


MEASURE = ModesMeasure()
