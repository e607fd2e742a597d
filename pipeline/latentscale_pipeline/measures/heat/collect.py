"""The findings of heat traces and IMD: sections of the results, scores and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from latentscale.heat.imd import imd_sampling_error
from latentscale.heat.null_models import Normalization
from latentscale.heat.trace import HeatTrace
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Results,
    Role,
    Score,
    load_estimate,
)
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.measures.heat.plan import searches_cells
from latentscale_pipeline.measures.heat.replicates import (
    read_replicates,
)
from latentscale_pipeline.measures.heat.tasks import missed_recall, normalised_trace
from latentscale_pipeline.measures.shared.neighbours.merge import newest_lists
from latentscale_pipeline.measures.shared.neighbours.plan import list_stages
from latentscale_pipeline.storage.artifacts import Artifact

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
        artifact = results(f"heat-{role}")
        heat = normalised_trace(artifact, graph, section.normalization)
        found[role] = _trace_section(section, heat, graph)
        headline = _headline(heat, graph, role, unit)
        if replicates is not None:
            errors.append(replicates.errors[role] * heat.trace / artifact.array("trace"))
            error = float(errors[-1][_at_headline(heat)])
            headline = headline.model_copy(update={"sampling_error": error})
        scores.append(headline)
        arrays |= _neighbour_arrays(_lists(section, facts, role, results), role)
        arrays[f"heat/{role}/deviations"] = artifact.path("deviations")
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
        scores = [score.model_copy(update={"size_dependent": False}) for score in scores]
    return Findings(found, scores, arrays)


def _lists(section: Heat, facts: JobFacts, role: Role, results: Results) -> Artifact:
    if searches_cells(section, facts.corpora[role]):
        return newest_lists(results, list_stages(role))
    return results(f"neighbours-{role}")


def _neighbour_arrays(neighbours: Artifact, role: Role) -> dict[str, str]:
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
    if missed_recall(graph) > 0:
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
