"""An executor for workers that run on other machines, started by other systems.

They start when a queue allows it, leave before their walltime, and may not be ready for the job
(for instance because of another version). Tasks are submitted to the scheduler at once and wait
there. So a run can be cancelled while it waits for its first worker, and workers can join and leave
at any time.
"""

from __future__ import annotations

import queue
import time

import distributed

from latentscale_pipeline.config.cluster import Address, Gateway, RemoteWorkers
from latentscale_pipeline.engine.executor import Ending
from latentscale_pipeline.engine.task import Task
from latentscale_pipeline.errors import Incomplete
from latentscale_pipeline.executors.dask.executor import DaskExecutor
from latentscale_pipeline.executors.dask.readiness import (
    NOT_READY,
    READY,
    Job,
    NotReady,
    Readiness,
)
from latentscale_pipeline.progress import Echo

Event = tuple[float, dict[str, str]]
"""Time and message of an event that a worker logged."""

POLL_SECONDS = 5.0
"""Pause between checks for workers, while no task ends."""


class RemoteExecutor(DaskExecutor):
    """Runs tasks on workers that passed the checks in :mod:`.readiness`.

    Parameters
    ----------
    client, dashboard
        As for :class:`DaskExecutor`.
    settings : Address, Gateway, Batch or Kubernetes
        The section ``cluster``, with the workers' memory limit and ``patience``.
    echo : callable
        Called with a one-line warning about a worker that isn't ready, once another worker has
        finished a task.
    """

    def __init__(
        self,
        client: distributed.Client,
        settings: RemoteWorkers | Address | Gateway,
        echo: Echo,
        dashboard: str | None = None,
    ) -> None:
        super().__init__(client, settings.memory_limit, dashboard)
        self._patience = settings.patience
        self._echo = echo
        self._refusals: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._arrivals: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._ready: set[str] = set()
        self._worked = False
        self._seen = self._looked = time.monotonic()
        client.subscribe_topic(NOT_READY, self._refusals.put)
        client.subscribe_topic(READY, self._arrivals.put)

    def next_ended(self, seconds: float) -> tuple[Task, Ending] | None:
        """Wait for the first task to end.

        Raises
        ------
        NotReady
            If a worker isn't ready and no task has ended yet.
        Incomplete
            If the scheduler is gone, or there was no worker for too long.
        """
        ended = super().next_ended(seconds)
        if ended is not None:
            self._worked = True
            self._seen = time.monotonic()
            return ended
        while not self._refusals.empty():
            problem = self._refusals.get()[1]["problem"]
            if not self._worked:
                raise NotReady(problem)
            self._echo(problem)
        self._welcome_workers()
        self._look_for_workers()
        return None

    def make_ready(self, job: Job, *, ours: bool) -> None:
        """Make every worker, present and future, check whether it is ready.

        Raises
        ------
        NotReady
            If one of the present workers isn't.
        """
        plugin = Readiness(job, self._memory_limit, ours=ours)
        self._ready |= set(self.client.register_plugin(plugin) or ())

    def _welcome_workers(self) -> None:
        """Submit waiting tasks again when the first ready worker arrives after a time without any.

        Dask's scheduler assigns such tasks only at the moment a worker joins, and then the worker
        doesn't offer memory yet, because its checks haven't finished.
        """
        arrived = set[str]()
        while not self._arrivals.empty():
            arrived.add(self._arrivals.get()[1]["worker"])
        if not arrived - self._ready:
            return
        self._ready &= set(self.client.nthreads())
        if not self._ready:
            self._recall()
        self._ready |= arrived

    def _look_for_workers(self) -> None:
        now = time.monotonic()
        if now - self._looked < POLL_SECONDS:
            return
        self._looked = now
        if self.client.nthreads():
            self._seen = now
        elif now - self._seen > self._patience:
            raise Incomplete(
                f"there has been no worker for {now - self._seen:.0f} s (cluster.patience); check "
                "the workers' logs and the queue, then run the same command again to continue"
            )
