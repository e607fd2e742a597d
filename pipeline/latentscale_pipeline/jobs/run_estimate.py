"""Estimate how long a run will take when it begins, for those who wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.calibration import calibrate
from latentscale_pipeline.engine.state import StageState
from latentscale_pipeline.jobs.automatic_cluster import typical_work_seconds
from latentscale_pipeline.jobs.plan import Plan
from latentscale_pipeline.jobs.run_record import RunEstimate, StageEstimate
from latentscale_pipeline.jobs.schedule import simulate_schedule
from latentscale_pipeline.jobs.stage_forecast import forecast_stage
from latentscale_pipeline.jobs.worker_pool import WorkerPool

WORTH_AN_ESTIMATE_SECONDS = 30.0
"""Work at typical rates from which a run has an estimate."""


def estimate_run(plan: Plan, stage_states: Sequence[StageState]) -> RunEstimate | None:
    """Estimate how long the missing work of a job takes.

    Parameters
    ----------
    plan : Plan
        The job.
    stage_states : sequence of StageState
        What exists of its stages.

    Returns
    -------
    RunEstimate or None
        None for a run that is over before anyone looks: even the rates aren't measured for it.
    """
    missing = [state for state in stage_states if not state.done]
    if typical_work_seconds([state.stage for state in missing]) < WORTH_AN_ESTIMATE_SECONDS:
        return None
    worker_pool = WorkerPool.of(plan.config, plan.stages)
    rates = calibrate(read_shards(plan.corpora["corpus"]), worker_pool.busy_cores)
    forecasts = [forecast_stage(state.stage, worker_pool, state, rates) for state in stage_states]
    schedule = simulate_schedule([forecast.pending for forecast in forecasts], worker_pool)
    stages = {
        forecast.stage.name: StageEstimate(
            forecast.work_seconds, round(forecast.left * forecast.stage.tasks)
        )
        for forecast in forecasts
        if forecast.left
    }
    return RunEstimate(worker_pool.startup_seconds + schedule.seconds, stages, time.time())


def read_shards(corpus: Corpus) -> Iterator[int]:
    """Read a corpus shard by shard, and yield the size of each in bytes."""
    for i in range(corpus.shard_count):
        yield corpus.read_shard(i).nbytes
