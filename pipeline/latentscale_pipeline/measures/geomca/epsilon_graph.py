"""The epsilon-graph on both sparse corpora, by tasks that share its tiles.

A task holds a group of kept rows and lets the shards pass by, comparing the group with all kept
rows after it; a shard is read once for a group. What it found goes into a forest: which rows hang
together, and how many edges of each type every part has. Forests are as small as the number of kept
rows, whatever the number of edges, and the last task merges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.geomca.sparsification import Sparsification
from latentscale.graphs.epsilon import Components, EpsilonGraph, Forest
from latentscale.tiles.distances import Balls, as_points, row_blocks
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.geomca.sparsification import (
    BLOCK_ROWS,
    HELD_COORDINATE_BYTES,
    expected_share,
    find_epsilon,
    held_rows,
)
from latentscale_pipeline.storage.artifacts import Artifact, Output

Int64Array = NDArray[np.int64]

ROLES: tuple[Role, ...] = ("reference", "corpus")
"""The order in which rows are vertices."""

MOST_TASKS = 64

COMPONENT_ARRAYS = (
    "labels_reference",
    "labels_corpus",
    "n_reference",
    "n_corpus",
    "edges_reference",
    "edges_corpus",
    "edges_between",
)

FOREST_ARRAYS = ("vertices", "roots", "counted", "edges")


def graph_stage(
    facts: JobFacts,
    *,
    name: str,
    epsilon: float | None,
    factor: float,
    delta: float,
    rows: int | None,
    thinned: Mapping[Role, str],
) -> Stage:
    """Plan the graph on two sparse corpora.

    Parameters
    ----------
    facts : JobFacts
        Both corpora.
    name : str
        Of the stage.
    epsilon : float or None
        None to take it from the stage ``epsilon``.
    factor : float
        The graph's epsilon in units of that one.
    delta : float
        What the corpora were thinned with, in units of epsilon: decides what to expect.
    rows : int or None
        Random rows a side that were considered; None for all.
    thinned : mapping
        The stages that sparsified the corpora, by role.
    """
    considered = {
        role: corpus.n if rows is None else min(rows, corpus.n)
        for role, corpus in facts.corpora.items()
    }
    held = held_rows(facts.corpora["corpus"].d)
    return Stage(
        name=name,
        work=join_rows,
        finalise=merge_forests,
        partitions=min(sum(-(-n // held) for n in considered.values()), MOST_TASKS),
        needs=(*(() if epsilon is not None else ("epsilon",)), *(thinned[r] for r in ROLES)),
        parameters={"epsilon": epsilon, "factor": factor, "thinned": dict(thinned)},
        corpora=tuple(facts.corpora),
        memory_bytes=_memory(facts, considered),
        cost_estimate=_cost_estimate(facts, considered, delta),
    )


def _memory(facts: JobFacts, considered: Mapping[Role, int]) -> int:
    """Bytes when every row is kept: how many are is known only then."""
    largest = max(facts.corpora.values(), key=lambda corpus: corpus.shard_stored_bytes)
    vertices, d = sum(considered.values()), largest.d
    held = min(held_rows(d), max(considered.values()))
    passing = 2 * largest.shard_stored_bytes + 20 * BLOCK_ROWS * d + FEW_TILES_BYTES
    joining = HELD_COORDINATE_BYTES * held * d + passing + 48 * vertices
    return max(joining, 160 * vertices + FEW_TILES_BYTES)


def _cost_estimate(facts: JobFacts, considered: Mapping[Role, int], delta: float) -> CostEstimate:
    share = expected_share(delta)
    rows = sum(considered.values())
    kept = share * rows
    pairs = kept**2 / 2
    d = facts.corpora["corpus"].d
    groups = -(-int(kept) // held_rows(d))
    stored = sum(corpus.stored_bytes for corpus in facts.corpora.values())
    tasks = min(groups, MOST_TASKS)
    return CostEstimate(
        bytes_read=(groups + 1) * stored + 24 * rows + int(16 * kept) * tasks,
        bytes_written=8 * rows + int((40 + 16 * tasks) * kept) + RESULT_BYTES,
        float32_multiply_adds=pairs * d,
        elementwise_operations=3 * pairs + groups * CONVERSION_OPERATIONS * kept * d,
        method="union and find over tiles",
        why=f"at most {share:.0%} of the rows are expected to be kept",
    )


@dataclass(frozen=True)
class Side:
    """The kept rows of one corpus as vertices.

    Attributes
    ----------
    corpus : Corpus
        Where the rows are.
    rows : ndarray of int64, ascending
        Numbers of the kept rows.
    first : int
        The vertex that the first of them is.
    """

    corpus: Corpus
    rows: Int64Array
    first: int

    def __len__(self) -> int:
        return len(self.rows)

    def blocks_from(self, vertex: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield blocks of rows with the vertex each begins with, those before one left out."""
        for shard in range(self.corpus.shard_count):
            held = self.corpus.shard_range(shard)
            start, stop = (int(i) for i in np.searchsorted(self.rows, [held.start, held.stop]))
            start = max(start, vertex - self.first)
            if start >= stop:
                continue
            vectors = self.corpus.read_shard(shard)
            for block in row_blocks(stop - start, BLOCK_ROWS):
                chosen = self.rows[start + block.start : start + block.stop] - held.start
                yield self.first + start + block.start, vectors[chosen]


def join_rows(inputs: Inputs) -> Output:
    """Find the edges of some groups of kept rows with all rows after them."""
    epsilon = find_epsilon(inputs)
    if epsilon is None:
        return Output()
    sides = _sides(inputs)
    graph = EpsilonGraph(*(len(side) for side in sides))
    groups = [
        (place, rows)
        for place, side in enumerate(sides)
        for rows in row_blocks(len(side), held_rows(side.corpus.d))
    ]
    for place, rows in groups[inputs.index :: inputs.stage.partitions]:
        side = sides[place]
        centres = as_points(side.corpus.read_index(side.rows[rows]), "euclidean")
        balls = Balls.about(centres, inputs.parameters["factor"] * epsilon, strict=True)
        first = side.first + rows.start
        for other in sides[place:]:
            for second, vectors in other.blocks_from(first):
                graph.look(balls, first, as_points(vectors, "euclidean"), second)
    forest = graph.forest
    return Output(arrays={name: getattr(forest, name) for name in FOREST_ARRAYS})


def merge_forests(inputs: Inputs) -> Output:
    """Merge what the tasks found, and follow every row to its component."""
    epsilon = find_epsilon(inputs)
    if epsilon is None:
        return Output(values={"reason": inputs.results["epsilon"].values["reason"]})
    sizes = {role: len(_thinned(inputs, role).array("kept")) for role in ROLES}
    graph = EpsilonGraph(sizes["reference"], sizes["corpus"])
    for part in inputs.parts:
        graph.merge(Forest(*(part.array(name) for name in FOREST_ARRAYS)))
    components = graph.components
    arrays = {name: getattr(components, name) for name in COMPONENT_ARRAYS}
    considered = {}
    for role in ROLES:
        followed = _follow(_thinned(inputs, role), components, role)
        considered[role] = len(followed[f"membership_{role}"])
        arrays |= followed
    return Output(
        values={
            "epsilon": inputs.parameters["factor"] * epsilon,
            "sizes": {
                "reference": considered["reference"],
                "corpus": considered["corpus"],
                "reference_sparse": sizes["reference"],
                "corpus_sparse": sizes["corpus"],
            },
            "outliers": {role: len(arrays[f"outliers_{role}"]) for role in ROLES},
        },
        arrays=arrays,
    )


def _follow(thinned: Artifact, components: Components, role: Role) -> dict[str, Int64Array]:
    """Give every considered row the component of the row that stands for it."""
    sparse = Sparsification(thinned.array("kept"), thinned.array("representative"))
    labels: Int64Array = getattr(components, f"labels_{role}")
    membership = labels[np.searchsorted(sparse.kept, sparse.representative)]
    alone = components.size[membership] == 1
    return {
        f"rows_{role}": sparse.rows,
        f"membership_{role}": membership,
        f"outliers_{role}": thinned.array("rows")[alone],
    }


def _sides(inputs: Inputs) -> list[Side]:
    sides: list[Side] = []
    for role in ROLES:
        rows = _thinned(inputs, role).array("kept_rows")
        sides.append(Side(inputs.corpora[role], rows, sum(len(side) for side in sides)))
    return sides


def _thinned(inputs: Inputs, role: Role) -> Artifact:
    return inputs.results[inputs.parameters["thinned"][role]]
