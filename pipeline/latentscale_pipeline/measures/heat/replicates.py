"""Heat traces and IMD of random subsamples, and their sampling errors.

The protocol of Tsitsulin et al. (2020, section 5): ``replicates.count`` times, draw
``replicates.rows`` rows of every corpus, compute the heat trace of their graph of exact neighbours,
and report the mean with its 99 % interval. A trace per vertex is an average over vertices, so the
spread of subsamples gives the sampling error of the whole (:mod:`latentscale.sampling.subsets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.graphs.knn import symmetrise
from latentscale.heat.imd import imd_of_traces
from latentscale.heat.trace import HeatTrace, normalise
from latentscale.neighbours.exact import exact_neighbours
from latentscale.sampling.subsets import LEVEL, Spread, sampling_error
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import JobFacts, Results, Role
from latentscale_pipeline.measures.heat.probes import estimate_trace
from latentscale_pipeline.measures.shared.shard_blocks import find_block
from latentscale_pipeline.storage.artifacts import Artifact, Output

REPLICATES = "heat-replicates"
"""Stage that computes the heat traces of the subsamples."""

ROWS = "rows"
"""Object with a block's rows of every subsample, one section each."""


def draws_name(role: Role) -> str:
    """Return the name of the stage that draws the subsamples of a corpus."""
    return f"draws-{role}"


def draw_subsamples(inputs: Inputs) -> Output:
    """Read the rows of every subsample that lie in a block of shards."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    block = find_block(inputs, corpus)
    stored = corpus.read_rows(block.start, block.stop)
    # Every block draws the same subsamples.
    streams = inputs.common_generator().spawn(p["count"])
    found = []
    for number, stream in enumerate(streams):
        rows = stream.choice(corpus.n, p["rows"], replace=False)
        inside = np.sort(rows[(rows >= block.start) & (rows < block.stop)])
        if len(inside):
            found.append((str(number), stored[inside - block.start]))
    return Output(sections={ROWS: found})


def count_subsamples(inputs: Inputs) -> Output:
    """Store the number of blocks."""
    return Output(values={"blocks": len(inputs.parts)})


def measure_subsample(inputs: Inputs) -> Output:
    """Compute the heat trace of one subsample of every corpus, and the IMD of two."""
    p = inputs.parameters
    *streams, bootstrap = inputs.generator().spawn(len(p["roles"]) + 1)
    heats: list[HeatTrace] = []
    arrays: dict[str, NDArray[Any]] = {}
    for role, stream in zip(p["roles"], streams, strict=True):
        vectors = _read_subsample(inputs.results[draws_name(role)], inputs.index)
        points = as_points(vectors, p["metric"])
        near = exact_neighbours(points, p["k"])
        adjacency = symmetrise(near.indices)
        heat = estimate_trace(adjacency, p, stream)
        arrays[f"per_vertex_{role}"] = heat.trace
        arrays[f"imd_per_vertex_{role}"] = heat.imd_trace
        degree = adjacency.nnz / adjacency.shape[0]
        heats.append(normalise(heat, p["normalization"], degree, p["laplacian"]))
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


def gather_subsamples(inputs: Inputs) -> Output:
    """Stack the traces of all subsamples, (subsamples, times), and their IMD."""
    arrays = {
        name: np.array([part.array(name) for part in inputs.parts])
        for name in inputs.parts[0].objects
        if name != "times"
    }
    distances = [part.values["imd"] for part in inputs.parts if "imd" in part.values]
    return Output(
        values={"imd": distances}, arrays={"times": inputs.parts[0].array("times"), **arrays}
    )


# --- results of subsamples --------------------------------------------------------------------


@dataclass(frozen=True)
class Replicates:
    """Results of subsamples: traces by role, and IMD if there are two corpora.

    ``errors`` are the sampling errors of the whole corpora's traces per vertex, ``imd_errors`` the
    same at the times of IMD.
    """

    rows: int
    count: int
    traces: Mapping[Role, Spread]
    errors: Mapping[Role, Float64Array]
    imd_errors: Mapping[Role, Float64Array]
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
    """Return the results of subsamples, or None if a job has none."""
    if facts.replicate_rows is None:
        return None
    artifact = results(REPLICATES)
    distances = np.array(artifact.values["imd"])
    errors, imd_errors = (
        {
            role: sampling_error(artifact.array(f"{name}_{role}"), facts.replicate_rows, corpus.n)
            for role, corpus in facts.corpora.items()
        }
        for name in ("per_vertex", "imd_per_vertex")
    )
    return Replicates(
        facts.replicate_rows,
        facts.replicates,
        {role: Spread.of(artifact.array(f"trace_{role}")) for role in facts.corpora},
        errors,
        imd_errors,
        Spread.of(distances) if len(distances) else None,
    )
