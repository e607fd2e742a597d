"""Workers of a Dask cluster that dask-gateway starts for a run.

The gateway starts a scheduler and the workers, where its administrator says, and replaces workers
that die. It passes on the connection to the scheduler, with TLS and certificates of its own. The
cluster is stopped at the end of the run. If the driver is killed, the scheduler notices that it is
gone, and ends itself and with it the cluster.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from distributed.utils import silence_logging_cmgr

from latentscale_pipeline.config.cluster import Gateway
from latentscale_pipeline.errors import BadInput, how_to_install
from latentscale_pipeline.executors.dask.executor import connection_errors
from latentscale_pipeline.executors.dask.readiness import Job
from latentscale_pipeline.executors.dask.remote import RemoteExecutor
from latentscale_pipeline.progress import Echo

ABANDONED_SECONDS = 60.0
"""How long a scheduler waits for its driver to come back before it ends itself."""

LOOK_SECONDS = 5.0
"""Pause between its looks whether the driver is there."""


@contextmanager
def gateway_cluster(settings: Gateway, job: Job, echo: Echo) -> Iterator[RemoteExecutor]:
    """Provide the workers of a new cluster during a ``with`` block.

    Raises
    ------
    BadInput
        If dask-gateway isn't installed, or the gateway doesn't know the credentials.
    Incomplete
        If the gateway can't be reached, or doesn't start the cluster.
    """
    try:
        library = importlib.import_module("dask_gateway")
    except ImportError:
        raise BadInput(
            "cluster.kind gateway needs dask-gateway, which isn't installed; "
            f"{how_to_install('gateway')}"
        ) from None

    def problem(reason: str) -> str:
        return (
            f"cluster.address {settings.address}: the gateway starts no cluster ({reason}); check "
            "cluster.address, cluster.options, and gateway.auth in Dask's configuration"
        )

    with connection_errors(_started(library, settings, job, echo), problem) as executor:
        yield executor


@contextmanager
def _started(library: Any, settings: Gateway, job: Job, echo: Echo) -> Iterator[RemoteExecutor]:
    with ExitStack() as stack:
        stack.enter_context(silence_logging_cmgr("CRITICAL"))
        gateway = stack.enter_context(
            library.Gateway(address=settings.address, proxy_address=settings.proxy)
        )
        cluster = gateway.new_cluster(**settings.options)
        stack.callback(cluster.close, shutdown=True)
        client = stack.enter_context(cluster.get_client(set_as_default=False))
        client.run_on_scheduler(end_with, client=client.id)
        cluster.scale(settings.workers)
        executor = RemoteExecutor(client, settings, echo)
        executor.make_ready(job, ours=False)
        yield executor


async def end_with(client: str, dask_scheduler: Any) -> None:
    """Let a scheduler end some time after a client is gone."""

    async def watch() -> None:
        gone = 0.0
        while gone < ABANDONED_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            gone = 0.0 if client in dask_scheduler.clients else gone + LOOK_SECONDS
        await dask_scheduler.close(reason="its driver is gone")

    dask_scheduler.latentscale_watch = asyncio.create_task(watch())  # a task needs a reference
