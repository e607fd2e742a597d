"""Collection of the results, scores and arrays of heat traces and IMD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from latentscale.estimate import Bounds, Estimate
from latentscale.heat.imd import imd_sampling_error
from latentscale.heat.null_models import Normalization, grows_with_vertices
from latentscale.heat.supremum import IMD_TIMES
from latentscale.heat.trace import HeatTrace
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
    load_estimate,
)
from latentscale_pipeline.measures.heat import results as model
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.measures.heat.plan import searches_cells
from latentscale_pipeline.measures.heat.replicates import (
    read_replicates,
)
from latentscale_pipeline.measures.heat.results import (
    HeatResults,
    Imd,
    ImdConvention,
    NeighbourGraph,
)
from latentscale_pipeline.measures.heat.scores import SCORES
from latentscale_pipeline.measures.heat.tasks import mean_degree, missed_recall, normalised_trace
from latentscale_pipeline.measures.shared.neighbours.merge import newest_lists
from latentscale_pipeline.measures.shared.neighbours.plan import list_stages
from latentscale_pipeline.storage.artifacts import Artifact

HEADLINE_TIME = 1.0
"""Diffusion time whose trace is a score; the weight of IMD is largest there."""

CURVE_TIMES = 24
"""Times at which samples say what chance makes of the trace."""

SIGNIFICANT = 1.96
"""Number of sampling errors that IMD's lower end must exceed for the corpora to differ."""

SIZE_TOLERANCE = 0.01
"""Share by which the numbers of rows may differ for the traces of all rows to be compared."""

UNITS: dict[Normalization, str] = {
    "none": "trace",
    "empty": "trace per vertex",
    "complete": "trace / complete graph's",
    "er": "trace / random graph's",
}
"""Unit of a trace under each normalization."""


def collect_heat(section: Heat, facts: JobFacts, results: Results) -> Findings:
    """Collect traces, graphs and IMD."""
    found: dict[str, Any] = {}
    scores: list[Score] = []
    arrays: dict[str, str] = {}
    replicates = read_replicates(facts, results)
    freedom = None if replicates is None else facts.replicates - 1
    errors: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    imd_errors: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    for role in facts.corpora:
        graph = results(f"graph-{role}").values
        artifact = results(f"heat-{role}")
        # The deviations at the times of IMD go with the end of the job.
        gone = np.zeros((0, len(IMD_TIMES)))
        heat = normalised_trace(
            artifact, graph, section.normalization, section.laplacian, imd_deviations=gone
        )
        found[role] = _trace(section, heat, graph)
        at = int(np.argmin(np.abs(np.log(heat.times / HEADLINE_TIME))))
        fields = _unit(section, float(heat.times[at]))
        if replicates is not None:
            errors.append(replicates.errors[role] * heat.trace / artifact.array("trace"))
            unit = heat.imd_trace / artifact.array("imd_trace")
            imd_errors.append(replicates.imd_errors[role] * unit)
        value, lower, upper = (float(ends[at]) for ends in (heat.trace, heat.lower, heat.upper))
        scores.append(
            SCORES["heat_trace"].score(
                Estimate(value, lower, upper, _bounds(heat, graph), ""),
                role,
                scale=float(heat.times[at]),
                sampling_freedom=freedom,
                sampling_error=float(errors[-1][at]) if errors else None,
                **fields,
            )
        )
        arrays |= _neighbour_arrays(_lists(section, facts, role, results), role)
        arrays[f"heat/{role}/deviations"] = artifact.path("deviations")
    found["imd"] = None
    if len(facts.corpora) > 1:
        compared = results("imd").values
        estimate = load_estimate(compared["estimate"])
        error = imd_sampling_error(imd_errors) if replicates else None
        found["imd"] = Imd.from_estimate(
            estimate,
            time=compared["time"],
            # The lower end allows for the error of computation, the threshold for that of sampling.
            differs=None
            if error is None or not _alike_in_size(facts)
            else bool(estimate.lower > SIGNIFICANT * error),
            **{
                name: ImdConvention.from_estimate(
                    load_estimate(other["estimate"]), time=other["time"]
                )
                for name, other in compared["conventions"].items()
            },
        )
        scores.append(
            SCORES["imd"].score(
                estimate,
                "pair",
                sampling_error=error,
                sampling_freedom=freedom,
                **_unit(section, HEADLINE_TIME),
            )
        )
    if replicates is not None:
        found["replicates"] = replicates.section()
    trace = found["corpus"]
    some = np.unique(np.linspace(0, len(trace.times) - 1, CURVE_TIMES).round().astype(int))
    curve = tuple([values[place] for place in some] for values in (trace.times, trace.trace))
    return Findings(HeatResults(**found), tuple(scores), arrays, curve=(curve[0], curve[1]))


def _unit(section: Heat, time: float) -> dict[str, Any]:
    """Return a score's unit at a time, and whether it depends on the number of rows."""
    grows = grows_with_vertices(section.normalization, time, section.laplacian)
    return {"unit": UNITS[section.normalization], "size_dependent": grows}


def _alike_in_size(facts: JobFacts) -> bool:
    """Return whether the corpora have about equally many rows, on which a trace depends."""
    rows = [corpus.n for corpus in facts.corpora.values()]
    return max(rows) <= (1.0 + SIZE_TOLERANCE) * min(rows)


def _lists(section: Heat, facts: JobFacts, role: Role, results: Results) -> Artifact:
    if searches_cells(section, facts.corpora[role]):
        return newest_lists(results, list_stages(role))
    return results(f"neighbours-{role}")


def _neighbour_arrays(neighbours: Artifact, role: Role) -> dict[str, str]:
    """Return the paths of every row's neighbours; the largest corpora's are in cell order."""
    for indices, distances in (("indices", "distances"), ("row_indices", "row_distances")):
        if indices in neighbours.objects:
            return {
                f"heat/{role}/neighbours": neighbours.path(indices),
                f"heat/{role}/distances": neighbours.path(distances),
            }
    parts = [neighbours.partition(block) for block in range(neighbours.values["blocks"])]
    return {
        f"heat/{role}/{kind}/{block:05d}": part.path(name)
        for block, part in enumerate(parts)
        for kind, name in (("neighbours", "indices"), ("distances", "distances"), ("rows", "rows"))
    }


def _trace(section: Heat, heat: HeatTrace, graph: Mapping[str, Any]) -> model.HeatTrace:
    return model.HeatTrace(
        times=heat.times.tolist(),
        trace=heat.trace.tolist(),
        lower=heat.lower.tolist(),
        upper=heat.upper.tolist(),
        standard_error=heat.standard_error.tolist(),
        bounds=_bounds(heat, graph),
        normalization=section.normalization,
        laplacian=section.laplacian,
        k=section.k,
        steps=heat.steps,
        probes=heat.probes,
        graph=NeighbourGraph(
            edges=graph["summary"]["edges"],
            components=graph["summary"]["components"],
            isolated=graph["summary"]["isolated"],
            neighbours=graph["method"],
            recall=graph["recall"],
            mean_degree=mean_degree(graph),
            tied=graph["tied"],
            attempts=graph["attempts"],
        ),
    )


def _bounds(heat: HeatTrace, graph: Mapping[str, Any]) -> Bounds:
    if missed_recall(graph) > 0:
        return "estimate"
    return "exact" if heat.probes == 0 else "interval95"
