"""Stages of magnitude: convergence scales, magnitude functions and their difference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from latentscale.magnitude.conjugate_gradients import SINGLE_ROWS, step_bytes
from latentscale.magnitude.function import CHOLESKY_ROWS, KEPT_BYTES
from latentscale.magnitude.leave_one_out import error_bytes
from latentscale.magnitude.nystrom import LANDMARKS
from latentscale.magnitude.subsamples import LEARNING_SCALES
from latentscale.sampling.rarefaction import HALVINGS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage, Work
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    RESULT_BYTES,
    TILE_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
    format_pairs,
)
from latentscale_pipeline.measures.magnitude.config import Magnitude
from latentscale_pipeline.measures.magnitude.distance import distance_stages
from latentscale_pipeline.measures.magnitude.distinct_sample import (
    REPLICATES,
    sample_name,
    sample_stages,
)
from latentscale_pipeline.measures.magnitude.subsamples import (
    PIECES,
    estimate_beside,
    extrapolate_convergence,
    extrapolate_function,
    subsample_about_convergence,
    subsample_function,
)
from latentscale_pipeline.measures.magnitude.tasks import (
    KEPT_ROWS,
    advance_convergence,
    advance_function,
    compare_functions,
    cut_source,
)
from latentscale_pipeline.measures.shared.distinct_rows import distinct_stage
from latentscale_pipeline.measures.shared.pair_sums import (
    count_pairs,
    iterations_cost,
    pair_memory,
    pair_operations,
    sum_pairs,
)
from latentscale_pipeline.measures.shared.random_rows import row_bytes

SUBSAMPLES = REPLICATES * (HALVINGS + 1)
"""Tasks on random subsets: one for each replicate and size."""

EXPECTED_PRODUCTS = 30
"""Passes over all pairs of one corpus for its convergence scale and its function."""

SEARCH_SCALES = 10
"""Scales per pass of the search for a convergence scale."""

SUBSAMPLED_SCALES = 17
"""Scales on which subsets are evaluated to find the convergence scale."""

SEARCH_ITERATIONS, FUNCTION_ITERATIONS = 10, 10
"""Expected passes of the search and of the function on typical data."""


PRODUCTS = 40
"""Passes over all pairs of a replicate for its functions on two sets of scales."""

SOLVED_SHARE = 0.1
"""Share of these passes that the scales of a function still need, on average."""

REPLICATE_BYTES = 850 * 2**20
"""Largest memory of a replicate: its rows, and the vectors of all scales."""

REPLICATE_ROW_BYTES, REPLICATE_COORDINATE_BYTES = 20_000, 36
"""Memory of a row of a replicate: for the scales of a function, and for each coordinate."""

MIN_ROWS = 64 * PIECES
"""Fewest rows of a replicate; with fewer, its smallest pieces would be too small."""


MIN_ERROR_ROWS = 100
"""Fewest rows for which sampling errors are found."""


def plan_magnitude(section: Magnitude, facts: JobFacts) -> list[Stage]:
    """Plan the stages of convergence scales, magnitude functions and their difference."""
    subsampled = {role: _is_subsampled(section, facts, role) for role in facts.corpora}
    stages: list[Stage] = []
    for role, corpus in facts.corpora.items():
        if not subsampled[role] or section.method == "nystrom":
            stages.append(distinct_stage(role, section.metric, corpus, section.merge_within))
        if subsampled[role]:
            stages += _sample_stages(section, facts, role)
    for role in facts.corpora:
        stage = _convergence_stage(section, facts, role)
        if subsampled[role]:
            tasks = subsample_about_convergence, extrapolate_convergence
            stage = _subsampled(stage, section, facts, role, SUBSAMPLED_SCALES, *tasks, draw=0)
        stages.append(stage)
    for role in facts.corpora:
        stage = _function_stage(section, facts, role)
        stages += _subsampled_function(stage, section, facts, role) if subsampled[role] else [stage]
    if len(facts.corpora) > 1:
        source = cut_source(section, facts)
        functions = tuple(f"magnitude-{role}" for role in facts.corpora)
        stages.append(
            Stage(
                name="magnitude-difference",
                work=compare_functions,
                needs=functions if source is None else (*functions, source),
                parameters={"cut_from": source},
                memory_bytes=TILE_BYTES,
                cost_estimate=CostEstimate(bytes_read=2 * RESULT_BYTES, bytes_written=RESULT_BYTES),
            )
        )
    stages += distance_stages(section, facts)
    return list({stage.name: stage for stage in stages}.values())


def _sample_stages(section: Magnitude, facts: JobFacts, role: Role) -> list[Stage]:
    rows = replicate_rows(facts.corpora[role], facts.pairs)
    return sample_stages(role, facts, section.metric, section.merge_within, rows)


def _is_subsampled(section: Magnitude, facts: JobFacts, role: Role) -> bool:
    """Return whether the magnitude of a corpus is extrapolated from random subsets.

    It is where the method asks for subsets, or where all pairs of rows exceed ``budget.pairs``.
    """
    corpus = facts.corpora[role]
    if section.method in {"subsample", "nystrom"}:
        if corpus.n < REPLICATES * MIN_ROWS:
            raise BadInput(
                f"{role}: measures.magnitude.method {section.method} draws {REPLICATES} subsets of "
                f"at least {MIN_ROWS} other rows each and there are {corpus.n}; use method auto"
            )
        return True
    pairs = corpus.n * corpus.n / 2 * EXPECTED_PRODUCTS
    if pairs <= facts.pairs:
        return False
    if section.method != "auto" or corpus.n < REPLICATES * MIN_ROWS:
        mend = "or use fewer rows"
        if corpus.n >= REPLICATES * MIN_ROWS:
            mend = "use fewer rows, or set measures.magnitude.method to auto or subsample"
        raise BadInput(
            f"{role}: magnitude of {corpus.n} rows visits about {pairs:.1e} row pairs and "
            f"budget.pairs is {facts.pairs:.1e}; set budget.pairs to {format_pairs(pairs)}, {mend}"
        )
    return True


def _convergence_stage(section: Magnitude, facts: JobFacts, role: Role) -> Stage:
    passes = advance_convergence, SEARCH_SCALES, SEARCH_ITERATIONS
    stage = _pair_stage(section, facts, role, f"convergence-{role}", *passes)
    return replace(stage, parameters={**stage.parameters, "target": section.target})


def _function_stage(section: Magnitude, facts: JobFacts, role: Role) -> Stage:
    cut = facts.fixed_scales.get("t_cut")
    source = cut_source(section, facts)
    passes = advance_function, _count_scales(section), FUNCTION_ITERATIONS
    stage = _pair_stage(section, facts, role, f"magnitude-{role}", *passes)
    errors = facts.errors and facts.corpora[role].n >= MIN_ERROR_ROWS
    given = {
        "scales": section.scales,
        "cut": cut,
        "cut_from": source,
        "errors": errors,
        "target": section.target,
    }
    return replace(
        stage,
        memory_bytes=stage.memory_bytes + errors * error_bytes(facts.corpora[role].d),
        needs=stage.needs if source is None else (*stage.needs, source),
        parameters={**stage.parameters, **given},
    )


def _pair_stage(
    section: Magnitude,
    facts: JobFacts,
    role: Role,
    name: str,
    advance: Work,
    scales: int,
    iterations: int,
) -> Stage:
    """Plan a dense solve for few rows, else passes over all pairs of rows."""
    corpus = facts.corpora[role]
    n, pairs = float(corpus.n), corpus.n**2 / 2
    asked = f"magnitude.method is {section.method}"
    if corpus.n <= CHOLESKY_ROWS or section.method == "cholesky":
        step = corpus.points_bytes + 20 * corpus.n**2
        cost = CostEstimate(
            bytes_read=corpus.stored_bytes + 16 * corpus.n,
            bytes_written=8 * (corpus.n + scales) + 2 * RESULT_BYTES,
            float64_multiply_adds=pairs * corpus.d + scales * n**3 / 6,
            elementwise_operations=scales * 4 * pairs,
            iterations=0,
            method="cholesky",
            why=f"at most {CHOLESKY_ROWS:,} rows" if section.method == "auto" else asked,
        )
    elif corpus.n <= KEPT_ROWS:
        step = step_bytes(corpus.n, scales, scales, corpus.d) + 32 * corpus.n * scales
        step += _kept_bytes(corpus.n) + corpus.points_bytes + corpus.float_bytes
        passes = iterations_cost(corpus, scales, iterations)
        cost = CostEstimate(
            bytes_read=corpus.stored_bytes + 16 * corpus.n,
            bytes_written=8 * (corpus.n + scales) + 2 * RESULT_BYTES,
            # The steps share their distances; the last product is in double precision.
            float32_multiply_adds=pairs * corpus.d,
            float64_multiply_adds=pairs * corpus.d,
            elementwise_operations=passes.elementwise_operations,
            iterations=0,
            method="cg",
            why=f"more than {CHOLESKY_ROWS:,} rows" if section.method == "auto" else asked,
        )
    else:
        group = pair_memory(corpus, scales) // 2
        step = step_bytes(corpus.n, scales, scales, corpus.d) + 16 * corpus.n * scales + group
        cost = replace(
            iterations_cost(corpus, scales, iterations),
            method="cg",
            why=f"more than {CHOLESKY_ROWS:,} rows" if section.method == "auto" else asked,
        )
    return Stage(
        name=name,
        work=sum_pairs,
        advance=advance,
        partitions=count_pairs(corpus),
        corpora=(role,),
        needs=(f"distinct-{section.metric}-{role}",),
        parameters={
            "role": role,
            **section.model_dump(include={"metric", "method", "tolerance"}),
        },
        seed=facts.seed,
        memory_bytes=max(pair_memory(corpus, scales), step) + TILE_BYTES,
        cost_estimate=cost,
    )


def _subsampled(
    exact: Stage,
    section: Magnitude,
    facts: JobFacts,
    role: Role,
    scales: int,
    work: Work,
    finalise: Work,
    **parameters: Any,
) -> Stage:
    """Return the stage on random subsets that replaces an exact one.

    It has a task for each replicate and size of pieces. The number of rows of a replicate depends
    on ``budget.pairs`` and the dimension, not on the cluster.
    """
    corpus = facts.corpora[role]
    rows = replicate_rows(corpus, facts.pairs)
    auto = f"all pairs of rows would take more than budget.pairs {facts.pairs:.1e}"
    why = auto if section.method == "auto" else f"magnitude.method is {section.method}"
    solving = step_bytes(rows, scales, scales, corpus.d) + 32 * rows * scales
    held = rows * (corpus.d * 20 + 8) + solving
    # Halving the pieces halves the pairs in total, so half of all are of whole replicates, whose
    # distances aren't all kept between passes.
    pairs = REPLICATES * float(rows) ** 2
    recomputed = max(0.0, 1.0 - KEPT_BYTES / (2 * rows**2)) / 2 * (FUNCTION_ITERATIONS - 1)
    return replace(
        exact,
        work=work,
        advance=None,
        finalise=finalise,
        partitions=SUBSAMPLES,
        needs=(*exact.needs[1:], sample_name(role)),
        parameters={**exact.parameters, **parameters},
        memory_bytes=held + _kept_bytes(rows) + row_bytes(corpus) * rows + TILE_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=(SUBSAMPLES + 1) * row_bytes(corpus) * rows,
            bytes_written=SUBSAMPLES * (24 * scales * PIECES + RESULT_BYTES),
            float32_multiply_adds=(1.0 + recomputed) * pairs * corpus.d,
            float64_multiply_adds=pairs * corpus.d,
            elementwise_operations=SOLVED_SHARE * PRODUCTS * pairs * pair_operations(scales),
            method="subsample",
            why=why,
        ),
    )


def _subsampled_function(
    exact: Stage, section: Magnitude, facts: JobFacts, role: Role
) -> list[Stage]:
    corpus, count = facts.corpora[role], _count_scales(section)
    if count < LEARNING_SCALES:  # more are added
        count += LEARNING_SCALES
    beside = f"nystrom-{role}" if section.method == "nystrom" else None
    tasks = subsample_function, extrapolate_function
    function = _subsampled(exact, section, facts, role, count, *tasks, beside=beside, draw=1)
    if beside is None:
        return [function]
    n, m = float(corpus.n), float(LANDMARKS)
    landmarks = replace(
        exact,
        name=beside,
        temporary="result",
        work=estimate_beside,
        advance=None,
        partitions=1,
        memory_bytes=3 * corpus.points_bytes + 8 * LANDMARKS**2 * (count + 4) + 4 * TILE_BYTES,
        # One factorisation per scale, and a product of every row with it.
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + 16 * corpus.n,
            bytes_written=16 * count + 2 * RESULT_BYTES,
            float64_multiply_adds=n * m * corpus.d + count * (m**3 / 6 + n * m**2 / 2),
            elementwise_operations=4 * n * m * count,
            method="nystrom",
            why="magnitude.method is nystrom",
        ),
    )
    return [landmarks, replace(function, needs=(*function.needs, beside))]


def _kept_bytes(rows: int) -> int:
    """Return the memory of the distances that are kept between the steps of a function."""
    return min(KEPT_BYTES, (4 if rows < SINGLE_ROWS else 2) * rows**2)


def _count_scales(section: Magnitude) -> int:
    return len(section.scales) if isinstance(section.scales, list) else section.scales


def replicate_rows(facts: CorpusFacts, pairs: float) -> int:
    """Return the number of rows of a replicate that fits the budget and the memory limit."""
    budgeted = math.isqrt(int(pairs / (PRODUCTS * REPLICATES)))
    fitting = REPLICATE_BYTES // (REPLICATE_ROW_BYTES + REPLICATE_COORDINATE_BYTES * facts.d)
    rows = max(MIN_ROWS, min(budgeted, fitting, facts.n // REPLICATES))
    return int(rows - rows % PIECES)
