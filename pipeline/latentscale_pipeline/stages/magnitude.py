"""Magnitude: convergence scale, magnitude function, its area, and the difference of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from latentscale import Estimate
from latentscale.distances import as_points
from latentscale.duplicates import find_distinct
from latentscale.magnitude import (
    CHOLESKY_ROWS,
    KEPT_BYTES,
    MagnitudeFunction,
    NoConvergenceScale,
    convergence_scale,
    magnitude_area,
    magnitude_difference,
    magnitude_function,
)
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Magnitude
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.measure import (
    TILE_BYTES,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
    load_estimate,
    store_estimate,
)

EXPECTED_PRODUCTS = 40
"""Passes over all pairs that a convergence scale and a function take on one corpus."""

UNIT = "effective points"


def plan_magnitude(section: Magnitude, facts: JobFacts) -> list[Stage]:
    """Plan convergence scale and function of every corpus, and the difference of two."""
    if section.metric == "cosine":
        facts.refuse_zero_rows("magnitude.metric cosine")
    _refuse_beyond_budget(facts)
    stages = [_convergence_stage(section, facts, role) for role in facts.corpora]
    stages += [_function_stage(section, facts, role) for role in facts.corpora]
    if len(facts.corpora) > 1:
        stages.append(
            Stage(
                name="magnitude-difference",
                work=compare_functions,
                needs=tuple(f"magnitude-{role}" for role in facts.corpora),
                memory_bytes=TILE_BYTES,
            )
        )
    return stages


def _refuse_beyond_budget(facts: JobFacts) -> None:
    for role, corpus in facts.corpora.items():
        pairs = corpus.n * corpus.n / 2 * EXPECTED_PRODUCTS
        if pairs > facts.pairs:
            raise BadInput(
                f"{role}: magnitude of {corpus.n} rows visits about {pairs:.1e} row pairs and "
                f"budget.pairs is {facts.pairs:.1e}; raise it, use fewer rows, "
                "or leave magnitude out"
            )


def _convergence_stage(section: Magnitude, facts: JobFacts, role: Role) -> Stage:
    return Stage(
        name=f"convergence-{role}",
        work=find_convergence_scale,
        corpora=(role,),
        parameters={
            "role": role,
            "metric": section.metric,
            "target": section.target,
            "method": section.method,
            "tolerance": section.tolerance,
        },
        memory_bytes=_memory(section, facts, role, scales=32),
    )


def _function_stage(section: Magnitude, facts: JobFacts, role: Role) -> Stage:
    listed = isinstance(section.scales, list)
    cut = facts.fixed_scales.get("t_cut")
    source = f"convergence-{facts.scale_role}"
    count = len(section.scales) if isinstance(section.scales, list) else section.scales
    return Stage(
        name=f"magnitude-{role}",
        work=evaluate_function,
        corpora=(role,),
        needs=() if listed or cut is not None else (source,),
        parameters={
            "role": role,
            "metric": section.metric,
            "scales": section.scales,
            "cut": cut,
            "cut_from": source,
            "method": section.method,
            "tolerance": section.tolerance,
        },
        memory_bytes=_memory(section, facts, role, scales=count),
    )


def _memory(section: Magnitude, facts: JobFacts, role: Role, scales: int) -> int:
    corpus = facts.corpora[role]
    dense = corpus.n <= CHOLESKY_ROWS or section.method == "cholesky"
    kept = min(KEPT_BYTES, 4 * corpus.n**2)
    work = 8 * corpus.n * scales * 6 + kept + (16 * corpus.n**2 if dense else 0)
    # Rows are held twice while duplicates are merged.
    return 2 * corpus.points_bytes + work + TILE_BYTES


def find_convergence_scale(inputs: Inputs) -> Output:
    """Find the scale at which nearly all distinct rows count; say why when there is none."""
    p = inputs.parameters
    points = as_points(inputs.corpora[p["role"]].read_all(), p["metric"])
    distinct = find_distinct(points)
    try:
        estimate = convergence_scale(
            points,
            target=p["target"],
            method=p["method"],
            tolerance=p["tolerance"],
            distinct=distinct,
        )
    except NoConvergenceScale as error:
        return Output(values={"reason": str(error)})
    return Output(values={"estimate": store_estimate(estimate)})


def evaluate_function(inputs: Inputs) -> Output:
    """Evaluate the magnitude function on the job's scales."""
    p = inputs.parameters
    scales = _scales(inputs)
    if scales is None:
        return Output(values={"reason": f"no scale to go up to: see {p['cut_from']}"})
    points = as_points(inputs.corpora[p["role"]].read_all(), p["metric"])
    function = magnitude_function(points, scales, method=p["method"], tolerance=p["tolerance"])
    return Output(
        values={
            "estimates": [store_estimate(estimate) for estimate in function.estimates],
            "points": function.points,
            "products": function.products,
        },
        arrays={"scales": function.scales, "weights": function.weights},
    )


def _scales(inputs: Inputs) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    p = inputs.parameters
    if isinstance(p["scales"], list):
        return np.asarray(p["scales"], dtype=np.float64)
    cut = p["cut"]
    if cut is None:
        found = inputs.results[p["cut_from"]].values
        if "reason" in found:
            return None
        cut = found["estimate"]["value"]
    return np.linspace(0.0, cut, p["scales"])


def compare_functions(inputs: Inputs) -> Output:
    """Integrate the difference of the two functions."""
    functions = [_function(inputs.results[f"magnitude-{r}"]) for r in ("corpus", "reference")]
    first, second = functions
    if first is None or second is None:
        return Output(values={"reason": "one of the magnitude functions could not be computed"})
    return Output(values={"estimate": store_estimate(magnitude_difference(first, second))})


def _function(published: Published) -> MagnitudeFunction | None:
    if "reason" in published.values:
        return None
    return MagnitudeFunction(
        scales=published.array("scales"),
        estimates=tuple(load_estimate(values) for values in published.values["estimates"]),
        weights=published.array("weights"),
        points=published.values["points"],
        products=published.values["products"],
    )


def collect_magnitude(section: Magnitude, facts: JobFacts, results: Results) -> Findings:
    """Collect functions, convergence scales, areas and the difference."""
    found: dict[str, Any] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    for role, corpus in facts.corpora.items():
        published = results(f"magnitude-{role}")
        function = _function(published)
        convergence = results(f"convergence-{role}").values
        area = magnitude_area(function.scales, function.estimates) if function else None
        found[role] = {
            **_function_section(function, section, corpus.n, published.values.get("reason")),
            **_convergence_section(convergence),
            **_area_section(area, published.values),
        }
        scores += _corpus_scores(role, area, published.values, convergence)
        if function is not None:
            arrays[f"magnitude/{role}/weights"] = published.path("weights")
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


def _convergence_section(convergence: Mapping[str, Any]) -> dict[str, Any]:
    if "reason" in convergence:
        return {"convergence_scale": None, "convergence_scale_reason": convergence["reason"]}
    estimate = load_estimate(convergence["estimate"])
    return {
        "convergence_scale": estimate.value,
        "convergence": {"value": estimate.value, **_bracket(estimate)},
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
        Score.known(load_estimate(convergence["estimate"]), **scale_fields)
        if "estimate" in convergence
        else Score.unknown(convergence["reason"], **scale_fields),
    ]


MAGNITUDE = Measure(section=Magnitude, plan=plan_magnitude, collect=collect_magnitude)
