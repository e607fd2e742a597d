"""Workers that are pods, kept by Dask's operator for Kubernetes.

The driver creates two objects and removes them at its end: a secret with the certificates of this
run, and a ``DaskCluster``, from which the operator makes a scheduler and the workers, and replaces
those that die. Both belong to the driver's pod, so they go with it however it ends; what a run that
was killed has left behind is removed by the next one of the same job.

The objects are plain data (:mod:`latentscale_pipeline.executors.dask.manifests`). dask-kubernetes'
own ``KubeCluster`` isn't used, because it speaks with its scheduler without TLS; for the same
reason the operator's autoscaler, which would have to ask the scheduler, isn't either.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask
import distributed
from distributed.security import Security
from distributed.utils import silence_logging_cmgr

from latentscale_pipeline.config.cluster import Kubernetes
from latentscale_pipeline.executors.dask.environment import TCP_SECONDS
from latentscale_pipeline.executors.dask.executor import undisturbed
from latentscale_pipeline.executors.dask.kubernetes_objects import (
    create_object,
    import_kr8s,
    remove_object,
)
from latentscale_pipeline.executors.dask.manifests import (
    OWNER,
    TLS_FILES,
    dask_cluster,
    scheduler_address,
    tls_secret,
)
from latentscale_pipeline.executors.dask.readiness import Job
from latentscale_pipeline.executors.dask.remote import RemoteExecutor, Tell

SCHEDULER_SECONDS = 300.0
"""How long the scheduler's pod may take to start."""

IN_A_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@contextmanager
def kubernetes_cluster(settings: Kubernetes, job: Job, tell: Tell) -> Iterator[RemoteExecutor]:
    """Have workers in Kubernetes for the time of a ``with`` block.

    Raises
    ------
    BadInput
        If the library that speaks with Kubernetes isn't installed.
    Incomplete
        If Kubernetes refuses the objects, or the scheduler doesn't start.
    """
    library = import_kr8s("cluster.kind kubernetes")

    def problem(reason: str) -> str:
        return (
            f"cluster.kind kubernetes: the workers can't be asked for ({reason}); look at "
            f"kubectl -n {settings.namespace} describe daskcluster {job.name}, and whether Dask's "
            "operator is installed"
        )

    with undisturbed(_started(library, settings, job, tell), problem) as executor:
        yield executor


@contextmanager
def _started(library: Any, settings: Kubernetes, job: Job, tell: Tell) -> Iterator[RemoteExecutor]:
    security, owner = Security.temporary(), _owner()
    pem = (str(security.tls_ca_file), str(security.tls_client_key))
    files = dict(zip(TLS_FILES, pem, strict=True))
    with ExitStack() as stack:
        stack.enter_context(silence_logging_cmgr("CRITICAL"))
        stack.enter_context(dask.config.set({"distributed.comm.timeouts.tcp": TCP_SECONDS}))
        for manifest in (
            tls_secret(job.name, settings, files, owner),
            dask_cluster(job.name, settings, owner),
        ):
            create_object(library, manifest)
            stack.callback(remove_object, library, manifest)
        address = scheduler_address(job.name, settings)
        client = stack.enter_context(_connected(address, security))
        client.run_on_scheduler(close_http)
        executor = RemoteExecutor(client, settings, tell)
        executor.make_ready(job, ours=True)
        yield executor


def close_http(dask_scheduler: Any) -> None:
    """Close the port of a scheduler on which nobody is asked who they are."""
    dask_scheduler.http_server.stop()


def _owner() -> dict[str, str] | None:
    """Return the pod that this driver is, when it is one."""
    name, uid = (os.environ.get(variable) for variable in OWNER)
    return {"name": name, "uid": uid} if name and uid and IN_A_POD.exists() else None


def _connected(address: str, security: Security) -> distributed.Client:
    """Connect once the scheduler has started: until then its name isn't even known."""
    until = time.monotonic() + SCHEDULER_SECONDS
    while True:
        try:
            return distributed.Client(
                address, security=security, timeout="10s", set_as_default=False
            )
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(2.0)
