"""The work of the passes that find approximate neighbours; :mod:`.cell_neighbours` plans them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.cell_layout import (
    expected_sizes,
    group_cells,
    order_centres,
    shared_cell_recall,
)
from latentscale.cells import assign, divide, find_centres, search_cells
from latentscale.distances import Points, as_points, row_blocks
from latentscale.neighbours import Neighbours, merge, nearest
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.engine.task import FINALISE
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.cell_sizes import (
    AGAIN,
    GROUP_FILL,
    MISSED_BY_CELLS,
    PILOT_ROWS,
    Layout,
    checked_rows,
)
from latentscale_pipeline.stages.shard_blocks import find_block, read_points

Int64Array = NDArray[np.int64]


# --- cells and checks -------------------------------------------------------------------------


def _streams(inputs: Inputs) -> list[np.random.Generator]:
    """Streams for the sample, the checked rows and the centres: the same in every partition."""
    return replace(inputs, index=FINALISE).generator().spawn(3)


def _draw(inputs: Inputs, corpus: Corpus) -> tuple[Int64Array, Int64Array]:
    """Draw the rows of the sample, ascending, and the rows to check, pilots first."""
    sample, checks, _ = _streams(inputs)
    checked = min(corpus.n, PILOT_ROWS + checked_rows(inputs.parameters["recall"]))
    size = Layout(corpus.n, corpus.d).sample
    return (
        np.sort(sample.choice(corpus.n, size, replace=False)),
        checks.choice(corpus.n, checked, replace=False),
    )


def draw_rows(inputs: Inputs) -> Output:
    """Read the rows of the sample, and those to check, that are in a block of shards."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    block = find_block(inputs, corpus)
    rows = corpus.read_rows(block.start, block.stop)
    chosen = []
    for drawn in _draw(inputs, corpus):
        inside = np.sort(drawn[(drawn >= block.start) & (drawn < block.stop)])
        chosen.append(rows[inside - block.start])
    return Output(arrays={"sample": chosen[0], "checked": chosen[1]})


def place_cells(inputs: Inputs) -> Output:
    """Place the centres of the cells, and lay the rows out that will be checked."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    layout = Layout(corpus.n, corpus.d)
    vectors = np.concatenate([part.array("sample") for part in inputs.parts])
    sample = as_points(vectors, p["metric"])
    del vectors
    *_, stream = _streams(inputs)
    centres = find_centres(sample.rows, layout.cells, stream)
    centres = centres[order_centres(centres, stream)]
    owners = _assign(sample, centres, AGAIN * max(p["overlaps"]))
    _, checked = _draw(inputs, corpus)
    ascending = np.concatenate([part.array("checked") for part in inputs.parts])
    order = np.argsort(np.argsort(checked))
    return Output(
        arrays={
            "centres": centres,
            "owners": owners.astype(np.int32),
            "checked": checked,
            "vectors": ascending[order],
        }
    )


def _assign(points: Points, centres: NDArray[np.float64], overlap: int) -> Int64Array:
    return np.concatenate(
        [assign(points.take(block), centres, overlap) for block in row_blocks(len(points), 4096)]
    )


def check_block(inputs: Inputs) -> Output:
    """Find the nearest rows of a block to every checked row, and read the pilots' vectors."""
    p = inputs.parameters
    corpus, metric, k = inputs.corpora[p["role"]], p["metric"], p["k"]
    cells = inputs.results[f"cells-{p['role']}"]
    checked, seed = cells.array("checked"), tie_seed(inputs)
    queries = as_points(cells.array("vectors"), metric)
    block = find_block(inputs, corpus)
    best = Neighbours(
        np.full((len(checked), k), -1, dtype=np.int64), np.full((len(checked), k), np.inf)
    )
    for rows, points in read_points(corpus, block, metric):
        found = nearest(
            queries,
            points,
            k,
            query_ids=checked,
            candidate_ids=np.arange(rows.start, rows.stop, dtype=np.int64),
            seed=seed,
        )
        best = merge(best, found, k, query_ids=checked, seed=seed)
    near = best.indices[:PILOT_ROWS]
    vectors = np.zeros((*near.shape, corpus.d), dtype=corpus.dtype)
    stored = corpus.read_rows(block.start, block.stop)
    vectors[near >= 0] = stored[near[near >= 0] - block.start]
    return Output(
        values={"start": block.start, "stop": block.stop},
        arrays={"indices": best.indices, "distances": best.distances, "vectors": vectors},
    )


def choose_overlap(inputs: Inputs) -> Output:
    """Choose how many cells a row joins, and which cells are searched together."""
    p = inputs.parameters
    metric, k, overlaps = p["metric"], p["k"], p["overlaps"]
    corpus = inputs.corpora[p["role"]]
    cells = inputs.results[f"cells-{p['role']}"]
    true = _join_checks(inputs, cells.array("checked"), k)
    centres, owners = cells.array("centres"), cells.array("owners").astype(np.int64)
    near = _vectors_of(inputs, true.indices[:PILOT_ROWS], corpus)
    pilots = as_points(cells.array("vectors")[:PILOT_ROWS], metric)
    theirs = _assign(as_points(near.reshape(-1, corpus.d), metric), centres, max(overlaps))
    recalls = shared_cell_recall(
        _assign(pilots, centres, max(overlaps)),
        theirs.reshape(len(pilots), k, -1),
        overlaps,
    )
    enough = np.flatnonzero(1.0 - recalls <= MISSED_BY_CELLS * (1.0 - p["recall"]))
    overlap = overlaps[int(enough[0]) if len(enough) else -1]
    return Output(
        values={
            "overlap": min(overlap, len(centres)),
            "shared_cell_recall": dict(zip(map(str, overlaps), recalls.tolist(), strict=True)),
        },
        arrays={
            "distances": true.distances,
            "group_of": group_by_size(owners[:, :overlap], len(centres), corpus.n, corpus.d),
        },
    )


def group_by_size(owners: Int64Array, cells: int, n: int, d: int) -> Int64Array:
    """Choose the cells that are searched together, by those of the sample's rows."""
    sizes = expected_sizes(owners, cells, n)
    return group_cells(sizes, GROUP_FILL * Layout(n, d).group_rows)


def _join_checks(inputs: Inputs, checked: Int64Array, k: int) -> Neighbours:
    seed = tie_seed(inputs)
    best: Neighbours | None = None
    for part in inputs.parts:
        found = Neighbours(part.array("indices"), part.array("distances"))
        best = found if best is None else merge(best, found, k, query_ids=checked, seed=seed)
    if best is None:
        raise ValueError("there are no blocks to join")
    return best


def _vectors_of(inputs: Inputs, near: Int64Array, corpus: Corpus) -> NDArray[Any]:
    """Gather the vectors of the pilots' neighbours from the blocks that found them."""
    vectors = np.zeros((*near.shape, corpus.d), dtype=corpus.dtype)
    for part in inputs.parts:
        found = part.array("indices")[: len(near)]
        same = found[:, :, None] == near[:, None, :]
        inside = (near >= part.values["start"]) & (near < part.values["stop"])
        query, place = np.nonzero(inside)
        vectors[inside] = part.array("vectors")[query, same.argmax(axis=1)[query, place]]
    return vectors


# --- regrouping -------------------------------------------------------------------------------


def _record(corpus_dtype: np.dtype[Any], d: int, overlap: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("row", "<i8"),
            ("home", "<i4"),  # the nearest cell
            ("rank", "<i4"),  # among the block's rows with this home
            ("cells", "<i4", (overlap,)),  # those of the group; -1 for others
            ("vector", corpus_dtype.newbyteorder("<"), (d,)),
        ]
    )


def regroup_block(inputs: Inputs) -> Output:
    """Write the rows of a block to the groups that their cells belong to."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    centres = inputs.results[f"cells-{p['role']}"].array("centres")
    chosen = inputs.results[p["chosen"]]
    overlap = chosen.values["overlap"]
    if overlap == 0:
        return Output()
    group_of = chosen.array("group_of")
    block = find_block(inputs, corpus)
    owners = np.empty((block.stop - block.start, overlap), dtype=np.int32)
    for rows, points in read_points(corpus, block, p["metric"]):
        owners[rows.start - block.start : rows.stop - block.start] = _assign(
            points, centres, overlap
        )
    home = owners[:, 0]
    order = np.argsort(home, kind="stable")
    counts = np.bincount(home, minlength=len(centres))
    rank = np.empty(len(home), dtype=np.int32)
    rank[order] = np.arange(len(home)) - np.repeat(np.cumsum(counts) - counts, counts)
    stored = corpus.read_rows(block.start, block.stop)
    groups = group_of[owners]
    arrays: dict[str, NDArray[Any]] = {"homes": counts.astype(np.int64)}
    members = np.zeros(int(group_of[-1]) + 1, dtype=np.int64)
    for group in np.unique(groups):
        inside = np.flatnonzero((groups == group).any(axis=1))
        records = np.empty(len(inside), _record(corpus.dtype, corpus.d, overlap))
        records["row"], records["vector"] = block.start + inside, stored[inside]
        records["home"], records["rank"] = home[inside], rank[inside]
        records["cells"] = np.where(groups[inside] == group, owners[inside], -1)
        arrays[_group(group)] = records
        members[group] = len(inside)
    return Output(arrays={**arrays, "members": members})


def number_rows(inputs: Inputs) -> Output:
    """Give all rows numbers by their nearest cells, and cut groups that are too large."""
    p = inputs.parameters
    if inputs.results[p["chosen"]].values["overlap"] == 0:
        return Output()
    corpus = inputs.corpora[p["role"]]
    homes = np.array([part.array("homes") for part in inputs.parts])
    members = np.array([part.array("members") for part in inputs.parts])
    starts = np.cumsum(homes.sum(axis=0)) - homes.sum(axis=0)
    # The position of a block's first row in every cell.
    first = starts + np.cumsum(homes, axis=0) - homes
    most = Layout(corpus.n, corpus.d).group_rows
    pieces: list[tuple[int, int, int]] = []
    for group, size in enumerate(members.sum(axis=0)):
        cuts = np.linspace(0, size, -(-int(size) // most) + 1).astype(np.int64)
        pieces += [(group, a, b) for a, b in pairwise(cuts.tolist()) if b > a]
    return Output(arrays={"first": first, "members": members, "pieces": np.array(pieces)})


def _group(group: int) -> str:
    return f"group_{group:05d}"


# --- the search -------------------------------------------------------------------------------


def search_groups(inputs: Inputs) -> Output:
    """Find neighbours inside some of the groups; the lists are cut by blocks of positions."""
    p = inputs.parameters
    if inputs.results[p["chosen"]].values["overlap"] == 0:
        return Output(values={"held": []})
    regrouped = inputs.results[p["regrouped"]]
    pieces = regrouped.array("pieces")[inputs.index :: inputs.stage.partitions]
    arrays: dict[str, NDArray[Any]] = {}
    held: list[tuple[int, int]] = []
    streams = inputs.generator().spawn(len(pieces))
    for i, (piece, stream) in enumerate(zip(pieces, streams, strict=True)):
        number = inputs.index + i * inputs.stage.partitions
        found = _search_piece(inputs, regrouped, piece, stream)
        arrays |= {lists_name(number, block): lists for block, lists in found.items()}
        held += [(number, block) for block in found]
    return Output(values={"held": held}, arrays=arrays)


def _search_piece(
    inputs: Inputs,
    regrouped: Published,
    piece: Int64Array,
    generator: np.random.Generator,
) -> dict[int, NDArray[Any]]:
    """Find neighbours inside a piece; return the lists by block of positions."""
    p = inputs.parameters
    layout = Layout(p["n"], p["d"])
    held = _read_piece(regrouped, piece, p["d"])
    points = as_points(held.vectors, p["metric"])
    held = replace(held, vectors=np.empty((0, p["d"])))
    overlap = held.cells.shape[1]
    cells = [
        part
        for members in _members_of_cells(held.cells)
        for part in divide(points, members, layout.cap, generator)
    ]
    found = search_cells(
        points,
        cells,
        p["k"],
        descend=layout.descends(overlap) and p["metric"] != "manhattan",
        generator=generator,
        seed=tie_seed(inputs),
        refinements=p["refinements"],
    )
    lists = np.empty(len(points), _list_record(p["k"]))
    lists["position"], lists["row"] = held.positions, held.rows
    lists["neighbours"] = np.where(found.indices < 0, -1, held.positions[found.indices])
    lists["distances"] = found.distances
    block_of = held.positions // layout.block
    return {block: lists[block_of == block] for block in np.unique(block_of).tolist()}


@dataclass(frozen=True)
class _Piece:
    """The rows of a piece: numbers, positions, cells (m, overlap), vectors (m, d)."""

    rows: Int64Array
    positions: Int64Array
    cells: NDArray[np.int32]
    vectors: NDArray[Any]


def _read_piece(regrouped: Published, piece: Int64Array, d: int) -> _Piece:
    """Read the rows of a group whose rank in it is between two numbers, block by block."""
    group, start, stop = (int(number) for number in piece)
    first, members = regrouped.array("first"), regrouped.array("members")[:, group]
    vectors = np.empty((stop - start, d))
    columns: list[tuple[Int64Array, Int64Array, NDArray[np.int32]]] = []
    before = 0
    for block, size in enumerate(members.tolist()):
        low, high = max(start - before, 0), min(stop - before, size)
        if low < high:
            records = regrouped.partition(block).array(_group(group))[low:high]
            vectors[before + low - start : before + high - start] = records["vector"]
            positions = first[block, records["home"]] + records["rank"]
            columns.append((records["row"].copy(), positions, records["cells"].copy()))
        before += size
    rows, positions, cells = (np.concatenate([column[i] for column in columns]) for i in range(3))
    return _Piece(rows, positions, cells, vectors)


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
        ]
    )


def lists_name(piece: int, block: int) -> str:
    """Name the lists that a piece of a group has for a block of positions."""
    return f"lists_{piece:05d}_{block:05d}"


def count_lists(inputs: Inputs) -> Output:
    """Note which pieces have lists for which blocks, so that nobody has to ask all of them."""
    held = sorted(tuple(pair) for part in inputs.parts for pair in part.values["held"])
    return Output(arrays={"held": np.array(held, dtype=np.int64).reshape(-1, 2)})


def tie_seed(inputs: Inputs) -> int:
    """Return the seed that breaks ties between equal distances, one for all partitions."""
    return int(inputs.stage.seed or 0)
