"""The findings of the count of duplicate rows: a number for each corpus."""

from __future__ import annotations

from latentscale_pipeline.measures.base import Findings, JobFacts, Results
from latentscale_pipeline.measures.duplicates.plan import stage_name


def collect_duplicates(facts: JobFacts, results: Results) -> Findings:
    """Add the number of duplicate rows to every corpus."""
    counts = {role: results(stage_name(role)).values["duplicates"] for role in facts.corpora}
    return Findings(None, [], corpora={role: {"duplicates": n} for role, n in counts.items()})
