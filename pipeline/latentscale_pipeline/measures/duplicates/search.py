"""Tasks that find the nearest rows in groups of cells, and merge what the groups found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import BoolArray, Int64Array
from latentscale.neighbours.exact import nearest as exactly_nearest
from latentscale.neighbours.leaf_search import Relation
from latentscale.neighbours.nearest_rows import NearestRows, nearest_rows
from latentscale.tiles.distances import Points, as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.duplicates import nearest
from latentscale_pipeline.measures.shared.neighbours.search import read_piece
from latentscale_pipeline.storage.artifacts import Artifact, Output

MIN_LEAVES = 4
"""Fewest leaves that a row joins inside a group; near rows that share none are missed."""

LISTS = "lists"
"""Object of a search's lists, a section for every piece, corpus and block of its rows."""


def lists_of(role: Role, sources: list[Role], larger: set[Role]) -> list[tuple[Role, str]]:
    """Return the lists of a corpus: among all rows of each, and among fewer of the larger one."""
    return [
        (source, name)
        for source in sources
        for name in ((nearest.ALL, nearest.FEWER) if source in larger else (nearest.ALL,))
    ]


def _record(lists: list[tuple[Role, str]]) -> np.dtype[Any]:
    fields: list[Any] = [("row", "<i8")]
    for source, name in lists:
        fields += [(f"{source}_{name}_row", "<i8"), (f"{source}_{name}_distance", "<f4")]
    return np.dtype(fields)


# --- search -------------------------------------------------------------------------------------


def search_pieces(inputs: Inputs) -> Output:
    """Find the nearest rows inside some of the pieces; lists are cut by blocks of rows."""
    p = inputs.parameters
    grouped = {role: inputs.results[name] for role, name in p["grouped"].items()}
    # No more than one corpus is larger than another.
    fewer = np.empty(0, dtype=np.int64)
    for source in p["larger"]:
        fewer = inputs.results[p["cells"]].array(f"{source}_fewer")
    pieces = list(_joint_pieces(grouped))
    sections: list[tuple[str, NDArray[Any]]] = []
    held: list[tuple[str, int, str]] = []
    for number in range(inputs.index, len(pieces), inputs.stage.partitions):
        # A piece's stream depends on the piece alone, not on how many tasks there are.
        stream = inputs.common_generator().spawn(number + 1)[number]
        for role, block, found in _search_piece(inputs, grouped, fewer, pieces[number], stream):
            name = f"{number}/{role}/{block}"
            sections.append((name, found))
            held.append((role, block, name))
    return Output(values={"held": held}, sections={LISTS: sections})


def _joint_pieces(grouped: Mapping[Role, Artifact]) -> Iterator[dict[Role, Int64Array]]:
    """Yield the pieces of each group; where it has several, those of each corpus with each."""
    pieces = {role: found.array("pieces") for role, found in grouped.items()}
    for group in np.unique(np.concatenate([found[:, 0] for found in pieces.values()])):
        joint: list[dict[Role, Int64Array]] = [{}]
        for role, found in pieces.items():
            mine = found[found[:, 0] == group]
            if len(mine):
                joint = [{**others, role: piece} for others in joint for piece in mine]
        yield from joint


def _search_piece(
    inputs: Inputs,
    grouped: Mapping[Role, Artifact],
    fewer: Int64Array,
    pieces: Mapping[Role, Int64Array],
    generator: np.random.Generator,
) -> Iterator[tuple[Role, int, NDArray[Any]]]:
    """Find the nearest rows among the rows of a piece; yield the lists by corpus and block."""
    p = inputs.parameters
    placed = inputs.results[p["cells"]]
    vectors, rows = [], {}
    for role, piece in pieces.items():
        read, rows[role], _ = read_piece(grouped[role], piece, p["d"])
        vectors.append(read)
    points = as_points(np.concatenate(vectors), p["metric"])
    del vectors, read
    ends = np.cumsum([0, *(len(numbers) for numbers in rows.values())]).tolist()
    spans = {role: slice(ends[i], ends[i + 1]) for i, role in enumerate(rows)}
    lists = {role: lists_of(role, p["sources"], set(p["larger"])) for role in rows}
    wanted = [(role, source, name) for role in rows for source, name in lists[role]]
    relations = [
        Relation(
            _inside(spans, role, len(points)),
            _candidates(fewer, rows, spans, source, name, len(points)),
        )
        for role, source, name in wanted
    ]
    numbers = np.concatenate(list(rows.values()))
    found = {role: np.empty(len(rows[role]), _record(lists[role])) for role in rows}
    leaves = max(placed.values["leaves"], MIN_LEAVES)
    searched = nearest_rows(points, relations, overlap=leaves, generator=generator)
    for (role, source, name), near in zip(wanted, searched, strict=True):
        span, own = spans[role], found[role]
        known = near.rows[span]
        own["row"] = rows[role]
        own[f"{source}_{name}_row"] = np.where(known < 0, -1, numbers[known])
        own[f"{source}_{name}_distance"] = nearest.stored_distances(near.distances[span])
        _use_spare_rows(own, placed, points.take(span), role, source, name)
    for role, records in found.items():
        block_of = records["row"] // p["block_rows"]
        for block in np.unique(block_of).tolist():
            yield role, block, records[block_of == block]


def _inside(spans: Mapping[Role, slice], role: Role, n: int) -> BoolArray:
    inside = np.zeros(n, dtype=np.bool_)
    inside[spans.get(role, slice(0, 0))] = True
    return inside


def _candidates(
    fewer: Int64Array,
    rows: Mapping[Role, Int64Array],
    spans: Mapping[Role, slice],
    source: Role,
    name: str,
    n: int,
) -> BoolArray:
    inside = _inside(spans, source, n)
    if name == nearest.FEWER and source in rows:
        numbers = rows[source].astype(fewer.dtype)
        place = np.minimum(np.searchsorted(fewer, numbers), len(fewer) - 1)
        inside[spans[source]] = fewer[place] == numbers
    return inside


def _use_spare_rows(
    found: NDArray[Any], placed: Artifact, points: Points, role: Role, source: Role, name: str
) -> None:
    """Compare rows that have none near them with a few random ones, so that all have a distance."""
    lost = np.flatnonzero(found[f"{source}_{name}_row"] < 0)
    if len(lost) == 0:
        return
    spare = placed.array(f"{source}_spare")
    own = found["row"][lost] if role == source else np.full(len(lost), -1)
    near = exactly_nearest(
        points.take(lost),
        as_points(placed.array(f"{source}_spare_vectors"), points.metric),
        1,
        query_ids=own,
        candidate_ids=spare,
    )
    found[f"{source}_{name}_row"][lost] = near.indices[:, 0]
    found[f"{source}_{name}_distance"][lost] = nearest.stored_distances(near.distances[:, 0])


def count_lists(inputs: Inputs) -> Output:
    """List which parts hold which lists, so that readers needn't open all of them."""
    held = [(*of, part) for part, found in enumerate(inputs.parts) for of in found.values["held"]]
    return Output(values={"held": held})


# --- merging ------------------------------------------------------------------------------------


def merge_rows(inputs: Inputs) -> Output:
    """Keep the nearest of all that the groups found for a block of rows."""
    p = inputs.parameters
    start = inputs.index * p["block_rows"]
    count = min(p["block_rows"], inputs.corpora[p["role"]].n - start)
    lists = lists_of(p["role"], p["sources"], set(p["larger"]))
    best = {of: NearestRows.none(count) for of in lists}
    searched = inputs.results[p["searched"]]
    for role, block, name, part in searched.values["held"]:
        if (role, block) == (p["role"], inputs.index):
            records = searched.partition(part).section(LISTS, name)
            for source, of in lists:
                best[source, of].offer(
                    records["row"] - start,
                    records[f"{source}_{of}_row"],
                    records[f"{source}_{of}_distance"],
                )
    arrays = {}
    for (source, of), near in best.items():
        arrays[f"{source}_{of}_row"] = nearest.short_numbers(near.rows, inputs.corpora[source])
        arrays[f"{source}_{of}_distance"] = nearest.stored_distances(near.distances)
    return Output(arrays=arrays)
