"""The nearest row of every row, by cells that both corpora share, where pairs are too many.

``near-sample-*`` draws rows of each corpus; ``near-cells`` places cells among them, and chooses by
rows whose nearest are known how many of these a row joins; ``regroup-near-*`` writes every row to
the groups of its cells; ``search-near`` finds the nearest rows in groups; ``nearest-rows-*`` merges
what they found and settles which rows lie far from all others.

Corpora of different dimensions are searched by themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from latentscale.neighbours.cell_layout import GROUP_FILL
from latentscale.neighbours.ivf import ASSIGN_ENTRIES, LLOYD_ROUNDS
from latentscale.neighbours.leaves import LEAF_ROWS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.duplicates import cells, far, nearest
from latentscale_pipeline.measures.duplicates.cells import SPARE_ROWS, sample_name
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.measures.duplicates.search import (
    MIN_LEAVES,
    count_lists,
    lists_of,
    merge_rows,
    search_pieces,
)
from latentscale_pipeline.measures.shared.neighbours.plan import Shape, shuffle_stages
from latentscale_pipeline.measures.shared.neighbours.settings import NeighbourSettings
from latentscale_pipeline.measures.shared.neighbours.sizes import (
    COPIES,
    OVERLAPS,
    PAIR_OPERATIONS,
    Layout,
)
from latentscale_pipeline.measures.shared.random_rows import drawing_bytes, sample_stage
from latentscale_pipeline.measures.shared.shard_blocks import count_blocks

BLOCK_ROWS = 1 << 18
"""Rows of a corpus whose lists one task merges."""

FOUND_BYTES = 12
"""Bytes of a nearest row and its distance, as a group has found them."""


def search_stages(
    section: Duplicates, facts: JobFacts, sources: tuple[Role, ...], suffix: str
) -> list[Stage]:
    """Plan the search among rows of some corpora of one dimension; the last stages have the lists.

    Parameters
    ----------
    section, facts
        The settings, and the corpora.
    sources : tuple of str
        The corpora whose rows share cells.
    suffix : str
        What tells its stages from those of another search.
    """
    corpora = {role: facts.corpora[role] for role in sources}
    sizes = {role: corpus.n for role, corpus in corpora.items()}
    n, d, least = sum(sizes.values()), corpora[sources[0]].d, min(sizes.values())
    layout = Layout(n, d, cells.HOME_ROWS)
    larger = [role for role, size in sizes.items() if size > least]
    samples = [
        sample_stage(
            sample_name(role), role, corpora[role], max(1, layout.sample * size // n), facts.seed
        )
        for role, size in sizes.items()
    ]
    placed = _cells_stage(section, facts, sources, suffix, layout)
    common = {
        "metric": section.metric,
        "cells": placed.name,
        "d": d,
        "block_rows": BLOCK_ROWS,
    }
    regrouped = {role: f"regroup-near-{role}" for role in sources}
    shuffles = [
        stage
        for role in sources
        for stage in shuffle_stages(
            Shape(NeighbourSettings(1, section.metric), corpora[role], layout, OVERLAPS),
            role,
            regrouped[role],
            {
                "role": role,
                "metric": section.metric,
                "cells": placed.name,
                "chosen": placed.name,
                "n": n,
                "d": d,
                "group_rows": cells.group_rows(layout, sizes)[role],
            },
        )
    ]
    search = _search_stage(common, regrouped, facts, suffix, layout, larger)
    merged = [
        _merge_stage(common, facts, role, sources, larger, search.name)
        for role in reversed(sources)
    ]
    return [*samples, placed, *shuffles, search, *merged]


def _cells_stage(
    section: Duplicates, facts: JobFacts, sources: tuple[Role, ...], suffix: str, layout: Layout
) -> Stage:
    corpora = [facts.corpora[role] for role in sources]
    least = min(corpus.n for corpus in corpora)
    stored = sum(4 * layout.sample * layout.d * corpus.n // layout.n for corpus in corpora)
    pilots = 2 * len(corpora) ** 2 * nearest.MAX_PILOTS
    compared = LLOYD_ROUNDS * layout.placed_against + layout.compared_centres
    centres = layout.centre_bytes(4)
    fewer = 8 * least if any(corpus.n > least for corpus in corpora) else 0
    written = centres + fewer // 2 + SPARE_ROWS * len(corpora) * 4 * layout.d + RESULT_BYTES
    return Stage(
        name=f"near-cells{suffix}",
        temporary="result",
        work=cells.place_cells,
        corpora=sources,
        needs=(
            *(sample_name(role) for role in sources),
            *(nearest.stage_name(role) for role in sources),
        ),
        parameters={
            "sources": list(sources),
            "metric": section.metric,
            "within": section.within,
            "least": least,
        },
        seed=facts.seed,
        memory_bytes=2 * stored
        + max(
            24 * layout.placing_rows * layout.d,
            20 * 2 * nearest.MAX_PILOTS * layout.d + 8 * OVERLAPS[-1] * pilots + 2 * centres,
            2 * centres + 16 * OVERLAPS[-1] * layout.sample + layout.grouping_bytes(OVERLAPS[-1]),
            max(drawing_bytes(corpus.n, least) for corpus in corpora) + fewer,
        )
        + 16 * ASSIGN_ENTRIES
        + 2 * max(corpus.shard_stored_bytes for corpus in corpora)
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=stored + sum(4 * corpus.stored_bytes for corpus in corpora),
            bytes_written=written,
            float64_multiply_adds=compared * layout.sample * layout.d,
            elementwise_operations=60.0 * layout.sample * layout.d + compared * layout.sample,
        ),
    )


def _search_stage(
    common: dict[str, Any],
    regrouped: dict[Role, str],
    facts: JobFacts,
    suffix: str,
    layout: Layout,
    larger: list[Role],
) -> Stage:
    sources = tuple(regrouped)
    n, d = layout.n, layout.d
    rows = min(n, layout.group_rows)
    blocks = sum(count_blocks(facts.corpora[role]) for role in sources)
    least = min(facts.corpora[role].n for role in sources) if larger else 0
    groups = max(1, round(COPIES * n / (GROUP_FILL * layout.group_rows)))
    lists = {role: len(lists_of(role, list(sources), set(larger))) for role in sources}
    listed = sum(facts.corpora[role].n * (8 + FOUND_BYTES * lists[role]) for role in sources)
    stored = sum(facts.corpora[role].stored_bytes for role in sources)
    copies = layout.copies if groups > 1 else 1.0
    pairs = copies * _compared_pairs(facts, sources, larger, min(rows, n // groups + 1))
    return Stage(
        name=f"search-near{suffix}",
        temporary="result",
        lasting_parts=True,
        work=search_pieces,
        finalise=count_lists,
        partitions=groups,
        needs=(common["cells"], *regrouped.values()),
        parameters={
            **common,
            "sources": list(sources),
            "grouped": regrouped,
            "larger": larger,
        },
        seed=facts.seed,
        # The rows read, as points, and in the order of leaves; lists, short and merged.
        memory_bytes=rows * (3 * 8 * (d + 1) + 16 * OVERLAPS[-1] + 200 + 2 * listed // n)
        # Where the rows of cells begin in every block, and the rows that are as many as the fewer.
        + 16 * layout.cells * blocks
        + 8 * least
        + (1 << 24)
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=int(copies * (stored + n * (16 + 4 * OVERLAPS[0]))),
            bytes_written=int(copies * listed) + groups * RESULT_BYTES,
            float32_multiply_adds=pairs * d,
            # Lists of one row are rarely changed.
            elementwise_operations=PAIR_OPERATIONS / 2 * pairs
            + copies * n * (4 * CONVERSION_OPERATIONS * d + 1000.0 * sum(lists.values())),
            method="cells that both corpora share" if len(sources) > 1 else "cells",
            why=f"{n:,} rows have too many pairs",
        ),
    )


def _compared_pairs(
    facts: JobFacts, sources: tuple[Role, ...], larger: list[Role], rows: int
) -> float:
    """Return how many pairs of rows are multiplied in the leaves, and to find leaves."""
    n = sum(facts.corpora[role].n for role in sources)
    leaf = 0.65 * LEAF_ROWS if rows > 2 * LEAF_ROWS else rows / 2
    pairs = n * MIN_LEAVES * rows / LEAF_ROWS
    for role in sources:
        size = facts.corpora[role].n
        for source, name in lists_of(role, list(sources), set(larger)):
            share = facts.corpora[source].n / n
            # A pair within one corpus is multiplied once for both rows.
            once = 0.5 if source == role and name == nearest.ALL else 1.0
            pairs += size * MIN_LEAVES * 2 * leaf * share * once
    return pairs


def _merge_stage(
    common: dict[str, Any],
    facts: JobFacts,
    role: Role,
    sources: tuple[Role, ...],
    larger: list[Role],
    searched: str,
) -> Stage:
    """Plan to merge the lists of a corpus, the reference first: outliers are judged by it."""
    corpora = {of: facts.corpora[of] for of in sources}
    n, d = corpora[role].n, corpora[role].d
    lists = lists_of(role, list(sources), set(larger))
    kept = nearest.LIST_BYTES * len(lists) * n
    limits: Role | None = "reference" if "reference" in sources and len(sources) > 1 else None
    reach = nearest.stage_in_cells("reference")
    shard = max(corpus.shard_bytes for corpus in corpora.values())
    settled = min(nearest.QUERY_ROWS, n)
    pairs = 0.0
    if limits is not None:
        # Few rows of another corpus are far, or as many as are compared at most.
        pairs = 0.5 * far.FAR_PAIRS
        pairs += float(n) * far.settled_rows(n) if role == limits else 0.0
    block = min(n, BLOCK_ROWS)
    merged = Stage(
        name=nearest.stage_in_cells(role),
        work=merge_rows,
        finalise=far.join_rows,
        partitions=-(-n // BLOCK_ROWS),
        corpora=sources,
        needs=(searched, common["cells"]),
        parameters={
            **common,
            "role": role,
            "sources": list(sources),
            "larger": larger,
            "searched": searched,
            "limits": limits,
            "reach": reach,
        },
        seed=facts.seed,
        memory_bytes=max(
            block * (16 * len(lists) + 2 * (8 + FOUND_BYTES * len(lists))),
            2 * kept + 40 * n + 3 * settled * (d + 1) * 8 + 2 * shard,
        )
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=int(COPIES * n * (8 + FOUND_BYTES * len(lists)))
            + sum(corpus.stored_bytes for corpus in corpora.values()),
            bytes_written=2 * kept + RESULT_BYTES,
            exchanged_bytes=2 * kept,
            result_bytes=kept + RESULT_BYTES,
            float32_multiply_adds=pairs * d,
            elementwise_operations=pairs + 100.0 * n * len(lists),
        ),
    )
    if limits is None or role == limits:
        return merged
    return replace(merged, needs=(*merged.needs, reach))
