"""What all routes to a heat trace share: expected cost, and the form of the artifact."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.heat.trace import LEAST_PROBES, LEAST_STEPS, MOST_PROBES, HeatTrace
from latentscale_pipeline.measures.base import CorpusFacts
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.storage.artifacts import Output

PROBE_DEVIATION = 2.4
"""Relative standard deviation of one probe at the largest times, times the root of the rows."""

UNNORMALISED_STEPS = 40
"""Lanczos steps that ``steps: auto`` is expected to take where eigenvalues exceed 2."""

TIME_BYTES = 2 * 8 * 4096
"""Memory for one time: the deviation of every probe, and a bootstrap's draws."""


def expected_probes(section: Heat, corpus: CorpusFacts) -> int:
    """Return the expected number of probes."""
    if isinstance(section.probes, int):
        return section.probes
    needed = (PROBE_DEVIATION / section.tolerance) ** 2 / corpus.n
    doublings = math.ceil(math.log2(max(needed / LEAST_PROBES, 1.0)))
    return min(LEAST_PROBES << doublings, MOST_PROBES)


def expected_steps(section: Heat) -> int:
    """Return the expected number of Lanczos steps."""
    if isinstance(section.steps, int):
        return section.steps
    return LEAST_STEPS if section.laplacian == "normalized" else UNNORMALISED_STEPS


def trace_parameters(section: Heat) -> dict[str, Any]:
    """Return what a trace depends on beside its graph, as parameters of a stage."""
    return {
        "times": section.times.model_dump(),
        "laplacian": section.laplacian,
        "steps": section.steps,
        "probes": section.probes,
        "tolerance": section.tolerance,
        "distribution": section.distribution,
        "variance_reduction": section.variance_reduction,
    }


def read_times(parameters: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the diffusion times of a stage's parameters."""
    times = parameters["times"]
    return np.logspace(np.log10(times["start"]), np.log10(times["stop"]), times["count"])


HEAT_ARRAYS = (
    "times",
    "trace",
    "lower",
    "upper",
    "standard_error",
    "deviations",
    "quadrature",
)


def trace_output(heat: HeatTrace) -> Output:
    """Turn a heat trace into a stage's result."""
    return Output(
        values={"vertices": heat.vertices, "probes": heat.probes, "steps": heat.steps},
        arrays={name: getattr(heat, name) for name in HEAT_ARRAYS},
    )
