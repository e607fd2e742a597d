"""Maximum mean discrepancy: whether corpus and reference have the same distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results, Score
from latentscale_pipeline.measures.mmd.config import Mmd
from latentscale_pipeline.measures.mmd.report import MmdReport
from latentscale_pipeline.measures.mmd.results import MmdResults


class MmdMeasure(Measure):
    """The measure of the maximum mean discrepancy."""

    section = Mmd
    results = MmdResults
    report = MmdReport()

    def needs_directions(self, name: str, section: Mmd) -> str:
        """Return the kernel that does not accept rows of zeros."""
        return "the cosine kernel of mmd" if "cosine" in section.kernels else ""

    def plan(self, section: Mmd, facts: JobFacts) -> list[Stage]:
        """Plan the sums over groups of rows and the test, under every kernel."""
        from latentscale_pipeline.measures.mmd.plan import plan_mmd

        return plan_mmd(section, facts)

    def collect(self, section: Mmd, facts: JobFacts, results: Results) -> Findings:
        """Collect the discrepancies, with where chance puts them."""
        from latentscale_pipeline.measures.mmd.collect import collect_mmd

        return collect_mmd(section, facts, results)

    def section_of_sample(self, section: Mmd) -> None:
        """Return None: random divisions of the rows say what is expected."""

    def expects(self, section: Mmd, facts: JobFacts) -> bool:
        """Return whether there are enough rows for random divisions."""
        return not self.why_not_computed(section, facts)

    def why_not_computed(self, section: Mmd, facts: JobFacts) -> str:
        """Return which corpus has too few rows."""
        from latentscale_pipeline.measures.mmd.plan import too_few_rows

        return too_few_rows(facts)

    def scales(self, found: MmdResults) -> Iterator[tuple[str, float]]:
        """Yield the bandwidth of the RBF kernel."""
        for entry in found.pair:
            if entry.bandwidth is not None:
                yield f"bandwidth of mmd {entry.kernel}", entry.bandwidth

    def depends_on(self, score: Score, scale: str) -> bool:
        """Return whether a score has a bandwidth."""
        return (score.kernel or "").startswith("rbf")

    def read_scales(
        self, section: Mmd, settings: Any, found: MmdResults | None
    ) -> Mapping[str, float | None]:
        """Take the bandwidth from a finished job, if the RBF kernel uses the median distance."""
        if "rbf" not in section.kernels or section.bandwidth != "median":
            return {}
        given = (settings or {}).get("bandwidth", "median")
        entries = found.pair if found and given == "median" else []
        return {"bandwidth": next((e.bandwidth for e in entries if e.kernel == "rbf"), None)}


MEASURE = MmdMeasure()
