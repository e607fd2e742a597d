"""Heat trace and IMD: neighbours, graph, trace, and the distance between two traces."""

from __future__ import annotations

from latentscale.heat.imd import BOOTSTRAP_DRAWS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    RESULT_BYTES,
    TILE_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.heat.artifact import TIME_BYTES, expected_probes
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.measures.heat.probes import fits_one_task, trace_stage
from latentscale_pipeline.measures.heat.replicates import (
    plan_replicates,
)
from latentscale_pipeline.measures.heat.row_blocks import plan_trace_by_rows
from latentscale_pipeline.measures.heat.tasks import compare_traces
from latentscale_pipeline.measures.shared.neighbour_graph import graph_stage
from latentscale_pipeline.measures.shared.neighbours.exact import exact_neighbours_stage
from latentscale_pipeline.measures.shared.neighbours.plan import plan_cell_neighbours
from latentscale_pipeline.measures.shared.neighbours.settings import NeighbourSettings

EXACT_ROWS = 50_000
"""Corpora of up to this many rows get exact neighbours under ``neighbours: auto``."""


def plan_heat(section: Heat, facts: JobFacts) -> list[Stage]:
    """Plan neighbours, graph and trace of every corpus, and IMD when there are two."""
    if section.neighbours == "cells" and section.recall == 1.0:
        raise BadInput("heat.recall is 1, which only neighbours: exact can promise")
    stages = [stage for role in facts.corpora for stage in _corpus_stages(section, facts, role)]
    if len(facts.corpora) > 1:
        stages.append(
            Stage(
                name="imd",
                work=compare_traces,
                needs=tuple(
                    f"{stage}-{role}" for role in facts.corpora for stage in ("heat", "graph")
                ),
                parameters={"normalization": section.normalization},
                seed=facts.seed,
                memory_bytes=TILE_BYTES + TIME_BYTES * section.times.count,
                cost_estimate=_imd_cost(section, facts),
            )
        )
    return [*stages, *plan_replicates(section, facts)]


def _corpus_stages(section: Heat, facts: JobFacts, role: Role) -> list[Stage]:
    corpus = facts.corpora[role]
    if section.k >= corpus.n:
        raise BadInput(
            f"{role}: heat.k is {section.k} and there are {corpus.n} rows; use a smaller k"
        )
    in_cells = searches_cells(section, corpus)
    why = f"heat.neighbours is {section.neighbours}"
    if section.neighbours == "auto":
        why = f"{'more than' if in_cells else 'at most'} {EXACT_ROWS:,} rows"
    asked = NeighbourSettings(section.k, section.metric, section.recall, section.overlap)
    neighbours = (
        plan_cell_neighbours(asked, facts, role, why)
        if in_cells
        else [exact_neighbours_stage(asked, facts, role, why)]
    )
    # The graph of exact neighbours is in one block, whatever its size.
    trace = (
        plan_trace_by_rows(section, facts, role)
        if in_cells and not fits_one_task(section, corpus)
        else [trace_stage(section, facts, role)]
    )
    return [
        *neighbours,
        graph_stage(section.k, role, corpus, in_cells=in_cells),
        *trace,
    ]


def searches_cells(section: Heat, corpus: CorpusFacts) -> bool:
    """Tell whether neighbours are searched in cells."""
    if section.neighbours == "auto":
        return corpus.n > EXACT_ROWS
    return section.neighbours == "cells"


def _imd_cost(section: Heat, facts: JobFacts) -> CostEstimate:
    probes = sum(expected_probes(section, corpus) for corpus in facts.corpora.values())
    times = section.times.count
    return CostEstimate(
        bytes_read=8 * times * (probes + 14),
        bytes_written=RESULT_BYTES,
        float64_multiply_adds=float(BOOTSTRAP_DRAWS * probes * times),
        elementwise_operations=10.0 * BOOTSTRAP_DRAWS * (probes + 2 * times),
    )
