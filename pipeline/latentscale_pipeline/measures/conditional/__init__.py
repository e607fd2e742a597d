"""Conditional diversity: what the rows that others were made from leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import Findings, JobFacts, Measure, Results, Score
from latentscale_pipeline.measures.conditional.config import BANDWIDTHS, Conditional
from latentscale_pipeline.measures.conditional.report import ConditionalReport
from latentscale_pipeline.measures.conditional.results import ConditionalResults

KERNEL_SCORES = {"conditional Vendi", "information Vendi"}
"""The scores that depend on a kernel."""


def _bandwidths(found: ConditionalResults) -> dict[str, float | None]:
    return {name: getattr(found, key) for name, key in BANDWIDTHS.items()}


class ConditionalMeasure(Measure):
    """The conditional diversity as a measure."""

    section = Conditional
    results = ConditionalResults
    report = ConditionalReport()

    def needs_directions(self, name: str, section: Conditional) -> str:
        """Return the score that does not accept rows of zeros."""
        return f"the Scendi score of {name}"

    def plan(self, section: Conditional, facts: JobFacts) -> list[Stage]:
        """Plan pairs of rows, and their scores."""
        from latentscale_pipeline.measures.conditional.plan import plan_conditional

        return plan_conditional(section, facts)

    def collect(self, section: Conditional, facts: JobFacts, results: Results) -> Findings:
        """Collect the scores of the pairs."""
        from latentscale_pipeline.measures.conditional.collect import collect_conditional

        return collect_conditional(section, facts, results)

    def why_not_computed(self, section: Conditional, facts: JobFacts) -> str:
        """Return which corpus has too few rows."""
        from latentscale_pipeline.measures.conditional.plan import too_few_pairs

        return too_few_pairs(facts)

    def section_of_sample(self, section: Conditional) -> None:
        """Return nothing: samples of both corpora aren't paired."""

    def rows_of(self, found: ConditionalResults, score: Score) -> int | None:
        """Return of how many pairs a score is."""
        return found.kernel_pairs if score.score in KERNEL_SCORES else found.pairs

    def scales(self, found: ConditionalResults) -> Iterator[tuple[str, float]]:
        """Yield the bandwidths of both kernels."""
        for name, width in _bandwidths(found).items():
            if width is not None:
                yield name.replace("_", " "), width

    def depends_on(self, score: Score, scale: str) -> bool:
        """Return whether a score has a bandwidth."""
        return score.score in KERNEL_SCORES

    def read_scales(
        self, section: Conditional, settings: Any, found: ConditionalResults | None
    ) -> Mapping[str, float | None]:
        """Take the bandwidths from a finished job, where they are median distances."""
        if section.kernel != "rbf":
            return {}
        given = settings or {}
        known = {} if found is None else _bandwidths(found)
        return {
            name: known.get(name) if given.get(key, "median") == "median" else None
            for name, key in BANDWIDTHS.items()
            if getattr(section, key) == "median"
        }


MEASURE = ConditionalMeasure()
