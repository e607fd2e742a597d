"""What it takes to run tasks, and the simplest thing that does.

An executor is disposable: it takes tasks and says how each ended, and nothing that matters lives
in it. The serial one is the reference: every other must give the same results.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Protocol

from latentscale_pipeline.engine.task import Task, run_task
from latentscale_pipeline.job.publishing import Cost

Ending = Cost | BaseException
"""How a task ended: what it cost, or what it raised."""


class Executor(Protocol):
    """Something that runs tasks, any number at once, in any order."""

    @property
    def window(self) -> int:
        """How many tasks may be handed over at once."""

    def submit(self, task: Task) -> None:
        """Hand over a task."""

    def next_ended(self) -> tuple[Task, Ending]:
        """Wait for any task that was handed over to end."""


class SerialExecutor:
    """Runs each task in this process when its ending is asked for, in the order of submission."""

    window = 1

    def __init__(self) -> None:
        self._queue: deque[Task] = deque()

    def __enter__(self) -> SerialExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue.clear()

    def submit(self, task: Task) -> None:
        """Queue a task."""
        self._queue.append(task)

    def next_ended(self) -> tuple[Task, Ending]:
        """Run the oldest task."""
        task = self._queue.popleft()
        try:
            return task, run_task(task)
        except Exception as error:  # noqa: BLE001 -- how a task ended is the caller's to judge
            return task, error
