"""Workers that are processes of this machine, with their scheduler in the driver."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from latentscale_pipeline.errors import Incomplete
from latentscale_pipeline.executors.dask.environment import WORKER_ENVIRONMENT
from latentscale_pipeline.executors.dask.executor import DaskExecutor, Opened, undisturbed
from latentscale_pipeline.storage.urls import Options, options_in_force, use_options

SETTINGS: dict[str, Any] = {
    "distributed.nanny.pre-spawn-environ": WORKER_ENVIRONMENT,
    # Nothing of size lives in the scheduler's care, so there is nothing to spill; only the
    # limit itself counts.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.98,
    # A task whose worker died is told at once: how often it is tried again is the job's to say.
    "distributed.scheduler.allowed-failures": 0,
    # Workers that die are started again within seconds; none at all means none will come.
    "distributed.scheduler.no-workers-timeout": "60s",
    # No pages and no logs over unencrypted HTTP.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.admin.tick.limit": "60s",
    # Whatever matters comes back from a task as what it raised, and is told in one line.
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
    with undisturbed(lambda: _open_or_explain(settings, idle_bytes)) as executor:
        yield executor


def _open_or_explain(settings: Local, idle_bytes: int) -> Opened[DaskExecutor]:
    try:
        return _open(settings, idle_bytes)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Incomplete(
            f"{settings.workers} workers could not be started on this machine ({reason}); "
            "lower cluster.workers, or run the same command again"
        ) from error


def _open(settings: Local, idle_bytes: int) -> Opened[DaskExecutor]:
    if sys.platform != "win32":
        # Workers inherit this: Ctrl-C reaches all processes of a terminal, and only the one that
        # hands out the tasks is to act on it. Starting the tracker would lift the block.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    dashboard = settings.dashboard and importlib.util.find_spec("bokeh") is not None
    port = free_port() if dashboard else 0
    with ExitStack() as stack:
        # Also while everything closes, when one side finds the other gone.
        stack.enter_context(silence_logging_cmgr("CRITICAL"))
        stack.enter_context(
            dask.config.set(SETTINGS | (dashboard_settings(port) if dashboard else {}))
        )
        cluster = stack.enter_context(
            distributed.LocalCluster(
                n_workers=settings.workers,
                threads_per_worker=settings.threads,
                memory_limit=settings.memory_limit,
                resources={"memory": task_memory(settings.memory_limit, idle_bytes)},
                security=Security.temporary(),
                protocol="tls://",
                dashboard_address=f"127.0.0.1:{port}",
                scheduler_kwargs={"dashboard": dashboard},
                silence_logs="CRITICAL",
            )
        )
        client = stack.enter_context(distributed.Client(cluster))
        client.register_plugin(StorageOptions(options_in_force()))
        client.register_plugin(CompilerStart())
        if not dashboard:
            cluster.scheduler.http_server.stop()
        link = cluster.dashboard_link if dashboard else None
        executor = DaskExecutor(client, settings.memory_limit, link)
        return Opened(executor, stack.pop_all())


def dashboard_settings(port: int) -> dict[str, Any]:
    """Return which of Dask's settings change when the dashboard is asked for."""
    application = "distributed.scheduler.dashboard.bokeh-application"
    return {
        "distributed.scheduler.http.routes": ["distributed.http.statics"],
        # What a browser shows of other sites may not read along.
        f"{application}.allow_websocket_origin": [f"127.0.0.1:{port}", f"localhost:{port}"],
        "distributed.dashboard.link": "http://127.0.0.1:{port}/status",
    }


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
