"""Workers that are processes of this machine, with their scheduler in the driver."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import resource_tracker
from typing import Any

import dask
import distributed
import numpy as np
from distributed.security import Security
from distributed.utils import silence_logging_cmgr

from latentscale.tiles.device import unit_rows
from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.engine.memory import IDLE_WORKER_BYTES, task_memory
from latentscale_pipeline.executors.dask.environment import (
    SCHEDULER_SETTINGS,
    WORKER_ENVIRONMENT,
    WORKER_SETTINGS,
)
from latentscale_pipeline.executors.dask.executor import DaskExecutor, undisturbed
from latentscale_pipeline.storage.urls import Options, options_in_force, use_options

SETTINGS: dict[str, Any] = {
    **WORKER_SETTINGS,
    **SCHEDULER_SETTINGS,
    "distributed.nanny.pre-spawn-environ": WORKER_ENVIRONMENT,
    # Workers that die are started again within seconds; none at all means none will come.
    "distributed.scheduler.no-workers-timeout": "60s",
    "distributed.admin.tick.limit": "60s",
    # Errors that matter come back as a task's exception and are reported in one line.
    "logging.distributed": "critical",
}


class StorageOptions(distributed.WorkerPlugin):
    """Lets every worker, whenever it starts, reach storage with the options of this process."""

    name = "latentscale-storage-options"

    def __init__(self, options: Options) -> None:
        self._options = options

    def setup(self, worker: distributed.Worker) -> None:
        """Put the options in force, and close the port on which nobody is asked who they are."""
        worker.http_server.stop()
        use_options(self._options)


class CompilerStart(distributed.WorkerPlugin):
    """Starts the compiler of every worker ahead of its first task, which would take a second."""

    name = "latentscale-compiler-start"

    async def setup(self, worker: distributed.Worker) -> None:
        """Call something small that is compiled, beside the worker's loop."""
        await asyncio.to_thread(_scale_one_row)


def _scale_one_row() -> None:
    unit_rows(np.ones((1, 1), np.float32), np.ones(1), np.empty((1, 1), np.float32))


@contextmanager
def local_cluster(settings: Local, idle_bytes: int = IDLE_WORKER_BYTES) -> Iterator[DaskExecutor]:
    """Start worker processes on this machine and stop them at the end.

    Traffic is encrypted with keys made for this run alone, because loopback isn't private on a
    shared machine. For the same reason the dashboard, which asks nobody who they are, is off
    unless it is asked for; it listens on loopback only and serves pages that can't be acted on.
    Scheduler and nannies live in this process: when it dies, its workers end at once.

    Parameters
    ----------
    settings : Local
        Workers, threads, the memory limit of each worker, and whether to serve the dashboard. It
        needs bokeh; without it the executor has no ``dashboard``.
    idle_bytes : int
        What a worker holds of its limit without any task.

    Raises
    ------
    Incomplete
        If the workers can't be started.
    """

    def problem(reason: str) -> str:
        return (
            f"{settings.workers} workers could not be started on this machine ({reason}); "
            "lower cluster.workers, or run the same command again"
        )

    with undisturbed(_started(settings, idle_bytes), problem) as executor:
        yield executor


@contextmanager
def _started(settings: Local, idle_bytes: int) -> Iterator[DaskExecutor]:
    if sys.platform != "win32":
        # Workers inherit this: Ctrl-C reaches all processes of a terminal, and only the one that
        # hands out the tasks is to act on it. Starting the tracker would lift the block.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    options = {
        "n_workers": settings.workers,
        "threads_per_worker": settings.threads,
        "memory_limit": settings.memory_limit,
        "resources": {"memory": task_memory(settings.memory_limit, idle_bytes)},
        "security": Security.temporary(),
    }
    with scheduler_here(
        lambda scheduler: distributed.LocalCluster(**options, **COMMON, scheduler_kwargs=scheduler),
        SETTINGS,
        dashboard=settings.dashboard,
    ) as (_, client, link):
        client.register_plugin(StorageOptions(options_in_force()))
        client.register_plugin(CompilerStart())
        yield DaskExecutor(client, settings.memory_limit, link)


COMMON = {"protocol": "tls://", "silence_logs": "CRITICAL"}
"""Options of every cluster whose scheduler is in this process."""


@contextmanager
def scheduler_here(
    make: Callable[[dict[str, Any]], AbstractContextManager[Any]],
    settings: Mapping[str, Any],
    *,
    dashboard: bool,
) -> Iterator[tuple[Any, distributed.Client, str | None]]:
    """Run a scheduler in this process for the time of a ``with`` block.

    Parameters
    ----------
    make : callable
        Makes the cluster from options of its scheduler.
    settings : mapping
        Dask's, meanwhile.
    dashboard : bool
        Whether its pages are served, on loopback, if bokeh is installed.

    Yields
    ------
    cluster, client, str or None
        The last is the address of the pages.
    """
    dashboard = dashboard and importlib.util.find_spec("bokeh") is not None
    port = free_port() if dashboard else 0
    options = {"dashboard": dashboard, "dashboard_address": f"127.0.0.1:{port}"}
    with (
        # Also while everything closes, when one side finds the other gone.
        silence_logging_cmgr("CRITICAL"),
        dask.config.set({**settings, **(dashboard_settings(port) if dashboard else {})}),
        make(options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        if not dashboard:
            cluster.scheduler.http_server.stop()
        yield cluster, client, cluster.dashboard_link if dashboard else None


def dashboard_settings(port: int) -> dict[str, Any]:
    """Return which of Dask's settings change when the dashboard is asked for."""
    application = "distributed.scheduler.dashboard.bokeh-application"
    return {
        "distributed.scheduler.http.routes": ["distributed.http.statics"],
        # Pages of other sites in the same browser must not read it.
        f"{application}.allow_websocket_origin": [f"127.0.0.1:{port}", f"localhost:{port}"],
        "distributed.dashboard.link": "http://127.0.0.1:{port}/status",
    }


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
