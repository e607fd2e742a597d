"""What all routes to a heat trace share: its times, and how it is estimated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

SETTINGS = ("steps", "probes", "tolerance", "distribution", "variance_reduction")
"""How a trace is estimated, by the names that the configuration and the mathematics share."""


def read_settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a trace is estimated, from a stage's parameters; None is ``auto``."""
    return {name: None if (p := parameters[name]) == "auto" else p for name in SETTINGS}


def read_times(parameters: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the diffusion times of a stage's parameters."""
    times = parameters["times"]
    return np.logspace(np.log10(times["start"]), np.log10(times["stop"]), times["count"])
