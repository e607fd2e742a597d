"""A driver that dies in the middle of its work, without leaving the process."""

from latentscale_pipeline.engine.executor import Ending, SerialExecutor
from latentscale_pipeline.engine.task import Task


class Killed(BaseException):
    """The driver dies."""


class MortalExecutor(SerialExecutor):
    """Runs so many tasks, then takes the driver down."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self._left = tasks

    def next_ended(self, seconds: float) -> tuple[Task, Ending] | None:
        if self._left == 0:
            raise Killed
        ended = super().next_ended(seconds)
        self._left -= ended is not None
        return ended
