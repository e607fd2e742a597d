"""GeomCA: connected components of two thinned corpora, and how much they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Measure,
    MeasureReport,
    Results,
    Role,
)
from latentscale_pipeline.measures.geomca.config import Geomca
from latentscale_pipeline.results.part import Part


class GeomcaMeasure(Measure):
    """How GeomCA takes part in a job."""

    section = Geomca

    def plan(self, section: Geomca, facts: JobFacts) -> list[Stage]:
        """Plan epsilon, sparsification and components."""
        from latentscale_pipeline.measures.geomca.plan import plan_geomca

        return plan_geomca(section, facts)

    def collect(self, section: Geomca, facts: JobFacts, results: Results) -> Findings:
        """Collect global scores and the largest components."""
        from latentscale_pipeline.measures.geomca.collect import collect_geomca

        return collect_geomca(section, facts, results)

    def name_representatives(
        self,
        section: Geomca,
        findings: Findings,
        results: Results,
        corpora: Mapping[Role, Corpus],
    ) -> Findings:
        """Name rows of components and outliers."""
        from latentscale_pipeline.measures.geomca.representatives import with_representatives

        return with_representatives(section, findings, results, corpora)

    def scales(self, found: Any) -> Iterator[tuple[str, Any]]:
        """Yield epsilon."""
        yield "epsilon of geomca", found["epsilon"]

    def read_scales(self, section: Geomca, settings: Any, found: Any) -> Mapping[str, float | None]:
        """Take epsilon from a finished job, unless it is given."""
        if section.epsilon is not None:
            return {}
        return {"epsilon": None if found is None else found["epsilon"]}

    def results_model(self) -> type[Part]:
        """Return the model of its part of the results."""
        from latentscale_pipeline.measures.geomca.results import GeomcaResults

        return GeomcaResults

    def report(self) -> MeasureReport:
        """Return what the report says of it."""
        from latentscale_pipeline.measures.geomca.report import GeomcaReport

        return GeomcaReport()


MEASURE = GeomcaMeasure()
