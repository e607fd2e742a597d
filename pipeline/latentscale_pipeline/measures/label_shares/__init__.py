"""How frequent labels are, and which are more or less frequent than in the reference."""

from __future__ import annotations

from collections.abc import Iterator

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    CountedBetween,
    Findings,
    JobFacts,
    Measure,
    Results,
)
from latentscale_pipeline.measures.label_shares.config import LabelShares
from latentscale_pipeline.measures.label_shares.report import LabelSharesReport
from latentscale_pipeline.measures.label_shares.results import LabelSharesResults


class LabelSharesMeasure(Measure):
    """The shares of labels as a measure; part of every job whose corpora all have labels."""

    section = LabelShares
    results = LabelSharesResults
    report = LabelSharesReport()
    always = True

    def plan(self, section: LabelShares | None, facts: JobFacts) -> list[Stage]:
        """Plan the count of the labels of all corpora."""
        from latentscale_pipeline.measures.label_shares.counts import counts_stage

        return [counts_stage(role, facts) for role in facts.corpora] if _apply(facts) else []

    def collect(self, section: LabelShares | None, facts: JobFacts, results: Results) -> Findings:
        """Collect how frequent every label is."""
        from latentscale_pipeline.measures.label_shares.collect import collect_label_shares

        if _apply(facts):
            return collect_label_shares(facts, results)
        reason = "labels are counted only if all corpora have labels and no rows are paired"
        return Findings(None, reason=None if section is None else reason)

    def counts_between(
        self, found: LabelSharesResults, usual: LabelSharesResults, rows: int, usual_rows: int
    ) -> Iterator[CountedBetween]:
        """Yield the share of the label whose share is least usual."""
        from latentscale_pipeline.measures.label_shares.collect import label_between

        return label_between(found, usual, rows, usual_rows)

    def reads(self, section: LabelShares | None, facts: JobFacts) -> set[str]:
        """Return the labels, if they are compared."""
        return {"labels"} if _apply(facts) else set()

    def section_of_sample(self, section: LabelShares) -> None:
        """Return nothing: the numbers of rows say what is expected."""


def _apply(facts: JobFacts) -> bool:
    # Items that are paired have the same labels.
    return facts.pair is None and all(each.labels for each in facts.corpora.values())


MEASURE = LabelSharesMeasure()
