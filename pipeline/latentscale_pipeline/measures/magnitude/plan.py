"""Magnitude: convergence scale, magnitude function, its area, and the difference of two."""

from __future__ import annotations

from dataclasses import replace

from latentscale.linalg.conjugate_gradients import step_bytes
from latentscale.magnitude.function import (
    CHOLESKY_ROWS,
)
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    RESULT_BYTES,
    TILE_BYTES,
    JobFacts,
    Role,
    write_pairs,
)
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.measures.magnitude.subsamples import (
    LEAST_ROWS,
    REPLICATES,
    landmarks_cost,
    landmarks_memory,
    partitions,
    replicate_rows,
    subsample_cost,
    subsample_memory,
)
from latentscale_pipeline.measures.magnitude.tasks import (
    advance_convergence,
    advance_function,
    compare_functions,
    estimate_beside,
    extrapolate_convergence,
    extrapolate_function,
    subsample_about_convergence,
    subsample_function,
    sum_pairs,
)
from latentscale_pipeline.measures.shared.distinct_rows import distinct_stage
from latentscale_pipeline.measures.shared.pair_sums import (
    count_pairs,
    iterations_cost,
    pair_memory,
)

EXPECTED_PRODUCTS = 30
"""Passes over all pairs that a convergence scale and a function take on one corpus."""

SEARCH_SCALES = 10
"""Scales at once in the search for a convergence scale."""

SUBSAMPLED_SCALES = 17
"""The same where it is sought in subsets."""

SEARCH_ITERATIONS, FUNCTION_ITERATIONS = 10, 10
"""Expected passes of that search and of a function, on data of no unusual shape."""


def plan_magnitude(section: Magnitude, facts: JobFacts) -> list[Stage]:
    """Plan convergence scale and function of every corpus, and the difference of two."""
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
                cost_estimate=CostEstimate(bytes_read=2 * RESULT_BYTES, bytes_written=RESULT_BYTES),
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
        cost_estimate=_cost_estimate(section, facts, role, SEARCH_SCALES, SEARCH_ITERATIONS),
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
        cost_estimate=_cost_estimate(section, facts, role, count, FUNCTION_ITERATIONS),
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
        cost_estimate=replace(
            subsample_cost(facts.corpora[role], rows, SUBSAMPLED_SCALES),
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
        temporary="result",
        work=estimate_beside,
        advance=None,
        partitions=1,
        memory_bytes=landmarks_memory(corpus, count),
        cost_estimate=replace(
            landmarks_cost(corpus, count), why=f"magnitude.method is {section.method}"
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
        cost_estimate=replace(
            subsample_cost(corpus, rows, count), why=_why_subsampled(section, facts)
        ),
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


def _cost_estimate(
    section: Magnitude, facts: JobFacts, role: Role, scales: int, iterations: int
) -> CostEstimate:
    corpus = facts.corpora[role]
    asked = f"magnitude.method is {section.method}"
    if corpus.n <= CHOLESKY_ROWS or section.method == "cholesky":
        n, pairs = float(corpus.n), corpus.n**2 / 2
        return CostEstimate(
            bytes_read=corpus.stored_bytes + 16 * corpus.n,
            bytes_written=8 * (corpus.n + scales) + 2 * RESULT_BYTES,
            float64_multiply_adds=pairs * corpus.d + scales * n**3 / 6,
            elementwise_operations=scales * 4 * pairs,
            iterations=0,
            method="cholesky",
            why=f"at most {CHOLESKY_ROWS:,} rows" if section.method == "auto" else asked,
        )
    return replace(
        iterations_cost(corpus, scales, iterations),
        method="cg",
        why=f"more than {CHOLESKY_ROWS:,} rows" if section.method == "auto" else asked,
    )


def _why_subsampled(section: Magnitude, facts: JobFacts) -> str:
    if section.method != "auto":
        return f"magnitude.method is {section.method}"
    return f"all pairs of rows would take more than budget.pairs {facts.pairs:.1e}"
