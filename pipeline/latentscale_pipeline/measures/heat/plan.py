"""Stages of heat traces and IMD: neighbours, graph, trace, and the distance of two traces."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from latentscale.heat.imd import BOOTSTRAP_DRAWS
from latentscale.heat.row_blocks import BATCH, COMPANION_STEPS
from latentscale.heat.supremum import IMD_TIMES
from latentscale.heat.trace import (
    COMPANIONS,
    DENSE_VERTICES,
    MAX_PROBES,
    MAX_STEPS,
    MIN_PROBES,
    MIN_STEPS,
    PILOT_PROBES,
    moments_in_budget,
)
from latentscale.linalg.quadrature import BLOCK_BYTES, WIDEST_BLOCK
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    TILE_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.heat.artifact import SETTINGS
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.measures.heat.probes import average_iterations, probe_graph, trace_heat
from latentscale_pipeline.measures.heat.replicates import (
    REPLICATES,
    count_subsamples,
    draw_subsamples,
    draws_name,
    gather_subsamples,
    measure_subsample,
)
from latentscale_pipeline.measures.heat.row_blocks import (
    advance_block,
    advance_vectors,
    bound_norm,
    form_block,
)
from latentscale_pipeline.measures.heat.tasks import compare_traces
from latentscale_pipeline.measures.shared.neighbour_graph import graph_stage
from latentscale_pipeline.measures.shared.neighbours.exact import exact_neighbours_stage
from latentscale_pipeline.measures.shared.neighbours.plan import plan_cell_neighbours
from latentscale_pipeline.measures.shared.neighbours.settings import NeighbourSettings
from latentscale_pipeline.measures.shared.neighbours.sizes import Layout
from latentscale_pipeline.measures.shared.shard_blocks import (
    block_bytes,
    count_blocks,
    shards_per_block,
)

EXACT_ROWS = 50_000
"""Corpora of up to this many rows get exact neighbours under ``neighbours: auto``."""

GRAPH_BYTES = 5 * 2**28
"""Largest memory of a graph and its Laplacian that every task holds whole."""

TASK_OPERATIONS = 2.5e9
"""Elementwise operations of one task's probes, without reading the graph and its Laplacian."""

CACHED_VERTICES, MAX_SLOWDOWN = 1e6, 4.0
"""Vertices whose vectors just fit a cache, and how much longer products take at most beyond."""

TASK_PROBES = 4
"""Fewest probes of a task."""

LEAVING = 0.1
"""Share of a block's rows that other blocks need, where vertices are in the order of cells."""

PROBE_DEVIATION = 2.4
"""Relative standard deviation of one probe at t = 10, times the root of the rows.

On a path, whose trace falls slowest, it grows with the fourth root of the time.
"""

STEPS = 2.2
"""Lanczos steps that ``steps: auto`` takes, over the root of time times largest eigenvalue.

Measured on a path up to t = 10⁴.
"""

DEGREE_SPREAD = 1.5
"""Mean squared degree of a graph without large hubs, over the square of the mean degree."""

UNNORMALISED_WIDTH = 4
"""Largest eigenvalue of D - A over k, about."""

SWINGS = 8
"""Ways in which a trace's error swings, about: the rank of its covariance; traces are smooth."""

TIME_BYTES = 2 * 8 * 4096
"""Memory for one time: the deviations of all probes, and the bootstrap draws."""


def plan_heat(section: Heat, facts: JobFacts) -> list[Stage]:
    """Plan the stages of neighbours, graphs, heat traces and IMD."""
    if section.neighbours in ("cells", "nndescent") and section.recall == 1.0:
        raise BadInput(
            "measures.heat.recall is 1, which only neighbours: exact reaches; use exact or lower it"
        )
    stages = [stage for role in facts.corpora for stage in _corpus_stages(section, facts, role)]
    if len(facts.corpora) > 1:
        times = _times(section)
        # All eigenvalues need no draws. Others draw in the space of the probes' deviations.
        probes = sum(
            0 if _takes_all_eigenvalues(section, corpus) else _expected_probes(section, corpus)
            for corpus in facts.corpora.values()
        )
        rank = min(probes, SWINGS)
        stages.append(
            Stage(
                name="imd",
                work=compare_traces,
                needs=tuple(
                    f"{stage}-{role}" for role in facts.corpora for stage in ("heat", "graph")
                ),
                reads_passing=tuple(f"heat-{role}" for role in facts.corpora),
                parameters=section.model_dump(include={"normalization", "laplacian"}),
                seed=facts.seed,
                memory_bytes=TILE_BYTES + TIME_BYTES * times,
                cost_estimate=CostEstimate(
                    bytes_read=8 * times * (probes + 14),
                    bytes_written=RESULT_BYTES,
                    float64_multiply_adds=float(BOOTSTRAP_DRAWS * rank * times),
                    elementwise_operations=10.0
                    * BOOTSTRAP_DRAWS
                    * (rank + (2 * times if probes else 0)),
                ),
            )
        )
    return [*stages, *_plan_replicates(section, facts)]


def _times(section: Heat) -> int:
    """Count the times at which a trace is computed: those asked for, and those of IMD."""
    return section.times.count + len(IMD_TIMES)


def _corpus_stages(section: Heat, facts: JobFacts, role: Role) -> list[Stage]:
    corpus = facts.corpora[role]
    if section.k >= corpus.n:
        advice = (
            f"set measures.heat.k to {corpus.n - 1} or less"
            if corpus.n > 1
            else "a graph needs two rows; leave this measure out"
        )
        rows = "there is one row" if corpus.n == 1 else f"there are {corpus.n} rows"
        raise BadInput(f"{role}: heat.k is {section.k} and {rows}; {advice}")
    in_cells = searches_cells(section, corpus)
    why = f"heat.neighbours is {section.neighbours}"
    if section.neighbours == "auto":
        why = f"{'more than' if in_cells else 'at most'} {EXACT_ROWS:,} rows"
    asked = NeighbourSettings(
        section.k,
        section.metric,
        section.recall,
        section.overlap,
        "nndescent" if section.neighbours == "nndescent" else "leaves",
    )
    neighbours = (
        plan_cell_neighbours(asked, facts, role, why)
        if in_cells
        else [exact_neighbours_stage(asked, facts, role, why)]
    )
    # The graph of exact neighbours is always in one block.
    trace = (
        _plan_trace_by_rows(section, facts, role)
        if in_cells and _forming_bytes(section, corpus.n) > GRAPH_BYTES
        else [_trace_stage(section, facts, role)]
    )
    return [
        *neighbours,
        graph_stage(section.k, role, corpus, in_cells=in_cells),
        *trace,
    ]


SPARE = 4
"""Probes for which room on disk is planned, per expected one: two doublings more."""


def searches_cells(section: Heat, corpus: CorpusFacts) -> bool:
    """Return whether neighbours are searched in cells."""
    if section.neighbours == "auto":
        return corpus.n > EXACT_ROWS
    return section.neighbours != "exact"


def _takes_all_eigenvalues(section: Heat, corpus: CorpusFacts) -> bool:
    return section.probes == "auto" and corpus.n <= DENSE_VERTICES


def _expected_probes(section: Heat, corpus: CorpusFacts) -> int:
    """Return the expected number of probes."""
    if isinstance(section.probes, int):
        return section.probes
    deviation = PROBE_DEVIATION * max(section.times.stop / 10, 1.0) ** 0.25
    needed = (deviation / section.tolerance) ** 2 / corpus.n
    doublings = math.ceil(math.log2(max(needed / MIN_PROBES, 1.0)))
    return min(MIN_PROBES << doublings, MAX_PROBES)


def _expected_steps(section: Heat) -> int:
    """Return the expected number of Lanczos steps."""
    if isinstance(section.steps, int):
        return section.steps
    width = 2 if section.laplacian == "normalized" else UNNORMALISED_WIDTH * section.k
    needed = STEPS * math.sqrt(section.times.stop * width)
    doublings = math.ceil(math.log2(max(needed / MIN_STEPS, 1.0)))
    return min(MIN_STEPS << doublings, MAX_STEPS)


def _trace_parameters(section: Heat) -> dict[str, Any]:
    """Return the stage parameters of a trace besides its graph."""
    return section.model_dump(include={"times", "laplacian", *SETTINGS})


# --- a trace in memory ---------------------------------------------------------------------


def _trace_stage(section: Heat, facts: JobFacts, role: Role) -> Stage:
    """Plan the heat trace of a corpus."""
    corpus = facts.corpora[role]
    parts = _parts(section, corpus)
    return Stage(
        name=f"heat-{role}",
        passing=("imd_deviations",),
        work=trace_heat if parts == 1 else probe_graph,
        advance=None if parts == 1 else average_iterations,
        partitions=parts,
        needs=(f"graph-{role}",),
        parameters={"graph": f"graph-{role}", **_trace_parameters(section)},
        seed=facts.seed,
        memory_bytes=_trace_memory(section, corpus),
        cost_estimate=replace(_trace_cost(section, corpus), iterations=1 if parts == 1 else 2),
    )


def _parts(section: Heat, corpus: CorpusFacts) -> int:
    """Return the number of tasks that share the probes, from the expected size of the graph."""
    probes = _expected_probes(section, corpus)
    elementwise_operations = probes * _expected_steps(section) * 5 / 3 * corpus.n * section.k
    return max(1, min(round(elementwise_operations / TASK_OPERATIONS), probes // TASK_PROBES))


def _forming_bytes(section: Heat, n: int) -> int:
    """Return the memory of the adjacency matrix, with two copies of indices, and the Laplacian."""
    entries = 2 * n * section.k
    index = 4 if entries < 2**31 else 8
    return entries * (1 + index + max(index, 8 + index)) + 64 * n


def _trace_memory(section: Heat, corpus: CorpusFacts) -> int:
    entries, n = 2 * corpus.n * section.k, corpus.n
    index = 4 if entries < 2**31 else 8
    blocks = min(3 * 8 * WIDEST_BLOCK * n, max(BLOCK_BYTES, 3 * 8 * n))
    work = max(_forming_bytes(section, n), entries * (8 + index) + max(blocks, 40 * n))
    if corpus.n <= DENSE_VERTICES:
        work += 2 * 8 * corpus.n**2
    # The component labels and the null-space vector.
    work += 12 * n
    # A few numbers for every probe and time.
    probes = section.probes if isinstance(section.probes, int) else MAX_PROBES
    return work + 8 * 8 * probes * _times(section) + FEW_TILES_BYTES


def _trace_cost(section: Heat, corpus: CorpusFacts) -> CostEstimate:
    n, entries = float(corpus.n), 5 / 3 * corpus.n * section.k
    curves, asked = 8 * 7 * _times(section) + RESULT_BYTES, section.times.count / _times(section)
    graph = CostEstimate(
        bytes_read=int(8 * (entries + n)),
        bytes_written=curves,
        elementwise_operations=14 * entries,
    )
    if _takes_all_eigenvalues(section, corpus):
        return replace(
            graph,
            float64_multiply_adds=2 * n**3,
            method="all eigenvalues",
            why=f"heat.probes is auto and there are at most {DENSE_VERTICES} rows",
        )
    probes, steps = _expected_probes(section, corpus), _expected_steps(section)
    stored = min(SPARE * probes, MAX_PROBES) if section.probes == "auto" else probes
    deviations = 8 * _times(section) * stored
    return replace(
        graph,
        bytes_written=curves + deviations,
        kept_bytes=curves + int(asked * deviations),
        elementwise_operations=graph.elementwise_operations
        + min(1.0 + n / CACHED_VERTICES, MAX_SLOWDOWN)
        * (
            (probes + PILOT_PROBES) * steps * (entries + n)
            + _moments_operations(n, entries, probes)
        ),
        method=f"{probes} probes of {steps} Lanczos steps{_moments_note(n, entries)}",
        why=f"expected for heat.tolerance {section.tolerance:g} to t = {section.times.stop:g}; "
        f"from {MIN_PROBES}, doubled to {MAX_PROBES} at most"
        if section.probes == "auto"
        else f"heat.probes is {section.probes}",
    )


def _moments_in_budget(n: float, entries: float) -> bool:
    """Return whether the Laplacian of a typical graph is squared for its exact moments."""
    return moments_in_budget(DEGREE_SPREAD * entries**2 / n, int(n))


def _moments_operations(n: float, entries: float, probes: int) -> float:
    """Return the operations for the moments of a Laplacian; with hubs they are at most as many."""
    if _moments_in_budget(n, entries):
        return 14 * entries**2 / n
    return COMPANIONS * COMPANION_STEPS * probes * (entries + n)


def _moments_note(n: float, entries: float) -> str:
    return "" if _moments_in_budget(n, entries) else ", moments estimated"


# --- a trace by blocks of vertices --------------------------------------------------------


def _plan_trace_by_rows(section: Heat, facts: JobFacts, role: Role) -> list[Stage]:
    """Plan the Laplacian and the heat trace of a corpus by blocks of vertices."""
    corpus = facts.corpora[role]
    layout = Layout(corpus.n, corpus.d)
    common = {"graph": f"graph-{role}", "n": corpus.n, "d": corpus.d}
    n, entries = float(corpus.n), 5 / 3 * corpus.n * section.k
    rows = min(corpus.n, layout.block)
    listed = rows * (2 * section.k + 1)
    # Vectors, their products and the rows needed from other blocks.
    vectors = 8 * BATCH * int(rows * (5 + 2 * LEAVING * section.k))
    probes, steps = _expected_probes(section, corpus), _expected_steps(section)
    columns = PILOT_PROBES + probes
    batches = -(-columns // BATCH)
    companions = 0 if _moments_in_budget(n, entries) else COMPANIONS * probes
    iterations = 2 * (steps * batches + COMPANION_STEPS * -(-companions // BATCH))
    stepped = columns * steps + companions * COMPANION_STEPS
    exchanged = int(8 * LEAVING * n * stepped)
    moved = exchanged + int(8 * 4 * n * stepped)
    return [
        Stage(
            name=f"laplacian-{role}",
            temporary="result",
            lasting_parts=True,
            work=form_block,
            finalise=bound_norm,
            partitions=layout.blocks,
            needs=(f"graph-{role}",),
            parameters={**common, "laplacian": section.laplacian},
            memory_bytes=100 * listed + FEW_TILES_BYTES,
            cost_estimate=CostEstimate(
                bytes_read=int(12 * entries),
                bytes_written=int((1 + LEAVING) * 16 * entries),
                elementwise_operations=700 * entries,
            ),
        ),
        Stage(
            name=f"heat-{role}",
            passing=("imd_deviations",),
            work=advance_block,
            advance=advance_vectors,
            partitions=layout.blocks,
            needs=(f"laplacian-{role}",),
            parameters={
                **common,
                "matrix": f"laplacian-{role}",
                **_trace_parameters(section),
            },
            seed=facts.seed,
            reads_last_iteration=True,
            memory_bytes=40 * listed + max(vectors, 60 * listed) + FEW_TILES_BYTES,
            cost_estimate=CostEstimate(
                bytes_read=moved + int(16 * entries * iterations / 2),
                bytes_written=moved + iterations * layout.blocks * RESULT_BYTES,
                result_bytes=8 * _times(section) * (probes + 7) + RESULT_BYTES,
                state_bytes=RESULT_BYTES,
                elementwise_operations=columns * steps * (entries + 8 * n)
                + _moments_operations(n, entries, probes),
                iterations=iterations,
                method=f"{probes} probes of {steps} Lanczos steps by row blocks"
                + _moments_note(n, entries),
                why="the graph exceeds the memory of a task; each step exchanges about "
                f"{2 * exchanged / iterations:.1e} bytes",
            ),
        ),
    ]


# --- random subsamples -------------------------------------------------------------------


def _plan_replicates(section: Heat, facts: JobFacts) -> list[Stage]:
    """Plan the stages that draw and measure subsamples, if the job asks for any.

    Raises
    ------
    BadInput
        If a subsample would have more than half of the rows, or no more than ``k`` rows.
    """
    if facts.replicate_rows is None:
        return []
    rows, count = facts.replicate_rows, facts.replicates
    for role, corpus in facts.corpora.items():
        if not section.k < rows <= corpus.n // 2:
            raise BadInput(
                f"{role}: replicates.rows is {rows}; set it above heat.k = {section.k} "
                f"and to at most half of the {corpus.n} rows"
            )
    drawn = {"rows": rows, "count": count}
    return [
        *(_draws_stage(role, corpus, facts, drawn) for role, corpus in facts.corpora.items()),
        Stage(
            name=REPLICATES,
            work=measure_subsample,
            finalise=gather_subsamples,
            partitions=count,
            needs=tuple(draws_name(role) for role in facts.corpora),
            parameters={
                "roles": list(facts.corpora),
                "k": section.k,
                "metric": section.metric,
                "normalization": section.normalization,
                **_trace_parameters(section),
            },
            seed=facts.seed,
            memory_bytes=_subsample_memory(section, facts, rows),
            cost_estimate=_subsample_cost(section, facts, rows, count),
        ),
    ]


def _draws_stage(role: Role, corpus: CorpusFacts, facts: JobFacts, drawn: dict[str, int]) -> Stage:
    gathered = drawn["rows"] * drawn["count"]
    per_row = corpus.stored_bytes // corpus.n
    return Stage(
        name=draws_name(role),
        temporary="result",
        lasting_parts=True,
        work=draw_subsamples,
        finalise=count_subsamples,
        partitions=count_blocks(corpus),
        corpora=(role,),
        parameters={"role": role, "shards_per_block": shards_per_block(corpus), **drawn},
        seed=facts.seed,
        memory_bytes=block_bytes(corpus) + 8 * gathered + 2 * gathered * per_row + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes,
            bytes_written=gathered * per_row + RESULT_BYTES,
            elementwise_operations=10.0 * gathered * count_blocks(corpus),
        ),
    )


def _subsample_memory(section: Heat, facts: JobFacts, rows: int) -> int:
    widest = max(corpus.d for corpus in facts.corpora.values())
    points = 8 * 3 * rows * (widest + 1)
    graph = 2 * rows * section.k * 60 + 8 * 64 * rows
    return points + graph + TIME_BYTES * _times(section) + FEW_TILES_BYTES


def _subsample_cost(section: Heat, facts: JobFacts, rows: int, count: int) -> CostEstimate:
    of = [replace(corpus, n=rows) for corpus in facts.corpora.values()]
    probes = _expected_probes(section, of[0])
    dense = section.probes == "auto" and rows <= DENSE_VERTICES
    work = 0 if dense else section.k * rows * probes * _expected_steps(section) * 4
    return CostEstimate(
        bytes_read=count * sum(corpus.stored_bytes for corpus in of),
        bytes_written=count * RESULT_BYTES,
        float64_multiply_adds=2.0 * count * len(of) * rows**3 if dense else 0.0,
        float32_multiply_adds=float(count) * rows**2 * sum(corpus.d for corpus in of),
        elementwise_operations=count
        * sum(rows**2 + 2 * CONVERSION_OPERATIONS * rows * c.d + work for c in of),
        method=f"{count} subsamples of {rows:,} rows",
    )
