"""The spectrum: how the variance of a corpus is spread over its directions, and row lengths."""

from __future__ import annotations

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results
from latentscale_pipeline.measures.spectrum.config import SpectrumSection
from latentscale_pipeline.measures.spectrum.report import SpectrumReport
from latentscale_pipeline.measures.spectrum.results import SpectrumResults


class SpectrumMeasure(Measure):
    """The spectrum as a measure."""

    section = SpectrumSection
    results = SpectrumResults
    report = SpectrumReport()
    error_rows = 40

    def plan(self, section: SpectrumSection, facts: JobFacts) -> list[Stage]:
        """Plan one pass over every corpus, and the scores."""
        from latentscale_pipeline.measures.spectrum.plan import plan_spectrum

        return plan_spectrum(facts)

    def collect(self, section: SpectrumSection, facts: JobFacts, results: Results) -> Findings:
        """Collect the scores of every corpus."""
        from latentscale_pipeline.measures.spectrum.collect import collect_spectrum

        return collect_spectrum(facts, results)


MEASURE = SpectrumMeasure()
