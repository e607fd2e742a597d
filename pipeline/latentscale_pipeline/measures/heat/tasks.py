"""Tasks that compare two heat traces: IMD in the configured and both usual normalizations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from latentscale.graphs.knn import GraphSummary
from latentscale.heat.imd import imd_of_traces
from latentscale.heat.null_models import Normalization
from latentscale.heat.trace import HeatTrace, normalise
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import store_estimate
from latentscale_pipeline.measures.shared.records import load_record
from latentscale_pipeline.storage.artifacts import Artifact, Output

GRAPH_ERROR = 2.0e-4
"""IMD error of an approximate graph per unit of missed recall: 2e-6 at a recall of 0.99."""

TRACE_ERROR = GRAPH_ERROR * math.exp(4.0)
"""The same for the trace per vertex: IMD weighs a difference by at most exp(-4)."""


def compare_traces(inputs: Inputs) -> Output:
    """Compute IMD from two traces, in the configured and both usual normalizations."""
    kind: Normalization = inputs.parameters["normalization"]
    generator = inputs.generator()
    conventions = {
        name: _imd_under(inputs, convention, generator) for name, convention in CONVENTIONS.items()
    }
    return Output(values={**_imd_under(inputs, kind, generator), "conventions": conventions})


CONVENTIONS: dict[str, Normalization] = {"per_vertex": "empty", "unnormalized": "none"}
"""IMD with the trace per vertex, and as defined by Tsitsulin et al."""


def _imd_under(
    inputs: Inputs, kind: Normalization, generator: np.random.Generator
) -> dict[str, Any]:
    traces, graph_error = [], 0.0
    for role in ("corpus", "reference"):
        graph = inputs.results[f"graph-{role}"].values
        artifact = inputs.results[f"heat-{role}"]
        traces.append(normalised_trace(artifact, graph, kind))
        graph_error += GRAPH_ERROR * missed_recall(graph) * _unit_of_error(artifact, traces[-1])
    result = imd_of_traces(traces[0], traces[1], generator=generator, graph_error=graph_error)
    # The effect of an approximate graph on IMD was measured, not proven.
    bounds = "estimate" if graph_error > 0 else result.estimate.bounds
    estimate = replace(result.estimate, bounds=bounds)
    return {"estimate": store_estimate(estimate), "time": result.time}


def missed_recall(graph: Mapping[str, Any]) -> float:
    """Return the share of true neighbours that a graph may lack."""
    return 1.0 - float(graph["recall"]["lower"])


def _unit_of_error(per_vertex: Artifact, normalised: HeatTrace) -> float:
    """How much an IMD per vertex grows, at most, under a normalisation."""
    weight = np.exp(-2.0 * (normalised.times + 1.0 / normalised.times))
    ratio = normalised.trace / per_vertex.array("trace")
    return float((weight * ratio).max() * math.exp(4.0))


def normalised_trace(
    artifact: Artifact, graph: Mapping[str, Any], kind: Normalization
) -> HeatTrace:
    """Load a trace, widen its bracket by the error of the graph, and normalise it."""
    error = TRACE_ERROR * missed_recall(graph)
    heat = load_record(HeatTrace, artifact)
    heat = replace(heat, lower=np.maximum(heat.lower - error, 0.0), upper=heat.upper + error)
    summary = GraphSummary(**graph["summary"])
    return normalise(heat, kind, mean_degree=2.0 * summary.edges / summary.vertices)
