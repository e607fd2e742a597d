"""Abundance: kinds of rows that are rarer or more frequent than in the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.abundance.config import AbundanceSection
from latentscale_pipeline.measures.abundance.report import AbundanceReport
from latentscale_pipeline.measures.abundance.results import AbundanceResults
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    RowColumn,
    RowFilter,
    Score,
)


class AbundanceMeasure(Measure):
    """The measure of neighbourhoods with unusually few or many rows of the corpus."""

    section = AbundanceSection
    results = AbundanceResults
    report = AbundanceReport()
    row_filters: ClassVar[Mapping[str, RowFilter]] = {
        "rarer-kinds": RowFilter(
            of="reference",
            score="depleted",
            where="rarer_kind",
            sort="corpus_nearby",
            columns=("corpus_nearby",),
            title="Rows of the reference of kinds that are rarer in the corpus",
            said="of a kind that is rarer in the corpus",
        ),
        "more-frequent-kinds": RowFilter(
            of="corpus",
            score="enriched",
            where="more_frequent_kind",
            sort="corpus_nearby:desc",
            columns=("corpus_nearby",),
            title="Rows of kinds that are more frequent than in the reference",
            said="of a kind that is more frequent than in the reference",
        ),
    }

    def plan(self, section: AbundanceSection, facts: JobFacts) -> list[Stage]:
        """Plan random rows of both corpora, their neighbourhoods, and the comparison."""
        from latentscale_pipeline.measures.abundance.plan import plan_abundance

        return plan_abundance(section, facts)

    def collect(self, section: AbundanceSection, facts: JobFacts, results: Results) -> Findings:
        """Collect the kinds of rows, and where chance puts the shares of such rows."""
        from latentscale_pipeline.measures.abundance.collect import collect_abundance

        return collect_abundance(section, facts, results)

    def name_representatives(
        self,
        section: AbundanceSection,
        findings: Findings,
        results: Results,
        corpora: Mapping[Role, Corpus],
    ) -> Findings:
        """Add ids, labels and texts of the rows that stand for kinds."""
        from latentscale_pipeline.measures.abundance.collect import name_kinds

        return name_kinds(findings, corpora)

    def section_of_sample(self, section: AbundanceSection) -> None:
        """Return None: random divisions of the rows say what is expected."""

    def expects(self, section: AbundanceSection, facts: JobFacts) -> bool:
        """Return whether there are enough rows for random divisions."""
        return not self.why_not_computed(section, facts)

    def why_not_computed(self, section: AbundanceSection, facts: JobFacts) -> str:
        """Return which corpus has too few rows."""
        from latentscale_pipeline.measures.abundance.plan import too_few_rows

        return too_few_rows(facts)

    def deciding_settings(self, settings: Mapping[str, Any], score: Score) -> Mapping[str, Any]:
        """Leave out how many kinds and rows are listed."""
        return {key: settings[key] for key in settings if key not in {"count", "examples"}}

    def row_columns(self, found: AbundanceResults, role: Role) -> Sequence[RowColumn]:
        """Return the corpus's share of each neighbourhood, and whether that is unusual."""
        place = f"abundance/{role}"
        name = "rarer_kind" if role == "reference" else "more_frequent_kind"
        return [
            RowColumn("corpus_nearby", (f"{place}/share",), rows=f"{place}/rows"),
            RowColumn(name, (f"{place}/unusual",), rows=f"{place}/rows"),
        ]


MEASURE = AbundanceMeasure()
