"""Tasks of the heat trace of a graph in memory: one task, or iterations over probes.

Every task holds the whole graph. In the first iteration, the tasks share the pilot probes and the
exact moments; in later iterations, they share the probes that are still needed. A task's probes
depend only on its number and the iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy  # its submodules are imported when they are first used

from latentscale.array_types import Float64Array
from latentscale.graphs.laplacian import (
    exact_moments,
    few_moments,
    find_null_space,
    normalised_laplacian,
    product_work,
    unnormalised_laplacian,
)
from latentscale.heat.control_variates import ControlVariate, fit_control_variate
from latentscale.heat.trace import (
    MAX_PROBES,
    MIN_PROBES,
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
    with_imd_times,
)
from latentscale.linalg.bounds import norm_bound
from latentscale.linalg.null_space import NullSpace
from latentscale.linalg.quadrature import Rule
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.heat.artifact import read_settings, read_times
from latentscale_pipeline.measures.shared.iteration_state import read_state
from latentscale_pipeline.measures.shared.neighbour_graph import read_adjacency
from latentscale_pipeline.measures.shared.records import load_record, record_arrays, record_output
from latentscale_pipeline.storage.artifacts import Output


def trace_heat(inputs: Inputs) -> Output:
    """Estimate the trace of exp(-tL) for every time, in one task."""
    adjacency = read_adjacency(inputs.results[inputs.parameters["graph"]])
    return record_output(estimate_trace(adjacency, inputs.parameters, inputs.generator()))


def estimate_trace(
    adjacency: scipy.sparse.csr_array[Any, Any],
    parameters: Mapping[str, Any],
    generator: np.random.Generator,
) -> HeatTrace:
    """Estimate the heat trace of a graph with a stage's parameters."""
    laplacian = LAPLACIANS[parameters["laplacian"]](adjacency)
    settings = read_settings(parameters)
    return estimate_heat_trace(laplacian, read_times(parameters), generator=generator, **settings)


LAPLACIANS = {"normalized": normalised_laplacian, "unnormalized": unnormalised_laplacian}


def probe_graph(inputs: Inputs) -> Output:
    """Compute a task's share of the pilots and exact moments, or of the probes."""
    state = read_state(inputs)
    laplacian, generator = _read_laplacian(inputs), inputs.generator()
    parts, steps = inputs.stage.partitions, state.values["steps"]
    null_space, distribution = _null_space(inputs, laplacian), inputs.parameters["distribution"]
    count = state.values["wanted"] // parts + (inputs.index < state.values["wanted"] % parts)
    if state.values["phase"] == "pilots":
        n = laplacian.shape[0]
        rows = slice(n * inputs.index // parts, n * (inputs.index + 1) // parts)
        pilots = pilot_rules(laplacian, count, steps, generator, null_space, distribution)
        exact = moments_in_budget(product_work(laplacian), n)
        return Output(
            values={
                "width": norm_bound(laplacian),
                "null_dimension": null_space.dimension if null_space else 0,
                "exact": exact,
            },
            arrays={
                **record_arrays(pilots),
                "moments": (exact_moments if exact else few_moments)(laplacian, rows),
            },
        )
    control = load_record(ControlVariate, state)
    times = with_imd_times(read_times(inputs.parameters))
    seen = probe_integrals(
        laplacian, control, times, count, steps, generator, null_space, distribution
    )
    return Output(arrays=record_arrays(seen))


def average_iterations(inputs: Inputs) -> Output:
    """Request pilots, fit the control variate to them, then request probes until they suffice."""
    p, state = inputs.parameters, inputs.state
    if state is None:
        wanted = max(PILOT_PROBES, inputs.stage.partitions)  # every task has some
        return Output({"phase": "pilots", "wanted": wanted, "steps": _steps(inputs)}, {}, False)
    times, steps = read_times(inputs.parameters), state.values["steps"]
    everywhere = with_imd_times(times)
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
            everywhere,
            steps,
            null_dimension,
            p["variance_reduction"],
            p["distribution"],
            exact=inputs.parts[0].values["exact"],
        )
        wanted = MIN_PROBES if p["probes"] == "auto" else p["probes"]
        nothing = np.empty((0, len(everywhere)))
        values = {"phase": "probes", "wanted": wanted, "steps": steps, "n": int(moments[0])}
        return _next_iteration(values, control, ProbeIntegrals(nothing, nothing))
    control = load_record(ControlVariate, state)
    seen = ProbeIntegrals(
        *(np.concatenate([state.array(side), _join(inputs, side)]) for side in ("below", "above"))
    )
    n = state.values["n"]
    heat = average_probes(times, [seen], control, n, steps, least=1.0 / n)
    enough = is_known(heat, control, p["tolerance"]) or len(seen) >= MAX_PROBES
    if p["probes"] != "auto" or enough:
        return record_output(heat)
    return _next_iteration({**state.values, "wanted": len(seen)}, control, seen)


def _next_iteration(
    values: dict[str, Any], control: ControlVariate, seen: ProbeIntegrals
) -> Output:
    kept = {name: values[name] for name in ("phase", "wanted", "steps", "n")}
    return Output(
        {**kept, "width": control.width},
        {**record_arrays(control), **record_arrays(seen)},
        finished=False,
    )


def _join(inputs: Inputs, name: str) -> Float64Array:
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
