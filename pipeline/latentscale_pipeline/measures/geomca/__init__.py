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
    Results,
    Role,
    RowColumn,
)
from latentscale_pipeline.measures.geomca.config import Geomca
from latentscale_pipeline.measures.geomca.report import GeomcaReport
from latentscale_pipeline.measures.geomca.results import GeomcaResults


class GeomcaMeasure(Measure):
    """GeomCA as a measure."""

    section = Geomca
    results = GeomcaResults
    report = GeomcaReport()

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
        """Add rows that represent components and outliers."""
        from latentscale_pipeline.measures.geomca.representatives import with_representatives

        return with_representatives(section, findings, results, corpora)

    def section_of_sample(self, section: Geomca) -> Geomca:
        """Leave out other settings than the first, whose scores are all that is reported."""
        return section.model_copy(update={"sweep": None})

    def row_columns(self, found: GeomcaResults, role: Role) -> list[RowColumn]:
        """Return the component of every row that was considered, 0 for the largest."""
        membership, rows = f"geomca/membership/{role}", f"geomca/rows/{role}"
        return [RowColumn("component", (membership,), rows=rows)]

    def scales(self, found: GeomcaResults) -> Iterator[tuple[str, float]]:
        """Yield epsilon."""
        yield "epsilon of geomca", found.epsilon

    def read_scales(
        self, section: Geomca, settings: Any, found: GeomcaResults | None
    ) -> Mapping[str, float | None]:
        """Return the epsilon of a finished job, unless the configuration gives one."""
        if section.epsilon is not None:
            return {}
        return {"epsilon": None if found is None else found.epsilon}


MEASURE = GeomcaMeasure()
