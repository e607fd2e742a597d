"""The heat trace of a graph in memory, as a stage: one task, or iterations over probes.

Every task holds the whole graph. In the first iteration the tasks share the pilot probes and the
exact moments; then, in every iteration, the probes that are still wanted. Which probes a task draws
depends on its number and the iteration alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from latentscale.graphs.laplacian import (
    exact_moments,
    few_moments,
    find_null_space,
    normalised_laplacian,
    unnormalised_laplacian,
)
from latentscale.heat.trace import (
    DENSE_VERTICES,
    LEAST_PROBES,
    MOST_PROBES,
    PILOT_PROBES,
    HeatTrace,
    ProbeIntegrals,
    average_probes,
    estimate_heat_trace,
    is_known,
    moments_in_budget,
    pilot_rules,
    probe_integrals,
    sufficient_steps,
)
from latentscale.linalg.bounds import norm_bound
from latentscale.linalg.control_variates import ControlVariate, fit_control_variate
from latentscale.linalg.null_space import NullSpace
from latentscale.linalg.quadrature import BLOCK_BYTES, WIDEST_BLOCK, Rule
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.heat.artifact import (
    TIME_BYTES,
    expected_probes,
    expected_steps,
    read_times,
    trace_output,
    trace_parameters,
)
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.measures.shared.iteration_state import read_state
from latentscale_pipeline.measures.shared.neighbour_graph import read_adjacency
from latentscale_pipeline.storage.artifacts import Artifact, Output

GRAPH_BYTES = 5 * 2**28
"""Memory of a graph and its Laplacian up to which every task holds them."""

TASK_OPERATIONS = 2.5e9
"""Elementwise operations of one task's probes, besides reading the graph and its Laplacian."""

TASK_PROBES = 4
"""Probes of a task at the least."""


def trace_stage(section: Heat, facts: JobFacts, role: Role) -> Stage:
    """Plan the heat trace of a corpus."""
    corpus = facts.corpora[role]
    parts = _parts(section, corpus)
    return Stage(
        name=f"heat-{role}",
        work=trace_heat if parts == 1 else probe_graph,
        advance=None if parts == 1 else average_iterations,
        partitions=parts,
        needs=(f"graph-{role}",),
        parameters={
            "graph": f"graph-{role}",
            **trace_parameters(section),
        },
        seed=facts.seed,
        memory_bytes=_trace_memory(section, corpus),
        cost_estimate=replace(_trace_cost(section, corpus), iterations=1 if parts == 1 else 2),
    )


def _parts(section: Heat, corpus: CorpusFacts) -> int:
    """Tasks that share the probes; a function of the graph's expected size."""
    probes = expected_probes(section, corpus)
    elementwise_operations = probes * expected_steps(section) * 5 / 3 * corpus.n * section.k
    return max(1, min(round(elementwise_operations / TASK_OPERATIONS), probes // TASK_PROBES))


def fits_one_task(section: Heat, corpus: CorpusFacts) -> bool:
    """Tell whether a task may hold the whole graph."""
    return _forming_bytes(section, corpus.n) <= GRAPH_BYTES


def _forming_bytes(section: Heat, n: int) -> int:
    """Memory of the adjacency matrix, indices twice while it's read, and of the Laplacian."""
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
    # The labels of components, and the vector of the null space.
    work += 12 * n
    return work + TIME_BYTES * section.times.count + FEW_TILES_BYTES


def _trace_cost(section: Heat, corpus: CorpusFacts) -> CostEstimate:
    n, entries = float(corpus.n), 5 / 3 * corpus.n * section.k
    graph = CostEstimate(
        bytes_read=int(8 * (entries + n)),
        bytes_written=8 * 7 * section.times.count + RESULT_BYTES,
        # The Laplacian, and a product of it with itself for the exact moments.
        elementwise_operations=14 * entries + 9 * entries**2 / n,
    )
    if section.probes == "auto" and corpus.n <= DENSE_VERTICES:
        return replace(
            graph,
            float64_multiply_adds=2 * n**3,
            method="all eigenvalues",
            why=f"heat.probes is auto and there are at most {DENSE_VERTICES} rows",
        )
    probes, steps = expected_probes(section, corpus), expected_steps(section)
    return replace(
        graph,
        bytes_written=graph.bytes_written + 8 * section.times.count * probes,
        elementwise_operations=graph.elementwise_operations
        + (probes + PILOT_PROBES) * steps * (entries + n),
        method=f"{probes} probes of {steps} Lanczos steps",
        why=f"expected for heat.tolerance {section.tolerance:g}; from {LEAST_PROBES}, doubled to "
        f"{MOST_PROBES} at most"
        if section.probes == "auto"
        else f"heat.probes is {section.probes}",
    )


def trace_heat(inputs: Inputs) -> Output:
    """Estimate the trace of exp(-tL) for every time, in one task."""
    adjacency = read_adjacency(inputs.results[inputs.parameters["graph"]])
    return trace_output(estimate_trace(adjacency, inputs.parameters, inputs.generator()))


def estimate_trace(
    adjacency: scipy.sparse.csr_array[Any, Any],
    parameters: Mapping[str, Any],
    generator: np.random.Generator,
) -> HeatTrace:
    """Estimate the heat trace of a graph as a stage's parameters say."""
    p = parameters
    return estimate_heat_trace(
        LAPLACIANS[p["laplacian"]](adjacency),
        read_times(p),
        generator=generator,
        steps=None if p["steps"] == "auto" else p["steps"],
        probes=None if p["probes"] == "auto" else p["probes"],
        tolerance=p["tolerance"],
        distribution=p["distribution"],
        variance_reduction=p["variance_reduction"],
    )


LAPLACIANS = {"normalized": normalised_laplacian, "unnormalized": unnormalised_laplacian}


def probe_graph(inputs: Inputs) -> Output:
    """Do a task's share of an iteration: of the pilots and the exact moments, or of the probes."""
    state = read_state(inputs)
    laplacian, generator = _read_laplacian(inputs), inputs.generator()
    parts, steps = inputs.stage.partitions, state.values["steps"]
    null_space, distribution = _null_space(inputs, laplacian), inputs.parameters["distribution"]
    count = state.values["wanted"] // parts + (inputs.index < state.values["wanted"] % parts)
    if state.values["phase"] == "pilots":
        n = laplacian.shape[0]
        rows = slice(n * inputs.index // parts, n * (inputs.index + 1) // parts)
        pilots = pilot_rules(laplacian, count, steps, generator, null_space, distribution)
        exact = moments_in_budget(laplacian)
        return Output(
            values={
                "width": norm_bound(laplacian),
                "null_dimension": null_space.dimension if null_space else 0,
                "exact": exact,
            },
            arrays={
                "nodes": pilots.nodes,
                "weights": pilots.weights,
                "moments": (exact_moments if exact else few_moments)(laplacian, rows),
            },
        )
    control = _read_control(state)
    times = read_times(inputs.parameters)
    seen = probe_integrals(
        laplacian, control, times, count, steps, generator, null_space, distribution
    )
    return Output(arrays={"below": seen.below, "above": seen.above})


def average_iterations(inputs: Inputs) -> Output:
    """Ask for pilots, fit the control variate to them, and ask for probes until they suffice."""
    p, state = inputs.parameters, inputs.state
    if state is None:
        return Output(
            {"phase": "pilots", "wanted": PILOT_PROBES, "steps": _steps(inputs)}, {}, False
        )
    times, steps = read_times(inputs.parameters), state.values["steps"]
    if state.values["phase"] == "pilots":
        pilots = Rule(*(_join(inputs, name) for name in ("nodes", "weights")))
        moments = np.sum([part.array("moments") for part in inputs.parts], axis=0)
        width, null_dimension = (
            inputs.parts[0].values[name] for name in ("width", "null_dimension")
        )
        control = fit_control_variate(
            pilots,
            moments,
            width,
            times,
            steps,
            null_dimension,
            p["variance_reduction"],
            p["distribution"],
            exact=inputs.parts[0].values["exact"],
        )
        wanted = LEAST_PROBES if p["probes"] == "auto" else p["probes"]
        nothing = np.empty((0, len(times)))
        values = {"phase": "probes", "wanted": wanted, "steps": steps, "n": int(moments[0])}
        return _next_iteration(values, control, ProbeIntegrals(nothing, nothing))
    control = _read_control(state)
    seen = ProbeIntegrals(
        *(np.concatenate([state.array(side), _join(inputs, side)]) for side in ("below", "above"))
    )
    heat = average_probes(times, [seen], control, state.values["n"], steps)
    if p["probes"] != "auto" or is_known(heat, p["tolerance"]) or len(seen) >= MOST_PROBES:
        return trace_output(heat)
    return _next_iteration({**state.values, "wanted": len(seen)}, control, seen)


def _next_iteration(
    values: dict[str, Any], control: ControlVariate, seen: ProbeIntegrals
) -> Output:
    arrays = {name: getattr(control, name) for name in CONTROL_ARRAYS}
    kept = {name: values[name] for name in ("phase", "wanted", "steps", "n")}
    return Output(
        {**kept, "width": control.width},
        {**arrays, "below": seen.below, "above": seen.above},
        finished=False,
    )


CONTROL_ARRAYS = ("coefficients", "trace", "rounding", "skewness", "slopes")


def _read_control(state: Artifact) -> ControlVariate:
    return ControlVariate(state.values["width"], *(state.array(name) for name in CONTROL_ARRAYS))


def _join(inputs: Inputs, name: str) -> NDArray[np.float64]:
    return np.concatenate([part.array(name) for part in inputs.parts])


def _steps(inputs: Inputs) -> int:
    p = inputs.parameters
    if p["steps"] != "auto":
        return int(p["steps"])
    laplacian = _read_laplacian(inputs)
    return sufficient_steps(
        laplacian,
        read_times(inputs.parameters),
        tolerance=p["tolerance"],
        generator=inputs.generator(),
        null_space=_null_space(inputs, laplacian),
    )


def _null_space(inputs: Inputs, laplacian: scipy.sparse.csr_array[Any, Any]) -> NullSpace | None:
    if inputs.parameters["variance_reduction"] != "moments":
        return None
    return find_null_space(laplacian)


def _read_laplacian(inputs: Inputs) -> scipy.sparse.csr_array[Any, Any]:
    p = inputs.parameters
    return LAPLACIANS[p["laplacian"]](read_adjacency(inputs.results[p["graph"]]))
