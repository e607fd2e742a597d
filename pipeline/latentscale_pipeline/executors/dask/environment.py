"""The environment of worker processes, wherever they are started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    # Freed arrays go back to the system at once, so that what a task holds is what it needs.
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
"""One thread inside a task: what a task computes must not depend on how many run beside it."""

TCP_SECONDS = "20s"
"""After how long a connection that carries nothing is given up."""


WORKER_SETTINGS = {
    # Nothing of size lives in a worker's care, so there is nothing to spill; only the limit counts.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.98,
    # No pages and no logs over unencrypted HTTP.
    "distributed.worker.http.routes": [],
}
"""Dask's settings of every worker."""

SCHEDULER_SETTINGS = {
    # Report a task at once when its worker died: the job's configuration limits the retries.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.http.routes": [],
}
"""Dask's settings of every scheduler."""

_AWAY = {"distributed.comm.timeouts.tcp": TCP_SECONDS, "distributed.comm.require-encryption": True}


def worker_environment() -> dict[str, str]:
    """Return the environment of a worker that isn't started by a nanny of ours."""
    return WORKER_ENVIRONMENT | _variables(WORKER_SETTINGS | _AWAY)


def scheduler_environment() -> dict[str, str]:
    """Return the environment of a scheduler that runs in a process of its own."""
    return _variables(SCHEDULER_SETTINGS | _AWAY)


def _variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables by which Dask takes its settings from an environment."""
    names = {key: key.upper().replace(".", "__").replace("-", "_") for key in settings}
    return {f"DASK_{names[key]}": str(value) for key, value in settings.items()}
