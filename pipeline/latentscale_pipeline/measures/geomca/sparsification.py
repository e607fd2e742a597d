"""Sparsification of a corpus by iterations over its shards.

The sequential part is small: a front of undecided rows, as many as a process holds, is thinned in
itself by the step between two iterations. What it keeps is published with the state; in the
iteration that follows, each task takes some whole shards, reads each once, and removes the rows
near a kept one. So a task holds the kept rows of one front and a shard, whatever the size of the
corpus. The state is 8 bytes for each row considered, cut like the tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale.duplicates.sparsification import (
    UNDECIDED,
    SparsificationFronts,
    first_near,
    sparsify,
)
from latentscale.tiles.distances import Balls, as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.shared.iteration_state import read_state
from latentscale_pipeline.measures.shared.random_rows import (
    DrawnRows,
    Shards,
    read_blocks,
    read_in_order,
    read_share,
)
from latentscale_pipeline.storage.artifacts import Artifact, Output

HELD_BYTES = 192 * 2**20
"""Memory of the rows that a task holds while it reads shards."""

HELD_COORDINATE_BYTES = 12
"""Bytes of a coordinate in float64 and in float32."""

MIN_HELD_ROWS, MAX_HELD_ROWS = 1024, 16384


def held_rows(d: int) -> int:
    """Return the number of rows of ``d`` dimensions that a task holds while it reads shards."""
    fitting = HELD_BYTES // (HELD_COORDINATE_BYTES * d) // MIN_HELD_ROWS * MIN_HELD_ROWS
    return min(max(fitting, MIN_HELD_ROWS), MAX_HELD_ROWS)


def read_drawn_rows(inputs: Inputs) -> Output:
    """Draw the rows that are considered, and read those in some shards."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    return read_share(inputs, corpus, _draw(inputs, corpus.n))


def join_drawn_rows(inputs: Inputs) -> Output:
    """Store the numbers of the rows drawn, how many each task has read, and their order."""
    drawn = _draw(inputs, inputs.corpora[inputs.parameters["role"]].n)
    counts = [part.values["count"] for part in inputs.parts]
    return Output(values={"counts": counts}, arrays={"rows": drawn, **draw_order(inputs).arrays})


def draw_order(inputs: Inputs) -> Output:
    """Draw the order of the rows, unless it is that of the corpus."""
    if not inputs.parameters["order"]:
        return Output()
    # A stream of its own: the stage's first one draws rows.
    [stream] = inputs.common_generator().spawn(1)
    return Output(arrays={"order": stream.permutation(inputs.parameters["rows"])})


def _draw(inputs: Inputs, n: int) -> Int64Array:
    return np.sort(inputs.common_generator().choice(n, inputs.parameters["rows"], replace=False))


@dataclass(frozen=True)
class Parts:
    """The parts of the rows considered; a part has the rows of consecutive shards.

    Attributes
    ----------
    corpus : Shards
        The rows considered: a corpus, or what was drawn from it.
    count : int
        Number of parts.
    """

    corpus: Shards
    count: int

    def __len__(self) -> int:
        return self.corpus.n

    def of_part(self, part: int) -> slice:
        """Return the rows of a part."""
        shards = self.corpus.shard_count
        first, end = (number * shards // self.count for number in (part, part + 1))
        if first == end:
            return slice(0, 0)
        return slice(self.corpus.shard_range(first).start, self.corpus.shard_range(end - 1).stop)


def shards_considered(inputs: Inputs, role: str, drawn: str | None) -> Shards:
    """Return the rows of a corpus that are considered: all, or those that a stage has drawn."""
    corpus = inputs.corpora[role]
    if drawn is None or "rows" not in inputs.results[drawn].objects:
        return corpus
    found = inputs.results[drawn]
    return DrawnRows(found, tuple(found.values["counts"]), corpus.d)


def remove_rows(inputs: Inputs) -> Output:
    """Remove the rows of a part that are near a row kept from the last front."""
    state = read_state(inputs)
    if inputs.index not in state.values["open"]:
        return Output()
    parts = _parts(inputs)
    representative = state.array(_slice(inputs.index))
    keepers = state.array("keepers")
    balls = Balls.about(
        as_points(state.array("vectors"), "euclidean"), state.values["delta"], strict=False
    )
    undecided = np.flatnonzero(representative == UNDECIDED)
    rows = parts.of_part(inputs.index).start + undecided
    for block, vectors in read_blocks(parts.corpus, rows):
        first = first_near(balls, as_points(vectors, "euclidean"))
        near = first != UNDECIDED
        representative[undecided[block][near]] = keepers[first[near]]
    return Output(arrays={"representative": representative})


def advance_fronts(inputs: Inputs) -> Output:
    """Collect the rows that an iteration removed, and thin the next front."""
    epsilon = find_epsilon(inputs)
    if epsilon is None:
        return Output(values={"reason": inputs.results["epsilon"].values["reason"]})
    delta = inputs.parameters["delta"] * epsilon
    parts, order, state = _parts(inputs), _drawn(inputs, "order"), inputs.state
    if state is None:
        fronts = SparsificationFronts.start(len(parts), order)
    else:
        fronts = SparsificationFronts(_gather(inputs, state), order)
    front = fronts.next_front(held_rows(parts.corpus.d))
    if len(front) == 0:
        return _result(inputs, fronts)
    vectors = read_in_order(parts.corpus, front)
    thinned = sparsify(as_points(vectors, "euclidean"), delta)
    kept = fronts.settle(front, thinned)
    if fronts.finished:
        return _result(inputs, fronts)
    return _state(parts, fronts, kept, vectors[thinned.kept], delta)


def find_epsilon(inputs: Inputs) -> float | None:
    """Return the epsilon that was given or estimated; None if there is none."""
    given = inputs.parameters["epsilon"]
    found = inputs.results["epsilon"].values.get("epsilon") if given is None else given
    return None if found is None else float(found)


def _parts(inputs: Inputs) -> Parts:
    p = inputs.parameters
    return Parts(shards_considered(inputs, p["role"], p["drawn"]), inputs.stage.partitions)


def _drawn(inputs: Inputs, name: str) -> Int64Array | None:
    drawn = inputs.parameters["drawn"]
    if drawn is None or name not in inputs.results[drawn].objects:
        return None
    array: Int64Array = inputs.results[drawn].array(name)
    return array


def _gather(inputs: Inputs, state: Artifact) -> Int64Array:
    slices = [
        part.array("representative") if part.objects else state.array(_slice(index))
        for index, part in enumerate(inputs.parts)
    ]
    return np.concatenate(slices)


def _state(
    parts: Parts,
    fronts: SparsificationFronts,
    kept: Int64Array,
    vectors: NDArray[Any],
    delta: float,
) -> Output:
    slices = [fronts.representative[parts.of_part(index)] for index in range(parts.count)]
    arrays: dict[str, Int64Array] = {_slice(index): part for index, part in enumerate(slices)}
    undecided = [index for index, part in enumerate(slices) if (part == UNDECIDED).any()]
    values = {"delta": delta, "open": undecided}
    return Output(values, {**arrays, "keepers": kept, "vectors": vectors}, finished=False)


def _result(inputs: Inputs, fronts: SparsificationFronts) -> Output:
    outcome, rows = fronts.outcome, _drawn(inputs, "rows")
    if rows is None:
        rows = np.arange(len(outcome.representative))
    return Output(
        values={"considered": len(rows), "kept": len(outcome.kept)},
        arrays={
            "rows": rows,
            "kept": outcome.kept,
            "kept_rows": rows[outcome.kept],
            "representative": outcome.representative,
        },
    )


def _slice(part: int) -> str:
    return f"representative_{part:05d}"
