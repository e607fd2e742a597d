"""Diffusion times and settings of a heat trace, read from a stage's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from latentscale.array_types import Float64Array

SETTINGS = ("steps", "probes", "tolerance", "distribution", "variance_reduction")
"""Settings of a trace estimate; the configuration and the library use the same names."""


def read_settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a trace estimate from a stage's parameters; ``auto`` becomes None."""
    return {name: None if (p := parameters[name]) == "auto" else p for name in SETTINGS}


def read_times(parameters: Mapping[str, Any]) -> Float64Array:
    """Return the diffusion times of a stage's parameters."""
    times = parameters["times"]
    return np.logspace(np.log10(times["start"]), np.log10(times["stop"]), times["count"])
