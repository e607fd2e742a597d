"""Measure the speed of one of several busy threads of this machine, in a third of a second.

Time estimates need four rates: multiply-adds in matrix products of float64 and of float32,
elementwise operations, and bytes read from the storage of the corpus. The first three are measured
on tiles of the size that stages use, by as many threads at once as will work: two threads of one
core share its units, and all share the memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from latentscale_pipeline.engine.cost import CostEstimate

TILE_ROWS = 1024
TILE_DIMENSION = 384
TRY_SECONDS = 0.08
"""How long each kind of work is timed."""

READ_SECONDS = 0.1
"""Time after which no further piece of a corpus is read."""

SLOWEST_READ = 1.0e6
"""Fewest bytes per second that are assumed."""


@dataclass(frozen=True)
class Rates:
    """Operations per second of one thread.

    Attributes
    ----------
    float64_multiply_adds, float32_multiply_adds : float
        Multiply-adds in matrix products of float64, of float32.
    elementwise_operations : float
        Entries of a tile converted from products to distances.
    read_bytes : float
        Bytes of vectors read, checked and decoded.
    """

    float64_multiply_adds: float
    float32_multiply_adds: float
    elementwise_operations: float
    read_bytes: float

    def seconds(self, cost_estimate: CostEstimate) -> float:
        """Return the time that one thread takes; a byte written counts as a byte read."""
        return (
            cost_estimate.float64_multiply_adds / self.float64_multiply_adds
            + cost_estimate.float32_multiply_adds / self.float32_multiply_adds
            + cost_estimate.elementwise_operations / self.elementwise_operations
            + (cost_estimate.bytes_read + cost_estimate.bytes_written) / self.read_bytes
        )


TYPICAL = Rates(
    float64_multiply_adds=2e10,
    float32_multiply_adds=5e10,
    elementwise_operations=2e9,
    read_bytes=1e9,
)
"""Rates of one core of a recent processor."""

TASK_SECONDS = 0.02
"""Overhead of a task: handing it out, opening the corpus, writing its marker."""


def calibrate(pieces: Iterator[int], threads: int = 1) -> Rates:
    """Measure the rates.

    Parameters
    ----------
    pieces : iterator of int
        Each step reads a piece of the corpus and yields its size in bytes. Without one, the typical
        rate is returned.
    threads : int
        Number of threads that compute at once.
    """
    from latentscale.tiles.distances import as_points, squared_tile  # with numba, which takes long

    rows = np.random.default_rng(0).normal(size=(2, TILE_ROWS, TILE_DIMENSION))
    single = rows.astype(np.float32)
    first, second = (as_points(part[:, :2], "euclidean") for part in rows)
    work = float(TILE_ROWS**2 * TILE_DIMENSION)
    with threadpool_limits(limits=1), ThreadPoolExecutor(threads) as executor:
        time_of = partial(_time, executor, threads)
        return Rates(
            float64_multiply_adds=work / time_of(lambda: rows[0] @ rows[1].T),
            float32_multiply_adds=work / time_of(lambda: single[0] @ single[1].T),
            elementwise_operations=TILE_ROWS**2 / time_of(lambda: squared_tile(first, second)),
            read_bytes=_reading_rate(pieces),
        )


def _time(executor: ThreadPoolExecutor, threads: int, work: Callable[[], object]) -> float:
    """Return the usual time that some work takes in a thread, as a mean over the threads."""
    work()  # compile, and fill the caches
    return float(np.mean(list(executor.map(_usual_time, [work] * threads))))


def _usual_time(work: Callable[[], object]) -> float:
    times: list[float] = []
    end = time.perf_counter() + TRY_SECONDS
    while not times or time.perf_counter() < end:
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    # Not the shortest: it may be one after another thread has ended.
    return float(np.median(times))


def _reading_rate(pieces: Iterator[int]) -> float:
    size, begun = 0, time.perf_counter()
    for piece in pieces:
        size += piece
        if time.perf_counter() - begun > READ_SECONDS:
            break
    if not size:
        return TYPICAL.read_bytes
    return max(size / (time.perf_counter() - begun), SLOWEST_READ)
