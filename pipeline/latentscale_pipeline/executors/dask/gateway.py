"""Workers of a Dask cluster that dask-gateway starts for a run.

The gateway starts a scheduler and the workers, where its administrator says, and replaces workers
that die. It passes on the connection to the scheduler, with TLS and certificates that it sends, so
these are only as safe as the connection to it. The cluster is stopped at the end of the run. If the
driver is killed, the scheduler notices that it is gone, and ends itself and with it the cluster.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

from distributed.utils import silence_logging_cmgr

from latentscale_pipeline.config.cluster import Gateway
from latentscale_pipeline.errors import BadInput, how_to_install
from latentscale_pipeline.executors.dask.executor import connection_errors
from latentscale_pipeline.executors.dask.readiness import Job
from latentscale_pipeline.executors.dask.remote import RemoteExecutor
from latentscale_pipeline.progress import Echo
from latentscale_pipeline.storage.urls import options_in_force

ABANDONED_SECONDS = 60.0
"""How long a scheduler waits for its driver to come back before it ends itself."""

UNENCRYPTED = (
    "cluster.address {address} has no TLS: anyone who can reach it can read the password and run "
    "code on its workers and on this machine; use https://"
)

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

    if settings.address.startswith("http://") and not _is_here(settings.address):
        if options_in_force():
            raise BadInput(
                f"cluster.address {settings.address} has no TLS, and storage options, which may be "
                "secret, would be sent there; use https://, or set the options in the environment "
                "of the workers only"
            )
        echo(UNENCRYPTED.format(address=settings.address))
    with connection_errors(_started(library, settings, job, echo), problem) as executor:
        yield executor


@contextmanager
def _started(library: Any, settings: Gateway, job: Job, echo: Echo) -> Iterator[RemoteExecutor]:
    with ExitStack() as stack:
        stack.enter_context(silence_logging_cmgr("CRITICAL"))
        gateway = library.Gateway(address=settings.address, proxy_address=settings.proxy)
        # Once it is closed, its finalizer would fail: it asks for a loop that is gone.
        stack.callback(vars(gateway).pop, "_loop_runner", None)
        stack.enter_context(gateway)
        name = gateway.submit(**settings.options)
        stack.callback(gateway.stop_cluster, name)
        cluster = stack.enter_context(_connected(gateway, name, settings.patience))
        client = stack.enter_context(cluster.get_client(set_as_default=False))
        client.run_on_scheduler(end_with, client=client.id)
        cluster.scale(settings.workers)
        executor = RemoteExecutor(client, settings, echo)
        executor.make_ready(job, ours=False)
        yield executor


def _is_here(address: str) -> bool:
    """Return whether an address is that of this machine."""
    return urlsplit(address).hostname in {"localhost", "127.0.0.1", "::1"}


@contextmanager
def _connected(gateway: Any, name: str, seconds: float) -> Iterator[Any]:
    """Connect to a cluster once it runs; wait for it no longer than some seconds."""
    until = time.monotonic() + seconds
    while (status := gateway.get_cluster(name).status.name) == "PENDING":
        if time.monotonic() > until:
            raise TimeoutError(f"it has not started for {seconds:.0f} s (cluster.patience)")
        time.sleep(1.0)
    if status != "RUNNING":
        raise RuntimeError(f"the cluster is {status.lower()}; see the gateway's logs")
    with gateway.connect(name) as cluster:
        yield cluster


async def end_with(client: str, dask_scheduler: Any) -> None:
    """Let a scheduler end some time after a client is gone, and tell at once if a worker dies."""
    dask_scheduler.allowed_failures = 0

    async def watch() -> None:
        gone = 0.0
        while gone < ABANDONED_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            gone = 0.0 if client in dask_scheduler.clients else gone + LOOK_SECONDS
        await dask_scheduler.close(reason="its driver is gone")

    dask_scheduler.latentscale_watch = asyncio.create_task(watch())  # a task needs a reference
