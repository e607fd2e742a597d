"""Foresee the order in which the loop runs stages, and with it time and disk space.

As in the loop, stages whose needs are done share the workers, earlier ones of the plan first, and
temporary data are removed once every stage that reads them is done. The tasks of a stage take
equally long here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.jobs.worker_pool import WorkerPool

ROUNDING = 1e-6
"""Tasks that are due to rounding."""


@dataclass
class PendingStage:
    """What remains of a stage.

    Attributes
    ----------
    stage : Stage
        The stage.
    work_seconds : float
        Time that its pending tasks take on one thread.
    left : float
        The share of its tasks that remain; 0 if it is done.
    present_bytes : int
        Size of its folder before the run.
    """

    stage: Stage
    work_seconds: float
    left: float
    present_bytes: int

    def __post_init__(self) -> None:
        self.tasks = float(math.ceil(self.left * self.stage.side_by_side)) if self.left else 0.0
        self.task_seconds = self.work_seconds / max(1.0, self.tasks)

    @property
    def done(self) -> bool:
        """Return whether nothing remains."""
        return self.tasks <= 0

    @property
    def bytes(self) -> float:
        """Return the size of its folder before anything that it wrote is removed."""
        planned = math.ceil(self.left * self.stage.side_by_side)
        share = self.tasks / planned if planned else 0.0
        return self.present_bytes * share + self.stage.running_bytes * (1 - share)


@dataclass(frozen=True)
class Schedule:
    """The course of a job.

    Attributes
    ----------
    seconds : float
        Time until the last stage is done.
    peak_bytes, kept_bytes : int
        Size of the folders of all stages at most, and in the end.
    """

    seconds: float
    peak_bytes: int
    kept_bytes: int


def simulate_schedule(stages: Sequence[PendingStage], worker_pool: WorkerPool) -> Schedule:
    """Follow the loop from the end of one task to the next.

    Parameters
    ----------
    stages : sequence of PendingStage
        In the order of the plan; used up.
    worker_pool : WorkerPool
        The workers.
    """
    held = _Folders(stages)
    seconds = 0.0
    while not all(pending.done for pending in stages):
        shares = _shares(stages, worker_pool)
        oversubscription = max(1.0, sum(at_once for _, at_once in shares) / worker_pool.cores)
        step = min(
            (pending.tasks - _next_end(pending.tasks, at_once)) * pending.task_seconds / at_once
            for pending, at_once in shares
        )
        for pending, at_once in shares:
            end = _next_end(pending.tasks, at_once)
            took = (pending.tasks - end) * pending.task_seconds / at_once
            ends = took <= step * (1 + 1e-9)
            progress = step * at_once / max(pending.task_seconds, 1e-12)
            pending.tasks = end if ends else pending.tasks - progress
        seconds += step * oversubscription
        held.update()
    return Schedule(seconds, held.peak, held.now)


def _shares(
    stages: Sequence[PendingStage], worker_pool: WorkerPool
) -> list[tuple[PendingStage, int]]:
    """Return the stages that run now, each with how many of its tasks run at once."""
    done = {pending.stage.name for pending in stages if pending.done}
    planned = {pending.stage.name for pending in stages}
    free = worker_pool.workers * worker_pool.threads
    shares = []
    for pending in stages:
        stage = pending.stage
        if pending.done or not done >= planned.intersection(stage.needs) or not free:
            continue
        at_once = min(free, math.ceil(pending.tasks), worker_pool.slots(stage))
        shares.append((pending, at_once))
        free -= at_once
    return shares


def _next_end(tasks: float, at_once: int) -> float:
    """Return how many tasks remain when there are too few for all that run at once now."""
    if tasks < at_once:
        return 0.0
    rest = tasks % at_once
    return 0.0 if at_once - rest < ROUNDING else rest


class _Folders:
    """The sizes of the folders of all stages."""

    def __init__(self, stages: Sequence[PendingStage]) -> None:
        self._stages = stages
        self._readers = {
            pending.stage.name: [
                other for other in stages if pending.stage.name in other.stage.needs
            ]
            for pending in stages
        }
        self._present = {
            pending.stage.name: pending.present_bytes for pending in stages if pending.done
        }
        self.now = self.peak = 0
        self.update()

    def update(self) -> None:
        """Add what was written, then take away what no stage reads any more."""
        self.peak = max(self.peak, sum(self._before_removal(each) for each in self._stages))
        self.now = sum(self._after_removal(each) for each in self._stages)

    def _before_removal(self, pending: PendingStage) -> int:
        name = pending.stage.name
        if name in self._present:
            return self._present[name]
        return int(pending.bytes)

    def _after_removal(self, pending: PendingStage) -> int:
        held = self._before_removal(pending)
        if not pending.done:
            return held
        stage = pending.stage
        read = all(other.done for other in self._readers[stage.name])
        held = min(held, stage.kept_bytes if read else stage.result_bytes)
        self._present[stage.name] = held
        return held
