"""What fits: projected memory of a task against the limit of the process that runs it."""

from __future__ import annotations

from collections.abc import Iterable

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput

IDLE_WORKER_BYTES = 320 * 2**20
"""Resident memory of a worker that has imported and compiled everything and holds no data."""


def task_memory(memory_limit: int) -> int:
    """Memory that is left for the arrays of the tasks of one worker, in bytes."""
    return memory_limit - IDLE_WORKER_BYTES


def check_memory(stages: Iterable[Stage], memory_limit: int) -> None:
    """Refuse a job with a task that can't fit.

    Raises
    ------
    BadInput
        Naming the stage, what it needs, the limit, and what would make it fit.
    """
    stage = max(stages, key=lambda stage: stage.memory_bytes)
    if stage.memory_bytes > task_memory(memory_limit):
        needed = (stage.memory_bytes + IDLE_WORKER_BYTES) / 2**30
        raise BadInput(
            f"stage {stage.name} needs {needed:.1f} GiB in one process and "
            f"cluster.memory_limit is {memory_limit / 2**30:.1f} GiB; raise it, use fewer rows, "
            "or leave this measure out"
        )
