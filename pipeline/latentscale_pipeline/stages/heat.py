"""Heat trace and IMD: neighbours, graph, trace, and the distance between two traces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from latentscale.graph import GraphSummary
from latentscale.heat import BOOTSTRAP_DRAWS, HeatTrace, Normalization, imd, normalise
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Heat
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.cell_merging import newest_lists
from latentscale_pipeline.stages.cell_neighbours import list_stages, plan_cell_neighbours
from latentscale_pipeline.stages.exact_neighbours import exact_neighbours_stage
from latentscale_pipeline.stages.heat_by_rows import plan_trace_by_rows
from latentscale_pipeline.stages.heat_probes import fits_one_task, trace_stage
from latentscale_pipeline.stages.heat_published import TIME_BYTES, expected_probes
from latentscale_pipeline.stages.heat_replicates import (
    imd_sampling_error,
    plan_replicates,
    read_replicates,
)
from latentscale_pipeline.stages.measure import (
    RESULT_BYTES,
    TILE_BYTES,
    CorpusFacts,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
    load_estimate,
    store_estimate,
)
from latentscale_pipeline.stages.neighbour_graph import graph_stage

EXACT_ROWS = 50_000
"""Corpora of up to this many rows get exact neighbours under ``neighbours: auto``."""

GRAPH_ERROR = 2.0e-4
"""IMD error of an approximate graph per unit of missed recall: 2e-6 at a recall of 0.99."""

TRACE_ERROR = GRAPH_ERROR * math.exp(4.0)
"""The same for the trace per vertex: IMD weighs a difference by at most exp(-4)."""

HEADLINE_TIME = 1.0
"""Diffusion time whose trace is a score: where the weight of IMD peaks."""

SIGNIFICANT = 1.96
"""Sampling errors that a lower end has to exceed for two corpora to be called different."""

UNITS: dict[Normalization, str] = {
    "none": "trace",
    "empty": "trace per vertex",
    "complete": "trace / complete graph's",
    "er": "trace / random graph's",
}
"""What a normalised trace is measured in."""


def plan_heat(section: Heat, facts: JobFacts) -> list[Stage]:
    """Plan neighbours, graph and trace of every corpus, and IMD when there are two."""
    if section.metric == "cosine":
        facts.refuse_zero_rows("heat.metric cosine")
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
                effort=_imd_effort(section, facts),
            )
        )
    return [*stages, *plan_replicates(section, facts)]


def _corpus_stages(section: Heat, facts: JobFacts, role: Role) -> list[Stage]:
    corpus = facts.corpora[role]
    if section.k >= corpus.n:
        raise BadInput(
            f"{role}: heat.k is {section.k} and there are {corpus.n} rows; use a smaller k"
        )
    in_cells = _in_cells(section, corpus)
    why = f"heat.neighbours is {section.neighbours}"
    if section.neighbours == "auto":
        why = f"{'more than' if in_cells else 'at most'} {EXACT_ROWS:,} rows"
    neighbours = (
        plan_cell_neighbours(section, facts, role, why)
        if in_cells
        else [exact_neighbours_stage(section, facts, role, why)]
    )
    # The graph of exact neighbours is in one block, whatever its size.
    trace = (
        plan_trace_by_rows(section, facts, role)
        if in_cells and not fits_one_task(section, corpus)
        else [trace_stage(section, facts, role)]
    )
    return [
        *neighbours,
        graph_stage(section, role, corpus, in_cells=in_cells),
        *trace,
    ]


def _in_cells(section: Heat, corpus: CorpusFacts) -> bool:
    if section.neighbours == "auto":
        return corpus.n > EXACT_ROWS
    return section.neighbours == "cells"


def _imd_effort(section: Heat, facts: JobFacts) -> Effort:
    probes = sum(expected_probes(section, corpus) for corpus in facts.corpora.values())
    times = section.times.count
    return Effort(
        bytes_read=8 * times * (probes + 14),
        bytes_written=RESULT_BYTES,
        products=float(BOOTSTRAP_DRAWS * probes * times),
        folds=10.0 * BOOTSTRAP_DRAWS * (probes + 2 * times),
    )


def compare_traces(inputs: Inputs) -> Output:
    """Compute IMD from the traces of both corpora, in the configured and in both usual units."""
    kind: Normalization = inputs.parameters["normalization"]
    generator = inputs.generator()
    conventions = {
        name: _imd_under(inputs, convention, generator) for name, convention in CONVENTIONS.items()
    }
    return Output(values={**_imd_under(inputs, kind, generator), "conventions": conventions})


CONVENTIONS: dict[str, Normalization] = {"per_vertex": "empty", "unnormalized": "none"}
"""IMD with the trace per vertex, and as Tsitsulin et al. write it."""


def _imd_under(
    inputs: Inputs, kind: Normalization, generator: np.random.Generator
) -> dict[str, Any]:
    traces, graph_error = [], 0.0
    for role in ("corpus", "reference"):
        graph = inputs.results[f"graph-{role}"].values
        published = inputs.results[f"heat-{role}"]
        traces.append(_normalised(published, graph, kind))
        graph_error += GRAPH_ERROR * _missed(graph) * _unit_of_error(published, traces[-1])
    result = imd(traces[0], traces[1], generator=generator, graph_error=graph_error)
    # How much an approximate graph moves IMD was measured, not proven.
    bounds = "estimate" if graph_error > 0 else result.estimate.bounds
    estimate = replace(result.estimate, bounds=bounds)
    return {"estimate": store_estimate(estimate), "time": result.time}


def _missed(graph: Mapping[str, Any]) -> float:
    return 1.0 - float(graph["recall"]["lower"])


def _unit_of_error(per_vertex: Published, normalised: HeatTrace) -> float:
    """How much an IMD per vertex grows, at most, under a normalisation."""
    weight = np.exp(-2.0 * (normalised.times + 1.0 / normalised.times))
    ratio = normalised.trace / per_vertex.array("trace")
    return float((weight * ratio).max() * math.exp(4.0))


def collect_heat(section: Heat, facts: JobFacts, results: Results) -> Findings:
    """Collect traces, graphs and IMD."""
    found: dict[str, Any] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    unit = UNITS[section.normalization]
    replicates = read_replicates(facts, results)
    errors: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    for role in facts.corpora:
        graph = results(f"graph-{role}").values
        published = results(f"heat-{role}")
        heat = _normalised(published, graph, section.normalization)
        found[role] = _trace_section(section, heat, graph)
        headline = _headline(heat, graph, role, unit)
        if replicates is not None:
            errors.append(replicates.errors[role] * heat.trace / published.array("trace"))
            headline = replace(headline, sampling_error=float(errors[-1][_at_headline(heat)]))
        scores.append(headline)
        arrays |= _neighbour_arrays(_lists(section, facts, role, results), role)
        arrays[f"heat/{role}/deviations"] = published.path("deviations")
    found["imd"] = None
    if len(facts.corpora) > 1:
        compared = results("imd").values
        estimate = load_estimate(compared["estimate"])
        others = compared["conventions"].items()
        found["imd"] = {
            **_imd_section(compared),
            **{convention: _imd_section(other) for convention, other in others},
        }
        fields: dict[str, Any] = {"measure": "heat", "of": "pair", "score": "imd"}
        if replicates is not None:
            error = imd_sampling_error(replicates.times, errors)
            fields["sampling_error"] = error
            # Beyond what computing it adds, and what other rows of the same sources would.
            found["imd"]["differs"] = bool(estimate.lower > SIGNIFICANT * error)
        scores.append(Score.known(estimate, **fields, unit=unit, better="low"))
    if replicates is not None:
        found["replicates"] = replicates.section()
    if section.normalization != "none":
        scores = [replace(score, size_dependent=False) for score in scores]
    return Findings(found, scores, arrays)


def _lists(section: Heat, facts: JobFacts, role: Role, results: Results) -> Published:
    if _in_cells(section, facts.corpora[role]):
        return newest_lists(results, list_stages(role))
    return results(f"neighbours-{role}")


def _neighbour_arrays(neighbours: Published, role: Role) -> dict[str, str]:
    """Where the neighbours of every row are; of the largest corpora, in the order of cells."""
    if "indices" in neighbours.objects:
        return {f"heat/{role}/neighbours": neighbours.path("indices")}
    parts = [neighbours.partition(block) for block in range(neighbours.values["blocks"])]
    return {
        f"heat/{role}/{kind}/{block:05d}": part.path(name)
        for block, part in enumerate(parts)
        for kind, name in (("neighbours", "indices"), ("rows", "rows"))
    }


def _imd_section(compared: Mapping[str, Any]) -> dict[str, Any]:
    estimate = load_estimate(compared["estimate"])
    return {
        "value": estimate.value,
        "lower": estimate.lower,
        "upper": estimate.upper,
        "standard_error": estimate.standard_error,
        "bounds": estimate.bounds,
        "time": compared["time"],
    }


def _trace_section(section: Heat, heat: HeatTrace, graph: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "times": heat.times.tolist(),
        "trace": heat.trace.tolist(),
        "lower": heat.lower.tolist(),
        "upper": heat.upper.tolist(),
        "standard_error": heat.standard_error.tolist(),
        "bounds": _trace_bounds(heat, graph),
        "normalization": section.normalization,
        "laplacian": section.laplacian,
        "k": section.k,
        "steps": heat.steps,
        "probes": heat.probes,
        "graph": {
            "edges": graph["summary"]["edges"],
            "components": graph["summary"]["components"],
            "isolated": graph["summary"]["isolated"],
            "neighbours": graph["method"],
            "recall": graph["recall"],
            "attempts": graph["attempts"],
        },
    }


def _trace_bounds(heat: HeatTrace, graph: Mapping[str, Any]) -> str:
    if _missed(graph) > 0:
        return "estimate"
    return "exact" if heat.probes == 0 else "interval95"


def _headline(heat: HeatTrace, graph: Mapping[str, Any], role: Role, unit: str) -> Score:
    at = _at_headline(heat)
    return Score(
        measure="heat",
        of=role,
        score="heat_trace",
        scale=float(heat.times[at]),
        value=float(heat.trace[at]),
        lower=float(heat.lower[at]),
        upper=float(heat.upper[at]),
        bounds=_trace_bounds(heat, graph),
        unit=unit,
        better="none",
    )


def _at_headline(heat: HeatTrace) -> int:
    return int(np.argmin(np.abs(np.log(heat.times / HEADLINE_TIME))))


def _normalised(published: Published, graph: Mapping[str, Any], kind: Normalization) -> HeatTrace:
    values = published.values
    error = TRACE_ERROR * _missed(graph)
    heat = HeatTrace(
        times=published.array("times"),
        trace=published.array("trace"),
        lower=np.maximum(published.array("lower") - error, 0.0),
        upper=published.array("upper") + error,
        standard_error=published.array("standard_error"),
        deviations=published.array("deviations"),
        quadrature=published.array("quadrature"),
        vertices=values["vertices"],
        probes=values["probes"],
        steps=values["steps"],
    )
    summary = GraphSummary(**graph["summary"])
    return normalise(heat, kind, mean_degree=2.0 * summary.edges / summary.vertices)


HEAT = Measure(section=Heat, plan=plan_heat, collect=collect_heat)
