"""Tasks in this process."""

import threading
import time
from typing import Any

import pytest

from latentscale_pipeline.engine import TASK_THREAD
from latentscale_pipeline.executors import serial


class Slow(threading.Thread):
    """A thread that takes a while to end after its work."""

    def run(self) -> None:
        super().run()
        time.sleep(0.2)


def test_no_thread_is_left_of_a_task_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that found one would end the process at once."""
    monkeypatch.setattr(serial, "run_task", lambda task: 7)
    monkeypatch.setattr(threading, "Thread", Slow)
    task: Any = "a task"
    with serial.SerialExecutor() as executor:
        executor.submit(task)
        assert executor.next_ended(5.0) == ("a task", 7)
        assert all(thread.name != TASK_THREAD for thread in threading.enumerate())
