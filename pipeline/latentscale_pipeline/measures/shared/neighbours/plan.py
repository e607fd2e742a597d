"""Approximate neighbours of a corpus larger than memory, as stages.

``cells-*`` draws a sample and places the centres of cells; ``checks-*`` finds the exact neighbours
of a few rows by streaming the corpus, and from them how many cells a row has to join;
``regroup-*`` writes every row to the groups of its cells (of hundreds of millions of rows after
``regroup-coarse-*`` has brought them into coarse groups); ``search-*`` finds neighbours inside
groups that fit in memory; ``neighbours-*`` merges the lists of every row and certifies their
recall. If that misses its target, the last three passes are made *again* with more cells for every
row. The stages of this second search are always planned; they do nothing if the first is enough.

From the shuffle on, rows have *positions*: they are numbered by their nearest cell, and within a
cell in the order of the corpus. Positions don't depend on how the corpus is cut into
shards, and near rows have near positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from latentscale.neighbours.ivf import ASSIGN_ENTRIES, LLOYD_ROUNDS
from latentscale.neighbours.search import search_bytes
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.shared.neighbours.assign import (
    check_block,
    choose_overlap,
    draw_rows,
    place_cells,
)
from latentscale_pipeline.measures.shared.neighbours.merge import certify_lists, merge_lists
from latentscale_pipeline.measures.shared.neighbours.search import count_lists, search_groups
from latentscale_pipeline.measures.shared.neighbours.settings import NeighbourSettings
from latentscale_pipeline.measures.shared.neighbours.shuffle import (
    RUNNING_TOTALS,
    cut_coarse_groups,
    list_groups,
    number_rows,
    shuffle_block,
    shuffle_piece,
)
from latentscale_pipeline.measures.shared.neighbours.sizes import (
    AGAIN,
    DESCENT_BYTES,
    DESCENT_COORDINATE_OPERATIONS,
    DESCENT_ROW_OPERATIONS,
    DESCENT_START_OPERATIONS,
    DIVISIONS,
    JOINED_ENTRIES,
    MERGED_OPERATIONS,
    MIN_LEAVES,
    OVERLAPS,
    PAIR_OPERATIONS,
    PIECE_BYTES,
    PILOT_ROWS,
    REFINED_OPERATIONS,
    REFINEMENTS,
    SHUFFLED_OPERATIONS,
    Layout,
    checked_rows,
)
from latentscale_pipeline.measures.shared.shard_blocks import (
    POINTS_BYTES,
    block_bytes,
    block_rows,
    count_blocks,
    shards_per_block,
)


class Shape(NamedTuple):
    """What determines the sizes; the possible overlaps are ascending."""

    settings: NeighbourSettings
    corpus: CorpusFacts
    layout: Layout
    overlaps: Sequence[int]


def plan_cell_neighbours(
    settings: NeighbourSettings, facts: JobFacts, role: Role, why: str
) -> list[Stage]:
    """Plan the stages that end in the last of :func:`list_stages`."""
    corpus = facts.corpora[role]
    layout = Layout(corpus.n, corpus.d)
    overlaps = list(OVERLAPS) if settings.overlap == "auto" else [int(settings.overlap)]
    shape = Shape(settings, corpus, layout, overlaps)
    more = shape._replace(overlaps=[AGAIN * overlap for overlap in overlaps])
    only_if = CostEstimate(
        bytes_read=RESULT_BYTES,
        bytes_written=RESULT_BYTES,
        why=f"only where the certificate misses a recall of {settings.recall}",
    )
    return [
        *_sample_stages(shape, facts, role),
        *_search_stages(shape, facts, role, why),
        *(
            replace(stage, cost_estimate=only_if)
            for stage in _search_stages(more, facts, role, "", before=list_stages(role)[0])
        ),
    ]


def list_stages(role: Role) -> tuple[str, str]:
    """Name the stages that merge lists; the second works only if the first misses its recall."""
    return f"neighbours-{role}", f"neighbours-again-{role}"


def _sample_stages(shape: Shape, facts: JobFacts, role: Role) -> list[Stage]:
    """Place cells by a sample, and find the exact neighbours of a few rows."""
    settings, corpus, layout, overlaps = shape
    n, d, k, blocks = corpus.n, corpus.d, settings.k, count_blocks(corpus)
    checked = min(n, PILOT_ROWS + checked_rows(settings.recall))
    drawn = layout.sample + checked
    stored = drawn * corpus.stored_bytes // n
    # The sample as parts and whole; or rows of it as points, divided; or centres, and as written.
    placing = max(
        2 * stored,
        stored + 24 * layout.placing_rows * d,
        stored + 2 * _centre_bytes(shape) + 8 * AGAIN * overlaps[-1] * drawn,
    )
    compared = LLOYD_ROUNDS * layout.placed_against + layout.compared_centres
    cells = Stage(
        name=f"cells-{role}",
        temporary="result",
        work=draw_rows,
        finalise=place_cells,
        partitions=blocks,
        corpora=(role,),
        parameters={
            "role": role,
            "k": k,
            "metric": settings.metric,
            "shards_per_block": shards_per_block(corpus),
            "overlaps": overlaps,
            "recall": settings.recall,
        },
        seed=facts.seed,
        memory_bytes=max(block_bytes(corpus), placing + 16 * ASSIGN_ENTRIES) + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + stored,
            bytes_written=2 * stored + _centre_bytes(shape) + RESULT_BYTES,
            result_bytes=stored + _centre_bytes(shape) + RESULT_BYTES,
            float64_multiply_adds=compared * layout.sample * d,
            elementwise_operations=60.0 * drawn * d
            + (compared + layout.centre_operations) * layout.sample,
        ),
    )
    lists = 3 * 32 * checked * (k + 1)
    vectors = 2 * 8 * (checked + PILOT_ROWS * k) * d + _centre_bytes(shape)
    written = blocks * (24 * checked * (k + 1) + 4 * PILOT_ROWS * k * d)
    checks = replace(
        cells,
        name=f"checks-{role}",
        work=check_block,
        finalise=choose_overlap,
        needs=(cells.name,),
        memory_bytes=block_bytes(corpus)
        + lists
        + vectors
        + layout.grouping_bytes(overlaps[-1])
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + written,
            bytes_written=written + blocks * RESULT_BYTES,
            exchanged_bytes=written,
            float32_multiply_adds=float(n) * checked * d,
            elementwise_operations=float(n) * (checked + CONVERSION_OPERATIONS * d),
        ),
    )
    return [cells, checks]


def _search_stages(
    shape: Shape, facts: JobFacts, role: Role, why: str, before: str | None = None
) -> list[Stage]:
    """Plan to shuffle the rows, search the groups and merge the lists.

    A second search uses what the stage ``before`` chose, and adds to its lists.
    """
    settings, corpus, layout, overlaps = shape
    suffix = f"-again-{role}" if before else f"-{role}"
    chosen = before or f"checks-{role}"
    common = {
        "role": role,
        "k": settings.k,
        "metric": settings.metric,
        "cells": f"cells-{role}",
        "group_rows": layout.group_rows,
        "chosen": chosen,
        "n": corpus.n,
        "d": corpus.d,
    }
    search = Stage(
        name=f"search{suffix}",
        temporary="result",
        lasting_parts=True,
        work=search_groups,
        finalise=count_lists,
        partitions=layout.searches(overlaps[0]),
        needs=(chosen, f"regroup{suffix}"),
        parameters={
            **common,
            "regrouped": f"regroup{suffix}",
            "method": settings.method,
            "refinements": AGAIN * REFINEMENTS if before else REFINEMENTS,
        },
        seed=facts.seed,
        memory_bytes=_search_memory(shape),
        cost_estimate=replace(_search_cost(shape), why=why),
        lasting_bytes=DESCENT_BYTES if _descends(shape) else 0,
    )
    block, listed = min(corpus.n, layout.block), corpus.n * settings.k
    entries = block * settings.k
    merging = entries * 24 * 6 + block * 40
    joined = listed <= JOINED_ENTRIES
    joining = listed * 16 * 2 + 8 * corpus.n + entries * 32 if joined else 0
    merge = Stage(
        name=f"neighbours{suffix}",
        passing=("distances", "ties") if joined else ("ties",),
        reads_passing=(before,) if before else (),
        lasting_parts=True,
        work=merge_lists,
        finalise=certify_lists,
        partitions=layout.blocks,
        needs=(
            *(f"cells-{role}", f"checks-{role}", f"regroup{suffix}", search.name),
            *((before,) if before else ()),
        ),
        parameters={
            **common,
            "searched": search.name,
            "searches": search.partitions,
            "before": before,
            "joined": joined,
            "recall": settings.recall,
            "method": settings.method,
        },
        memory_bytes=max(merging, joining, layout.grouping_bytes(AGAIN * overlaps[-1]))
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=2 * 24 * listed,
            # Neighbours, their distances, and edges as their other ends list them.
            bytes_written=(38 if joined else 26) * listed + layout.blocks * RESULT_BYTES,
            kept_bytes=(16 if joined else 8) * listed + 8 * corpus.n + layout.blocks * RESULT_BYTES,
            elementwise_operations=MERGED_OPERATIONS * listed,
            method=search.cost_estimate.method,
            why=why,
        ),
    )
    return [*shuffle_stages(shape, role, f"regroup{suffix}", common), search, merge]


def shuffle_stages(
    shape: Shape, role: Role, name: str, parameters: Mapping[str, Any]
) -> list[Stage]:
    """Plan to write rows to the groups of their cells, by way of coarse groups if many.

    Parameters
    ----------
    shape : Shape
        Sizes; the layout is that of all rows that share the cells.
    role : str
        The corpus whose rows are written.
    name : str
        Name of the last stage, with ``regroup`` first.
    parameters : mapping
        Those of the tasks: ``role``, ``metric``, ``n`` and ``d`` of the layout, the largest number
        ``group_rows`` of rows of a group, and the stages ``cells``, with the centres, and
        ``chosen``, with the overlap and the groups of cells.
    """
    _, corpus, layout, overlaps = shape
    n, d, blocks, rows = corpus.n, corpus.d, count_blocks(corpus), block_rows(corpus)
    coarse = layout.coarse_groups(blocks, overlaps[-1])
    shaped = {**parameters, "coarse": coarse}
    written = int(_copies(shape) * n * _record_bytes(corpus, overlaps[0]))
    # The rows of a block, and what is written of them, for an object store twice: most join cells
    # of one group or two.
    records = 4 * rows * _record_bytes(corpus, overlaps[-1])
    numbers = 32 * (min(blocks, RUNNING_TOTALS) if coarse > 1 else blocks) * layout.cells
    owners = 32 * overlaps[-1] * rows
    centres = 2 * _centre_bytes(shape)
    # All centres, and the rows that are points at one time.
    readied = n * d + n * d * 8 / POINTS_BYTES * layout.cells * d
    first = Stage(
        name=name,
        temporary="result",
        lasting_parts=True,
        work=shuffle_block,
        finalise=number_rows,
        partitions=blocks,
        needs=tuple(dict.fromkeys((parameters["cells"], parameters["chosen"]))),
        corpora=(role,),
        parameters={**shaped, "shards_per_block": shards_per_block(corpus)},
        memory_bytes=max(block_bytes(corpus) + records + owners + centres, numbers)
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes,
            bytes_written=written + blocks * RESULT_BYTES,
            float32_multiply_adds=float(n) * layout.compared_centres * d,
            elementwise_operations=CONVERSION_OPERATIONS * readied
            + float(n) * (layout.centre_operations + SHUFFLED_OPERATIONS),
        ),
    )
    if coarse == 1:
        return [first]
    coarsely = name.replace("regroup", "regroup-coarse", 1)
    # The rows, the groups of their cells, and what is written of them, as above.
    row = 4 * _record_bytes(corpus, overlaps[-1]) + 24 * overlaps[-1]
    in_piece = max(PIECE_BYTES // row, 2 * rows)
    # A piece is closed when the next block doesn't fit.
    pieces = overlaps[-1] * n // (in_piece - rows) + coarse
    return [
        replace(
            first,
            name=coarsely,
            finalise=cut_coarse_groups,
            parameters={**first.parameters, "piece_rows": in_piece, "pieces": pieces},
        ),
        Stage(
            name=name,
            temporary="result",
            lasting_parts=True,
            work=shuffle_piece,
            finalise=list_groups,
            partitions=pieces,
            needs=(parameters["chosen"], coarsely),
            parameters={**shaped, "coarsely": coarsely},
            memory_bytes=min(n, in_piece) * row + 16 * layout.cells + FEW_TILES_BYTES,
            cost_estimate=CostEstimate(
                bytes_read=written,
                bytes_written=written + RESULT_BYTES,
                elementwise_operations=100.0 * n,
                method="through coarse groups",
            ),
        ),
    ]


def _copies(shape: Shape) -> float:
    """Return how many groups a row joins."""
    return shape.layout.copies


def _centre_bytes(shape: Shape) -> int:
    return shape.layout.centre_bytes(np.dtype(shape.corpus.dtype).itemsize)


def _record_bytes(corpus: CorpusFacts, overlap: int) -> int:
    return corpus.stored_bytes // corpus.n + 16 + 4 * overlap


def _search_memory(shape: Shape) -> int:
    settings, corpus, layout, overlaps = shape
    rows = min(corpus.n, layout.group_rows)
    lists = rows * settings.k * 24
    points = rows * 8 * (corpus.d + 1)
    reading = min(rows, block_rows(corpus)) * _record_bytes(corpus, overlaps[-1])
    if settings.metric == "cosine":
        reading += points
    blocks = count_blocks(corpus)
    direct = layout.coarse_groups(blocks, overlaps[-1]) == 1
    homes = 16 * layout.cells * (blocks if direct else 1)
    leaves = max(overlaps[-1], MIN_LEAVES)
    searching = search_bytes(rows, corpus.d, settings.k, leaves) + lists
    return points + 32 * rows + homes + max(reading, searching, 6 * lists) + FEW_TILES_BYTES


def _descends(shape: Shape) -> bool:
    return shape.settings.method == "nndescent" and not shape.layout.exact_groups


def _search_cost(shape: Shape) -> CostEstimate:
    settings, corpus, layout, overlaps = shape
    n, d, k, overlap = float(corpus.n), corpus.d, settings.k, overlaps[0]
    searched = layout.copies * n
    divided = DIVISIONS if corpus.n > layout.cap else 1.0
    products = divided * searched * layout.compared_rows(max(overlap, MIN_LEAVES))
    refined = divided * searched * REFINEMENTS * (REFINED_OPERATIONS + 20 * d)
    named = f"cells, overlap {overlap}" + (" or more" if len(overlaps) > 1 else "")
    common = CostEstimate(
        bytes_read=int(_copies(shape) * n * _record_bytes(corpus, overlap)),
        bytes_written=int(_copies(shape) * n * (24 * k + 16)),
        elementwise_operations=2 * CONVERSION_OPERATIONS * n * d,
        method=named,
    )
    if _descends(shape):
        descent = DESCENT_ROW_OPERATIONS + DESCENT_COORDINATE_OPERATIONS * d
        return replace(
            common,
            elementwise_operations=common.elementwise_operations
            + DESCENT_START_OPERATIONS
            + searched * descent,
            method=f"{named}, searched by nndescent",
        )
    return replace(
        common,
        float32_multiply_adds=products * d,
        elementwise_operations=common.elementwise_operations + PAIR_OPERATIONS * products + refined,
    )
