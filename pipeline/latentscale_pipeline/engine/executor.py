"""The interface of executors, which run tasks.

An executor takes tasks and reports how each ended. It holds no state that a run depends on. The
serial executor is the reference: all others must give the same results.
"""

from __future__ import annotations

from typing import Protocol

from latentscale_pipeline.engine.task import Task
from latentscale_pipeline.storage.artifacts import Cost

Ending = Cost | BaseException
"""How a task ended: its cost, or the exception that it raised."""


class Executor(Protocol):
    """Runs tasks, any number at once, in any order."""

    @property
    def window(self) -> int:
        """Return how many tasks may be submitted at once."""

    def submit(self, task: Task) -> None:
        """Submit a task."""

    def next_ended(self, seconds: float) -> tuple[Task, Ending] | None:
        """Wait until a submitted task ends, and return it; None if none ends in that time.

        The timeout lets the caller check for cancellation during long tasks.
        """
