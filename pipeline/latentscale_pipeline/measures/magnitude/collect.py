"""Collection of magnitude's results, scores and arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from latentscale.estimate import Estimate
from latentscale.magnitude.function import (
    MagnitudeFunction,
    magnitude_area,
    magnitude_dimension,
    trapezium_error,
)
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Results,
    Score,
    load_estimate,
)
from latentscale_pipeline.measures.magnitude import results as model
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.measures.magnitude.distance import collect_distance, has_distance
from latentscale_pipeline.measures.magnitude.results import (
    Bracketed,
    DimensionProfile,
    MagnitudeResults,
    RarefactionByScale,
)
from latentscale_pipeline.measures.magnitude.scores import SCORES
from latentscale_pipeline.measures.magnitude.tasks import cut_source, load_magnitude
from latentscale_pipeline.results.part import Bracket
from latentscale_pipeline.storage.artifacts import Artifact

MIN_SLOPES = 2
"""Fewest scales above 0 for a dimension profile."""


def collect_magnitude(section: Magnitude, facts: JobFacts, results: Results) -> Findings:
    """Collect functions, convergence scales, areas and the difference."""
    found: dict[str, Any] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    source = cut_source(section, facts)
    for role, corpus in facts.corpora.items():
        artifact = results(f"magnitude-{role}")
        convergence = results(f"convergence-{role}").values
        function = load_magnitude(artifact)
        area = None
        if function is not None:
            cut = _load_scale(results(source).values) if source else None
            area = magnitude_area(
                function.scales, function.estimates, cut=cut, points=function.points
            )
        scale = _load_scale(convergence)
        found[role] = _function(section, corpus.n, artifact, convergence, function, area, scale)
        why_no_area, why_no_scale = artifact.values.get("reason"), convergence.get("reason")
        remark = convergence.get("remark")
        scores += [
            SCORES["area"].score(
                area, role, reason=why_no_area, sampling_error=artifact.values.get("area_error")
            ),
            SCORES["convergence_scale"].score(
                scale,
                role,
                reason=why_no_scale or remark,
                sampling_error=artifact.values.get("scale_error") if scale else None,
            ),
        ]
        for name in ("weights", "rarefaction", "rarefaction_sizes"):
            if name in artifact.objects:
                arrays[f"magnitude/{role}/{name}"] = artifact.path(name)
    found["difference"] = None
    if len(facts.corpora) > 1:
        compared = results("magnitude-difference").values
        estimate = load_estimate(compared["estimate"]) if "estimate" in compared else None
        reason = compared.get("reason")
        found["difference"] = None if estimate is None else estimate.value
        found["difference_reason"] = reason
        found["difference_trapezium_error"] = compared.get("trapezium_error")
        areas = [score.sampling_error for score in scores if score.score == SCORES["area"].name]
        known = [error for error in areas if error is not None]
        both = math.hypot(*known) if len(known) == len(areas) else None
        scores.append(
            SCORES["difference"].score(estimate, "pair", reason=reason, sampling_error=both)
        )
    if has_distance(section, facts):
        found["distance"], distance = collect_distance(section, facts, results)
        scores.append(distance)
    curve = (found["corpus"].scales, found["corpus"].value)
    return Findings(
        MagnitudeResults(**found), tuple(scores), arrays, curve=curve if curve[1] else None
    )


def _load_scale(convergence: Mapping[str, Any]) -> Estimate | None:
    return load_estimate(convergence["estimate"]) if "estimate" in convergence else None


def _function(
    section: Magnitude,
    n: int,
    artifact: Artifact,
    convergence: Mapping[str, Any],
    function: MagnitudeFunction | None,
    area: Estimate | None,
    scale: Estimate | None,
) -> model.MagnitudeFunction:
    values = artifact.values
    estimates = function.estimates if function else ()
    nystrom = values.get("nystrom")
    known: dict[str, Any] = {}
    if scale is not None:
        known["convergence"] = Bracketed.from_estimate(scale, remark=convergence.get("remark"))
    if area is not None and function is not None:
        known["area_bracket"] = Bracket.from_estimate(area)
        known["area_trapezium_error"] = trapezium_error(
            function.scales, [estimate.value for estimate in estimates]
        )
    if function is not None:
        known["dimension"] = _dimension(function)
    return model.MagnitudeFunction(
        scales=function.scales.tolist() if function else [],
        value=[estimate.value for estimate in estimates],
        lower=[estimate.lower for estimate in estimates],
        upper=[estimate.upper for estimate in estimates],
        bounds=[estimate.bounds for estimate in estimates],
        method=[estimate.method for estimate in estimates],
        n=n,
        points=function.points if function else None,
        points_reason=values.get("reason"),
        metric=section.metric,
        certified_lower=values.get("certified"),
        lower_by=values.get("lower_by"),
        upper_by=values.get("upper_by"),
        nystrom=None if nystrom is None else [one["value"] for one in nystrom],
        convergence_scale=None if scale is None else scale.value,
        convergence_scale_reason=convergence.get("reason"),
        area=None if area is None else area.value,
        area_reason=values.get("reason"),
        rarefaction=_rarefaction(artifact),
        **known,
    )


def _dimension(function: MagnitudeFunction) -> DimensionProfile | None:
    """Return the dimension profile, if two scales are above 0."""
    positive = function.scales > 0
    if positive.sum() < MIN_SLOPES:
        return None
    scales = function.scales[positive]
    found = magnitude_dimension(scales, function.estimates[-len(scales) :])
    return DimensionProfile(
        scales=scales.tolist(),
        value=[each.value for each in found],
        lower=[each.lower for each in found],
        upper=[each.upper for each in found],
    )


def _rarefaction(artifact: Artifact) -> RarefactionByScale | None:
    if "rarefaction" not in artifact.objects:
        return None
    sizes, means = (artifact.array(name) for name in ("rarefaction_sizes", "rarefaction"))
    return RarefactionByScale(sizes=sizes.tolist(), values=means.tolist())
