"""The workers of an existing Dask scheduler.

The scheduler isn't configured, started or stopped here, and its dashboard and other users' tasks
aren't touched. The connection uses TLS, with the certificates in the job's or in Dask's
configuration. An address without TLS is accepted with a warning, but storage options, which may be
secret, aren't sent there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import distributed
from distributed.comm.core import connect
from distributed.security import Security
from distributed.utils import silence_logging_cmgr

from latentscale_pipeline.config.cluster import Address, TlsFiles
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.executors.dask.certificates import security_of
from latentscale_pipeline.executors.dask.executor import connection_errors, errors_as
from latentscale_pipeline.executors.dask.readiness import PACKAGES, Job, NotReady, check_versions
from latentscale_pipeline.executors.dask.remote import RemoteExecutor
from latentscale_pipeline.progress import Echo
from latentscale_pipeline.storage.urls import options_in_force

CONNECTING_SECONDS = 30
"""How long a scheduler may take to answer."""

UNENCRYPTED = (
    "cluster.address {address} has no TLS: anyone who can reach it can read the traffic and run "
    "code on its workers and on this machine; start the scheduler with TLS and use tls://"
)


@contextmanager
def existing_scheduler(settings: Address, job: Job, echo: Echo) -> Iterator[RemoteExecutor]:
    """Use the workers of an existing scheduler during a ``with`` block.

    Raises
    ------
    BadInput
        If there is no secure connection for storage options, certificates are missing, too few
        workers are there, or a worker isn't ready for the job.
    Incomplete
        If the scheduler can't be reached.
    """
    if settings.address.startswith("tcp://"):
        if options_in_force():
            raise BadInput(
                f"cluster.address {settings.address} has no TLS, and storage options, which may be "
                "secret, would be sent there; start the scheduler with TLS, or set the options in "
                "the environment of the workers only"
            )
        echo(UNENCRYPTED.format(address=settings.address))

    def problem(reason: str) -> str:
        return (
            f"cluster.address {settings.address}: the scheduler doesn't respond, or refuses the "
            f"certificates ({reason}); check cluster.address and cluster.tls"
        )

    with connection_errors(_connected(settings, echo), problem) as executor:
        with errors_as(problem):
            _wait_for_workers(executor.client, settings)
            versions: Any = executor.client.get_versions(packages=list(PACKAGES))
            check_versions(versions)
            executor.make_ready(job, ours=False)
        yield executor


@contextmanager
def _connected(settings: Address, echo: Echo) -> Iterator[RemoteExecutor]:
    security = _security(settings) if settings.address.startswith("tls://") else Security()
    asyncio.run(_greet(settings.address, security))
    with (
        silence_logging_cmgr("CRITICAL"),
        distributed.Client(
            settings.address,
            security=security,
            timeout=f"{CONNECTING_SECONDS}s",
            set_as_default=False,
        ) as client,
    ):
        yield RemoteExecutor(client, settings, echo)


async def _greet(address: str, security: Security) -> None:
    """Connect once: a client waits without end for a port that never greets it back."""
    options = security.get_connection_args("client")
    try:
        async with asyncio.timeout(CONNECTING_SECONDS):
            comm = await connect(address, timeout=CONNECTING_SECONDS, **options)
            await comm.close()
    except TimeoutError:
        raise TimeoutError(
            f"nothing that speaks Dask's protocol answered within {CONNECTING_SECONDS} s"
        ) from None


def _security(settings: Address) -> Security:
    """Return the certificates for the connection."""
    configured = {
        "ca_file": dask.config.get("distributed.comm.tls.ca-file", None),
        "cert": dask.config.get("distributed.comm.tls.client.cert", None),
        "key": dask.config.get("distributed.comm.tls.client.key", None),
    }
    files = settings.tls
    if files is None:
        if None in configured.values():
            raise BadInput(
                f"cluster.address {settings.address}: no certificates; name them as cluster.tls."
                "{ca_file, cert, key}, or in Dask's own configuration (distributed.comm.tls)"
            )
        files = TlsFiles(**configured)
    for name, path in files:
        if not Path(path).is_file():
            raise BadInput(f"cluster.tls.{name}: there is no file {path}; check the path")
    return security_of(files)


def _wait_for_workers(client: distributed.Client, settings: Address) -> None:
    try:
        client.wait_for_workers(settings.workers, timeout=settings.patience)
    except TimeoutError:
        raise NotReady(
            f"cluster.address {settings.address}: only {len(client.nthreads())} of "
            f"{settings.workers} workers came within {settings.patience:.0f} s; start more, or "
            "change cluster.workers or cluster.patience"
        ) from None
