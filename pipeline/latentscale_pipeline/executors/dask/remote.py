"""An executor on workers that this process didn't start itself.

They start when a queue allows it, leave before their walltime, and may not be fit for the job.
Tasks are submitted to the scheduler at once and wait there. So a run can be cancelled while it
waits for its first worker, and workers can join and leave without special treatment.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

import distributed

from latentscale_pipeline.config.cluster import Address, Elsewhere
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

Tell = Callable[[str], None]
"""Told in one line of what a person may have to see to."""

Event = tuple[float, dict[str, str]]
"""When a worker said something, and what."""

LOOKING_SECONDS = 5.0
"""Between two looks at how many workers there are, while no task ends."""


class RemoteExecutor(DaskExecutor):
    """Hands tasks to workers that were found fit for them.

    Parameters
    ----------
    client, dashboard
        As of :class:`DaskExecutor`.
    settings : Address, Batch or Kubernetes
        What a worker may hold, and for how many seconds there may be no worker at all.
    tell : callable
        Told of workers that aren't fit, once others have shown that the job goes on without them.
    """

    def __init__(
        self,
        client: distributed.Client,
        settings: Elsewhere | Address,
        tell: Tell,
        dashboard: str | None = None,
    ) -> None:
        super().__init__(client, settings.memory_limit, dashboard)
        self._patience = settings.patience
        self._tell = tell
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
            If a worker isn't fit and no task has ended yet.
        Incomplete
            If the scheduler is gone, or for too long there was no worker.
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
            self._tell(problem)
        self._welcome_workers()
        self._look_for_workers()
        return None

    def make_ready(self, job: Job, *, ours: bool) -> None:
        """See to it that every worker, now and later, looks whether it is fit.

        Raises
        ------
        NotReady
            Of the workers that are there, the first that isn't.
        """
        plugin = Readiness(job, self._memory_limit, ours=ours)
        self._ready |= set(self.client.register_plugin(plugin) or ())

    def _welcome_workers(self) -> None:
        """Let the tasks that waited while there was no worker go to the first that is fit.

        A scheduler looks at those tasks only in the moment in which a worker arrives, and then that
        one hasn't yet said that it is fit.
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
        if now - self._looked < LOOKING_SECONDS:
            return
        self._looked = now
        if self.client.nthreads():
            self._seen = now
        elif now - self._seen > self._patience:
            raise Incomplete(
                f"no worker has been there for {now - self._seen:.0f} s (cluster.patience); look "
                "at the workers' logs and at the queue, then run the same command again to go on"
            )
