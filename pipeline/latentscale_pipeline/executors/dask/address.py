"""A Dask scheduler that exists already, with its workers.

It belongs to someone else: it is not configured, started or stopped here, and its dashboard and
other users' tasks are left alone. It is reached over TLS with the files that the configuration
names, or Dask's own. An address without TLS is accepted with a warning, but nothing that may be
secret is sent there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import distributed
from distributed.security import Security
from distributed.utils import silence_logging_cmgr

from latentscale_pipeline.config.cluster import Address, TlsFiles
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.executors.dask.certificates import security_of
from latentscale_pipeline.executors.dask.executor import explained, undisturbed
from latentscale_pipeline.executors.dask.readiness import PACKAGES, Job, NotReady, check_versions
from latentscale_pipeline.executors.dask.remote import RemoteExecutor, Tell
from latentscale_pipeline.storage.urls import options_in_force

CONNECTING_SECONDS = "30s"

UNENCRYPTED = (
    "cluster.address {address} has no TLS: whoever reaches it can read along and run code on its "
    "workers, and on this machine; start the scheduler with TLS and write tls://"
)


@contextmanager
def existing_scheduler(settings: Address, job: Job, tell: Tell) -> Iterator[RemoteExecutor]:
    """Use the workers of a scheduler for the time of a ``with`` block.

    Raises
    ------
    BadInput
        If it can't be spoken to safely, or a worker isn't fit for the job.
    Incomplete
        If it can't be reached, or no worker comes.
    """
    if settings.address.startswith("tcp://"):
        if options_in_force():
            raise BadInput(
                f"cluster.address {settings.address} has no TLS, and options of storage, which may "
                "be secret, would be sent there; start the scheduler with TLS, or give the "
                "options to the workers by their environment and not to this process"
            )
        tell(UNENCRYPTED.format(address=settings.address))

    def problem(reason: str) -> str:
        return (
            f"cluster.address {settings.address}: the scheduler doesn't answer, or doesn't take "
            f"these certificates ({reason})"
        )

    with undisturbed(_connected(settings, tell), problem) as executor:
        with explained(problem):
            _wait_for_workers(executor.client, settings)
            versions: Any = executor.client.get_versions(packages=list(PACKAGES))
            check_versions(versions)
            executor.make_ready(job, ours=False)
        yield executor


@contextmanager
def _connected(settings: Address, tell: Tell) -> Iterator[RemoteExecutor]:
    security = _security(settings) if settings.address.startswith("tls://") else None
    with (
        silence_logging_cmgr("CRITICAL"),
        distributed.Client(
            settings.address,
            security=security,
            timeout=CONNECTING_SECONDS,
            set_as_default=False,
        ) as client,
    ):
        yield RemoteExecutor(client, settings, tell)


def _security(settings: Address) -> Security:
    """Return the certificates to show and to trust."""
    configured = {
        "ca_file": dask.config.get("distributed.comm.tls.ca-file", None),
        "cert": dask.config.get("distributed.comm.tls.client.cert", None),
        "key": dask.config.get("distributed.comm.tls.client.key", None),
    }
    files = settings.tls
    if files is None:
        if None in configured.values():
            raise BadInput(
                f"cluster.address {settings.address}: name the certificates, as cluster.tls."
                "{ca_file, cert, key}, or in Dask's own configuration (distributed.comm.tls)"
            )
        files = TlsFiles(**configured)
    for name, path in files:
        if not Path(path).is_file():
            raise BadInput(f"cluster.tls.{name}: there is no file {path}")
    return security_of(files)


def _wait_for_workers(client: distributed.Client, settings: Address) -> None:
    try:
        client.wait_for_workers(settings.workers, timeout=settings.patience)
    except TimeoutError:
        raise NotReady(
            f"cluster.address {settings.address}: {len(client.nthreads())} workers are there and "
            f"{settings.workers} are asked for (cluster.workers); no more came within "
            f"{settings.patience:.0f} s (cluster.patience)"
        ) from None
