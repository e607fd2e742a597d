"""Stages of Vendi scores: second moments for the cosine kernel, spectra for the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from latentscale.sampling.jackknife import GROUPS
from latentscale.sampling.rarefaction import (
    HALVINGS,
)
from latentscale.vendi.fourier import FREQUENCIES
from latentscale.vendi.influence import LARGE_LEVERAGE, STEPS
from latentscale.vendi.kernel_products import tiles_bytes
from latentscale.vendi.lanczos import DEFLATED, KEPT_BYTES, PROBES, is_kept
from latentscale.vendi.leave_one_out import MAX_STEPS as LEFT_OUT_STEPS
from latentscale.vendi.leave_one_out import ROWS as LEFT_OUT
from latentscale.vendi.leave_one_out import SINGLE_ROWS
from latentscale.vendi.scores import (
    TILE_ROWS,
    order_name,
)
from latentscale.vendi.second_moments import (
    BLOCK_ROWS,
)
from latentscale_pipeline.config.user_functions import source_checksum
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    TILE_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
    format_pairs,
)
from latentscale_pipeline.measures.shared.bandwidth import (
    bandwidth_stage,
    median_pairs,
    planned_bandwidth,
)
from latentscale_pipeline.measures.shared.random_rows import (
    row_bytes,
    sample_stage,
    share_reading,
)
from latentscale_pipeline.measures.vendi import influence
from latentscale_pipeline.measures.vendi.config import Vendi, VendiKernel
from latentscale_pipeline.measures.vendi.labels import (
    LABEL_BYTES,
    error_rows,
    jackknife_labels,
    join_label_errors,
    join_labels,
    score_labels,
)
from latentscale_pipeline.measures.vendi.labels import sampling_stage_name as labels_sampling_stage
from latentscale_pipeline.measures.vendi.labels import stage_name as labels_stage
from latentscale_pipeline.measures.vendi.lanczos import (
    PASS_DEFLATED,
    add_similarities,
    advance_kernel,
    join_similarities,
    multiply_pair,
    pass_groups,
)
from latentscale_pipeline.measures.vendi.sampling_error import (
    COSINE_ROWS,
    GROUPED_ROWS,
    MIN_ROWS,
    jackknife_kernel,
    jackknife_moments,
    leave_out_rows,
    read_rows,
)
from latentscale_pipeline.measures.vendi.tasks import (
    FEATURE_ROWS,
    LANDMARKS,
    MIN_SUBSET,
    SHARDS_PER_TASK,
    SUBSET_ROWS,
    SUBSETS,
    bracket_kernel,
    estimate_kernel,
    extrapolate_subsets,
    precision_rows,
    score_features,
    score_kernel,
    score_moments,
    score_subset,
    sum_features,
    sum_moments,
)

EXACT_ROWS = 3000
"""Corpora of up to this many rows get all eigenvalues of a kernel under ``method: auto``; beyond,
Lanczos takes less time, a tenth of it at 10 000 rows.
"""

Method = Literal["exact", "lanczos", "nystrom", "fourier", "subsample"]

MIN_LANCZOS = 200
"""Fewest rows for ``method: lanczos``."""

KERNEL_OPERATIONS = 2
"""Elementwise operations to convert an entry of a matrix product to a similarity."""

VALUES_ONLY = 1.5
"""Multiply-adds to find all eigenvalues of a matrix, divided by its rows cubed."""

WITH_VECTORS = 4.0
"""Multiply-adds to find eigenvalues and eigenvectors, divided by the rows cubed."""

BASIS_PASSES, EXPECTED_STEPS = 3, 20
"""Products on typical data: for the basis, and Lanczos steps."""

EXPECTED_ITERATIONS = BASIS_PASSES + EXPECTED_STEPS

SIMILARITY_OPERATIONS = 5
"""Elementwise operations of one pair: distance, exponential and square."""

SQUARE_OPERATIONS = 4
"""Elementwise operations of one pair in the sum of squares, and in that of their errors."""

_SIMILARITY_PARAMETERS = {"role", "kernel", "bandwidth", "source", "weights"}
"""The parameters of a kernel's stage that similarities and their sums depend on."""


def plan_vendi(section: Vendi, facts: JobFacts) -> list[Stage]:
    """Plan the stages that score every corpus under every kernel."""
    stages: list[Stage] = []
    spare_bytes = facts.spare_bytes
    for kernel in section.kernels:
        if kernel.name == "cosine":
            stages += [_moments_stage(section, facts, role) for role in facts.corpora]
            continue
        for role, corpus in facts.corpora.items():
            own = _kernel_stages(section, kernel, replace(facts, spare_bytes=spare_bytes), role)
            # All similarities may be there at once.
            if own[0].hints.get("stored"):
                spare_bytes -= tiles_bytes(corpus.n, np.float32)
            stages += own
    needed = {name for stage in stages for name in stage.needs}
    first = [bandwidth_stage(facts)] if "bandwidth" in needed else []
    first += [_sample_stage(facts, role) for role in facts.corpora if _sample_name(role) in needed]
    stages += [
        _sampling_stage(section, kernel, facts, role)
        for kernel in section.kernels
        for role, corpus in facts.corpora.items()
        if has_sampling_errors(kernel, facts, corpus)
    ]
    stages += [
        _influence_stage(section, facts, role)
        for role, corpus in facts.corpora.items()
        if influence.has_influence(section, corpus.n)
    ]
    if section.labels:
        stages += [_labels_stage(section, facts, role) for role in facts.corpora]
        if facts.errors:
            stages += [_labels_sampling_stage(section, facts, role) for role in facts.corpora]
    return [*first, *stages]


def stage_name(kernel: VendiKernel, role: Role) -> str:
    """Return the name of the stage that scores a corpus under a kernel."""
    name = kernel.name.replace(":", ".")
    parts = ["vendi", name, *([] if kernel.bandwidth is None else [str(kernel.bandwidth)])]
    return "-".join([*parts, role])


def sampling_stage_name(kernel: VendiKernel, role: Role) -> str:
    """Return the name of the stage that finds the sampling errors under a kernel."""
    return f"{stage_name(kernel, role).removesuffix(f'-{role}')}-sampling-{role}"


def has_sampling_errors(kernel: VendiKernel, facts: JobFacts, corpus: CorpusFacts) -> bool:
    """Return whether the sampling errors under a kernel are found for a corpus."""
    if not facts.errors or corpus.n < MIN_ROWS:
        return False
    if kernel.name == "cosine":
        # The error falls as the root of n only where n is far above d.
        return corpus.n <= COSINE_ROWS or 4 * corpus.d <= COSINE_ROWS
    return is_kept(corpus.n) and float(corpus.n) ** 2 <= facts.pairs


def order_names(section: Vendi) -> list[str]:
    """Return the orders as written in results."""
    return [order_name(order) for order in section.orders]


def _scored(section: Vendi) -> dict[str, Any]:
    """Return the parameters that say which scores a spectrum has."""
    kept = {} if section.truncation is None else {"truncation": section.truncation}
    return {"orders": order_names(section), **kept}


def _moments_stage(section: Vendi, facts: JobFacts, role: Role) -> Stage:
    corpus = facts.corpora[role]
    weights, rows = _weights(section, corpus), precision_rows(corpus.n)
    matrix = 8 * corpus.d**2
    parts = -(-corpus.shards // SHARDS_PER_TASK)
    # A shard, stored and decoded, a block of unit rows, and partial sums: with pairwise summation,
    # about log2(p) of p sums are held at a time.
    summed = min(SHARDS_PER_TASK, corpus.shards) * corpus.rows_of_shard
    waiting = math.ceil(math.log2(summed / BLOCK_ROWS + 1)) + 4
    block = 16 * BLOCK_ROWS * corpus.d + (8 * corpus.n if corpus.weights else 0)
    summing = 2 * corpus.shard_stored_bytes + block + waiting * matrix
    return Stage(
        name=stage_name(VendiKernel(name="cosine"), role),
        work=sum_moments,
        finalise=score_moments,
        partitions=parts,
        corpora=(role,),
        parameters={"role": role, **_scored(section), "weights": weights},
        memory_bytes=max(summing, math.ceil(math.log2(parts) + 4) * matrix),
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * matrix,
            bytes_written=(parts + 1) * (matrix + RESULT_BYTES),
            float64_multiply_adds=corpus.n * float(corpus.d) ** 2 / 2
            + VALUES_ONLY * float(corpus.d) ** 3,
            elementwise_operations=float(corpus.n) * corpus.d,
            method="exact",
            why="the cosine kernel needs the second moment only, whatever the number of rows",
        ),
        # Everything besides the rows that decides how the rows of a shard are summed.
        part_inputs=corpus.runs_of_shards(
            SHARDS_PER_TASK, weights, rows, *(order_names(section) if rows else ())
        ),
    )


def _influence_stage(section: Vendi, facts: JobFacts, role: Role) -> Stage:
    """Plan the influences of all rows on the score under the cosine kernel."""
    corpus = facts.corpora[role]
    scored = stage_name(VendiKernel(name="cosine"), role)
    parts = -(-corpus.shards // influence.SHARDS_PER_TASK)
    matrix, listed = 8 * corpus.d**2, 4 * corpus.n
    held = min(influence.SHARDS_PER_TASK * corpus.rows_of_shard, corpus.n)
    block = 24 * min(influence.BLOCK_ROWS, corpus.n) * corpus.d
    return Stage(
        name=influence.stage_name(role),
        work=influence.influence_of_shards,
        finalise=influence.join_influences,
        partitions=parts,
        corpora=(role,),
        needs=(scored,),
        parameters={
            "role": role,
            "order": order_name(influence.influence_order(section)),
            "scored": scored,
            "weights": _weights(section, corpus),
        },
        memory_bytes=max(
            2 * corpus.shard_stored_bytes
            + block
            + 5 * matrix
            + 8 * held
            + (8 * corpus.n if corpus.weights else 0),
            2 * listed,
        ),
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * matrix,
            bytes_written=2 * listed + (parts + 1) * RESULT_BYTES,
            exchanged_bytes=listed + parts * matrix,
            result_bytes=listed + RESULT_BYTES,
            float64_multiply_adds=corpus.n * float(corpus.d) ** 2
            + parts * WITH_VECTORS * float(corpus.d) ** 3,
            elementwise_operations=2.0 * corpus.n * corpus.d
            + min(corpus.n, corpus.d / LARGE_LEVERAGE) * 8.0 * STEPS * corpus.d,
        ),
    )


def _sampling_stage(section: Vendi, kernel: VendiKernel, facts: JobFacts, role: Role) -> Stage:
    """Plan the sampling errors under a kernel: the spectra without each of some groups of rows."""
    corpus = facts.corpora[role]
    cosine = kernel.name == "cosine"
    if not cosine and (section.truncation is None or corpus.n > GROUPED_ROWS):
        return _leave_out_stage(section, kernel, facts, role)
    rows = min(corpus.n, COSINE_ROWS)
    side = min(rows, corpus.d) if cosine else rows
    parameters = {
        "role": role,
        "rows": rows,
        **_scored(section),
        "weights": _weights(section, corpus),
    }
    bandwidth = planned_bandwidth(kernel.bandwidth, facts)
    stage = Stage(
        name=sampling_stage_name(kernel, role),
        work=jackknife_moments if cosine else jackknife_kernel,
        needs=("bandwidth",) if bandwidth == "median" else (),
        corpora=(role,),
        parameters=parameters
        if cosine
        else {**parameters, **_kernel_parameters(kernel, bandwidth)},
        seed=facts.seed,
        memory_bytes=8 * (5 * side**2 + 3 * rows * (corpus.d + 1))
        # Weights, read block by block; the rows that have one; and an order of these.
        + (32 * corpus.n if corpus.weights else 0)
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes,
            bytes_written=RESULT_BYTES,
            float64_multiply_adds=2.0 * rows * corpus.d * side
            + GROUPS * VALUES_ONLY * float(side) ** 3,
            elementwise_operations=float(rows) * corpus.d,
            method="jackknife",
            why=f"without each of {GROUPS} groups of {'all' if rows == corpus.n else rows} rows",
        ),
    )
    return share_reading(stage, corpus, read_rows, rows) if rows < corpus.n else stage


def _leave_out_stage(section: Vendi, kernel: VendiKernel, facts: JobFacts, role: Role) -> Stage:
    """Plan the sampling errors under a kernel: Lanczos from each of some rows."""
    corpus = facts.corpora[role]
    bandwidth, scored = planned_bandwidth(kernel.bandwidth, facts), stage_name(kernel, role)
    n, pairs = corpus.n, float(corpus.n) ** 2 / 2
    vectors = 8 * n * LEFT_OUT * (LEFT_OUT_STEPS + 8)
    # Another sample moves the median of its own distances, and not that of another corpus.
    derived = bandwidth == "median" and role == facts.scale_role
    return Stage(
        name=sampling_stage_name(kernel, role),
        work=leave_out_rows,
        needs=(*(("bandwidth",) if bandwidth == "median" else ()), scored),
        corpora=(role,),
        parameters={
            "role": role,
            "orders": order_names(section),
            "weights": _weights(section, corpus),
            "scored": scored,
            "median_pairs": median_pairs(corpus.n) if derived else None,
            **_kernel_parameters(kernel, bandwidth),
        },
        seed=facts.seed,
        memory_bytes=min(tiles_bytes(n, np.float64 if n < SINGLE_ROWS else np.float32), KEPT_BYTES)
        + 2 * corpus.float_bytes
        + corpus.stored_bytes
        + vectors
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes,
            bytes_written=RESULT_BYTES,
            float64_multiply_adds=pairs * (corpus.d + 2 * LEFT_OUT * EXPECTED_STEPS),
            elementwise_operations=pairs * (SIMILARITY_OPERATIONS + EXPECTED_STEPS)
            + 2.0 * n * LEFT_OUT * EXPECTED_STEPS**2,
            method="jackknife",
            why=f"without each of {LEFT_OUT} rows",
        ),
    )


def _kernel_parameters(kernel: VendiKernel, bandwidth: float | str | None) -> dict[str, Any]:
    source = {"source": source_checksum(kernel.name)} if kernel.is_code else {}
    return {"kernel": kernel.name, "bandwidth": bandwidth, **source}


def _weights(section: Vendi, corpus: CorpusFacts) -> str | None:
    return corpus.weights if section.weights else None


def _kernel_stages(section: Vendi, kernel: VendiKernel, facts: JobFacts, role: Role) -> list[Stage]:
    corpus = facts.corpora[role]
    bandwidth = planned_bandwidth(kernel.bandwidth, facts)
    weights = _weights(section, corpus)
    method, why = _choose_method(section, kernel, facts, role, weighted=weights is not None)
    parameters = {
        "role": role,
        **_scored(section),
        "weights": weights,
        **_kernel_parameters(kernel, bandwidth),
    }
    stage = Stage(
        name=stage_name(kernel, role),
        work=score_kernel,
        needs=("bandwidth",) if bandwidth == "median" else (),
        corpora=(role,),
        parameters=parameters,
        seed=None if method == "exact" else facts.seed,
        memory_bytes=0,
    )
    if method == "lanczos" and not is_kept(corpus.n):
        similarities = _similarities_stage(stage, corpus, facts.spare_bytes)
        first, stage = [similarities], _passes_stage(stage, corpus, similarities)
    else:
        first, stage = [], _STAGES[method](stage, corpus)
    cost = replace(stage.cost_estimate, method=method, why=why)
    return [*first, replace(stage, cost_estimate=cost)]


def _choose_method(
    section: Vendi, kernel: VendiKernel, facts: JobFacts, role: Role, *, weighted: bool
) -> tuple[Method, str]:
    """Return the method for a kernel and why, by corpus size, budget and configuration."""
    n, asked = facts.corpora[role].n, section.method
    pairs: dict[Method, float] = {
        "exact": n**2,
        "lanczos": (1 if is_kept(n) else EXPECTED_ITERATIONS) * float(n) ** 2 / 2,
        "nystrom": n**2,
        "fourier": 0.0,
        "subsample": 0.0,
    }
    if asked == "auto":
        few = n <= EXACT_ROWS
        method: Method = "exact" if few else "lanczos"
        if pairs[method] <= facts.pairs:
            return method, f"{'at most' if few else 'more than'} {EXACT_ROWS:,} rows"
        if n < 2 * MIN_SUBSET or weighted:
            raise _over_budget(role, kernel, n, pairs[method], facts.pairs)
        return "subsample", f"all pairs would take more than budget.pairs {facts.pairs:.1e}"
    if kernel.is_code and asked == "fourier":
        raise BadInput(
            f"measures.vendi.method fourier supports the rbf and laplacian kernels only, not "
            f"{kernel.name}; use another method"
        )
    if weighted and asked not in {"exact", "lanczos"}:
        raise BadInput(
            f"{role}: measures.vendi.method {asked} doesn't support weights; use exact or "
            "lanczos, or set measures.vendi.weights to false"
        )
    least = {"lanczos": MIN_LANCZOS, "subsample": 2 * MIN_SUBSET}.get(asked, 1)
    if n < least:
        raise BadInput(
            f"{role}: measures.vendi.method {asked} needs at least {least} rows and there are {n}; "
            "use method auto"
        )
    if pairs[asked] > facts.pairs:
        raise _over_budget(role, kernel, n, pairs[asked], facts.pairs)
    return asked, f"vendi.method is {asked}"


def _over_budget(role: Role, kernel: VendiKernel, n: int, pairs: float, budget: float) -> BadInput:
    return BadInput(
        f"{role}: the {kernel.name} kernel of {n} rows takes {pairs:.1e} pairs and budget.pairs is "
        f"{budget:.1e}; set budget.pairs to {format_pairs(pairs)}, set measures.vendi.method to "
        "fourier, or use only the cosine kernel"
    )


def _exact_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    n, tiles = float(corpus.n), _tiles_cost(corpus)
    return replace(
        stage,
        memory_bytes=_kernel_memory(corpus, 8 * corpus.n**2 + 64 * 8 * corpus.n),
        cost_estimate=replace(
            tiles,
            bytes_written=8 * corpus.n + RESULT_BYTES,
            # Half of the diagonalisation's operations are memory-bound and count as elementwise.
            float64_multiply_adds=tiles.float64_multiply_adds + n**3 / 3,
            elementwise_operations=tiles.elementwise_operations + 0.06 * n**3,
        ),
    )


def _nystrom_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    n, tiles, m = float(corpus.n), _tiles_cost(corpus), min(LANDMARKS, corpus.n)
    factor, spectra = n * m * (corpus.d + 2 * m), (VALUES_ONLY + WITH_VECTORS) * m**3
    return replace(
        stage,
        work=bracket_kernel,
        memory_bytes=_kernel_memory(corpus, 8 * (5 * m + 2 * TILE_ROWS) * m),
        cost_estimate=replace(
            tiles,
            float64_multiply_adds=tiles.float64_multiply_adds + factor + spectra,
            elementwise_operations=tiles.elementwise_operations + KERNEL_OPERATIONS * n * m,
        ),
    )


def _kept_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    """Plan one task that computes the kernel once and keeps it."""
    n, pairs = float(corpus.n), float(corpus.n) ** 2 / 2
    products = BASIS_PASSES * (1 + DEFLATED) + EXPECTED_STEPS * (1 + PROBES)
    # Q, two blocks of its size during a product, and the probes' vectors.
    vectors = 8 * corpus.n * (4 * DEFLATED + 8 * PROBES)
    return replace(
        stage,
        work=estimate_kernel,
        memory_bytes=KEPT_BYTES + 2 * corpus.float_bytes + corpus.stored_bytes + vectors,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes,
            bytes_written=RESULT_BYTES,
            float64_multiply_adds=pairs * (corpus.d + 2 * products)
            + 2.0 * n * DEFLATED * (BASIS_PASSES * DEFLATED + 2 * EXPECTED_STEPS * PROBES),
            elementwise_operations=pairs * (SIMILARITY_OPERATIONS + EXPECTED_ITERATIONS),
        ),
    )


def _similarities_stage(stage: Stage, corpus: CorpusFacts, spare_bytes: int) -> Stage:
    """Plan the sums over all pairs before the passes, and similarities that are stored for them."""
    groups, size = pass_groups(corpus.n, corpus.d), tiles_bytes(corpus.n, np.float32)
    stored = size <= spare_bytes
    parameters = {
        name: value for name, value in stage.parameters.items() if name in _SIMILARITY_PARAMETERS
    }
    pairs = float(corpus.n) ** 2 / 2
    return replace(
        stage,
        name=f"{stage.name}-similarities",
        work=add_similarities,
        finalise=join_similarities,
        partitions=groups.pairs,
        parameters=parameters,
        hints={"stored": stored},
        seed=None,
        temporary="result",
        lasting_parts=True,
        # Tiles, and the object that they are joined to.
        memory_bytes=_pair_bytes(corpus) + (10 * groups.size**2 if stored else 0),
        cost_estimate=CostEstimate(
            bytes_read=groups.count * corpus.stored_bytes,
            # The keys of all rows, in parts and joined.
            bytes_written=stored * size + 16 * corpus.n + groups.pairs * RESULT_BYTES,
            exchanged_bytes=8 * corpus.n + groups.pairs * RESULT_BYTES,
            float64_multiply_adds=pairs * corpus.d,
            elementwise_operations=pairs * (SIMILARITY_OPERATIONS + SQUARE_OPERATIONS),
        ),
    )


def _pair_bytes(corpus: CorpusFacts) -> int:
    """Return the memory of two groups: rows as stored, in float64, and about their origin."""
    rows = min(pass_groups(corpus.n, corpus.d).size, corpus.n)
    return 2 * rows * corpus.d * (8 * 2 + 4) + corpus.shard_bytes + TILE_BYTES + 16 * corpus.n


def _passes_stage(stage: Stage, corpus: CorpusFacts, similarities: Stage) -> Stage:
    """Plan a pass over the pairs of row groups for every product."""
    groups, stored = pass_groups(corpus.n, corpus.d), similarities.hints["stored"]
    widest, stepping = 1 + PASS_DEFLATED, 1 + PROBES
    # Vectors and products.
    product = _pair_bytes(corpus) + 2 * min(groups.size, corpus.n) * widest * 8 * 3
    held = 8 * corpus.n * (3 * widest + PASS_DEFLATED + 5 * stepping)
    step = held + corpus.n * PROBES + corpus.shard_bytes + TILE_BYTES
    pairs = float(corpus.n) ** 2 / 2
    rough, products = 2 * widest, widest + EXPECTED_STEPS * stepping
    vectors = 8 * corpus.n * (rough + products) // EXPECTED_ITERATIONS
    state = 8 * corpus.n * (PASS_DEFLATED + 2 * stepping) + RESULT_BYTES
    moved = vectors * groups.count + state + groups.pairs * RESULT_BYTES // 2
    read = moved + (tiles_bytes(corpus.n, np.float32) if stored else 0)
    own_reading = 0 if stored else groups.count * corpus.stored_bytes
    computing = 0 if stored else pairs
    return replace(
        stage,
        needs=(*stage.needs, similarities.name),
        parameters={**stage.parameters, "similarities": similarities.name},
        work=multiply_pair,
        advance=advance_kernel,
        partitions=groups.pairs,
        memory_bytes=max(product, step) + 16 * corpus.n,
        cost_estimate=CostEstimate(
            bytes_read=EXPECTED_ITERATIONS * (own_reading + read),
            bytes_written=EXPECTED_ITERATIONS * moved,
            exchanged_bytes=EXPECTED_ITERATIONS * read,
            result_bytes=2 * RESULT_BYTES,
            state_bytes=state,
            float32_multiply_adds=2 * pairs * rough,
            float64_multiply_adds=EXPECTED_ITERATIONS * computing * corpus.d + 2 * pairs * products,
            elementwise_operations=EXPECTED_ITERATIONS
            * (pairs + SIMILARITY_OPERATIONS * computing),
            iterations=EXPECTED_ITERATIONS,
        ),
    )


def _fourier_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    matrix = 8 * (2 * FREQUENCIES) ** 2
    rows = 8 * (corpus.d + 6 * FREQUENCIES) * FEATURE_ROWS
    return replace(
        stage,
        work=sum_features,
        finalise=score_features,
        partitions=-(-corpus.shards // SHARDS_PER_TASK),
        memory_bytes=2 * corpus.shard_stored_bytes + rows + 8 * matrix,
        cost_estimate=CostEstimate(
            bytes_read=2 * corpus.stored_bytes,
            bytes_written=matrix + RESULT_BYTES,
            float32_multiply_adds=corpus.n * (2.0 * FREQUENCIES) ** 2 / 2,
            float64_multiply_adds=float(corpus.n) * FREQUENCIES * corpus.d,
            elementwise_operations=8.0 * corpus.n * FREQUENCIES,
        ),
    )


def _sample_name(role: Role) -> str:
    return f"vendi-rows-{role}"


def _subset_rows(corpus: CorpusFacts) -> int:
    pieces: int = 2**HALVINGS
    return min(SUBSET_ROWS, corpus.n // SUBSETS) // pieces * pieces


def _sample_stage(facts: JobFacts, role: Role) -> Stage:
    """Plan the rows of all subsets, which all kernels share."""
    corpus = facts.corpora[role]
    rows = SUBSETS * _subset_rows(corpus)
    return sample_stage(_sample_name(role), role, corpus, rows, facts.seed)


def _subsample_stage(stage: Stage, corpus: CorpusFacts) -> Stage:
    rows = _subset_rows(corpus)
    sample = _sample_name(stage.parameters["role"])
    return replace(
        stage,
        needs=(*stage.needs, sample),
        work=score_subset,
        finalise=extrapolate_subsets,
        partitions=SUBSETS * (HALVINGS + 1),
        parameters={**stage.parameters, "sample": sample},
        memory_bytes=8 * rows**2
        + (24 + 8) * rows * corpus.d
        + SUBSETS * row_bytes(corpus) * rows
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=SUBSETS * (HALVINGS + 1) * SUBSETS * row_bytes(corpus) * rows,
            bytes_written=SUBSETS * (HALVINGS + 1) * RESULT_BYTES,
            float64_multiply_adds=SUBSETS
            * (float(rows) ** 2 * corpus.d + 4 / 9 * float(rows) ** 3),
            elementwise_operations=SUBSETS * 0.08 * float(rows) ** 3,
        ),
    )


_STAGES: dict[Method, Callable[[Stage, CorpusFacts], Stage]] = {
    "exact": _exact_stage,
    "lanczos": _kept_stage,
    "nystrom": _nystrom_stage,
    "fourier": _fourier_stage,
    "subsample": _subsample_stage,
}


def _kernel_memory(corpus: CorpusFacts, work: int) -> int:
    return max(corpus.points_bytes, corpus.float_bytes + work) + FEW_TILES_BYTES


def _tiles_cost(corpus: CorpusFacts) -> CostEstimate:
    pairs = float(corpus.n) ** 2 / 2
    return CostEstimate(
        bytes_read=corpus.stored_bytes,
        bytes_written=RESULT_BYTES,
        float64_multiply_adds=pairs * corpus.d,
        elementwise_operations=CONVERSION_OPERATIONS * float(corpus.n) * corpus.d
        + KERNEL_OPERATIONS * pairs,
    )


def _labels_stage(section: Vendi, facts: JobFacts, role: Role) -> Stage:
    """Plan the stage that scores every label of a corpus.

    Raises
    ------
    BadInput
        If the corpus has no labels.
    """
    corpus = facts.corpora[role]
    if corpus.labels is None:
        raise BadInput(
            f"{role}: measures.vendi.labels is true and the corpus has no labels; ingest it with "
            "--labels, or set it to false"
        )
    packed = 4 * corpus.d * (corpus.d + 1)
    weights = _weights(section, corpus)
    return Stage(
        name=labels_stage(role),
        work=score_labels,
        finalise=join_labels,
        partitions=_labels_tasks(corpus),
        corpora=(role,),
        parameters={
            "role": role,
            "orders": order_names(section),
            "labels": corpus.labels,
            "weights": weights,
        },
        memory_bytes=min(LABEL_BYTES, corpus.stored_bytes)
        + packed
        + 2 * corpus.shard_stored_bytes
        + corpus.numbering_bytes
        + (8 if weights else 0) * corpus.n
        + 16 * BLOCK_ROWS * corpus.d,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes,
            bytes_written=RESULT_BYTES,
            float64_multiply_adds=corpus.n * float(corpus.d) ** 2 / 2
            + VALUES_ONLY * corpus.n * float(corpus.d),
            elementwise_operations=2.0 * corpus.n * corpus.d,
            method="exact",
            why="second moments of all labels in one pass over the rows",
        ),
    )


def _labels_tasks(corpus: CorpusFacts) -> int:
    """Return the tasks among which labels are distributed, at most."""
    # Filled in order, two consecutive tasks together hold more than LABEL_BYTES.
    return 2 * (corpus.stored_bytes // LABEL_BYTES) + 1


def _labels_sampling_stage(section: Vendi, facts: JobFacts, role: Role) -> Stage:
    """Plan the sampling errors of labels: the spectra without groups of their rows."""
    corpus = facts.corpora[role]
    weights, rows = _weights(section, corpus), error_rows(corpus.d)
    # It isn't known how many labels there are; those with fewer than MIN_ROWS rows have no errors.
    usual = math.sqrt(MIN_ROWS * rows)
    labels, side = max(1.0, corpus.n / usual), min(usual, corpus.d)
    return Stage(
        name=labels_sampling_stage(role),
        work=jackknife_labels,
        finalise=join_label_errors,
        partitions=_labels_tasks(corpus),
        corpora=(role,),
        parameters={
            "role": role,
            "orders": order_names(section),
            "labels": corpus.labels,
            "least": MIN_ROWS,
            "most": rows,
            "weights": weights,
        },
        seed=facts.seed,
        memory_bytes=min(LABEL_BYTES, corpus.stored_bytes)
        + 2 * corpus.shard_stored_bytes
        + corpus.numbering_bytes
        + (8 if weights else 0) * corpus.n
        + 8 * (5 * min(rows, corpus.d) ** 2 + 3 * min(rows, corpus.n) * (corpus.d + 1)),
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes,
            bytes_written=RESULT_BYTES,
            float64_multiply_adds=2.0 * corpus.n * corpus.d * side
            + labels * GROUPS * VALUES_ONLY * float(side) ** 3,
            elementwise_operations=float(corpus.n) * corpus.d,
            method="jackknife",
            why=f"without each of {GROUPS} groups of up to {rows} rows of a label",
        ),
    )
