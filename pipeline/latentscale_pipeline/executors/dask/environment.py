"""Environment variables and Dask settings of workers and schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentscale_pipeline.executors.process_environment import ONE_THREAD

WORKER_ENVIRONMENT = {
    **ONE_THREAD,
    # Return freed memory to the system at once, so that a worker's memory is what its tasks need.
    # Arrays of up to 8 MiB are the exception: a task makes thousands of them, and memory that is
    # new to a process takes several times as long to fill.
    "MALLOC_MMAP_THRESHOLD_": str(8 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(16 * 2**20),
}
"""Environment variables of every worker."""

TCP_SECONDS = "20s"
"""Timeout of a connection without traffic."""


WORKER_SETTINGS = {
    # Workers hold no large data for Dask, so there is nothing to spill; only the limit matters.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.98,
    # Serve no pages and no logs over unencrypted HTTP.
    "distributed.worker.http.routes": [],
}
"""Dask settings of every worker."""

SCHEDULER_SETTINGS = {
    # Report a task at once if its worker died; cluster.retries limits the attempts.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.http.routes": [],
}
"""Dask settings of every scheduler."""

_REMOTE_SETTINGS = {
    "distributed.comm.timeouts.tcp": TCP_SECONDS,
    "distributed.comm.require-encryption": True,
}


def worker_environment() -> dict[str, str]:
    """Return the environment of a worker that runs outside this machine's local cluster."""
    return WORKER_ENVIRONMENT | _variables(WORKER_SETTINGS | _REMOTE_SETTINGS)


def scheduler_environment() -> dict[str, str]:
    """Return the environment of a scheduler in a separate process."""
    return _variables(SCHEDULER_SETTINGS | _REMOTE_SETTINGS)


def _variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return Dask settings as environment variables."""
    names = {key: key.upper().replace(".", "__").replace("-", "_") for key in settings}
    return {f"DASK_{names[key]}": str(value) for key, value in settings.items()}
