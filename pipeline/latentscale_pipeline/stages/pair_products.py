"""Rounds of sums over all pairs of rows, for procedures that ask for them.

A procedure (:mod:`latentscale.procedures`) is the mathematics between two passes over all pairs of
distinct rows. Here a pass is one round of an iterated stage: a task takes a pair of groups of
rows, computes their part of the sums that the state asks for, in both directions, and publishes
it; the step in between adds all parts in a fixed order and takes the procedure one step on. The
vectors are published group by group, so that a task reads its own share and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from latentscale.exponentials import block_sums
from latentscale.procedures import Procedure, Request
from latentscale_pipeline.engine.stage import Effort, Inputs
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.distinct_rows import DistinctRows
from latentscale_pipeline.stages.measure import RESULT_BYTES, TILE_BYTES, CorpusFacts
from latentscale_pipeline.stages.packing import pack, unpack
from latentscale_pipeline.stages.row_groups import cut_rows

SINGLE_AND_DOUBLE = 12
"""Bytes of a coordinate that is held in both precisions."""

ProcedureT = TypeVar("ProcedureT", covariant=True)


class Kind(Protocol[ProcedureT]):
    """The class of a procedure, as far as going on from a state needs it."""

    def load(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> ProcedureT:
        """Restore a procedure."""
        ...


def count_pairs(facts: CorpusFacts) -> int:
    """Count the tasks of one round."""
    return cut_rows(facts.n, facts.d).pairs


def pair_memory(facts: CorpusFacts, scales: int) -> int:
    """Memory of one task: two groups of rows, their vectors and sums, a shard, the tiles."""
    rows = min(cut_rows(facts.n, facts.d).size, facts.n)
    group = rows * (facts.d * SINGLE_AND_DOUBLE + 8) + rows * scales * 8 * 4
    return 2 * group + facts.shard_bytes + TILE_BYTES + 8 * facts.n


def pair_folds(scales: int) -> float:
    """Folds of one unordered pair of rows in one pass: its distance, its powers, both ways."""
    return 3.0 + 0.6 * scales


def rounds_effort(facts: CorpusFacts, scales: int, rounds: int) -> Effort:
    """Work of so many passes over all pairs of rows, at as many scales."""
    groups = cut_rows(facts.n, facts.d).count
    pairs = float(facts.n) ** 2 / 2
    vectors = 8 * facts.n * scales
    # A part reads two groups and publishes sums for both; a state holds some sets of vectors.
    parts, states = 2 * vectors * groups // 2, 4 * vectors
    per_round = parts + states + count_pairs(facts) * RESULT_BYTES
    return Effort(
        bytes_read=rounds * (groups * facts.stored_bytes + per_round),
        bytes_written=rounds * per_round,
        single_products=rounds * pairs * facts.d,
        folds=rounds * pairs * pair_folds(scales),
        rounds=rounds,
    )


def sum_over_pair(distinct: DistinctRows, inputs: Inputs) -> Output:
    """Compute what the state asks for between two groups of rows, in both directions."""
    state = inputs.state
    if state is None:
        raise ValueError("a round starts from a state")
    groups = distinct.groups
    first, second = cut_rows(distinct.corpus.n, distinct.corpus.d).pair(inputs.index)
    if max(first, second) >= groups.count:
        return Output()  # duplicates left fewer rows than the plan could know of
    a = distinct.read(groups.rows(first))
    b = a if second == first else distinct.read(groups.rows(second))
    sums = block_sums(
        a,
        b,
        scales=state.values["scales"],
        vectors_a=state.array(_vectors(first)),
        vectors_b=state.array(_vectors(second)),
        exponents=state.values["exponents"],
        precision=state.values["precision"],
    )
    sides = [np.hstack([sums.products_a, sums.gaussians_a])]
    if b is not a:
        sides.append(np.hstack([sums.products_b, sums.gaussians_b]))
    # One object a part: what a small round costs is mostly the number of objects it writes.
    return Output(values={"groups": sorted({first, second})}, arrays={"sums": np.vstack(sides)})


def publish_state(procedure: Procedure[Any], distinct: DistinctRows) -> Output:
    """Lay a procedure out for the next round: its own arrays, and its request by groups."""
    request = procedure.request
    if request is None:
        raise ValueError("the procedure is finished")
    groups = distinct.groups
    vectors = {
        _vectors(group): request.vectors[groups.rows(group)] for group in range(groups.count)
    }
    packed, index = pack(procedure.arrays(), "state_")
    return Output(
        values={
            "procedure": procedure.values(),
            "index": index,
            "precision": request.precision,
            "scales": request.scales.tolist(),
            "exponents": request.exponents.tolist(),
        },
        arrays={**vectors, **packed},
        finished=False,
    )


def advance_state(kind: Kind[ProcedureT], distinct: DistinctRows, inputs: Inputs) -> ProcedureT:
    """Add up a round's parts and take the procedure one step on."""
    state = inputs.state
    if state is None:
        raise ValueError("the first step has no state to advance")
    procedure: Any = restore(kind, state)
    products, gaussians = _add_up(procedure.request, distinct, inputs)
    advanced: ProcedureT = procedure.advance(products, gaussians, distinct.read_groups)
    return advanced


def restore(kind: Kind[ProcedureT], state: Published) -> ProcedureT:
    """Restore a procedure from a published state."""
    return kind.load(unpack(state.values["index"], state.array), state.values["procedure"])


def _add_up(
    request: Request, distinct: DistinctRows, inputs: Inputs
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    groups = distinct.groups
    scales = len(request.scales)
    sums = np.zeros((len(distinct), scales + len(request.exponents)))
    for part in inputs.parts:
        if not part.values:
            continue
        added = part.array("sums")
        start = 0
        for group in part.values["groups"]:
            rows = groups.rows(group)
            sums[rows] += added[start : start + rows.stop - rows.start]
            start += rows.stop - rows.start
    return sums[:, :scales], sums[:, scales:]


def _vectors(group: int) -> str:
    return f"vectors_{group:05d}"
