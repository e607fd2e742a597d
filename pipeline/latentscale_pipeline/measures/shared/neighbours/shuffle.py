"""Tasks that shuffle rows, so that rows that are searched together are stored together.

One pass writes every row to the groups of its cells where blocks of shards times groups are few: a
reader of a group asks every block for its part. Beyond, rows are brought into *coarse groups* of
consecutive groups first, and each coarse group is then cut into pieces of blocks that fit in memory
and brought into its groups, piece by piece: readers of either pass ask a few hundred times. Both
routes give a group the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale.neighbours.two_level_cells import assign_two_level_cells
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.shared.neighbours.assign import read_cells, where_needed
from latentscale_pipeline.measures.shared.shard_blocks import find_block, read_points
from latentscale_pipeline.storage.artifacts import Artifact, Output

GROUPS = "groups"
"""Object of a part's rows, a section for every group, or coarse group."""

RUNNING_TOTALS = 256
"""Blocks between stored running totals of the cells' rows; readers count the rest."""


def _record(corpus_dtype: np.dtype[Any], d: int, overlap: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("row", "<i8"),
            ("home", "<i4"),  # the nearest cell
            ("rank", "<i4"),  # among the rows with this home, in the block or in the corpus
            ("cells", "<i4", (overlap,)),  # those of the group; -1 for others
            ("vector", corpus_dtype.newbyteorder("<"), (d,)),
        ]
    )


# --- from blocks of shards --------------------------------------------------------------------


@where_needed
def shuffle_block(inputs: Inputs) -> Output:
    """Write the rows of a block to the groups, or coarse groups, that their cells belong to."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    chosen = inputs.results[p["chosen"]]
    overlap = chosen.values["overlap"]
    cells = read_cells(inputs.results[p["cells"]])
    group_of = chosen.array("group_of")
    if p["coarse"] > 1:
        group_of = _coarse_group(group_of, group_of, p["coarse"])
    block = find_block(inputs, corpus)
    owners = np.empty((block.stop - block.start, overlap), dtype=np.int32)
    for rows, points in read_points(corpus, block, p["metric"]):
        owners[rows.start - block.start : rows.stop - block.start] = assign_two_level_cells(
            points, cells, overlap
        )
    home = owners[:, 0]
    order = np.argsort(home, kind="stable")
    counts = np.bincount(home, minlength=len(cells.centres))
    records = np.empty(len(home), _record(corpus.dtype, corpus.d, overlap))
    records["row"] = np.arange(block.start, block.stop)
    records["home"], records["cells"] = home, owners
    records["rank"][order] = np.arange(len(home)) - np.repeat(np.cumsum(counts) - counts, counts)
    records["vector"] = corpus.read_rows(block.start, block.stop)
    groups, of_cells = np.arange(int(group_of[-1]) + 1), group_of[owners]
    return Output(
        arrays={
            "homes": counts.astype(np.int32),
            "members": _count_members(of_cells, groups),
        },
        sections={GROUPS: _split(records, of_cells, groups)},
    )


def _coarse_group(group: Int64Array, group_of: Int64Array, coarse: int) -> Int64Array:
    """Return the coarse group of each group: consecutive groups, about as many in each."""
    count = int(group_of[-1]) + 1
    return np.floor_divide(group * coarse, count)


def _count_members(of_cells: Int64Array, groups: Int64Array) -> Int64Array:
    """Count the rows with a cell in each of some groups."""
    first = np.sort(of_cells, axis=1)
    new = np.ones(first.shape, dtype=bool)
    new[:, 1:] = first[:, 1:] != first[:, :-1]
    counts = np.bincount(first[new] - groups[0] + 1, minlength=len(groups) + 1)
    return counts[1 : len(groups) + 1]


def _split(
    records: NDArray[Any], of_cells: Int64Array, groups: Int64Array
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield, for each of some groups that has any, the rows with a cell in it.

    ``of_cells`` are the groups of the rows' cells.
    """
    cells = records["cells"]
    for group in groups.tolist():
        mine = of_cells == group
        inside = np.flatnonzero(mine.any(axis=1))
        if len(inside):
            found = records[inside]
            found["cells"] = np.where(mine[inside], cells[inside], -1)
            yield str(group), found


@where_needed
def number_rows(inputs: Inputs) -> Output:
    """Give all rows numbers by their nearest cells, and cut groups that are too large."""
    p = inputs.parameters
    homes = np.array([part.array("homes") for part in inputs.parts], dtype=np.int64)
    members = np.array([part.array("members") for part in inputs.parts])
    starts = np.cumsum(homes.sum(axis=0)) - homes.sum(axis=0)
    # The position of a block's first row in every cell.
    first = starts + np.cumsum(homes, axis=0) - homes
    return Output(
        arrays={
            "first": first,
            "pieces": _cut_groups(members.sum(axis=0), p["group_rows"]),
            "spans": np.array([[0, members.shape[1], 0, len(members)]]),
        },
        sections={"members": [("0", members)]},
    )


def _cut_groups(sizes: Int64Array, most: int) -> Int64Array:
    """Cut groups into pieces of bounded size; return group, first row and end of each piece."""
    pieces: list[tuple[int, int, int]] = []
    for group, size in enumerate(sizes.tolist()):
        cuts = np.linspace(0, size, -(-size // most) + 1).astype(np.int64)
        pieces += [(group, a, b) for a, b in pairwise(cuts.tolist()) if b > a]
    return np.array(pieces, dtype=np.int64).reshape(-1, 3)


# --- through coarse groups --------------------------------------------------------------------


@where_needed
def cut_coarse_groups(inputs: Inputs) -> Output:
    """Cut coarse groups into pieces of consecutive blocks, and count the rows of cells so far."""
    p = inputs.parameters
    members = np.array([part.array("members") for part in inputs.parts])
    stride = -(-len(members) // RUNNING_TOTALS)
    total = np.zeros(len(inputs.parts[0].array("homes")), dtype=np.int64)
    before: list[tuple[str, Int64Array]] = []
    for block, part in enumerate(inputs.parts):
        if block % stride == 0:
            before.append((str(block), total.copy()))
        total += part.array("homes")
    pieces = [
        (coarse, start, stop)
        for coarse, sizes in enumerate(members.T)
        for start, stop in _fill(sizes, p["piece_rows"])
    ]
    if len(pieces) > p["pieces"]:
        raise ValueError(f"{len(pieces)} pieces of coarse groups, and {p['pieces']} were planned")
    return Output(
        values={"stride": stride},
        arrays={"starts": np.cumsum(total) - total, "pieces": np.array(pieces)},
        sections={"before": before},
    )


def _fill(sizes: Int64Array, most: int) -> Iterator[tuple[int, int]]:
    """Cut blocks into consecutive ranges of bounded size; a single block may exceed it."""
    start, filled = 0, 0
    for block, size in enumerate(sizes.tolist()):
        if filled and filled + size > most:
            yield start, block
            start, filled = block, 0
        filled += size
    if filled:
        yield start, len(sizes)


@where_needed
def shuffle_piece(inputs: Inputs) -> Output:
    """Write the rows of a piece of a coarse group to the groups that their cells belong to."""
    p = inputs.parameters
    chosen, coarse = inputs.results[p["chosen"]], inputs.results[p["coarsely"]]
    pieces = coarse.array("pieces")
    if inputs.index >= len(pieces):
        return Output()
    group_of = chosen.array("group_of")
    group, start, stop = pieces[inputs.index].tolist()
    records = _read_coarse(coarse, group, start, stop)
    first, end = _groups_of(group, group_of, p["coarse"])
    groups = np.arange(first, end)
    cells = records["cells"]
    of_cells = np.where(cells < 0, first - 1, group_of[cells])
    return Output(
        arrays={"members": _count_members(of_cells, groups)},
        sections={GROUPS: _split(records, of_cells, groups)},
    )


def _groups_of(coarse_group: int, group_of: Int64Array, coarse: int) -> tuple[int, int]:
    """Return the first group of a coarse group, and where its groups end."""
    belongs = _coarse_group(np.arange(int(group_of[-1]) + 1), group_of, coarse)
    first, end = np.searchsorted(belongs, [coarse_group, coarse_group + 1])
    return int(first), int(end)


def _read_coarse(coarse: Artifact, group: int, start: int, stop: int) -> NDArray[Any]:
    """Read a coarse group's rows from some blocks, ranked among all rows with their home."""
    stride = coarse.values["stride"]
    known = start - start % stride
    total = coarse.section("before", str(known)).copy()
    sizes = [coarse.partition(block).array("members")[group] for block in range(start, stop)]
    ends = np.cumsum([0, *sizes])
    found: NDArray[Any] | None = None
    for block in range(known, stop):
        part = coarse.partition(block)
        if block >= start and sizes[block - start]:
            records = part.section(GROUPS, str(group))
            if found is None:
                found = np.empty(ends[-1], records.dtype)
            own = found[ends[block - start] : ends[block - start + 1]]
            own[:] = records
            own["rank"] += total[own["home"]].astype(np.int32)
        total += part.array("homes")
    if found is None:
        raise ValueError(f"blocks {start} to {stop} have no rows of the coarse group {group}")
    return found


@where_needed
def list_groups(inputs: Inputs) -> Output:
    """List which pieces have rows of every group, and cut groups that are too large."""
    p = inputs.parameters
    chosen, coarse = inputs.results[p["chosen"]], inputs.results[p["coarsely"]]
    group_of = chosen.array("group_of")
    pieces = coarse.array("pieces")[:, 0]
    spans, members, sizes = [], [], []
    for group in range(p["coarse"]):
        first, end = _groups_of(group, group_of, p["coarse"])
        begin, stop = np.searchsorted(pieces, [group, group + 1]).tolist()
        held = [inputs.parts[part].array("members") for part in range(begin, stop)]
        counted = np.array(held, dtype=np.int64).reshape(len(held), end - first)
        spans.append((first, end, begin, stop))
        members.append((str(group), counted))
        sizes.append(counted.sum(axis=0))
    return Output(
        arrays={
            "first": coarse.array("starts")[None],
            "pieces": _cut_groups(np.concatenate(sizes), p["group_rows"]),
            "spans": np.array(spans),
        },
        sections={"members": members},
    )


# --- reading ----------------------------------------------------------------------------------


def positions(first: Int64Array, part: int, records: NDArray[Any]) -> Int64Array:
    """Return the positions of a part's rows.

    ``first`` says where the rows of every cell begin: for each part (parts, cells), or for all
    (1, cells).
    """
    begin = first[min(part, len(first) - 1)]
    found: Int64Array = begin[records["home"]] + records["rank"]
    return found


def parts_of_group(
    shuffled: Artifact, group: int, start: int, stop: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the parts with rows of a range of ranks of a group, and the rows in each."""
    spans = shuffled.array("spans")
    coarse = int(np.searchsorted(spans[:, 1], group, side="right"))
    first, _, begin, end = spans[coarse].tolist()
    sizes = shuffled.section("members", str(coarse))[:, group - first]
    before = 0
    for part, size in zip(range(begin, end), sizes.tolist(), strict=True):
        low, high = max(start - before, 0), min(stop - before, size)
        if low < high:
            yield part, low, high
        before += size
