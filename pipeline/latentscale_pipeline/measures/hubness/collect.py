"""The findings of hubness: its part of the results, scores and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.measures.base import Findings, JobFacts, Results, Role, Score, load_scored
from latentscale_pipeline.measures.hubness.config import Hubness
from latentscale_pipeline.measures.hubness.plan import drawn_count, stage_name, too_few_rows
from latentscale_pipeline.measures.hubness.results import HubnessOfCorpus, HubnessResults
from latentscale_pipeline.measures.hubness.scores import SCORES

NONE: Mapping[str, Any] = {"scores": {}, "occurrences": [], "most": 0, "few_hubs": False}

FEW_HUBS = "few rows fill most lists of neighbours, and how many of them a sample has decides it"
"""Why there are no sampling errors then."""


def collect_hubness(section: Hubness, facts: JobFacts, results: Results) -> Findings:
    """Collect the scores of every corpus."""
    parts: dict[Role, HubnessOfCorpus] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    for role, corpus in facts.corpora.items():
        reason = too_few_rows(section, corpus)
        artifact = None if reason else results(stage_name(role))
        values: Mapping[str, Any] = artifact.values if artifact else NONE
        rows = 0 if reason else drawn_count(section, facts, role)
        scores += [
            definition.score(
                load_scored(values["scores"].get(name)),
                role,
                reason=reason or None,
                sampling_error_reason=FEW_HUBS if values["few_hubs"] else None,
            )
            for name, definition in SCORES.items()
        ]
        parts[role] = HubnessOfCorpus(
            n=corpus.n,
            rows=rows,
            metric=section.metric,
            k=section.k,
            occurrences=values["occurrences"],
            most=values["most"],
            **({"reason": reason} if reason else {}),
        )
        if artifact:
            for array in ("occurrences", "rows"):
                arrays[f"hubness/{role}/{array}"] = artifact.path(array)
    return Findings(HubnessResults(**parts), tuple(scores), arrays)
