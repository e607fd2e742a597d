"""Tasks that find neighbours inside groups of cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array, Int64Array
from latentscale.neighbours.search import search_rows
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.shared.neighbours.assign import where_needed
from latentscale_pipeline.measures.shared.neighbours.shuffle import (
    GROUPS,
    parts_of_group,
    positions,
)
from latentscale_pipeline.measures.shared.neighbours.sizes import MIN_LEAVES, Layout
from latentscale_pipeline.storage.artifacts import Artifact, Output

LISTS = "lists"
"""Object of a search's lists, a section for every piece of a group and block of positions."""


@where_needed
def search_groups(inputs: Inputs) -> Output:
    """Find neighbours inside some of the groups; the lists are cut by blocks of positions."""
    p = inputs.parameters
    shuffled = inputs.results[p["regrouped"]]
    pieces = shuffled.array("pieces")[inputs.index :: inputs.stage.partitions]
    lists: list[tuple[str, NDArray[Any]]] = []
    held: list[tuple[int, int]] = []
    streams = inputs.generator().spawn(len(pieces))
    for i, (piece, stream) in enumerate(zip(pieces, streams, strict=True)):
        number = inputs.index + i * inputs.stage.partitions
        found = _search_piece(inputs, shuffled, piece, stream)
        lists += [(lists_name(number, block), part) for block, part in found.items()]
        held += [(number, block) for block in found]
    return Output(values={"held": held}, sections={LISTS: lists})


def _search_piece(
    inputs: Inputs,
    shuffled: Artifact,
    piece: Int64Array,
    generator: np.random.Generator,
) -> dict[int, NDArray[Any]]:
    """Find neighbours inside a piece; return the lists by block of positions."""
    p = inputs.parameters
    layout = Layout(p["n"], p["d"])
    vectors, rows, places = read_piece(shuffled, piece, p["d"])
    # All copies of a row have the same cells, so they are numbered alike in every group.
    points = as_points(vectors, p["metric"]).keyed()
    del vectors
    chosen = inputs.results[p["chosen"]].values
    leaves = max(chosen["leaves"], MIN_LEAVES)
    found = search_rows(
        points,
        p["k"],
        overlap=leaves,
        generator=generator,
        rounds=p["refinements"] + (leaves > MIN_LEAVES),
        recall=1.0 - chosen["missed"],
        method=p["method"],
    )
    lists = np.empty(len(points), _list_record(p["k"]))
    lists["position"], lists["row"] = places, rows
    lists["neighbours"] = np.where(found.indices < 0, -1, places[found.indices])
    lists["distances"], lists["ties"] = found.distances, found.ties
    block_of = places // layout.block
    return {block: lists[block_of == block] for block in np.unique(block_of).tolist()}


def read_piece(
    shuffled: Artifact, piece: Int64Array, d: int
) -> tuple[Float64Array, Int64Array, Int64Array]:
    """Read the rows of a range of ranks of a group, block by block.

    Parameters
    ----------
    shuffled : Artifact
        Result of the last stage of the shuffle.
    piece : ndarray of int64, shape (3,)
        One of its ``pieces``: the group, and the first rank and the end.
    d : int
        Dimensions.

    Returns
    -------
    tuple of ndarray
        Their vectors (m, d) in float64, their numbers and their positions.
    """
    group, start, stop = (int(number) for number in piece)
    first = shuffled.array("first")
    vectors = np.empty((stop - start, d))
    columns: list[tuple[Int64Array, Int64Array]] = []
    filled = 0
    for part, low, high in parts_of_group(shuffled, group, start, stop):
        records = shuffled.partition(part).section(GROUPS, str(group))[low:high]
        vectors[filled : filled + high - low] = records["vector"]
        filled += high - low
        places = positions(first, part, records)
        columns.append((records["row"].copy(), places))
    rows, places = (np.concatenate([column[i] for column in columns]) for i in range(2))
    return vectors, rows, places


def _list_record(k: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("position", "<i8"),
            ("row", "<i8"),
            ("neighbours", "<i8", (k,)),
            ("distances", "<f8", (k,)),
            ("ties", "<u8", (k,)),
        ]
    )


def lists_name(piece: int, block: int) -> str:
    """Return the name of a piece's lists for a block of positions."""
    return f"{piece}/{block}"


@where_needed
def count_lists(inputs: Inputs) -> Output:
    """List which pieces have lists for which blocks, so readers needn't open all of them."""
    held = sorted(tuple(pair) for part in inputs.parts for pair in part.values["held"])
    return Output(arrays={"held": np.array(held, dtype=np.int64).reshape(-1, 2)})
