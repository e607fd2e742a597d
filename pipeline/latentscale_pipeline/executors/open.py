"""Open the executor that a job's configuration asks for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from latentscale_pipeline.config.cluster import Address, Gateway, Kubernetes, Local
from latentscale_pipeline.executors.dask.address import existing_scheduler
from latentscale_pipeline.executors.dask.batch import batch_cluster
from latentscale_pipeline.executors.dask.executor import DaskExecutor
from latentscale_pipeline.executors.dask.gateway import gateway_cluster
from latentscale_pipeline.executors.dask.kubernetes import kubernetes_cluster
from latentscale_pipeline.executors.dask.local import local_cluster
from latentscale_pipeline.executors.dask.readiness import Job
from latentscale_pipeline.progress import Echo


def open_cluster(settings: Any, job: Job, echo: Echo) -> AbstractContextManager[DaskExecutor]:
    """Provide the workers that a configuration asks for during a ``with`` block.

    Parameters
    ----------
    settings : Local, Address, Gateway, Batch or Kubernetes
        The section ``cluster`` of the configuration.
    job : Job
        The job that the workers will run.
    echo : callable
        Called with a one-line warning for the user.
    """
    if isinstance(settings, Local):
        return local_cluster(settings, job.idle_bytes)
    if isinstance(settings, Address):
        return existing_scheduler(settings, job, echo)
    if isinstance(settings, Gateway):
        return gateway_cluster(settings, job, echo)
    if isinstance(settings, Kubernetes):
        return kubernetes_cluster(settings, job, echo)
    return batch_cluster(settings, job, echo)
