"""Sparsification of a corpus by iterations over its shards.

The sequential part is small: a front of undecided rows, as many as a process holds, is thinned in
itself by the step between two iterations. What it keeps is published with the state; in the
iteration that follows, each task takes some whole shards, reads each once, and removes the rows
near a kept one. So a task holds the kept rows of one front and a shard, whatever the size of the
corpus. The state is 8 bytes for each row considered, cut like the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.geomca.sparsification import UNDECIDED, SparsificationFronts, first_near, sparsify
from latentscale.tiles.distances import Balls, as_points, row_blocks
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.shared.iteration_state import read_state
from latentscale_pipeline.storage.artifacts import Artifact, Output

Int64Array = NDArray[np.int64]

HELD_BYTES = 192 * 2**20
"""Memory of the rows that a task holds while it reads shards."""

HELD_COORDINATE_BYTES = 12
"""Bytes of a coordinate in float64 and in float32."""

LEAST_HELD_ROWS, MOST_HELD_ROWS = 1024, 16384

BLOCK_ROWS = 1024
"""Rows that are turned into float64 at once."""


def held_rows(d: int) -> int:
    """Return the number of rows of ``d`` dimensions that a task holds while it reads shards."""
    fitting = HELD_BYTES // (HELD_COORDINATE_BYTES * d) // LEAST_HELD_ROWS * LEAST_HELD_ROWS
    return min(max(fitting, LEAST_HELD_ROWS), MOST_HELD_ROWS)


def draw_rows(inputs: Inputs) -> Output:
    """Draw the rows that are considered, and their order."""
    n, rows = inputs.corpora[inputs.parameters["role"]].n, inputs.parameters["rows"]
    generator = inputs.generator()
    arrays = {}
    if rows < n:
        arrays["rows"] = np.sort(generator.choice(n, rows, replace=False))
    if inputs.parameters["order"]:
        arrays["order"] = generator.permutation(rows)
    return Output(arrays=arrays)


@dataclass(frozen=True)
class Parts:
    """The parts of the rows considered; a part has the rows of consecutive shards.

    Attributes
    ----------
    corpus : Corpus
        Where the rows are.
    count : int
        Number of parts.
    rows : ndarray of int64, ascending, or None
        Rows that are considered; None for all.
    """

    corpus: Corpus
    count: int
    rows: Int64Array | None

    def __len__(self) -> int:
        return self.corpus.n if self.rows is None else len(self.rows)

    def of_part(self, part: int) -> slice:
        """Return the places of a part's rows among those considered."""
        shards = self.corpus.shard_count
        first, end = (number * shards // self.count for number in (part, part + 1))
        held = self.corpus.shard_range(first).start, self.corpus.shard_range(end - 1).stop
        start, stop = held if self.rows is None else np.searchsorted(self.rows, held).tolist()
        return slice(start, stop)

    def numbers(self, places: Int64Array) -> Int64Array:
        """Return the row numbers of places among the rows considered."""
        return places if self.rows is None else self.rows[places]


def read_blocks(corpus: Corpus, rows: Int64Array) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield the vectors of ascending rows in blocks; every shard is read at most once."""
    for shard in range(corpus.shard_count):
        held = corpus.shard_range(shard)
        start, stop = np.searchsorted(rows, [held.start, held.stop]).tolist()
        if start < stop:
            vectors = corpus.read_shard(shard)
            for block in row_blocks(stop - start, BLOCK_ROWS):
                inside = slice(start + block.start, start + block.stop)
                yield inside, vectors[rows[inside] - held.start]


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
    rows = parts.numbers(parts.of_part(inputs.index).start + undecided)
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
        return _result(parts, fronts)
    vectors = _read(parts, front)
    thinned = sparsify(as_points(vectors, "euclidean"), delta)
    kept = fronts.settle(front, thinned)
    if fronts.finished:
        return _result(parts, fronts)
    return _state(parts, fronts, kept, vectors[thinned.kept], delta)


def find_epsilon(inputs: Inputs) -> float | None:
    """Return the epsilon that was given or estimated; None if there is none."""
    given = inputs.parameters["epsilon"]
    found = inputs.results["epsilon"].values.get("epsilon") if given is None else given
    return None if found is None else float(found)


def _parts(inputs: Inputs) -> Parts:
    corpus = inputs.corpora[inputs.parameters["role"]]
    return Parts(corpus, inputs.stage.partitions, _drawn(inputs, "rows"))


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


def _read(parts: Parts, front: Int64Array) -> NDArray[Any]:
    """Read rows in any order."""
    ascending = np.argsort(front, kind="stable")
    vectors = parts.corpus.read_index(parts.numbers(front[ascending]))
    if (ascending[1:] > ascending[:-1]).all():
        return vectors
    ordered = np.empty_like(vectors)
    ordered[ascending] = vectors
    return ordered


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


def _result(parts: Parts, fronts: SparsificationFronts) -> Output:
    outcome = fronts.outcome
    rows = np.arange(len(parts)) if parts.rows is None else parts.rows
    return Output(
        values={"considered": len(parts), "kept": len(outcome.kept)},
        arrays={
            "rows": rows,
            "kept": outcome.kept,
            "kept_rows": rows[outcome.kept],
            "representative": outcome.representative,
        },
    )


def _slice(part: int) -> str:
    return f"representative_{part:05d}"
