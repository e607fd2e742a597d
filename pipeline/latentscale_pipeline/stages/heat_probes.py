"""The heat trace of a graph, as a stage: in one task, or rounds of probes where they take long.

Every task holds the whole graph. In the first round the tasks share the pilot probes and the exact
moments; then, in every round, the probes that are still wanted. Which probes a task draws depends
on its number and the round alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from latentscale.control_variates import ControlVariate, fit_control_variate
from latentscale.graph import (
    Kernel,
    exact_moments,
    few_moments,
    known_kernel,
    normalised_laplacian,
    unnormalised_laplacian,
)
from latentscale.heat import (
    DENSE_VERTICES,
    LEAST_PROBES,
    MOST_PROBES,
    PILOT_PROBES,
    HeatTrace,
    ProbeIntegrals,
    average_probes,
    heat_trace,
    is_known,
    moments_in_budget,
    pilot_rules,
    probe_integrals,
    sufficient_steps,
)
from latentscale.lanczos_quadrature import BLOCK_BYTES, WIDEST_BLOCK, Rule, norm_bound
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.job.config import Heat
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.heat_published import (
    TIME_BYTES,
    expected_probes,
    expected_steps,
    publish_trace,
    read_times,
    trace_parameters,
)
from latentscale_pipeline.stages.measure import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.stages.neighbour_graph import read_adjacency

GRAPH_BYTES = 5 * 2**28
"""Memory of a graph and its Laplacian up to which every task holds them."""

TASK_FOLDS = 2.5e9
"""Folds of the probes of one task; a task also reads the graph and forms its Laplacian."""

TASK_PROBES = 4
"""Probes of a task at the least."""


def trace_stage(section: Heat, facts: JobFacts, role: Role) -> Stage:
    """Plan the heat trace of a corpus."""
    corpus = facts.corpora[role]
    parts = _parts(section, corpus)
    return Stage(
        name=f"heat-{role}",
        work=trace_heat if parts == 1 else probe_graph,
        advance=None if parts == 1 else average_rounds,
        partitions=parts,
        needs=(f"graph-{role}",),
        parameters={
            "graph": f"graph-{role}",
            **trace_parameters(section),
        },
        seed=facts.seed,
        memory_bytes=_trace_memory(section, corpus),
        effort=replace(_trace_effort(section, corpus), rounds=1 if parts == 1 else 2),
    )


def _parts(section: Heat, corpus: CorpusFacts) -> int:
    """Tasks that share the probes; a function of the graph's expected size."""
    probes = expected_probes(section, corpus)
    folds = probes * expected_steps(section) * 5 / 3 * corpus.n * section.k
    return max(1, min(round(folds / TASK_FOLDS), probes // TASK_PROBES))


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
    # The labels of components, and the vector of the kernel.
    work += 12 * n
    return work + TIME_BYTES * section.times.count + FEW_TILES_BYTES


def _trace_effort(section: Heat, corpus: CorpusFacts) -> Effort:
    n, entries = float(corpus.n), 5 / 3 * corpus.n * section.k
    graph = Effort(
        bytes_read=int(8 * (entries + n)),
        bytes_written=8 * 7 * section.times.count + RESULT_BYTES,
        # The Laplacian, and a product of it with itself for the exact moments.
        folds=14 * entries + 9 * entries**2 / n,
    )
    if section.probes == "auto" and corpus.n <= DENSE_VERTICES:
        return replace(
            graph,
            products=2 * n**3,
            method="all eigenvalues",
            why=f"heat.probes is auto and there are at most {DENSE_VERTICES} rows",
        )
    probes, steps = expected_probes(section, corpus), expected_steps(section)
    return replace(
        graph,
        bytes_written=graph.bytes_written + 8 * section.times.count * probes,
        folds=graph.folds + (probes + PILOT_PROBES) * steps * (entries + n),
        method=f"{probes} probes of {steps} Lanczos steps",
        why=f"expected for heat.tolerance {section.tolerance:g}; from {LEAST_PROBES}, doubled to "
        f"{MOST_PROBES} at most"
        if section.probes == "auto"
        else f"heat.probes is {section.probes}",
    )


def trace_heat(inputs: Inputs) -> Output:
    """Estimate the trace of exp(-tL) for every time, in one task."""
    adjacency = read_adjacency(inputs.results[inputs.parameters["graph"]])
    return publish_trace(estimate_trace(adjacency, inputs.parameters, inputs.generator()))


def estimate_trace(
    adjacency: scipy.sparse.csr_array[Any, Any],
    parameters: Mapping[str, Any],
    generator: np.random.Generator,
) -> HeatTrace:
    """Estimate the heat trace of a graph as a stage's parameters say."""
    p = parameters
    return heat_trace(
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
    """Do a task's share of a round: of the pilots and the exact moments, or of the probes."""
    state = _state(inputs)
    laplacian, generator = _read_laplacian(inputs), inputs.generator()
    parts, steps = inputs.stage.partitions, state.values["steps"]
    kernel, distribution = _kernel(inputs, laplacian), inputs.parameters["distribution"]
    count = state.values["wanted"] // parts + (inputs.index < state.values["wanted"] % parts)
    if state.values["phase"] == "pilots":
        n = laplacian.shape[0]
        rows = slice(n * inputs.index // parts, n * (inputs.index + 1) // parts)
        pilots = pilot_rules(laplacian, count, steps, generator, kernel, distribution)
        exact = moments_in_budget(laplacian)
        return Output(
            values={
                "width": norm_bound(laplacian),
                "kernel": kernel.dimension if kernel else 0,
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
    seen = probe_integrals(laplacian, control, times, count, steps, generator, kernel, distribution)
    return Output(arrays={"below": seen.below, "above": seen.above})


def average_rounds(inputs: Inputs) -> Output:
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
        width, kernel = (inputs.parts[0].values[name] for name in ("width", "kernel"))
        control = fit_control_variate(
            pilots,
            moments,
            width,
            times,
            steps,
            kernel,
            p["variance_reduction"],
            p["distribution"],
            exact=inputs.parts[0].values["exact"],
        )
        wanted = LEAST_PROBES if p["probes"] == "auto" else p["probes"]
        nothing = np.empty((0, len(times)))
        values = {"phase": "probes", "wanted": wanted, "steps": steps, "n": int(moments[0])}
        return _next_round(values, control, ProbeIntegrals(nothing, nothing))
    control = _read_control(state)
    seen = ProbeIntegrals(
        *(np.concatenate([state.array(side), _join(inputs, side)]) for side in ("below", "above"))
    )
    heat = average_probes(times, [seen], control, state.values["n"], steps)
    if p["probes"] != "auto" or is_known(heat, p["tolerance"]) or len(seen) >= MOST_PROBES:
        return publish_trace(heat)
    return _next_round({**state.values, "wanted": len(seen)}, control, seen)


def _next_round(values: dict[str, Any], control: ControlVariate, seen: ProbeIntegrals) -> Output:
    arrays = {name: getattr(control, name) for name in CONTROL_ARRAYS}
    kept = {name: values[name] for name in ("phase", "wanted", "steps", "n")}
    return Output(
        {**kept, "width": control.width},
        {**arrays, "below": seen.below, "above": seen.above},
        finished=False,
    )


CONTROL_ARRAYS = ("coefficients", "trace", "rounding", "skewness", "slopes")


def _read_control(state: Published) -> ControlVariate:
    return ControlVariate(state.values["width"], *(state.array(name) for name in CONTROL_ARRAYS))


def _state(inputs: Inputs) -> Published:
    if inputs.state is None:
        raise ValueError("a round starts from a state")
    return inputs.state


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
        kernel=_kernel(inputs, laplacian),
    )


def _kernel(inputs: Inputs, laplacian: scipy.sparse.csr_array[Any, Any]) -> Kernel | None:
    if inputs.parameters["variance_reduction"] != "moments":
        return None
    return known_kernel(laplacian)


def _read_laplacian(inputs: Inputs) -> scipy.sparse.csr_array[Any, Any]:
    p = inputs.parameters
    return LAPLACIANS[p["laplacian"]](read_adjacency(inputs.results[p["graph"]]))
