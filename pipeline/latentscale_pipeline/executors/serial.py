"""Tasks one after another, in this process."""

from __future__ import annotations

import queue
import threading
from collections import deque
from contextlib import AbstractContextManager

from latentscale_pipeline.engine import TASK_THREAD
from latentscale_pipeline.engine.executor import Ending
from latentscale_pipeline.engine.task import Task, run_task


class SerialExecutor(AbstractContextManager["SerialExecutor"]):
    """Runs one task after another in this process, in the order of submission.

    A thread computes while the caller waits, so that signals and requests to stop are handled
    during a long task. A task that is running when the executor closes isn't stopped: it ends with
    the process, and an artifact that it still publishes does no harm.
    """

    window = 1

    def __init__(self) -> None:
        self._waiting: deque[Task] = deque()
        self._ended: queue.SimpleQueue[tuple[Task, Ending]] = queue.SimpleQueue()
        self._computing: threading.Thread | None = None

    def __exit__(self, *ended: object) -> None:
        self._waiting.clear()

    def submit(self, task: Task) -> None:
        """Queue a task."""
        self._waiting.append(task)

    def next_ended(self, seconds: float) -> tuple[Task, Ending] | None:
        """Start the oldest task, unless one is running, and wait for it to end."""
        if self._computing is None:
            task = self._waiting.popleft()
            self._computing = threading.Thread(
                target=self._compute, args=(task,), name=TASK_THREAD, daemon=True
            )
            self._computing.start()
        try:
            ended = self._ended.get(timeout=seconds)
        except queue.Empty:
            return None
        # Until the thread has ended, it looks as if it were still computing.
        self._computing.join()
        self._computing = None
        return ended

    def _compute(self, task: Task) -> None:
        try:
            ending: Ending = run_task(task)
        except BaseException as error:  # noqa: BLE001 -- how a task ended is the caller's to judge
            ending = error
        self._ended.put((task, ending))
