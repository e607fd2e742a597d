"""The findings of the spread: its part of the results and scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
    load_estimate,
    load_scored,
)
from latentscale_pipeline.measures.spread.config import Spread
from latentscale_pipeline.measures.spread.plan import drawn_count, stage_name
from latentscale_pipeline.measures.spread.results import (
    SpreadAtScale,
    SpreadOfCorpus,
    SpreadResults,
)
from latentscale_pipeline.measures.spread.scores import SCORES


def collect_spread(section: Spread, facts: JobFacts, results: Results) -> Findings:
    """Collect the spread of every corpus, by scale."""
    parts: dict[Role, SpreadOfCorpus] = {}
    scores: list[Score] = []
    for role, corpus in facts.corpora.items():
        values = results(stage_name(role)).values
        reason = values.get("reason") or None
        found = dict(zip(section.scales, values.get("euclidean", []), strict=False))
        scores += [
            _score("spread", role, f"scale {scale:g}", found.get(scale), reason, corpus.n)
            for scale in section.scales
        ]
        cosine = None
        if section.temperature is not None:
            [stored] = values["cosine"]
            label = f"τ = {section.temperature:g}"
            scores.append(_score("DCScore", role, label, stored, None, corpus.n))
            cosine = _at_scale(1.0 / section.temperature, stored)
        parts[role] = SpreadOfCorpus(
            n=corpus.n,
            rows=drawn_count(section, facts, role),
            bandwidth=values["bandwidth"],
            bandwidth_reason=reason,
            euclidean=[_at_scale(scale, stored) for scale, stored in found.items()],
            **({} if cosine is None else {"cosine": cosine}),
        )
    return Findings(SpreadResults(**parts), tuple(scores))


SATURATED = 0.98
"""Share of the rows from which a spread says little: the few near rows, by chance, decide it."""

UNRESOLVED = {
    "spread": "nearly every row counts as different at this scale; set a smaller one",
    "DCScore": "nearly every row counts as different at this temperature; set a larger one",
}
"""What is said of a score that says little."""


def _score(
    name: str,
    role: Role,
    scale: str,
    found: Mapping[str, Any] | None,
    reason: str | None,
    n: int,
) -> Score:
    if n > 1 and found is not None and found["estimate"]["value"] > SATURATED * n:
        found, reason = None, UNRESOLVED[name]
    return SCORES[name].score(load_scored(found), role, kernel=scale, reason=reason)


def _at_scale(scale: float, found: Mapping[str, Any]) -> SpreadAtScale:
    return SpreadAtScale.from_estimate(
        load_estimate(found["estimate"]), scale=scale, sampling_error=found["sampling_error"]
    )
