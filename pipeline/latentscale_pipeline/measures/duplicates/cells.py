"""Cells for the rows of both corpora, the number that a row joins, and rows drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale.neighbours.cell_layout import choose_groups, fitting_rows, shared_cell_recall
from latentscale.neighbours.two_level_cells import (
    TwoLevelCells,
    assign_two_level_cells,
    place_two_level_cells,
)
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.duplicates import nearest
from latentscale_pipeline.measures.shared.neighbours.sizes import OVERLAPS, Layout
from latentscale_pipeline.measures.shared.random_rows import read_in_order
from latentscale_pipeline.measures.shared.shard_blocks import points_by_blocks
from latentscale_pipeline.storage.artifacts import Output

RECALL = 0.98
"""Share of the rows within the distance that a search in cells is meant to find."""

HOME_ROWS = 8192
"""Rows whose nearest cell is the same, on average. Leaves divide them again, so that few borders of
cells suffice.
"""

MIN_SHARE = 0.25
"""Smallest share of a group's rows that may be of one of two corpora."""

MISSED_BY_GROUPS, MISSED_BY_LEAVES = 0.4, 0.3
"""Shares of the misses that :data:`RECALL` allows that may come from rows without a common group,
and from searches inside groups. Leaves divide both corpora alike, so near rows seldom miss.
"""

MIN_PILOTS = 50
"""Fewest pairs by which the overlap is chosen: the nearest, where fewer are within the distance."""

SPARE_ROWS = 256
"""Random rows of a corpus that a row is compared with if no cell has any for it."""


def group_rows(layout: Layout, sizes: Mapping[Role, int]) -> dict[Role, int]:
    """Return the most rows of each corpus in a group: about their shares, or all if they fit."""
    if layout.n <= layout.group_rows:
        return dict(sizes)
    shares = {role: size / layout.n for role, size in sizes.items()}
    if len(shares) > 1:
        shares = {role: min(max(s, MIN_SHARE), 1 - MIN_SHARE) for role, s in shares.items()}
    return {role: int(share * layout.group_rows) for role, share in shares.items()}


def sample_name(role: Role) -> str:
    """Name the stage that draws the rows that cells are placed among."""
    return f"near-sample-{role}"


def place_cells(inputs: Inputs) -> Output:
    """Place cells among rows of all corpora, and choose how many of them a row joins."""
    p = inputs.parameters
    sizes = {role: inputs.corpora[role].n for role in p["sources"]}
    n, d = sum(sizes.values()), inputs.corpora[p["sources"][0]].d
    layout = Layout(n, d, HOME_ROWS)
    samples = [inputs.results[sample_name(role)].array("vectors") for role in p["sources"]]
    sample = np.concatenate(samples)
    placing, drawing = inputs.common_generator().spawn(2)
    cells = place_two_level_cells(sample, p["metric"], layout.cells, layout.coarse_cells, placing)
    owners = np.concatenate(
        [
            assign_two_level_cells(points, cells, OVERLAPS[-1])
            for _, points in points_by_blocks(sample, p["metric"])
        ]
    )
    own, theirs = _pilot_cells(inputs, cells)
    groups = choose_groups(
        owners,
        own,
        theirs,
        OVERLAPS,
        cells=len(cells.centres),
        n=n,
        limit=[
            fitting_rows(most, len(drawn), sizes[role])
            for (role, most), drawn in zip(group_rows(layout, sizes).items(), samples, strict=True)
        ],
        recall=1.0 - MISSED_BY_GROUPS * (1.0 - RECALL),
        kinds=np.repeat(np.arange(len(samples)), [len(drawn) for drawn in samples]),
    )
    # Rows whose near rows need many cells need many leaves, too.
    recalls = shared_cell_recall(own, theirs, OVERLAPS)
    enough = np.flatnonzero(1.0 - recalls <= MISSED_BY_LEAVES * (1.0 - RECALL))
    return Output(
        values={
            "overlap": groups.overlap,
            "leaves": OVERLAPS[int(enough[0]) if len(enough) else -1],
            "shared_cell_recall": dict(zip(map(str, OVERLAPS), recalls.tolist(), strict=True)),
            "shared_group_recall": groups.recall,
        },
        arrays={
            "centres": cells.centres,
            "coarse": cells.coarse,
            "starts": cells.starts,
            "group_of": groups.group_of,
            **dict(_drawn_rows(inputs, sizes, drawing)),
        },
    )


def _pilot_cells(inputs: Inputs, cells: TwoLevelCells) -> tuple[Int64Array, Int64Array]:
    """Return the cells of some rows, and of a row that is near to each."""
    p = inputs.parameters
    owners, distances = [], []
    for role in p["sources"]:
        found = inputs.results[nearest.stage_name(role)]
        for source in p["sources"]:
            rows, near, apart = nearest.found_rows(found, inputs.corpora[role].n, source)
            pilots = nearest.pilot_places(len(rows))
            pairs = ((role, rows[pilots]), (source, near[pilots]))
            joined = [
                assign_two_level_cells(
                    as_points(read_in_order(inputs.corpora[of], numbers), p["metric"]),
                    cells,
                    OVERLAPS[-1],
                )
                for of, numbers in pairs
            ]
            owners.append(np.stack(joined, axis=1))
            distances.append(apart[pilots])
    pairs_owners, apart = np.concatenate(owners), np.concatenate(distances)
    wanted = max(int((apart <= p["within"]).sum()), MIN_PILOTS)
    chosen = pairs_owners[np.argsort(apart, kind="stable")[:wanted]]
    return chosen[:, 0], chosen[:, 1:2]


def _drawn_rows(
    inputs: Inputs, sizes: dict[Role, int], generator: np.random.Generator
) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Yield as many rows of the larger corpus as the smaller has, and spare rows of each."""
    least = inputs.parameters["least"]
    for role, stream in zip(sizes, generator.spawn(len(sizes)), strict=True):
        corpus, n = inputs.corpora[role], sizes[role]
        drawn = np.arange(n)
        if n > least:
            drawn = np.sort(stream.choice(n, least, replace=False))
            yield f"{role}_fewer", nearest.short_numbers(drawn, corpus)
        spare = np.sort(stream.choice(drawn, min(len(drawn), SPARE_ROWS), replace=False))
        yield f"{role}_spare", spare
        yield f"{role}_spare_vectors", corpus.read_index(spare)
