"""Tasks on Dask workers.

The scheduler holds nothing that matters: a task returns only what it cost, and its result is in
the job folder. Each task reserves the memory it was projected to hold, so a worker's memory limit
decides how many run at once and never what they compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
import distributed
from distributed.security import Security

from latentscale_pipeline.engine.executor import Ending
from latentscale_pipeline.engine.memory import task_memory
from latentscale_pipeline.engine.task import Task, run_task
from latentscale_pipeline.job.config import Local

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    # Freed arrays go back to the system at once, so that what a task holds is what it needs.
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
"""One thread inside a task: what a task computes must not depend on how many run beside it."""

SETTINGS: dict[str, Any] = {
    "distributed.nanny.pre-spawn-environ": WORKER_ENVIRONMENT,
    # Nothing of size lives in the scheduler's care, so there is nothing to spill; only the
    # limit itself counts.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.98,
    # No pages and no logs over unencrypted HTTP.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.admin.tick.limit": "60s",
    "logging.distributed": "error",
}


class DaskExecutor:
    """Hands tasks to the workers of a Dask client."""

    window = 10_000

    def __init__(self, client: distributed.Client) -> None:
        self._client = client
        self._tasks: dict[str, Task] = {}
        self._ended = distributed.as_completed()

    def submit(self, task: Task) -> None:
        """Send a task to whichever worker has room for it."""
        key = f"{task.label}-{task.attempt}-{len(self._tasks)}".replace(" ", "-")
        self._tasks[key] = task
        future = self._client.submit(
            run_task, task, key=key, pure=False, resources={"memory": task.stage.memory_bytes}
        )
        self._ended.add(future)

    def next_ended(self) -> tuple[Task, Ending]:
        """Wait for the first task to end."""
        future = next(self._ended)
        task = self._tasks[future.key]
        error = future.exception()
        ending: Ending = future.result() if error is None else error
        future.release()
        return task, ending


@contextmanager
def local_cluster(settings: Local) -> Iterator[DaskExecutor]:
    """Start worker processes on this machine and stop them at the end.

    Traffic is encrypted with keys made for this run alone, because loopback isn't private on a
    shared machine; the dashboard is off.

    Parameters
    ----------
    settings : Local
        Workers, threads and the memory limit of each worker.
    """
    with (
        dask.config.set(SETTINGS),
        distributed.LocalCluster(
            n_workers=settings.workers,
            threads_per_worker=settings.threads,
            memory_limit=settings.memory_limit,
            resources={"memory": task_memory(settings.memory_limit)},
            security=Security.temporary(),
            protocol="tls://",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs="ERROR",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield DaskExecutor(client)
