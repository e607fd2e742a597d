"""The findings of the conditional diversity: its part of the results, and scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale.conditional.kernel_entropies import CONDITIONAL, INFORMATION
from latentscale.conditional.schur_complement import EXPLAINED, PAIRS_PER_DIMENSION, SCENDI
from latentscale_pipeline.measures.base import Findings, JobFacts, Results, load_scored
from latentscale_pipeline.measures.conditional.config import Conditional
from latentscale_pipeline.measures.conditional.plan import too_few_pairs
from latentscale_pipeline.measures.conditional.results import ConditionalResults
from latentscale_pipeline.measures.conditional.scores import SCORES
from latentscale_pipeline.measures.conditional.tasks import STAGE
from latentscale_pipeline.measures.shared.pairs import ROLES, pairs_name
from latentscale_pipeline.measures.shared.unpaired import unpaired_rows

FEW = f"fewer than {PAIRS_PER_DIMENSION} pairs of rows for each dimension of the reference"

EQUAL = "the rows of the corpus are all equal, but for rounding"


def collect_conditional(section: Conditional, facts: JobFacts, results: Results) -> Findings:
    """Collect the scores, and which rows have no partner."""
    few = too_few_pairs(facts)
    values: Mapping[str, Any] = {} if few else results(STAGE).values
    paired: Mapping[str, Any] = {} if few else results(pairs_name(STAGE)).values
    reason = few or values.get("reason", "")
    known: Mapping[str, Any] = values.get("scores", {})
    named = _kernel(section)
    names = {
        CONDITIONAL: (named, reason),
        INFORMATION: (named, reason),
        SCENDI: ("cosine", FEW),
        EXPLAINED: ("cosine", FEW if SCENDI not in known else EQUAL),
    }
    scores = []
    for name, (kernel, why) in names.items():
        found = load_scored(known.get(name))
        reason_of_score = None if found else reason or why
        scores.append(SCORES[name].score(found, "pair", kernel=kernel, reason=reason_of_score))
    corpus, reference = (unpaired_rows(paired, role) for role in ROLES)
    part = ConditionalResults(
        by=facts.pair or "",
        common=paired.get("common", 0),
        pairs=values.get("pairs", 0),
        kernel=section.kernel,
        kernel_pairs=values.get("kernel_pairs", 0),
        corpus=corpus,
        reference=reference,
        bandwidth=values.get("bandwidth"),
        reference_bandwidth=values.get("reference_bandwidth"),
        information_by_chance=values.get("by_chance"),
        **({"reason": reason} if reason else {}),
    )
    return Findings(part, tuple(scores))


def _kernel(section: Conditional) -> str:
    """Name the kernel with its bandwidths."""
    if section.kernel != "rbf":
        return section.kernel
    widths = dict.fromkeys([section.bandwidth, section.reference_bandwidth])
    return f"rbf {', '.join(str(width) for width in widths)}"
