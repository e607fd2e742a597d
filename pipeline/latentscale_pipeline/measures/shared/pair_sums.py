"""Passes over all pairs of distinct rows that compute the sums an iteration requests.

A task takes a pair of groups of rows, computes their part of the sums that the state asks for
(:class:`latentscale.linalg.iterations.PairRequest`), in both directions, and publishes it; the step
in between adds all parts in a fixed order and takes the iteration one step on.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from latentscale.linalg.iterations import Iteration, PairRequest, PairSums
from latentscale.tiles.exponential_products import block_sums
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import RESULT_BYTES, TILE_BYTES, CorpusFacts
from latentscale_pipeline.measures.shared import iteration_state
from latentscale_pipeline.measures.shared.distinct_rows import DistinctRows
from latentscale_pipeline.measures.shared.iteration_state import (
    Load,
    add_group_sums,
    cut_by_groups,
    read_group,
    read_state,
    restore,
)
from latentscale_pipeline.measures.shared.row_groups import cut_rows
from latentscale_pipeline.storage.artifacts import Output

SINGLE_AND_DOUBLE = 12
"""Bytes of a coordinate in both precisions."""

IterationT = TypeVar("IterationT", bound=Iteration[PairRequest, PairSums, Any])


def count_pairs(facts: CorpusFacts) -> int:
    """Count the tasks of one pass."""
    return cut_rows(facts.n, facts.d).pairs


def pair_memory(facts: CorpusFacts, scales: int) -> int:
    """Memory of one task: two groups of rows, their vectors and sums, a shard, the tiles."""
    rows = min(cut_rows(facts.n, facts.d).size, facts.n)
    group = rows * (facts.d * SINGLE_AND_DOUBLE + 8) + rows * scales * 8 * 4
    return 2 * group + 2 * facts.shard_stored_bytes + TILE_BYTES + 8 * facts.n


def pair_operations(scales: int) -> float:
    """Elementwise operations of one pair of rows in one pass: distance, powers, both ways."""
    return 3.0 + 0.6 * scales


def iterations_cost(facts: CorpusFacts, scales: int, iterations: int) -> CostEstimate:
    """Cost of a number of passes over all pairs of rows at a number of scales."""
    groups = cut_rows(facts.n, facts.d).count
    pairs = float(facts.n) ** 2 / 2
    vectors = 8 * facts.n * scales
    # A part reads two groups and stores sums for both; a state has several sets of vectors.
    parts, states = 2 * vectors * groups // 2, 4 * vectors
    per_iteration = parts + states + count_pairs(facts) * RESULT_BYTES
    return CostEstimate(
        bytes_read=iterations * (groups * facts.stored_bytes + per_iteration),
        bytes_written=iterations * per_iteration,
        exchanged_bytes=iterations * per_iteration,
        result_bytes=8 * facts.n + 2 * RESULT_BYTES,
        state_bytes=states,
        float32_multiply_adds=iterations * pairs * facts.d,
        elementwise_operations=iterations * pairs * pair_operations(scales),
        iterations=iterations,
    )


def sum_pairs(inputs: Inputs) -> Output:
    """Compute the sums that the state requests between two groups of rows, in both directions."""
    state, distinct = read_state(inputs), DistinctRows.of(inputs)
    groups = distinct.groups
    first, second = cut_rows(distinct.corpus.n, distinct.corpus.d).pair(inputs.index)
    if max(first, second) >= groups.count:
        return Output()  # duplicates leave fewer groups than were planned
    sides = list(distinct.read_groups(sorted({first, second})))
    a, b = sides[0], sides[-1]
    sums = block_sums(
        a,
        b,
        scales=state.values["scales"],
        vectors_a=read_group(state, first),
        vectors_b=read_group(state, second),
        exponents=state.values["exponents"],
        precision=state.values["precision"],
    )
    found = [np.hstack([sums.products_a, sums.gaussians_a])]
    if b is not a:
        found.append(np.hstack([sums.products_b, sums.gaussians_b]))
    # One object a part, because the number of objects determines the cost of a small pass.
    return Output(values={"groups": sorted({first, second})}, arrays={"sums": np.vstack(found)})


def state_output(
    iteration: Iteration[PairRequest, PairSums, Any], distinct: DistinctRows
) -> Output:
    """Return an iteration as the output of a pass: its arrays, and its request by groups."""
    request = iteration.request
    if request is None:
        raise ValueError("the iteration is finished")
    return iteration_state.state_output(
        iteration,
        {
            "precision": request.precision,
            "scales": request.scales.tolist(),
            "exponents": request.exponents.tolist(),
        },
        cut_by_groups(request.vectors, distinct.groups),
    )


def advance_state(load: Load[IterationT], distinct: DistinctRows, inputs: Inputs) -> IterationT:
    """Add up the parts of a pass and advance the iteration by one step."""
    iteration = restore(load, read_state(inputs))
    request = iteration.request
    if request is None:
        raise ValueError("the iteration is finished")
    scales = len(request.scales)
    sums = add_group_sums(inputs.parts, distinct.groups, scales + len(request.exponents))
    return iteration.advance(PairSums(sums[:, :scales], sums[:, scales:], distinct.read_groups))
