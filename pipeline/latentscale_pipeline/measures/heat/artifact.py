"""What all routes to a heat trace share: its times, and the form of the artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.heat.trace import HeatTrace
from latentscale_pipeline.measures.shared.records import record_arrays
from latentscale_pipeline.storage.artifacts import Output

SETTINGS = ("steps", "probes", "tolerance", "distribution", "variance_reduction")
"""How a trace is estimated, by the names that the configuration and the mathematics share."""


def read_settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a trace is estimated, from a stage's parameters; None is ``auto``."""
    return {name: None if (p := parameters[name]) == "auto" else p for name in SETTINGS}


def read_times(parameters: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the diffusion times of a stage's parameters."""
    times = parameters["times"]
    return np.logspace(np.log10(times["start"]), np.log10(times["stop"]), times["count"])


def trace_output(heat: HeatTrace) -> Output:
    """Turn a heat trace into a stage's result."""
    return Output(
        values={"vertices": heat.vertices, "probes": heat.probes, "steps": heat.steps},
        arrays=record_arrays(heat),
    )
