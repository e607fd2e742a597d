"""Tasks that find neighbours inside groups of cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.neighbours.ivf import divide
from latentscale.neighbours.search import search_cells
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.shared.neighbours.assign import where_needed
from latentscale_pipeline.measures.shared.neighbours.shuffle import (
    GROUPS,
    parts_of_group,
    positions,
)
from latentscale_pipeline.measures.shared.neighbours.sizes import Layout
from latentscale_pipeline.storage.artifacts import Artifact, Output

Int64Array = NDArray[np.int64]

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
    vectors, rows, places, owners = _read_piece(shuffled, piece, p["d"])
    # All copies of a row have the same cells, so they are numbered alike in every group.
    points = as_points(vectors, p["metric"]).keyed()
    del vectors
    overlap = owners.shape[1]
    cells = [
        part
        for members in _members_of_cells(owners)
        for part in divide(points, members, layout.cap, generator)
    ]
    found = search_cells(
        points,
        cells,
        p["k"],
        descend=layout.descends(overlap) and p["metric"] != "manhattan",
        generator=generator,
        refinements=p["refinements"],
    )
    lists = np.empty(len(points), _list_record(p["k"]))
    lists["position"], lists["row"] = places, rows
    lists["neighbours"] = np.where(found.indices < 0, -1, places[found.indices])
    lists["distances"], lists["ties"] = found.distances, found.ties
    block_of = places // layout.block
    return {block: lists[block_of == block] for block in np.unique(block_of).tolist()}


def _read_piece(
    shuffled: Artifact, piece: Int64Array, d: int
) -> tuple[NDArray[np.float64], Int64Array, Int64Array, NDArray[np.int32]]:
    """Read the rows of a group whose rank in it is between two numbers, block by block.

    These are their vectors (m, d), numbers, positions, and cells (m, overlap).
    """
    group, start, stop = (int(number) for number in piece)
    first = shuffled.array("first")
    vectors = np.empty((stop - start, d))
    columns: list[tuple[Int64Array, Int64Array, NDArray[np.int32]]] = []
    filled = 0
    for part, low, high in parts_of_group(shuffled, group, start, stop):
        records = shuffled.partition(part).section(GROUPS, str(group))[low:high]
        vectors[filled : filled + high - low] = records["vector"]
        filled += high - low
        places = positions(first, part, records)
        columns.append((records["row"].copy(), places, records["cells"].copy()))
    rows, places, cells = (np.concatenate([column[i] for column in columns]) for i in range(3))
    return vectors, rows, places, cells


def _members_of_cells(cells: NDArray[np.int32]) -> Iterator[Int64Array]:
    """Yield the rows of every cell, ascending."""
    order = np.argsort(cells, axis=None, kind="stable")
    owner = cells.ravel()[order]
    begin = int(np.searchsorted(owner, 0))
    edges = np.flatnonzero(np.diff(owner[begin:])) + 1 + begin
    yield from np.split(order[begin:] // cells.shape[1], edges - begin)


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
    """Name the lists that a piece of a group has for a block of positions."""
    return f"{piece}/{block}"


@where_needed
def count_lists(inputs: Inputs) -> Output:
    """Note which pieces have lists for which blocks, so that nobody has to ask all of them."""
    held = sorted(tuple(pair) for part in inputs.parts for pair in part.values["held"])
    return Output(arrays={"held": np.array(held, dtype=np.int64).reshape(-1, 2)})
