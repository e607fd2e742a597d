"""Heat traces and IMD of random subsamples, and the sampling errors that follow.

The protocol of Tsitsulin et al. (2020, section 5): ``replicates.count`` times, draw
``replicates.rows`` rows of every corpus, trace their graph of exact neighbours, and report the mean
with its 99 % interval. A trace per vertex is an average over vertices, so that the spread among
subsamples tells the sampling error of the whole (:mod:`latentscale.sampling.subsets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.graphs.knn import (
    GraphSummary,
    summarise,
    symmetrise,
)
from latentscale.heat.imd import imd_of_traces
from latentscale.heat.trace import DENSE_VERTICES, HeatTrace, normalise
from latentscale.neighbours.exact import exact_neighbours
from latentscale.sampling.subsets import LEVEL, Spread, sampling_error
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.engine.task import FINALISE
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    JobFacts,
    Results,
    Role,
)
from latentscale_pipeline.measures.heat.artifact import (
    TIME_BYTES,
    expected_probes,
    expected_steps,
    trace_parameters,
)
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.measures.heat.probes import estimate_trace
from latentscale_pipeline.measures.shared.shard_blocks import (
    block_bytes,
    count_blocks,
    find_block,
    shards_per_block,
)
from latentscale_pipeline.storage.artifacts import Artifact, Output

REPLICATES = "heat-replicates"
"""The stage that traces the subsamples."""

ROWS = "rows"
"""Object of the rows that a block has for the subsamples, a section for each."""


def plan_replicates(section: Heat, facts: JobFacts) -> list[Stage]:
    """Plan the subsamples of every corpus and what is measured on them; nothing if none is asked.

    Raises
    ------
    BadInput
        If a subsample would have more than half of the rows, or too few for their neighbours.
    """
    if facts.replicate_rows is None:
        return []
    rows, count = facts.replicate_rows, facts.replicates
    for role, corpus in facts.corpora.items():
        if not section.k < rows <= corpus.n // 2:
            raise BadInput(
                f"{role}: replicates.rows is {rows}; it has to be more than heat.k = {section.k} "
                f"and at most half of the {corpus.n} rows"
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
                **trace_parameters(section),
            },
            seed=facts.seed,
            memory_bytes=_subsample_memory(section, facts, rows),
            cost_estimate=_subsample_cost(section, facts, rows, count),
        ),
    ]


def draws_name(role: Role) -> str:
    """Name the stage that draws the subsamples of a corpus."""
    return f"draws-{role}"


def _draws_stage(role: Role, corpus: CorpusFacts, facts: JobFacts, drawn: dict[str, int]) -> Stage:
    gathered = drawn["rows"] * drawn["count"]
    per_row = corpus.stored_bytes // corpus.n
    return Stage(
        name=draws_name(role),
        temporary="result",
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
    return points + graph + TIME_BYTES * section.times.count + FEW_TILES_BYTES


def _subsample_cost(section: Heat, facts: JobFacts, rows: int, count: int) -> CostEstimate:
    of = [replace(corpus, n=rows) for corpus in facts.corpora.values()]
    probes = expected_probes(section, of[0])
    dense = section.probes == "auto" and rows <= DENSE_VERTICES
    work = 0 if dense else section.k * rows * probes * expected_steps(section) * 4
    return CostEstimate(
        bytes_read=count * sum(corpus.stored_bytes for corpus in of),
        bytes_written=count * RESULT_BYTES,
        float64_multiply_adds=2.0 * count * len(of) * rows**3 if dense else 0.0,
        float32_multiply_adds=float(count) * rows**2 * sum(corpus.d for corpus in of),
        elementwise_operations=count
        * sum(rows**2 + 2 * CONVERSION_OPERATIONS * rows * c.d + work for c in of),
        method=f"{count} subsamples of {rows:,} rows",
    )


def draw_subsamples(inputs: Inputs) -> Output:
    """Read the rows of every subsample that are in a block of shards."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    block = find_block(inputs, corpus)
    stored = corpus.read_rows(block.start, block.stop)
    # Every block draws the same subsamples.
    streams = replace(inputs, index=FINALISE).generator().spawn(p["count"])
    found = []
    for number, stream in enumerate(streams):
        rows = stream.choice(corpus.n, p["rows"], replace=False)
        inside = np.sort(rows[(rows >= block.start) & (rows < block.stop)])
        if len(inside):
            found.append((str(number), stored[inside - block.start]))
    return Output(sections={ROWS: found})


def count_subsamples(inputs: Inputs) -> Output:
    """Note how many blocks hold them."""
    return Output(values={"blocks": len(inputs.parts)})


def measure_subsample(inputs: Inputs) -> Output:
    """Trace one subsample of every corpus, and measure the IMD of two."""
    p = inputs.parameters
    *streams, bootstrap = inputs.generator().spawn(len(p["roles"]) + 1)
    heats: list[HeatTrace] = []
    arrays: dict[str, NDArray[Any]] = {}
    for role, stream in zip(p["roles"], streams, strict=True):
        vectors = _read_subsample(inputs.results[draws_name(role)], inputs.index)
        points = as_points(vectors, p["metric"])
        near = exact_neighbours(points, p["k"], seed=int(inputs.stage.seed or 0))
        adjacency = symmetrise(near.indices)
        heat = estimate_trace(adjacency, p, stream)
        arrays[f"per_vertex_{role}"] = heat.trace
        heats.append(_normalised(heat, summarise(adjacency), p["normalization"]))
        arrays[f"trace_{role}"] = heats[-1].trace
    values = {}
    if len(heats) > 1:
        values["imd"] = imd_of_traces(heats[0], heats[1], generator=bootstrap).estimate.value
    return Output(values=values, arrays={"times": heats[0].times, **arrays})


def _read_subsample(drawn: Artifact, number: int) -> NDArray[Any]:
    found = []
    for block in range(drawn.values["blocks"]):
        part = drawn.partition(block)
        if str(number) in part.objects[ROWS]["sections"]:
            found.append(part.section(ROWS, str(number)))
    return np.concatenate(found)


def _normalised(heat: HeatTrace, summary: GraphSummary, kind: Any) -> HeatTrace:
    return normalise(heat, kind, mean_degree=2.0 * summary.edges / summary.vertices)


def gather_subsamples(inputs: Inputs) -> Output:
    """Lay out the traces of all subsamples, (subsamples, times), and their IMD."""
    arrays = {
        name: np.array([part.array(name) for part in inputs.parts])
        for name in inputs.parts[0].objects
        if name != "times"
    }
    distances = [part.values["imd"] for part in inputs.parts if "imd" in part.values]
    return Output(
        values={"imd": distances}, arrays={"times": inputs.parts[0].array("times"), **arrays}
    )


# --- what follows from them -------------------------------------------------------------------


@dataclass(frozen=True)
class Replicates:
    """What subsamples tell: traces by role, and IMD where there are two corpora.

    ``errors`` are the sampling errors of the whole corpora's traces per vertex.
    """

    rows: int
    count: int
    traces: Mapping[Role, Spread]
    errors: Mapping[Role, NDArray[np.float64]]
    times: NDArray[np.float64]
    imd: Spread | None

    def section(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "count": self.count,
            "rows": self.rows,
            "level": LEVEL,
            **{role: _section(spread) for role, spread in self.traces.items()},
            "imd": None if self.imd is None else _section(self.imd),
        }


def _section(spread: Spread) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in vars(spread).items()}


def read_replicates(facts: JobFacts, results: Results) -> Replicates | None:
    """Read what subsamples tell; None where a job has none."""
    if facts.replicate_rows is None:
        return None
    artifact = results(REPLICATES)
    distances = np.array(artifact.values["imd"])
    return Replicates(
        facts.replicate_rows,
        facts.replicates,
        {role: Spread.of(artifact.array(f"trace_{role}")) for role in facts.corpora},
        {
            role: sampling_error(
                artifact.array(f"per_vertex_{role}"), facts.replicate_rows, corpus.n
            )
            for role, corpus in facts.corpora.items()
        },
        artifact.array("times"),
        Spread.of(distances) if len(distances) else None,
    )
