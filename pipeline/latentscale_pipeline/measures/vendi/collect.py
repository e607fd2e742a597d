"""Collection of the results, scores and arrays of Vendi scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
    load_estimate,
)
from latentscale_pipeline.measures.vendi import influence
from latentscale_pipeline.measures.vendi.config import Vendi, VendiKernel
from latentscale_pipeline.measures.vendi.labels import label_scores
from latentscale_pipeline.measures.vendi.labels import sampling_stage_name as labels_sampling_stage
from latentscale_pipeline.measures.vendi.labels import stage_name as labels_stage
from latentscale_pipeline.measures.vendi.plan import (
    has_sampling_errors,
    order_names,
    sampling_stage_name,
    stage_name,
)
from latentscale_pipeline.measures.vendi.results import (
    Rarefaction,
    TruncatedScore,
    VendiResults,
    VendiScore,
)
from latentscale_pipeline.measures.vendi.scores import SCORES
from latentscale_pipeline.storage.artifacts import Artifact

ARRAYS: Mapping[str, str] = {
    "eigenvalues": "eigenvalues",
    "second_moment": "matrix",
    "rarefaction_sizes": "rarefaction_sizes",
    "rarefaction": "rarefaction",
}
"""Arrays of a kernel in the results, with their names in its artifact."""


NO_SPECTRUM = (
    "a truncated score needs all eigenvalues, which the cosine kernel and measures.vendi.method: "
    "exact give"
)


def collect_vendi(section: Vendi, facts: JobFacts, results: Results) -> Findings:
    """Collect the scores by corpus, kernel and order."""
    found: dict[Role, list[VendiScore]] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    for role, corpus in facts.corpora.items():
        entries = found[role] = []
        for kernel in section.kernels:
            artifact = results(stage_name(kernel, role))
            label = kernel.label
            reason = artifact.values.get("reason")
            grown = _rarefaction(artifact, order_names(section))
            errors = _sampling_errors(kernel, role, facts, results)
            truncated = artifact.values.get("truncated", {})
            for order in order_names(section):
                estimate = None if reason else load_estimate(artifact.values["scores"][order])
                entries.append(
                    VendiScore.from_estimate(
                        estimate,
                        kernel=kernel.name,
                        bandwidth=artifact.values.get("bandwidth"),
                        order=order,
                        n=corpus.n,
                        value_reason=reason,
                        rarefaction=grown.get(order),
                        **_truncation(section, truncated.get(order)),
                    )
                )
                scores.append(
                    SCORES["vendi"].score(
                        estimate,
                        role,
                        kernel=label,
                        order=order,
                        reason=reason,
                        sampling_error=None if reason else errors["errors"].get(order),
                        sampling_error_reason=None
                        if reason or order in errors["errors"]
                        else errors.get("reason"),
                    )
                )
                if section.truncation is not None:
                    known = order in truncated
                    scores.append(
                        SCORES["truncated_vendi"].score(
                            load_estimate(truncated[order]) if known else None,
                            role,
                            kernel=label,
                            order=order,
                            reason=None if known else reason or NO_SPECTRUM,
                            sampling_error=errors["truncated_errors"].get(order) if known else None,
                            sampling_error_reason=errors.get("reason") if known else None,
                        )
                    )
            for name, stored in ARRAYS.items():
                if stored in artifact.objects:
                    arrays[f"vendi/{role}/{label}/{name}"] = artifact.path(stored)
        if section.labels:
            labelled = results(labels_stage(role))
            sampled = results(labels_sampling_stage(role)) if facts.errors else None
            scores += label_scores(labelled, sampled, order_names(section), role)
            arrays[f"vendi/{role}/labels/scores"] = labelled.path("scores")
        if influence.has_influence(section, corpus.n):
            influences = results(influence.stage_name(role))
            if influence.ARRAY in influences.objects:
                arrays[f"vendi/{role}/influence"] = influences.path(influence.ARRAY)
    weighted = [
        role for role, corpus in facts.corpora.items() if section.weights and corpus.weights
    ]
    return Findings(VendiResults(**found, weighted=weighted or None), tuple(scores), arrays)


def _sampling_errors(
    kernel: VendiKernel, role: Role, facts: JobFacts, results: Results
) -> Mapping[str, Any]:
    """Return the sampling errors under a kernel by order, whole and truncated, as far as known.

    If none is, ``reason`` says why.
    """
    known: Mapping[str, Any] = {}
    if has_sampling_errors(kernel, facts, facts.corpora[role]):
        known = results(sampling_stage_name(kernel, role)).values
    return {"errors": {}, "truncated_errors": {}, **known}


def _truncation(section: Vendi, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the field of the truncated score, where one was asked for."""
    if section.truncation is None:
        return {}
    if stored is None:
        return {"truncated": None}
    estimate = load_estimate(stored)
    return {"truncated": TruncatedScore.from_estimate(estimate, kept=section.truncation)}


def _rarefaction(artifact: Artifact, orders: Sequence[str]) -> dict[str, Rarefaction]:
    """Return the rarefaction curve of each order, where rows were sampled."""
    if "rarefaction" not in artifact.objects:
        return {}
    sizes, means = (artifact.array(name) for name in ("rarefaction_sizes", "rarefaction"))
    return {
        order: Rarefaction(sizes=sizes.tolist(), values=column.tolist())
        for order, column in zip(orders, means.T, strict=True)
    }
