"""The findings of the alignment: its part of the results, scores and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale.alignment.linear_cka import BIASED, DEBIASED
from latentscale_pipeline.measures.alignment.config import Alignment
from latentscale_pipeline.measures.alignment.plan import too_few_pairs
from latentscale_pipeline.measures.alignment.results import AlignmentResults
from latentscale_pipeline.measures.alignment.scores import SCORES
from latentscale_pipeline.measures.alignment.tasks import STAGE
from latentscale_pipeline.measures.base import Findings, JobFacts, Results, load_scored
from latentscale_pipeline.measures.shared.pairs import ROLES, pairs_name
from latentscale_pipeline.measures.shared.unpaired import unpaired_rows

EQUAL = "the vectors of one model are all equal, or all equally far apart, but for rounding"


def collect_alignment(section: Alignment, facts: JobFacts, results: Results) -> Findings:
    """Collect the scores, and which rows have no partner."""
    reason = too_few_pairs(section, facts)
    values: Mapping[str, Any] = {} if reason else results(STAGE).values
    paired: Mapping[str, Any] = {} if reason else results(pairs_name(STAGE)).values
    scores = []
    for name, definition in SCORES.items():
        found = load_scored(values.get("scores", {}).get(name))
        why = reason or (EQUAL if name in (BIASED, DEBIASED) else "too few pairs were compared")
        freedom = min(definition.error_freedom, max(1, paired.get("common", 0) - 1))
        fields = {"reason": None if found else why, "sampling_freedom": freedom}
        scores.append(definition.score(found, "pair", **fields))
    corpus, reference = (unpaired_rows(paired, role) for role in ROLES)
    part = AlignmentResults(
        by=facts.pair or "",
        common=paired.get("common", 0),
        pairs=values.get("pairs", 0),
        metric=section.metric,
        k=section.k,
        overlaps=values.get("overlaps", []),
        corpus=corpus,
        reference=reference,
        **({"reason": reason} if reason else {}),
    )
    names = [f"{role}_{what}" for role in ROLES for what in ("rows", "common", "overlap")]
    arrays = {} if reason else {f"alignment/{name}": results(STAGE).path(name) for name in names}
    return Findings(part, tuple(scores), arrays)
