"""Tasks on Dask workers.

The scheduler holds no results: a task returns only its cost, and its result is in the job folder.
Each task reserves its projected memory, so a worker's memory limit decides only how many tasks run
at once, never what they compute.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

import distributed
from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError
from distributed.utils import sync

from latentscale_pipeline.engine.executor import Ending
from latentscale_pipeline.engine.task import Task, WorkerDied, run_task
from latentscale_pipeline.errors import Incomplete, LatentscaleError, first_line

BEGUN = "latentscale-begun"
"""Topic of events in which workers report that they begin a task."""

OVER_LIMIT = "worker-restart-memory"
"""Topic of events in which Dask's nannies report that they kill a worker for its memory use."""

IDLE_DEATHS = 10
"""Number of workers that may die before they begin a task, while no other task ends."""


class DaskExecutor:
    """Runs tasks on the workers of a Dask client.

    A failed task is sent to another worker, if there is one. When a worker dies, only the tasks
    that it was running are reported as failed. Those that waited on it are sent again, and so are
    those that it had ended without the scheduler knowing yet, if another one had begun since.

    Parameters
    ----------
    client : distributed.Client
        A client whose workers offer the resource ``memory``.
    memory_limit : int
        Memory limit of a worker, in bytes.
    dashboard : str or None
        Address of the dashboard, if it is served.
    idle_deaths : int
        Number of workers that may die before they begin a task, while no other task ends.
    """

    window = 10_000

    def __init__(
        self,
        client: distributed.Client,
        memory_limit: int,
        dashboard: str | None = None,
        idle_deaths: int = IDLE_DEATHS,
    ) -> None:
        if client.loop is None:
            raise ValueError("the client is closed")
        self.dashboard = dashboard
        self.client = client
        self._loop = client.loop
        self._memory_limit = memory_limit
        self._idle_deaths = idle_deaths
        self._tasks: dict[Any, Task] = {}
        self._futures: dict[str, distributed.Future[Any]] = {}
        self._recalled: set[str] = set()
        self._sent = 0
        self._begun: dict[Any, str] = {}
        self._running: dict[tuple[str, int], Any] = {}
        self._failed_on: defaultdict[str, set[str]] = defaultdict(set)
        self._ended: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._held: dict[str, int] = {}
        self._died_idle: set[str] = set()
        client.subscribe_topic(BEGUN, self._note_begun)
        client.subscribe_topic(OVER_LIMIT, self._note_over_limit)

    def close(self) -> None:
        """Receive no more events: the scheduler would log that the client is closed."""
        for topic in (BEGUN, OVER_LIMIT):
            self.client.unsubscribe_topic(topic)

    def submit(self, task: Task) -> None:
        """Send a task to any worker with enough free memory; of earlier stages first."""
        key = f"{task.label}-{task.attempt}-{self._sent}".replace(" ", "-")
        self._sent += 1
        self._tasks[key] = task
        with _scheduler_needed():
            future = self.client.submit(
                run_on_worker,
                task,
                key=key,
                pure=False,
                priority=-task.place,
                resources={"memory": task.stage.memory_bytes},
                **self._elsewhere(task),
            )
            self._futures[key] = future
            self._loop.add_callback(self._collect, key, future)

    async def _collect(self, key: str, future: distributed.Future[Any]) -> None:
        """Fetch the outcome of a task and queue it.

        A worker that has finished a task may not respond, because it is suspended or its next task
        holds the GIL. :meth:`next_ended` doesn't wait for such a worker.
        """
        outcome: Any
        try:
            outcome = await self.client.gather(future, asynchronous=True)
        except BaseException as error:  # noqa: BLE001 -- _ending handles it
            outcome = error
        future.release()
        self._ended.put((key, outcome))

    def _elsewhere(self, task: Task) -> dict[str, Any]:
        """Return options that send a task to workers on which it hasn't failed yet."""
        failed_on = self._failed_on.get(task.part)
        if not failed_on:
            return {}
        others = [worker for worker in self.client.nthreads() if worker not in failed_on]
        return {"workers": others, "allow_other_workers": True} if others else {}

    def next_ended(self, seconds: float) -> tuple[Task, Ending] | None:
        """Wait for the first task to end.

        Raises
        ------
        Incomplete
            If the scheduler or all workers are gone.
        """
        until = time.monotonic() + seconds
        while True:
            try:
                key, outcome = self._ended.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return None
            with _scheduler_needed():
                ending = self._ending(key, outcome)
            task = self._tasks.pop(key)
            self._futures.pop(key, None)
            if ending is not None:
                return task, ending
            self.submit(task)

    def _ending(self, key: str, outcome: Any) -> Ending | None:
        """Return how a task ended, or None if it hadn't begun and must be sent again."""
        worker: str
        ending: Ending | None
        if key in self._recalled:
            self._recalled.discard(key)
            if isinstance(outcome, CancelledError | asyncio.CancelledError):
                return None
        if isinstance(outcome, BaseException):
            worker, ending = self._mishap(key, outcome)
        else:
            worker, ending = outcome
            self._begun.pop(key, None)
            self._died_idle.clear()
        if isinstance(ending, Exception):
            self._failed_on[self._tasks[key].part].add(worker)
        return ending

    def _mishap(self, key: str, error: BaseException) -> tuple[str, Ending | None]:
        """Return the worker and the ending of a task that the scheduler ended with an error."""
        if isinstance(error, OSError | CancelledError | asyncio.CancelledError):
            raise error
        if isinstance(error, NoWorkerError | NoValidWorkerError):
            raise Incomplete(
                "no worker is left and none could be started; check the free memory of this "
                "machine, then run the same command again to continue"
            )
        if not isinstance(error, KilledWorker):
            return "", error
        worker = error.last_worker.address
        if self._begun.get(key) == worker and key in self._running.values():
            return worker, WorkerDied(worker, self._memory_limit, self._held.get(worker))
        if worker not in self._begun.values():
            self._died_idle.add(worker)
        if len(self._died_idle) > self._idle_deaths:
            raise Incomplete(
                f"{len(self._died_idle)} workers died one after another without ending any task; "
                "check the free memory of this machine, then run the same command again to continue"
            )
        return worker, None

    def _recall(self) -> None:
        """Cancel all tasks that haven't begun, so that they are submitted again as new tasks."""
        waiting = [key for key in self._tasks if key not in self._begun]
        self._recalled.update(waiting)
        self.client.cancel([self._futures[key] for key in waiting])

    def _note_begun(self, event: tuple[float, dict[str, Any]]) -> None:
        begun = event[1]
        self._begun[begun["key"]] = begun["worker"]
        # A thread that begins a task has ended the one before, whose outcome may be on its way.
        self._running[begun["worker"], begun["thread"]] = begun["key"]

    def _note_over_limit(self, event: tuple[float, dict[str, Any]]) -> None:
        self._held[event[1]["worker"]] = event[1]["rss"]


@contextmanager
def _scheduler_needed() -> Iterator[None]:
    """Convert errors of an unreachable scheduler to :class:`Incomplete`."""
    try:
        yield
    except (OSError, CancelledError, asyncio.CancelledError) as error:
        raise Incomplete(
            "the scheduler is gone, and so are the workers; run the same command again to continue"
        ) from error


def run_on_worker(task: Task) -> tuple[str, Ending]:
    """Run a task on a Dask worker; return the worker's address and how the task ended."""
    worker = distributed.get_worker()
    begun = {
        "key": worker.get_current_task(),
        "worker": worker.address,
        "thread": threading.get_ident(),
    }
    # Wait until the scheduler has the event: a task may kill its worker at once.
    sync(worker.loop, worker.scheduler.log_event, topic=BEGUN, msg=begun)
    try:
        return worker.address, run_task(task)
    except Exception as error:  # noqa: BLE001 -- the caller handles it
        return worker.address, error


AnyExecutor = TypeVar("AnyExecutor", bound=DaskExecutor)


@contextmanager
def connection_errors(
    cluster: AbstractContextManager[AnyExecutor], problem: Callable[[str], str]
) -> Iterator[AnyExecutor]:
    """Start a cluster and stop it at the end, both in a thread that receives no signals.

    An interrupt of the main thread must not leave the cluster half started or half stopped.

    Parameters
    ----------
    cluster : context manager
        The cluster; yields the executor.
    problem : callable
        Returns the error message if the cluster can't be started, given the reason.
    """

    def start() -> AnyExecutor:
        with errors_as(problem):
            return cluster.__enter__()

    def stop() -> None:
        if started.exception() is None:
            with suppress(Exception):  # the scheduler may be gone
                started.result().close()
            cluster.__exit__(None, None, None)

    with ThreadPoolExecutor(1) as apart:
        started = apart.submit(start)
        try:
            yield started.result()
        finally:
            apart.submit(stop).result()


@contextmanager
def errors_as(problem: Callable[[str], str]) -> Iterator[None]:
    """Convert any error of a library to :class:`Incomplete` with a one-line message."""
    try:
        yield
    except LatentscaleError:
        raise
    except Exception as error:
        raise Incomplete(problem(first_line(error))) from error
