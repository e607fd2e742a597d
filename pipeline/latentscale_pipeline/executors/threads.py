"""Tasks on threads of this process."""

from __future__ import annotations

import queue
import threading
from collections import deque
from contextlib import AbstractContextManager, ExitStack

from latentscale_pipeline.engine import TASK_THREAD
from latentscale_pipeline.engine.executor import Ending
from latentscale_pipeline.engine.task import Task, one_thread, run_task
from latentscale_pipeline.executors.process_environment import ONE_THREAD, environment


class ThreadExecutor(AbstractContextManager["ThreadExecutor"]):
    """Runs tasks in this process, in the order of submission; one after another by default.

    Threads compute while the caller waits, so that signals and requests to stop are handled during
    a long task. A task that is running when the executor closes isn't stopped: it ends with the
    process, and an artifact that it still publishes does no harm.

    Parameters
    ----------
    threads : int
        How many tasks run at once.
    memory : int, optional
        Memory of all tasks together, in bytes. A task that would exceed it waits until others have
        ended. Unlimited by default.
    """

    def __init__(self, threads: int = 1, memory: int | None = None) -> None:
        self.window = threads
        self._memory = memory
        self._limits = ExitStack()
        self._waiting: deque[Task] = deque()
        self._running: dict[threading.Thread, Task] = {}
        self._ended: queue.SimpleQueue[tuple[threading.Thread, Ending]] = queue.SimpleQueue()

    def __enter__(self) -> ThreadExecutor:
        with ExitStack() as limits:
            # A task's own limit doesn't count where others run beside it in this process.
            limits.enter_context(one_thread())
            limits.enter_context(environment(ONE_THREAD))  # for libraries that tasks load
            self._limits = limits.pop_all()
        return self

    def __exit__(self, *ended: object) -> None:
        self._waiting.clear()
        self._limits.close()

    def submit(self, task: Task) -> None:
        """Queue a task."""
        self._waiting.append(task)

    def next_ended(self, seconds: float) -> tuple[Task, Ending] | None:
        """Start the oldest tasks on the threads that are free, and wait for one to end."""
        while self._waiting and self._has_room(self._waiting[0]):
            task = self._waiting.popleft()
            thread = threading.Thread(
                target=self._compute, args=(task,), name=TASK_THREAD, daemon=True
            )
            self._running[thread] = task
            thread.start()
        try:
            thread, ending = self._ended.get(timeout=seconds)
        except queue.Empty:
            return None
        # Until the thread has ended, it looks as if it were still computing.
        thread.join()
        return self._running.pop(thread), ending

    def _has_room(self, task: Task) -> bool:
        if not self._running or self._memory is None:
            return len(self._running) < self.window
        together = [task, *self._running.values()]
        needed = sum(other.stage.memory_bytes for other in together)
        return len(together) <= self.window and needed <= self._memory

    def _compute(self, task: Task) -> None:
        try:
            ending: Ending = run_task(task)
        except BaseException as error:  # noqa: BLE001 -- how a task ended is the caller's to judge
            ending = error
        self._ended.put((threading.current_thread(), ending))
