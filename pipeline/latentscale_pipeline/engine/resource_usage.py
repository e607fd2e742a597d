"""Measure the wall time and the peak memory of a piece of work.

Memory belongs to a process, not to a task: with several threads a worker's tasks share one figure.
Each cost therefore says how many tasks ran in the process at once; where that is 1, the peak is
that task's own, an idle worker included.

The peak is sampled, and raised to the peak that the system itself has kept since the process began
where that has grown in the meantime: samples are missed while a library holds Python's lock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from latentscale_pipeline.storage.artifacts import Cost

SAMPLING_SECONDS = 0.05


_running: list[Measurement] = []
"""What is measured in this process now."""

_lock = threading.Lock()


@contextmanager
def measured() -> Iterator[Measurement]:
    """Measure a block; :meth:`Measurement.cost` tells what it has taken so far, or took."""
    measurement = Measurement()
    with _lock:
        _running.append(measurement)
        for other in _running:
            other.tasks_at_once = max(other.tasks_at_once, len(_running))
    measurement.start()
    try:
        yield measurement
    finally:
        with _lock:
            _running.remove(measurement)
        measurement.stop()


class Measurement:
    """The time and memory of one task, while it runs and after."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._lifetime_peak = _lifetime_peak()
        self._peak = 0
        self._begun = 0.0
        self._seconds: float | None = None
        self.tasks_at_once = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def cost(self) -> Cost:
        """Return what the block has taken."""
        seconds = time.perf_counter() - self._begun if self._seconds is None else self._seconds
        grown = _lifetime_peak()
        peak = max(self._peak, self._resident(), grown if grown > self._lifetime_peak else 0)
        return Cost(round(seconds, 3), peak, self.tasks_at_once)

    def start(self) -> None:
        """Begin to measure."""
        self._begun = time.perf_counter()
        self._thread.start()

    def stop(self) -> None:
        """Cease to measure."""
        self._seconds = time.perf_counter() - self._begun
        self._end.set()
        self._thread.join()

    def _resident(self) -> int:
        return int(self._process.memory_info().rss)

    def _sample(self) -> None:
        while True:
            self._peak = max(self._peak, self._resident())
            if self._end.wait(SAMPLING_SECONDS):
                return


def _lifetime_peak() -> int:
    """Return the most that this process has ever held, in bytes; 0 where it isn't known."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
