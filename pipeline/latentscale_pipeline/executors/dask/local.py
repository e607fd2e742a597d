"""Worker processes on this machine, with the scheduler in the driver's process."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import dask
import distributed
from distributed.security import Security
from distributed.utils import silence_logging_cmgr

from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.engine.memory import IDLE_WORKER_BYTES, task_memory
from latentscale_pipeline.executors.dask.environment import (
    SCHEDULER_SETTINGS,
    WORKER_ENVIRONMENT,
    WORKER_SETTINGS,
)
from latentscale_pipeline.executors.dask.executor import DaskExecutor, connection_errors
from latentscale_pipeline.executors.dask.fork_server import (
    COMPILER,
    block_interrupts,
    start_fork_server,
    start_method,
)
from latentscale_pipeline.storage.urls import Options, options_in_force, use_options

SETTINGS: dict[str, Any] = {
    **WORKER_SETTINGS,
    **SCHEDULER_SETTINGS,
    "distributed.nanny.pre-spawn-environ": WORKER_ENVIRONMENT,
    # Workers that die are restarted within seconds; without any for longer, none will come.
    "distributed.scheduler.no-workers-timeout": "60s",
    "distributed.admin.tick.limit": "60s",
    # Errors come back as a task's exception and are reported in one line.
    "logging.distributed": "critical",
}


class DriverSettings(distributed.WorkerPlugin):
    """Gives every worker the environment variables and storage options of the driver."""

    name = "latentscale-driver-settings"

    def __init__(self, environment: Mapping[str, str], options: Options) -> None:
        self._environment = dict(environment)
        self._options = options

    def setup(self, worker: distributed.Worker) -> None:
        """Set them, and close the worker's HTTP port, which has no authentication."""
        worker.http_server.stop()
        # A forked worker has the variables that the fork server was started with.
        for name in os.environ.keys() - self._environment.keys():
            del os.environ[name]
        os.environ.update(self._environment)
        use_options(self._options)


class CompilerStart(distributed.WorkerPlugin):
    """Loads the compiler in every worker when it starts, which takes a second, before any task."""

    name = "latentscale-compiler-start"

    async def setup(self, worker: distributed.Worker) -> None:
        """Load it in a thread; a forked worker has it."""
        await asyncio.to_thread(importlib.import_module, COMPILER)


@contextmanager
def local_cluster(settings: Local, idle_bytes: int = IDLE_WORKER_BYTES) -> Iterator[DaskExecutor]:
    """Start worker processes on this machine and stop them at the end.

    Traffic is encrypted with keys made for this run, because loopback isn't private on a shared
    machine. For the same reason the dashboard, which has no authentication, is off by default; it
    listens on loopback only, and its pages are read-only. Scheduler and nannies are in this
    process: when it dies, its workers end at once.

    Parameters
    ----------
    settings : Local
        Workers, threads, the memory limit of each worker, and whether to serve the dashboard. It
        needs bokeh; without it the executor has no ``dashboard``.
    idle_bytes : int
        Memory of a worker without any task, which counts against its limit.

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

    with connection_errors(_started(settings, idle_bytes), problem) as executor:
        yield executor


@contextmanager
def _started(settings: Local, idle_bytes: int) -> Iterator[DaskExecutor]:
    start_fork_server()
    options = {
        "n_workers": settings.workers,
        "threads_per_worker": settings.threads,
        "memory_limit": settings.memory_limit,
        "resources": {"memory": task_memory(settings.memory_limit, idle_bytes)},
        "security": Security.temporary(),
    }
    with (
        block_interrupts(),
        scheduler_here(
            lambda scheduler: distributed.LocalCluster(
                **options, **COMMON, scheduler_kwargs=scheduler
            ),
            {**SETTINGS, "distributed.worker.multiprocessing-method": start_method()},
            dashboard=settings.dashboard,
        ) as (_, client, link),
    ):
        environment = {**os.environ, **WORKER_ENVIRONMENT}
        client.register_plugin(DriverSettings(environment, options_in_force()))
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
    """Run a scheduler in this process during a ``with`` block.

    Parameters
    ----------
    make : callable
        Creates the cluster, given the options of its scheduler.
    settings : mapping
        Dask settings during the block.
    dashboard : bool
        Whether to serve the dashboard, on loopback, if bokeh is installed.

    Yields
    ------
    cluster, client, str or None
        The last is the address of the dashboard.
    """
    dashboard = dashboard and importlib.util.find_spec("bokeh") is not None
    port = free_port() if dashboard else 0
    options = {"dashboard": dashboard, "dashboard_address": f"127.0.0.1:{port}"}
    with (
        # The outermost block, so that errors of closing connections aren't logged either.
        silence_logging_cmgr("CRITICAL"),
        dask.config.set({**settings, **(dashboard_settings(port) if dashboard else {})}),
        make(options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        if not dashboard:
            cluster.scheduler.http_server.stop()
        yield cluster, client, cluster.dashboard_link if dashboard else None


def dashboard_settings(port: int) -> dict[str, Any]:
    """Return the Dask settings for the dashboard on a port, with /health and /metrics."""
    application = "distributed.scheduler.dashboard.bokeh-application"
    return {
        "distributed.scheduler.http.routes": [
            "distributed.http.statics",
            "distributed.http.health",
            "distributed.http.scheduler.prometheus",
        ],
        # Prevent pages of other sites in the same browser from reading it.
        f"{application}.allow_websocket_origin": [f"127.0.0.1:{port}", f"localhost:{port}"],
        "distributed.dashboard.link": "http://127.0.0.1:{port}/status",
    }


def free_port() -> int:
    """Return a free port on the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
