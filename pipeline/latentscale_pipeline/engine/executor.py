"""What it takes to run tasks, and the simplest thing that does.

An executor is disposable: it takes tasks and says how each ended, and nothing that matters lives
in it. The serial one is the reference: every other must give the same results.
"""

from __future__ import annotations

from typing import Protocol

from latentscale_pipeline.engine.task import Task
from latentscale_pipeline.storage.artifacts import Cost

Ending = Cost | BaseException
"""How a task ended: what it cost, or what it raised."""


class Executor(Protocol):
    """Something that runs tasks, any number at once, in any order."""

    @property
    def window(self) -> int:
        """How many tasks may be submitted at once."""

    def submit(self, task: Task) -> None:
        """Hand over a task."""

    def next_ended(self, seconds: float) -> tuple[Task, Ending] | None:
        """Wait for any task that was submitted to end; None when none did in that time.

        However long a task takes, its caller is given the chance to check for cancellation.
        """
