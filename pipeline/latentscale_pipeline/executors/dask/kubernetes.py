"""Workers that are pods, managed by Dask's operator for Kubernetes.

The driver creates two objects and deletes them at its end: a secret with the certificates of this
run, and a ``DaskCluster``, for which the operator starts a scheduler and the workers, and replaces
workers that die. Both objects are owned by the driver's pod, so Kubernetes deletes them with it
even if the driver is killed. Without such a pod, the next run of the same job deletes them.

Every run has names of its own: Kubernetes deletes in the background, and the operator would take
the scheduler of an earlier run, about to be deleted, for that of this one.

The objects are plain data (:mod:`latentscale_pipeline.executors.dask.manifests`). dask-kubernetes'
``KubeCluster`` isn't used, because it connects to the scheduler without TLS. The operator's
autoscaler isn't used for the same reason.
"""

from __future__ import annotations

import os
import secrets
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
from latentscale_pipeline.executors.dask.executor import connection_errors
from latentscale_pipeline.executors.dask.kubernetes_objects import (
    create_object,
    import_kr8s,
    names_alike,
    remove_object,
)
from latentscale_pipeline.executors.dask.manifests import (
    LABEL,
    OWNER,
    TLS_FILES,
    dask_cluster,
    scheduler_address,
    tls_secret,
)
from latentscale_pipeline.executors.dask.readiness import Job
from latentscale_pipeline.executors.dask.remote import RemoteExecutor
from latentscale_pipeline.progress import Echo

SCHEDULER_SECONDS = 300.0
"""How long the scheduler's pod may take to start."""

RUN_BYTES = 3
"""Random bytes in the names of a run's objects."""

IN_A_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@contextmanager
def kubernetes_cluster(settings: Kubernetes, job: Job, echo: Echo) -> Iterator[RemoteExecutor]:
    """Provide workers in Kubernetes during a ``with`` block.

    Raises
    ------
    BadInput
        If kr8s, the client library for Kubernetes, isn't installed.
    Incomplete
        If Kubernetes refuses the objects, or the scheduler doesn't start.
    """
    library = import_kr8s("cluster.kind kubernetes")

    def problem(reason: str) -> str:
        return (
            f"cluster.kind kubernetes: the workers can't be started ({reason}); check that Dask's "
            f"operator is installed, and see kubectl -n {settings.namespace} describe daskcluster "
            f"-l {LABEL}={job.name}"
        )

    with connection_errors(_started(library, settings, job, echo), problem) as executor:
        yield executor


@contextmanager
def _started(library: Any, settings: Kubernetes, job: Job, echo: Echo) -> Iterator[RemoteExecutor]:
    security, owner = Security.temporary(), _owner()
    pem = (str(security.tls_ca_file), str(security.tls_client_key))
    files = dict(zip(TLS_FILES, pem, strict=True))
    name = f"{job.name}-{secrets.token_hex(RUN_BYTES)}"
    with ExitStack() as stack:
        stack.enter_context(silence_logging_cmgr("CRITICAL"))
        stack.enter_context(dask.config.set({"distributed.comm.timeouts.tcp": TCP_SECONDS}))
        # A secret is never there without its cluster, by which the next run would find it.
        made = (
            dask_cluster(name, job.name, settings, owner),
            tls_secret(name, job.name, settings, files, owner),
        )
        for earlier in names_alike(library, made[0], LABEL):
            for manifest in reversed(made):
                meta = {**manifest["metadata"], "name": earlier}
                remove_object(library, {**manifest, "metadata": meta})
        for manifest in made:
            create_object(library, manifest)
            stack.callback(remove_object, library, manifest)
        address = scheduler_address(name, settings)
        client = stack.enter_context(_connected(address, security))
        client.run_on_scheduler(close_http)
        executor = RemoteExecutor(client, settings, echo)
        executor.make_ready(job, ours=True)
        yield executor


def close_http(dask_scheduler: Any) -> None:
    """Close the scheduler's HTTP port, which has no authentication."""
    dask_scheduler.http_server.stop()


def _owner() -> dict[str, str] | None:
    """Return name and uid of the driver's pod, or None if it doesn't run in one."""
    name, uid = (os.environ.get(variable) for variable in OWNER)
    return {"name": name, "uid": uid} if name and uid and IN_A_POD.exists() else None


def _connected(address: str, security: Security) -> distributed.Client:
    """Connect to the scheduler, retrying until it has started and its name resolves."""
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
