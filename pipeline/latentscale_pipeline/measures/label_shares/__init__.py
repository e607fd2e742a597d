"""How frequent labels are, and which are more or less frequent than in the reference."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    CountedBetween,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
)
from latentscale_pipeline.measures.label_shares.config import LabelShares
from latentscale_pipeline.measures.label_shares.report import LabelSharesReport
from latentscale_pipeline.measures.label_shares.results import LabelSharesResults


class LabelSharesMeasure(Measure):
    """The shares of labels as a measure; part of every job that has labels."""

    section = LabelShares
    results = LabelSharesResults
    report = LabelSharesReport()
    always = True

    def plan(self, section: LabelShares | None, facts: JobFacts) -> list[Stage]:
        """Plan the count of the labels of every corpus that has some."""
        from latentscale_pipeline.measures.label_shares.counts import counts_stage

        return [counts_stage(role, facts) for role in _labelled(facts)]

    def collect(self, section: LabelShares | None, facts: JobFacts, results: Results) -> Findings:
        """Collect how frequent every label is."""
        from latentscale_pipeline.measures.label_shares.collect import collect_label_shares

        if labelled := _labelled(facts):
            return collect_label_shares(facts, labelled, results)
        reason = (
            "the corpus has no labels"
            if facts.pair is None
            else "rows are paired, and the items of a pair have the same label"
        )
        return Findings(None, reason=None if section is None else reason)

    def spans_models(self, score: Score) -> bool:
        """Return that all can: labels don't come from a model."""
        return True

    def counts_between(
        self,
        found: LabelSharesResults,
        usual: LabelSharesResults | None,
        rows: int,
        usual_rows: int,
        labels: Collection[str] | None = (),
    ) -> Iterator[CountedBetween]:
        """Yield the shares of the labels that are least usual, of some labels, or of all."""
        from latentscale_pipeline.measures.label_shares.collect import label_between

        return label_between(found, usual, rows, usual_rows, labels)

    def reads(self, section: LabelShares | None, facts: JobFacts) -> set[str]:
        """Return the labels, if they are compared."""
        return {"labels"} if _labelled(facts) else set()

    def section_of_sample(self, section: LabelShares) -> None:
        """Return nothing: the numbers of rows say what is expected."""

    def expects(self, section: LabelShares | None, facts: JobFacts) -> bool:
        """Return whether both corpora have labels."""
        return len(_labelled(facts)) > 1


def _labelled(facts: JobFacts) -> list[Role]:
    """Return the corpora with labels; those of paired rows are the same."""
    if facts.pair is not None:
        return []
    return [role for role, corpus in facts.corpora.items() if corpus.labels]


MEASURE = LabelSharesMeasure()
