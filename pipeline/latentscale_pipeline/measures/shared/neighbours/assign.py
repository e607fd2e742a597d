"""Tasks that place cells, assign rows, and choose the overlap."""

from __future__ import annotations

from functools import partial, reduce, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int32Array, Int64Array
from latentscale.neighbours.cell_layout import (
    choose_groups,
    count_common_groups,
    fitting_rows,
    missed_in_group,
    shared_cell_recall,
)
from latentscale.neighbours.exact import Neighbours, merge, nearest
from latentscale.neighbours.two_level_cells import (
    TwoLevelCells,
    assign_two_level_cells,
    place_two_level_cells,
)
from latentscale.tiles.distances import as_points
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Inputs, Work
from latentscale_pipeline.measures.shared.neighbours.sizes import (
    AGAIN,
    GROUPED_ROWS,
    MISSED_BY_GROUPS,
    PILOT_ROWS,
    Layout,
    checked_rows,
    missed_inside,
)
from latentscale_pipeline.measures.shared.records import load_record, record_arrays
from latentscale_pipeline.measures.shared.shard_blocks import (
    find_block,
    points_by_blocks,
    read_points,
)
from latentscale_pipeline.storage.artifacts import Artifact, Output


def where_needed(work: Work) -> Work:
    """Return work that does nothing if the search before was good enough.

    Then the result named by the parameter ``chosen`` has an overlap of 0: rows join no cell.
    """

    @wraps(work)
    def unless_done(inputs: Inputs) -> Output:
        chosen = inputs.results[inputs.parameters["chosen"]]
        return work(inputs) if chosen.values["overlap"] > 0 else Output()

    return unless_done


def _streams(inputs: Inputs) -> list[np.random.Generator]:
    """Random streams for sample, checked rows and centres, the same in every partition."""
    return inputs.common_generator().spawn(3)


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
    """Read the sample's rows and the checked rows of a block of shards."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    block = find_block(inputs, corpus)
    rows = corpus.read_rows(block.start, block.stop)
    chosen = []
    for drawn in _draw(inputs, corpus):
        inside = np.sort(drawn[(drawn >= block.start) & (drawn < block.stop)])
        chosen.append(rows[inside - block.start])
    return Output(arrays={"sample": chosen[0], "checked": chosen[1]})


def place_cells(inputs: Inputs) -> Output:
    """Place the centres of the cells, and store the rows that will be checked."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    layout = Layout(corpus.n, corpus.d)
    sample = np.concatenate([part.array("sample") for part in inputs.parts])
    *_, stream = _streams(inputs)
    cells = place_two_level_cells(sample, p["metric"], layout.cells, layout.coarse_cells, stream)
    owners = [
        assign_two_level_cells(points, cells, AGAIN * max(p["overlaps"])).astype(np.int32)
        for _, points in points_by_blocks(sample, p["metric"])
    ]
    _, checked = _draw(inputs, corpus)
    ascending = np.concatenate([part.array("checked") for part in inputs.parts])
    order = np.argsort(np.argsort(checked))
    return Output(
        arrays={
            "centres": cells.centres,
            "coarse": cells.coarse,
            "starts": cells.starts,
            "owners": np.concatenate(owners),
            "checked": checked,
            "vectors": ascending[order],
        }
    )


def read_cells(placed: Artifact) -> TwoLevelCells:
    """Return the cells that were placed."""
    return TwoLevelCells(placed.array("centres"), placed.array("coarse"), placed.array("starts"))


def grouping_rows(placed: Artifact) -> Int32Array:
    """Return the cells of the sample's rows by which cells are grouped: all, or some of many."""
    owners = placed.array("owners")
    return owners[:: -(-len(owners) // GROUPED_ROWS)]


def check_block(inputs: Inputs) -> Output:
    """Find the nearest rows of a block to every checked row, and read the pilots' vectors."""
    p = inputs.parameters
    corpus, metric, k = inputs.corpora[p["role"]], p["metric"], p["k"]
    cells = inputs.results[f"cells-{p['role']}"]
    checked = cells.array("checked")
    queries = as_points(cells.array("vectors"), metric)
    block = find_block(inputs, corpus)
    # One more than is wanted shows which lists end in a tie.
    best = Neighbours.none(len(checked), k + 1)
    for rows, points in read_points(corpus, block, metric):
        best = nearest(
            queries,
            points,
            k + 1,
            query_ids=checked,
            candidate_ids=np.arange(rows.start, rows.stop, dtype=np.int64),
            known=best,
        )
    near = best.indices[:PILOT_ROWS, :k]
    vectors = np.zeros((*near.shape, corpus.d), dtype=corpus.dtype)
    stored = corpus.read_rows(block.start, block.stop)
    vectors[near >= 0] = stored[near[near >= 0] - block.start]
    return Output(
        values={"start": block.start, "stop": block.stop},
        arrays={**record_arrays(best), "vectors": vectors},
    )


def choose_overlap(inputs: Inputs) -> Output:
    """Choose how many cells a row joins, and which cells are searched together."""
    p = inputs.parameters
    metric, k, overlaps = p["metric"], p["k"], p["overlaps"]
    corpus = inputs.corpora[p["role"]]
    placed = inputs.results[f"cells-{p['role']}"]
    wider = _join_checks(inputs, k + 1)
    true = wider.cut(k)
    cells, owners = read_cells(placed), grouping_rows(placed)
    near = _vectors_of(inputs, true.indices[:PILOT_ROWS], corpus)
    pilots = as_points(placed.array("vectors")[:PILOT_ROWS], metric)
    theirs = assign_two_level_cells(
        as_points(near.reshape(-1, corpus.d), metric), cells, max(overlaps)
    )
    own = assign_two_level_cells(pilots, cells, max(overlaps))
    theirs = theirs.reshape(len(pilots), k, -1)
    missed = 1.0 - p["recall"]
    groups = choose_groups(
        owners,
        own,
        theirs,
        overlaps,
        cells=len(cells.centres),
        n=corpus.n,
        limit=fitting_rows(Layout(corpus.n, corpus.d).group_rows, len(owners), corpus.n),
        recall=1.0 - MISSED_BY_GROUPS * missed,
    )
    group_of, joined = groups.group_of, groups.overlap
    common = count_common_groups(group_of[own[:, :joined]], group_of[theirs[:, :, :joined]])
    inside = missed_inside(missed, 1.0 - groups.recall)
    # Leaves are as large as cells. Where many cells are needed, so are many leaves.
    recalls = shared_cell_recall(own, theirs, overlaps)
    enough = np.flatnonzero(1.0 - recalls <= MISSED_BY_GROUPS * missed)
    return Output(
        values={
            "overlap": groups.overlap,
            "leaves": overlaps[int(enough[0]) if len(enough) else -1],
            "missed": missed_in_group(common, inside),
            "shared_cell_recall": dict(zip(map(str, overlaps), recalls.tolist(), strict=True)),
            "shared_group_recall": groups.recall,
            "tied": float(wider.tied(k).mean()),
        },
        arrays={"distances": true.distances, "group_of": groups.group_of},
    )


def _join_checks(inputs: Inputs, k: int) -> Neighbours:
    found = (load_record(Neighbours, part) for part in inputs.parts)
    return reduce(partial(merge, k=k), found)


def _vectors_of(inputs: Inputs, near: Int64Array, corpus: Corpus) -> NDArray[Any]:
    """Gather the vectors of the pilots' neighbours from the blocks that found them."""
    vectors = np.zeros((*near.shape, corpus.d), dtype=corpus.dtype)
    for part in inputs.parts:
        found = part.array("indices")[: len(near), : near.shape[1]]
        same = found[:, :, None] == near[:, None, :]
        inside = (near >= part.values["start"]) & (near < part.values["stop"])
        query, place = np.nonzero(inside)
        vectors[inside] = part.array("vectors")[query, same.argmax(axis=1)[query, place]]
    return vectors
