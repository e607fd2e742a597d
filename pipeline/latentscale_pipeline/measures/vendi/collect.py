"""The findings of Vendi scores: sections of the results, scores and arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Results,
    Score,
    load_estimate,
)
from latentscale_pipeline.measures.vendi.config import Vendi, VendiKernel
from latentscale_pipeline.measures.vendi.labels import label_scores
from latentscale_pipeline.measures.vendi.labels import stage_name as labels_stage
from latentscale_pipeline.measures.vendi.plan import order_names, stage_name
from latentscale_pipeline.storage.artifacts import Artifact


def collect_vendi(section: Vendi, facts: JobFacts, results: Results) -> Findings:
    """Collect the scores by corpus, kernel and order."""
    found: dict[str, Any] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    for role, corpus in facts.corpora.items():
        entries: list[dict[str, Any]] = []
        for kernel in section.kernels:
            artifact = results(stage_name(kernel, role))
            label = _kernel_label(kernel)
            grown = _rarefaction(artifact, order_names(section))
            for order in order_names(section):
                fields: dict[str, Any] = {
                    "measure": "vendi",
                    "of": role,
                    "score": "vendi",
                    "kernel": label,
                    "order": order,
                    "unit": "effective items",
                    "better": "high",
                }
                entry = _entry(kernel, order, artifact.values, corpus.n)
                entries.append({**entry, **grown.get(order, {})})
                if "reason" in artifact.values:
                    scores.append(Score.unknown(artifact.values["reason"], **fields))
                else:
                    estimate = load_estimate(artifact.values["scores"][order])
                    scores.append(Score.known(estimate, **fields))
            for name, stored in (
                ("eigenvalues", "eigenvalues"),
                ("second_moment", "matrix"),
                ("rarefaction_sizes", "rarefaction_sizes"),
                ("rarefaction", "rarefaction"),
            ):
                if stored in artifact.objects:
                    arrays[f"vendi/{role}/{label}/{name}"] = artifact.path(stored)
        if section.labels:
            labelled = results(labels_stage(role))
            scores += label_scores(labelled, order_names(section), role)
            arrays[f"vendi/{role}/labels/scores"] = labelled.path("scores")
        found[role] = entries
    return Findings(found, scores, arrays)


def _rarefaction(artifact: Artifact, orders: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return how the score of each order grew with the rows, where they were sampled."""
    if "rarefaction" not in artifact.objects:
        return {}
    sizes, means = (artifact.array(name) for name in ("rarefaction_sizes", "rarefaction"))
    return {
        order: {"rarefaction": {"sizes": sizes.tolist(), "values": column.tolist()}}
        for order, column in zip(orders, means.T, strict=True)
    }


def _kernel_label(kernel: VendiKernel) -> str:
    """Name a kernel with its bandwidth, so that another one beside it renames nothing."""
    return kernel.name if kernel.bandwidth is None else f"{kernel.name} {kernel.bandwidth}"


def _entry(kernel: VendiKernel, order: str, artifact: Mapping[str, Any], n: int) -> dict[str, Any]:
    entry = {"kernel": kernel.name, "bandwidth": artifact.get("bandwidth"), "order": order, "n": n}
    if "reason" in artifact:
        return entry | dict.fromkeys(_ESTIMATED) | {"value_reason": artifact["reason"]}
    return entry | {name: artifact["scores"][order][name] for name in _ESTIMATED}


_ESTIMATED = ("value", "lower", "upper", "standard_error", "bounds", "method")
