"""Open the executor that a job's configuration asks for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentscale_pipeline.config.cluster import Address, Batch, Kubernetes, Local
from latentscale_pipeline.executors.dask.address import existing_scheduler
from latentscale_pipeline.executors.dask.batch import batch_cluster
from latentscale_pipeline.executors.dask.executor import DaskExecutor
from latentscale_pipeline.executors.dask.kubernetes import kubernetes_cluster
from latentscale_pipeline.executors.dask.local import local_cluster
from latentscale_pipeline.executors.dask.readiness import Needs
from latentscale_pipeline.executors.dask.remote import Tell


@dataclass(frozen=True)
class Job:
    """What a cluster has to know of a job.

    Attributes
    ----------
    name : str
        Plain characters, of this job alone among all of the same user.
    folder : Path or None
        The job's folder; None where it isn't on a disk.
    needs : Needs
        What a worker has to have.
    """

    name: str
    folder: Path | None
    needs: Needs


Opening = Callable[[Any, Job, Tell], AbstractContextManager[DaskExecutor]]

OPENINGS: dict[type, Opening] = {
    Local: lambda settings, job, _tell: local_cluster(settings, job.needs.idle_bytes),
    Address: lambda settings, job, tell: existing_scheduler(settings, job.needs, tell),
    Batch: lambda settings, job, tell: batch_cluster(
        settings, job.needs, job.name, job.folder, tell
    ),
    Kubernetes: lambda settings, job, tell: kubernetes_cluster(settings, job.needs, job.name, tell),
}
"""How a cluster of each kind is had for the time of a ``with`` block."""


def open_cluster(settings: Any, job: Job, tell: Tell) -> AbstractContextManager[DaskExecutor]:
    """Have the workers that a configuration asks for, for the time of a ``with`` block.

    Parameters
    ----------
    settings : Local, Address, Batch or Kubernetes
        The section ``cluster`` of the configuration.
    job : Job
        Whose tasks they will do.
    tell : callable
        Told, in a line each, of what a person may have to see to.
    """
    return OPENINGS[type(settings)](settings, job, tell)
