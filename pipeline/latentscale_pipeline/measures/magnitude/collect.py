"""The findings of magnitude: sections of the results, scores and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale.estimate import Estimate
from latentscale.magnitude.function import (
    MagnitudeFunction,
    magnitude_area,
)
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
    load_estimate,
)
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.measures.magnitude.tasks import load_magnitude
from latentscale_pipeline.storage.artifacts import Artifact

UNIT = "effective points"


def _rarefaction_section(artifact: Artifact) -> dict[str, Any]:
    if "rarefaction" not in artifact.objects:
        return {}
    sizes, means = (artifact.array(name) for name in ("rarefaction_sizes", "rarefaction"))
    return {"rarefaction": {"sizes": sizes.tolist(), "values": means.tolist()}}


def collect_magnitude(section: Magnitude, facts: JobFacts, results: Results) -> Findings:
    """Collect functions, convergence scales, areas and the difference."""
    found: dict[str, Any] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    for role, corpus in facts.corpora.items():
        artifact = results(f"magnitude-{role}")
        function = load_magnitude(artifact)
        convergence = results(f"convergence-{role}").values
        area = magnitude_area(function.scales, function.estimates) if function else None
        found[role] = {
            **_function_section(function, section, corpus.n, artifact.values.get("reason")),
            **_subsampled_section(artifact.values),
            **_convergence_section(convergence),
            **_area_section(area, artifact.values),
            **_rarefaction_section(artifact),
        }
        scores += _corpus_scores(role, area, artifact.values, convergence)
        for name in ("weights", "rarefaction", "rarefaction_sizes"):
            if name in artifact.objects:
                arrays[f"magnitude/{role}/{name}"] = artifact.path(name)
    found["difference"] = None
    if len(facts.corpora) > 1:
        fields: dict[str, Any] = {
            "measure": "magnitude",
            "of": "pair",
            "score": "difference",
            "unit": f"{UNIT} × 1/distance",
            "better": "high",
        }
        compared = results("magnitude-difference").values
        if "estimate" in compared:
            estimate = load_estimate(compared["estimate"])
            found["difference"] = estimate.value
            scores.append(Score.known(estimate, **fields))
        else:
            found["difference_reason"] = compared["reason"]
            scores.append(Score.unknown(compared["reason"], **fields))
    return Findings(found, scores, arrays)


def _function_section(
    function: MagnitudeFunction | None, section: Magnitude, n: int, reason: str | None
) -> dict[str, Any]:
    estimates = function.estimates if function else ()
    return {
        "scales": function.scales.tolist() if function else [],
        "value": [estimate.value for estimate in estimates],
        "lower": [estimate.lower for estimate in estimates],
        "upper": [estimate.upper for estimate in estimates],
        "bounds": [estimate.bounds for estimate in estimates],
        "method": [estimate.method for estimate in estimates],
        "n": n,
        "points": function.points if function else None,
        **({} if function else {"points_reason": reason}),
        "metric": section.metric,
    }


def _subsampled_section(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what only a function from subsets has."""
    if "certified" not in values:
        return {}
    nystrom = values["nystrom"]
    return {
        "certified_lower": values["certified"],
        "lower_by": values["lower_by"],
        "upper_by": values["upper_by"],
        **({} if nystrom is None else {"nystrom": [one["value"] for one in nystrom]}),
    }


def _convergence_section(convergence: Mapping[str, Any]) -> dict[str, Any]:
    if "reason" in convergence:
        return {"convergence_scale": None, "convergence_scale_reason": convergence["reason"]}
    estimate = load_estimate(convergence["estimate"])
    remark = convergence.get("remark")
    return {
        "convergence_scale": estimate.value,
        "convergence": {
            "value": estimate.value,
            **_bracket(estimate),
            **({} if remark is None else {"remark": remark}),
        },
    }


def _area_section(area: Estimate | None, values: Mapping[str, Any]) -> dict[str, Any]:
    if area is None:
        return {"area": None, "area_reason": values["reason"]}
    return {"area": area.value, "area_bracket": _bracket(area)}


def _bracket(estimate: Estimate) -> dict[str, Any]:
    return {"lower": estimate.lower, "upper": estimate.upper, "bounds": estimate.bounds}


def _corpus_scores(
    role: Role,
    area: Estimate | None,
    values: Mapping[str, Any],
    convergence: Mapping[str, Any],
) -> list[Score]:
    fields: dict[str, Any] = {"measure": "magnitude", "of": role}
    area_fields = {**fields, "score": "area", "unit": f"{UNIT} × 1/distance", "better": "high"}
    scale_fields = {
        **fields,
        "score": "convergence_scale",
        "unit": "1/distance",
        "better": "none",
    }
    return [
        Score.known(area, **area_fields)
        if area is not None
        else Score.unknown(values["reason"], **area_fields),
        Score.known(
            load_estimate(convergence["estimate"]),
            reason=convergence.get("remark"),
            **scale_fields,
        )
        if "estimate" in convergence
        else Score.unknown(convergence["reason"], **scale_fields),
    ]
