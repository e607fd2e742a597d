"""Rows that repeat another row, lie in both corpora, or lie far from all others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    CountedBetween,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    RowColumn,
)
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.measures.duplicates.report import DuplicatesReport
from latentscale_pipeline.measures.duplicates.results import DuplicatesResults
from latentscale_pipeline.measures.duplicates.rows import FILTERS, row_columns
from latentscale_pipeline.measures.duplicates.scores import NEARLY_THE_SAME
from latentscale_pipeline.results.model import Score


class DuplicatesMeasure(Measure):
    """Duplicates, leaks and outliers as a measure; every job counts the rows that are equal."""

    section = Duplicates
    results = DuplicatesResults
    report = DuplicatesReport()
    always = True
    row_filters = FILTERS

    def plan(self, section: Duplicates | None, facts: JobFacts) -> list[Stage]:
        """Plan the count of equal rows and, with settings, what needs distances."""
        from latentscale_pipeline.measures.duplicates.plan import plan_duplicates

        return plan_duplicates(section, facts)

    def collect(self, section: Duplicates | None, facts: JobFacts, results: Results) -> Findings:
        """Collect the shares of rows, where they are expected, and arrays of all rows."""
        from latentscale_pipeline.measures.duplicates.collect import collect_duplicates

        return collect_duplicates(section, facts, results)

    def why_not_computed(self, section: Duplicates | None, facts: JobFacts) -> str:
        """Return why the nearest rows aren't found."""
        from latentscale_pipeline.measures.duplicates.nearest import why_not_compared

        return why_not_compared(section, facts)

    def section_of_sample(self, section: Duplicates) -> None:
        """Return nothing: the distances in the reference say what is expected."""

    def expects(self, section: Duplicates | None, facts: JobFacts) -> bool:
        """Return whether rows are searched for, and not in a job that does without ranges."""
        return section is not None and facts.samples > 0

    def spans_models(self, score: Score) -> bool:
        """Return that counts of equal rows can: equal items are equal rows of any model."""
        return score.score.startswith("exact ")

    def deciding_settings(self, settings: Mapping[str, Any], score: Score) -> Mapping[str, Any]:
        """Leave out the distance, except for the scores of rows that are nearly the same."""
        near = score.score in NEARLY_THE_SAME
        return {key: settings[key] for key in settings if near or key != "within"}

    def counts_between(
        self,
        found: DuplicatesResults,
        usual: DuplicatesResults,
        rows: int,
        usual_rows: int,
        labels: Collection[str] | None = (),
    ) -> Iterator[CountedBetween]:
        """Yield the counts of rows, as shares of those that were looked at; of no label."""
        from latentscale_pipeline.measures.duplicates.collect import counts_between

        of_labels = labels is None or len(labels) > 0
        return iter(()) if of_labels else counts_between(found, usual, rows / usual_rows)

    def row_columns(self, found: DuplicatesResults, role: Role) -> list[RowColumn]:
        """Return the nearest rows, what a row repeats, and whether it leaks or lies apart."""
        return list(row_columns(found, role))


MEASURE = DuplicatesMeasure()
