"""Check the projected memory of tasks against the limit of a worker.

A process that runs a task is projected to hold what an idle worker of this job holds, and the
arrays that the stage states. An idle worker of a job is one that has imported and compiled
everything that the job's tasks need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput

IDLE_WORKER_BYTES = 320 * 2**20
"""Resident memory of a worker that has imported and compiled everything and holds no data."""


def idle_memory(stages: Iterable[Stage]) -> int:
    """Resident memory of an idle worker of a job, in bytes."""
    return IDLE_WORKER_BYTES + max((stage.lasting_bytes for stage in stages), default=0)


def task_memory(memory_limit: int, idle_bytes: int = IDLE_WORKER_BYTES) -> int:
    """Memory that is left for the arrays of the tasks of one worker, in bytes."""
    return memory_limit - idle_bytes


def tasks_that_fit(stage: Stage, memory_limit: int, idle_bytes: int) -> int:
    """How many tasks of a stage fit in one worker at once."""
    return max(1, task_memory(memory_limit, idle_bytes) // max(1, stage.memory_bytes))


def check_memory(stages: Iterable[Stage], memory_limit: int) -> None:
    """Refuse a job with a task that can't fit.

    Raises
    ------
    BadInput
        Naming the stage, what it needs, the limit, and the limit that would make it fit.
    """
    stages = list(stages)
    idle_bytes = idle_memory(stages)
    stage = max(stages, key=lambda stage: stage.memory_bytes)
    if stage.memory_bytes > task_memory(memory_limit, idle_bytes):
        needed = write_gibibytes(stage.memory_bytes + idle_bytes)
        raise BadInput(
            f"stage {stage.name} needs {needed} in one process and cluster.memory_limit is "
            f"{memory_limit / 2**30:.1f}GiB; set cluster.memory_limit to {needed} or more, use "
            "fewer rows, or leave this measure out"
        )


def write_gibibytes(size: int) -> str:
    """Write a size as a configuration takes it, rounded up: ``5.3GiB``."""
    return f"{math.ceil(size / 2**30 * 10) / 10:.1f}GiB"
