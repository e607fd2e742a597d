"""Forecast what remains of one stage: its work, its time, its bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from latentscale_pipeline.engine.calibration import TASK_SECONDS, Rates
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.state import StageState
from latentscale_pipeline.jobs.schedule import PendingStage
from latentscale_pipeline.jobs.worker_pool import WorkerPool


@dataclass(frozen=True)
class StageForecast:
    """The forecast of one stage.

    Attributes
    ----------
    stage : Stage
        The stage.
    worker_pool : WorkerPool
        The workers that run it.
    reuse : str
        How much of it can be reused from earlier runs.
    left : float
        Share of its work that remains.
    present_bytes : int
        Size of its folder before the run.
    copied_bytes : int
        Size of a result that is copied from another job.
    work_seconds : float
        Time that the remaining work takes on one thread.
    """

    stage: Stage
    worker_pool: WorkerPool
    reuse: str
    left: float
    present_bytes: int
    copied_bytes: int
    work_seconds: float

    @property
    def seconds(self) -> float:
        """Return the time from its first task to its end if no other stage uses the workers."""
        parts = max(1, math.ceil(self.left * self.stage.side_by_side))
        at_once = min(parts, self.worker_pool.slots(self.stage))
        oversubscription = max(1.0, at_once / self.worker_pool.cores)
        return self.work_seconds / parts * math.ceil(parts / at_once) * oversubscription

    @property
    def written_bytes(self) -> int:
        """Return the bytes that the remaining work writes, and those that are copied."""
        return self.copied_bytes + round(self.left * self.stage.cost_estimate.bytes_written)

    @property
    def pending(self) -> PendingStage:
        """Return what remains of it when the run begins."""
        before = self.present_bytes + self.copied_bytes
        return PendingStage(self.stage, self.work_seconds, self.left, before)


def forecast_stage(
    stage: Stage, worker_pool: WorkerPool, stage_state: StageState | None, rates: Rates
) -> StageForecast:
    """Forecast a stage.

    Parameters
    ----------
    stage : Stage
        The stage.
    worker_pool : WorkerPool
        The workers that run it.
    stage_state : StageState, optional
        What was found of it; nothing by default.
    rates : Rates
        Operations per second of one thread.
    """
    state = stage_state or StageState(stage, "", origin="computed")
    left = _share_left(state)
    present, copied = round((1 - left) * stage.running_bytes), 0
    if not left:
        present = stage.kept_bytes if state.collected else stage.result_bytes
        if state.reason.startswith("reused") and not state.collected:
            present, copied = 0, stage.result_bytes
    return StageForecast(
        stage=stage,
        worker_pool=worker_pool,
        reuse=state.reason,
        left=left,
        present_bytes=present,
        copied_bytes=copied,
        work_seconds=left * (rates.seconds(stage.cost_estimate) + TASK_SECONDS * stage.tasks),
    )


def _share_left(stage_state: StageState) -> float:
    """Return the share of a stage's tasks that remain; at least one task if it isn't done."""
    stage = stage_state.stage
    if stage_state.done:
        return 0.0
    there = stage_state.found
    if stage.advance is not None and stage_state.iteration:
        there += 1 + (stage_state.iteration - 1) * (stage.partitions + 1)
    return max(1, stage.tasks - there) / stage.tasks
