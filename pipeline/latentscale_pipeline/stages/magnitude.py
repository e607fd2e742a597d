"""Magnitude: convergence scale, magnitude function, its area, and the difference of two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from latentscale import Estimate
from latentscale.conjugate_gradients import ConjugateGradients, Solutions, step_bytes
from latentscale.convergence import ConvergenceSearch
from latentscale.dense_magnitude import NoConvergenceScale
from latentscale.duplicates import Distinct
from latentscale.magnitude import (
    CHOLESKY_ROWS,
    MagnitudeFunction,
    check_target,
    convergence_scale,
    magnitude_area,
    magnitude_difference,
    magnitude_function,
)
from latentscale.near_duplicates import explain_scale
from latentscale.positive_definiteness import Separations
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Magnitude
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.distinct_rows import DistinctRows, distinct_stage
from latentscale_pipeline.stages.measure import (
    RESULT_BYTES,
    TILE_BYTES,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
    load_estimate,
    store_estimate,
    write_pairs,
)
from latentscale_pipeline.stages.pair_products import (
    advance_state,
    count_pairs,
    pair_memory,
    publish_state,
    rounds_effort,
    sum_over_pair,
)
from latentscale_pipeline.stages.subsampled_magnitude import (
    LEAST_ROWS,
    REPLICATES,
    conclude_convergence,
    conclude_function,
    estimate_by_landmarks,
    evaluate_pieces,
    landmarks_effort,
    landmarks_memory,
    load_nystrom,
    partitions,
    replicate_rows,
    store_nystrom,
    subsample_effort,
    subsample_memory,
)

EXPECTED_PRODUCTS = 30
"""Passes over all pairs that a convergence scale and a function take on one corpus."""

SEARCH_SCALES = 10
"""Scales at once in the search for a convergence scale."""

SUBSAMPLED_SCALES = 17
"""The same where it is sought in subsets."""

SEARCH_ROUNDS, FUNCTION_ROUNDS = 10, 10
"""Expected passes of that search and of a function, on data of no unusual shape."""

UNIT = "effective points"


def plan_magnitude(section: Magnitude, facts: JobFacts) -> list[Stage]:
    """Plan convergence scale and function of every corpus, and the difference of two."""
    if section.metric == "cosine":
        facts.refuse_zero_rows("magnitude.metric cosine")
    stages = [
        distinct_stage(role, section.metric, corpus, section.merge_within)
        for role, corpus in facts.corpora.items()
    ]
    subsampled = {role: _is_subsampled(section, facts, role) for role in facts.corpora}
    for role in facts.corpora:
        plan = _subsampled_convergence if subsampled[role] else _convergence_stage
        stages.append(plan(section, facts, role))
    for role in facts.corpora:
        if subsampled[role]:
            stages += _subsampled_function(section, facts, role)
        else:
            stages.append(_function_stage(section, facts, role))
    if len(facts.corpora) > 1:
        stages.append(
            Stage(
                name="magnitude-difference",
                work=compare_functions,
                needs=tuple(f"magnitude-{role}" for role in facts.corpora),
                memory_bytes=TILE_BYTES,
                effort=Effort(bytes_read=2 * RESULT_BYTES, bytes_written=RESULT_BYTES),
            )
        )
    return stages


def _is_subsampled(section: Magnitude, facts: JobFacts, role: Role) -> bool:
    """Tell whether a corpus has too many pairs of rows for its budget, or isn't to visit them."""
    corpus = facts.corpora[role]
    if section.method in {"subsample", "nystrom"}:
        if corpus.n < REPLICATES * LEAST_ROWS:
            raise BadInput(
                f"{role}: measures.magnitude.method {section.method} draws subsets of at least "
                f"{LEAST_ROWS} rows and there are {corpus.n} rows; use method auto"
            )
        return True
    pairs = corpus.n * corpus.n / 2 * EXPECTED_PRODUCTS
    if pairs <= facts.pairs:
        return False
    if section.method != "auto" or corpus.n < REPLICATES * LEAST_ROWS:
        raise BadInput(
            f"{role}: magnitude of {corpus.n} rows visits about {pairs:.1e} row pairs and "
            f"budget.pairs is {facts.pairs:.1e}; set budget.pairs to {write_pairs(pairs)}, use "
            "fewer rows, or set measures.magnitude.method to auto or subsample"
        )
    return True


def _convergence_stage(section: Magnitude, facts: JobFacts, role: Role) -> Stage:
    return Stage(
        name=f"convergence-{role}",
        work=sum_pairs,
        advance=advance_convergence,
        partitions=count_pairs(facts.corpora[role]),
        corpora=(role,),
        needs=(f"distinct-{section.metric}-{role}",),
        parameters={
            "role": role,
            "metric": section.metric,
            "target": section.target,
            "method": section.method,
            "tolerance": section.tolerance,
        },
        seed=facts.seed,
        memory_bytes=_memory(section, facts, role, SEARCH_SCALES),
        effort=_effort(section, facts, role, SEARCH_SCALES, SEARCH_ROUNDS),
    )


def _function_stage(section: Magnitude, facts: JobFacts, role: Role) -> Stage:
    listed = isinstance(section.scales, list)
    cut = facts.fixed_scales.get("t_cut")
    source = f"convergence-{facts.scale_role}"
    count = len(section.scales) if isinstance(section.scales, list) else section.scales
    distinct = f"distinct-{section.metric}-{role}"
    return Stage(
        name=f"magnitude-{role}",
        work=sum_pairs,
        advance=advance_function,
        partitions=count_pairs(facts.corpora[role]),
        corpora=(role,),
        needs=(distinct,) if listed or cut is not None else (distinct, source),
        parameters={
            "role": role,
            "metric": section.metric,
            "scales": section.scales,
            "cut": cut,
            "cut_from": source,
            "method": section.method,
            "tolerance": section.tolerance,
        },
        seed=facts.seed,
        memory_bytes=_memory(section, facts, role, scales=count),
        effort=_effort(section, facts, role, count, FUNCTION_ROUNDS),
    )


def _subsampled_convergence(section: Magnitude, facts: JobFacts, role: Role) -> Stage:
    rows = replicate_rows(facts.corpora[role], facts.pairs)
    return Stage(
        name=f"convergence-{role}",
        work=subsample_about_convergence,
        finalise=extrapolate_convergence,
        partitions=partitions(),
        corpora=(role,),
        needs=(f"distinct-{section.metric}-{role}",),
        parameters={
            "role": role,
            "metric": section.metric,
            "target": section.target,
            "tolerance": section.tolerance,
            "rows": rows,
        },
        seed=facts.seed,
        memory_bytes=subsample_memory(facts.corpora[role], rows, SUBSAMPLED_SCALES),
        effort=replace(
            subsample_effort(facts.corpora[role], rows, SUBSAMPLED_SCALES),
            why=_why_subsampled(section, facts),
        ),
    )


def _subsampled_function(section: Magnitude, facts: JobFacts, role: Role) -> list[Stage]:
    exact = _function_stage(section, facts, role)
    corpus = facts.corpora[role]
    rows = replicate_rows(corpus, facts.pairs)
    count = len(section.scales) if isinstance(section.scales, list) else section.scales
    beside = f"nystrom-{role}"
    landmarks = replace(
        exact,
        name=beside,
        work=estimate_beside,
        advance=None,
        partitions=1,
        memory_bytes=landmarks_memory(corpus, count),
        effort=replace(
            landmarks_effort(corpus, count), why=f"magnitude.method is {section.method}"
        ),
    )
    function = replace(
        exact,
        work=subsample_function,
        advance=None,
        finalise=extrapolate_function,
        partitions=partitions(),
        parameters={**exact.parameters, "rows": rows, "beside": None},
        memory_bytes=subsample_memory(corpus, rows, count),
        effort=replace(subsample_effort(corpus, rows, count), why=_why_subsampled(section, facts)),
    )
    if section.method != "nystrom":
        return [function]
    parameters = {**function.parameters, "beside": beside}
    return [landmarks, replace(function, needs=(*exact.needs, beside), parameters=parameters)]


def _memory(section: Magnitude, facts: JobFacts, role: Role, scales: int) -> int:
    corpus = facts.corpora[role]
    if corpus.n <= CHOLESKY_ROWS or section.method == "cholesky":
        step = corpus.points_bytes + 20 * corpus.n**2
    else:
        group = pair_memory(corpus, scales) // 2
        step = step_bytes(corpus.n, scales, scales, corpus.d) + 16 * corpus.n * scales + group
    return max(pair_memory(corpus, scales), step) + TILE_BYTES


def _effort(section: Magnitude, facts: JobFacts, role: Role, scales: int, rounds: int) -> Effort:
    corpus = facts.corpora[role]
    asked = f"magnitude.method is {section.method}"
    if corpus.n <= CHOLESKY_ROWS or section.method == "cholesky":
        n, pairs = float(corpus.n), corpus.n**2 / 2
        return Effort(
            bytes_read=corpus.stored_bytes + 16 * corpus.n,
            bytes_written=8 * (corpus.n + scales) + 2 * RESULT_BYTES,
            products=pairs * corpus.d + scales * n**3 / 6,
            folds=scales * 4 * pairs,
            rounds=0,
            method="cholesky",
            why=f"at most {CHOLESKY_ROWS:,} rows" if section.method == "auto" else asked,
        )
    return replace(
        rounds_effort(corpus, scales, rounds),
        method="cg",
        why=f"more than {CHOLESKY_ROWS:,} rows" if section.method == "auto" else asked,
    )


def _why_subsampled(section: Magnitude, facts: JobFacts) -> str:
    if section.method != "auto":
        return f"magnitude.method is {section.method}"
    return f"all pairs of rows would take more than budget.pairs {facts.pairs:.1e}"


def sum_pairs(inputs: Inputs) -> Output:
    """Compute one pair of groups' share of the sums that a state asks for."""
    return sum_over_pair(_distinct(inputs), inputs)


def advance_convergence(inputs: Inputs) -> Output:
    """Search on for the scale at which nearly all distinct rows count; say why if there is none."""
    p = inputs.parameters
    distinct = _distinct(inputs)
    try:
        check_target(p["target"], len(distinct))
        if inputs.state is not None:
            search = advance_state(ConvergenceSearch, distinct, inputs)
        elif _is_dense(inputs, distinct):
            points = distinct.read(slice(0, len(distinct)))
            estimate = convergence_scale(
                points, target=p["target"], method=p["method"], tolerance=p["tolerance"]
            )
            return Output(values=_found_scale(inputs, distinct, estimate))
        else:
            search = ConvergenceSearch.start(
                len(distinct),
                target=p["target"],
                read_rows=distinct.read_groups,
                generator=inputs.generator(),
            )
        if search.request is not None:
            return publish_state(search, distinct)
        found = search.outcome
    except NoConvergenceScale as error:
        return Output(values={"reason": str(error)})
    values = _found_scale(inputs, distinct, found.estimate)
    return Output(values={**values, "separations": found.separations.values()})


def _found_scale(inputs: Inputs, distinct: DistinctRows, estimate: Estimate) -> dict[str, Any]:
    # A stream of its own: the search has drawn from the stage's first.
    generator = replace(inputs, index=inputs.stage.partitions).generator()
    remark = explain_scale(estimate.value, len(distinct), distinct.read_groups, generator)
    return {"estimate": store_estimate(estimate), "remark": remark}


def advance_function(inputs: Inputs) -> Output:
    """Solve on for the magnitude at the job's scales."""
    p = inputs.parameters
    scales = _scales(inputs)
    if scales is None:
        return Output(values={"reason": _no_scale(inputs)})
    distinct = _distinct(inputs)
    if inputs.state is not None:
        solver = advance_state(ConjugateGradients, distinct, inputs)
    elif _is_dense(inputs, distinct):
        points = distinct.read(slice(0, len(distinct)))
        function = magnitude_function(points, scales, method=p["method"], tolerance=p["tolerance"])
        return _function_output(function, distinct.distinct.share(function.weights))
    else:
        solver = ConjugateGradients.start(
            len(distinct),
            scales[scales > 0],
            tolerance=p["tolerance"],
            read_rows=distinct.read_groups,
            generator=inputs.generator(),
            separations=_separations(inputs),
        )
    if solver.request is not None:
        return publish_state(solver, distinct)
    function = solved_function(scales, solver.outcome, distinct.distinct)
    return _function_output(function, function.weights)


def solved_function(
    scales: np.ndarray[Any, Any], solutions: Solutions, distinct: Distinct
) -> MagnitudeFunction:
    """Put a function together from its solutions at positive scales."""
    origin = (Estimate.exact(1.0, "definition"),) * (len(scales) - len(solutions.scales))
    return MagnitudeFunction(
        scales,
        origin + solutions.estimates,
        distinct.share(solutions.weights[:, -1].astype(np.float64)),
        len(distinct.rows),
        solutions.products,
    )


def _distinct(inputs: Inputs) -> DistinctRows:
    role, metric = inputs.parameters["role"], inputs.parameters["metric"]
    published = inputs.results[f"distinct-{metric}-{role}"]
    return DistinctRows.load(inputs.corpora[role], metric, published)


def subsample_about_convergence(inputs: Inputs) -> Output:
    """Evaluate pieces of one replicate about the convergence scale."""
    return evaluate_pieces(inputs, _distinct(inputs), None)


def extrapolate_convergence(inputs: Inputs) -> Output:
    """Find the convergence scale of the extrapolated function."""
    return conclude_convergence(inputs, _distinct(inputs))


def subsample_function(inputs: Inputs) -> Output:
    """Evaluate pieces of one replicate on the job's scales."""
    scales = _scales(inputs)
    return Output() if scales is None else evaluate_pieces(inputs, _distinct(inputs), scales)


def extrapolate_function(inputs: Inputs) -> Output:
    """Extrapolate the function on the job's scales."""
    if _scales(inputs) is None:
        return Output(values={"reason": _no_scale(inputs)})
    name = inputs.parameters["beside"]
    beside = None if name is None else load_nystrom(inputs.results[name])
    return conclude_function(inputs, _distinct(inputs), beside)


def estimate_beside(inputs: Inputs) -> Output:
    """Estimate the function from landmarks and nearest predecessors."""
    scales = _scales(inputs)
    if scales is None:
        return Output(values={"reason": _no_scale(inputs)})
    return store_nystrom(estimate_by_landmarks(inputs, _distinct(inputs), scales))


def _no_scale(inputs: Inputs) -> str:
    return f"no scale to go up to: see {inputs.parameters['cut_from']}"


def _separations(inputs: Inputs) -> Separations | None:
    """Return how well the rows are separated, where the search for the scale found it out."""
    own = inputs.results.get(f"convergence-{inputs.parameters['role']}")
    known = None if own is None else own.values.get("separations")
    return None if known is None else Separations.load(known)


def _is_dense(inputs: Inputs, distinct: DistinctRows) -> bool:
    method = inputs.parameters["method"]
    return method == "cholesky" or (method == "auto" and len(distinct) <= CHOLESKY_ROWS)


def _function_output(function: MagnitudeFunction, weights: np.ndarray[Any, Any]) -> Output:
    return Output(
        values={
            "estimates": [store_estimate(estimate) for estimate in function.estimates],
            "points": function.points,
            "products": function.products,
        },
        arrays={"scales": function.scales, "weights": weights},
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


def _rarefaction_section(published: Published) -> dict[str, Any]:
    if "rarefaction" not in published.objects:
        return {}
    sizes, means = (published.array(name) for name in ("rarefaction_sizes", "rarefaction"))
    return {"rarefaction": {"sizes": sizes.tolist(), "values": means.tolist()}}


def _function(published: Published) -> MagnitudeFunction | None:
    if "reason" in published.values:
        return None
    return MagnitudeFunction(
        scales=published.array("scales"),
        estimates=tuple(load_estimate(values) for values in published.values["estimates"]),
        weights=published.array("weights") if "weights" in published.objects else np.empty(0),
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
            **_subsampled_section(published.values),
            **_convergence_section(convergence),
            **_area_section(area, published.values),
            **_rarefaction_section(published),
        }
        scores += _corpus_scores(role, area, published.values, convergence)
        for name in ("weights", "rarefaction", "rarefaction_sizes"):
            if name in published.objects:
                arrays[f"magnitude/{role}/{name}"] = published.path(name)
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


MAGNITUDE = Measure(section=Magnitude, plan=plan_magnitude, collect=collect_magnitude)
