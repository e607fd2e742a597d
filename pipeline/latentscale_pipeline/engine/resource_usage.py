"""Measure the wall time and the peak memory of a task.

Memory is measured per process, so the concurrent tasks of a worker share one figure. Each cost
therefore includes how many tasks ran in the process at once. If that is 1, the peak belongs to that
task alone; it includes the memory of an idle worker.

The peak is sampled. Samples are missed while a library holds the GIL, so if the system's own record
of the process's peak has grown during the task, that value is used.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache

import psutil

from latentscale_pipeline.storage.artifacts import Cost

SAMPLING_SECONDS = 0.05


_running: list[Measurement] = []
"""Measurements under way in this process."""

_lock = threading.Lock()


@contextmanager
def measured() -> Iterator[Measurement]:
    """Measure a block; :meth:`Measurement.cost` returns its cost, also while it is running."""
    measurement = Measurement()
    with _lock:
        # A task within another is short, and that one samples the memory of both.
        within = any(other.thread == measurement.thread for other in _running)
        _running.append(measurement)
        for other in _running:
            # A task may run others in its own thread, one after another.
            threads = {measurement.thread for measurement in _running}
            other.tasks_at_once = max(other.tasks_at_once, len(threads))
    measurement.start(sampled=not within)
    try:
        yield measurement
    finally:
        with _lock:
            _running.remove(measurement)
        measurement.stop()


class Measurement:
    """The time and memory of one task, while it runs and after."""

    def __init__(self) -> None:
        self._lifetime_peak = _lifetime_peak()
        self._peak = 0
        self._begun = 0.0
        self._seconds: float | None = None
        self.tasks_at_once = 0
        self.thread = threading.get_ident()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._sampled = True

    def cost(self) -> Cost:
        """Return the cost of the block so far, or in total once it has ended."""
        seconds = time.perf_counter() - self._begun if self._seconds is None else self._seconds
        grown = _lifetime_peak()
        if not self._sampled and grown:
            return Cost(round(seconds, 3), grown, self.tasks_at_once)
        peak = max(self._peak, _resident(), grown if grown > self._lifetime_peak else 0)
        return Cost(round(seconds, 3), peak, self.tasks_at_once)

    def start(self, *, sampled: bool = True) -> None:
        """Start to measure; without samples the peak is the system's own, that of the process."""
        self._sampled = sampled
        self._begun = time.perf_counter()
        if sampled:
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop measuring."""
        self._seconds = time.perf_counter() - self._begun
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        while True:
            self._peak = max(self._peak, _resident())
            if self._end.wait(SAMPLING_SECONDS):
                return


@lru_cache(maxsize=1)
def _process(pid: int) -> psutil.Process:
    """Open a process; that takes longer than to ask it for its memory."""
    return psutil.Process(pid)


def _resident() -> int:
    return int(_process(os.getpid()).memory_info().rss)


def _lifetime_peak() -> int:
    """Return the peak memory of this process since its start, in bytes; 0 if unknown."""
    if sys.platform == "win32":
        return 0
    if sys.platform == "linux":
        # The peak of getrusage begins at what the parent held when it started this process.
        with suppress(OSError), open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return 1024 * int(line.split()[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
