"""The epsilon-graph on both sparse corpora, by tasks that share its tiles.

A task holds a group of kept rows and streams the shards, comparing the group with all later kept
rows; a shard is read once for each group. The result is a spanning forest, with the number of edges
of each type in every tree. Its size is the number of kept rows, whatever the number of edges. The
last task merges the forests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Int64Array
from latentscale.duplicates.sparsification import Sparsification
from latentscale.geomca.epsilon_graph import Components, EpsilonGraph, Forest
from latentscale.tiles.distances import Balls, as_points, row_blocks
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.geomca.sparsification import (
    find_epsilon,
    held_rows,
    shards_considered,
)
from latentscale_pipeline.measures.shared.random_rows import Shards, read_blocks
from latentscale_pipeline.measures.shared.records import load_record, record_arrays
from latentscale_pipeline.storage.artifacts import Artifact, Output

ROLES: tuple[Role, ...] = ("reference", "corpus")
"""The order in which rows are vertices."""

COMPONENT_ARRAYS = (
    "labels_reference",
    "labels_corpus",
    "n_reference",
    "n_corpus",
    "edges_reference",
    "edges_corpus",
    "edges_between",
)


@dataclass(frozen=True)
class Side:
    """The kept rows of one corpus as vertices.

    Attributes
    ----------
    corpus : Shards
        The rows considered.
    rows : ndarray of int64, ascending
        Which of them were kept.
    first : int
        The vertex that the first of them is.
    """

    corpus: Shards
    rows: Int64Array
    first: int

    def __len__(self) -> int:
        return len(self.rows)


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
            begin = max(first - other.first, 0)
            for block, vectors in read_blocks(other.corpus, other.rows[begin:]):
                second = other.first + begin + block.start
                graph.look(balls, first, as_points(vectors, "euclidean"), second)
    return Output(arrays=record_arrays(graph.forest))


def merge_forests(inputs: Inputs) -> Output:
    """Merge the tasks' spanning forests, and find the component of every row."""
    epsilon = find_epsilon(inputs)
    if epsilon is None:
        return Output(values={"reason": inputs.results["epsilon"].values["reason"]})
    sizes = {role: len(_thinned(inputs, role).array("kept")) for role in ROLES}
    graph = EpsilonGraph(sizes["reference"], sizes["corpus"])
    for part in inputs.parts:
        graph.merge(load_record(Forest, part))
    components = graph.components
    arrays = record_arrays(components)
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
    """Return the component of every row considered: that of the row that represents it."""
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
        corpus = shards_considered(inputs, role, inputs.parameters["drawn"][role])
        rows = _thinned(inputs, role).array("kept")
        sides.append(Side(corpus, rows, sum(len(side) for side in sides)))
    return sides


def _thinned(inputs: Inputs, role: Role) -> Artifact:
    return inputs.results[inputs.parameters["thinned"][role]]
