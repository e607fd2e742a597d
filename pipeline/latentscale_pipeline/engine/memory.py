"""Check the projected memory of tasks against the memory limit of a worker.

The projected memory of a process that runs a task is that of an idle worker plus the arrays that
the stage declares. An idle worker has imported and compiled everything that the job's tasks need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput

IDLE_WORKER_BYTES = 320 * 2**20
"""Resident memory of a worker that has imported and compiled everything but holds no data."""


def idle_memory(stages: Iterable[Stage]) -> int:
    """Return the resident memory of an idle worker of a job, in bytes."""
    return IDLE_WORKER_BYTES + max((stage.lasting_bytes for stage in stages), default=0)


def task_memory(memory_limit: int, idle_bytes: int = IDLE_WORKER_BYTES) -> int:
    """Return the memory left for the arrays of one worker's tasks, in bytes."""
    return memory_limit - idle_bytes


def tasks_that_fit(stage: Stage, memory_limit: int, idle_bytes: int) -> int:
    """Return how many tasks of a stage fit in one worker at once."""
    return max(1, task_memory(memory_limit, idle_bytes) // max(1, stage.memory_bytes))


def check_memory(stages: Iterable[Stage], memory_limit: int) -> None:
    """Refuse a job with a task that doesn't fit in the memory of a worker.

    Raises
    ------
    BadInput
        If a task doesn't fit. The message names the stage, what it needs, the limit, and a limit
        that suffices.
    """
    stages = list(stages)
    idle_bytes = idle_memory(stages)
    stage = max(stages, key=lambda stage: stage.memory_bytes)
    if stage.memory_bytes > task_memory(memory_limit, idle_bytes):
        needed = format_gibibytes(stage.memory_bytes + idle_bytes)
        raise BadInput(
            f"stage {stage.name} needs {needed} in one process, but cluster.memory_limit is "
            f"{memory_limit / 2**30:.1f}GiB; set cluster.memory_limit to {needed} or more, use "
            "fewer rows, or leave this measure out"
        )


def format_gibibytes(size: int) -> str:
    """Return a size in the configuration's format, rounded up: ``5.3GiB``."""
    return f"{math.ceil(size / 2**30 * 10) / 10:.1f}GiB"
