"""What a job takes of the memory and of the disk, and whether this machine has it."""

from __future__ import annotations

from collections.abc import Sequence

from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.engine.calibration import TYPICAL
from latentscale_pipeline.engine.state import StageState
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.machine import memory_bytes
from latentscale_pipeline.jobs.schedule import Schedule, simulate_schedule
from latentscale_pipeline.jobs.stage_forecast import StageForecast, forecast_stage
from latentscale_pipeline.jobs.worker_pool import WorkerPool, memory_shortfall
from latentscale_pipeline.storage.disk import free_bytes
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import strip_credentials
from latentscale_pipeline.views.formatting import format_bytes

REPORT_BYTES = 2**18
"""Approximate size of the report and the results."""

Disk = dict[str, int | None]


def refuse_shortfalls(config: JobConfig, stage_states: Sequence[StageState]) -> None:
    """Refuse what this machine has too little memory or disk for, before anything runs.

    Raises
    ------
    BadInput
        If it has too little; the message gives the need, and the setting that would make it fit.
    """
    stages = [state.stage for state in stage_states]
    worker_pool = WorkerPool.of(config, stages)
    forecasts = [forecast_stage(state.stage, worker_pool, state, TYPICAL) for state in stage_states]
    schedule = simulate_schedule([part.pending for part in forecasts], worker_pool)
    for shortfall in find_shortfalls(config, forecasts, forecast_disk(config, forecasts, schedule)):
        raise BadInput(shortfall)


def find_shortfalls(config: JobConfig, forecasts: Sequence[StageForecast], disk: Disk) -> list[str]:
    """Return what this machine has too little of, a sentence each."""
    worker_pool = forecasts[0].worker_pool
    remaining = [part.stage for part in forecasts if part.left]
    found = (
        memory_shortfall(worker_pool, remaining, memory_bytes()),
        _disk_shortfall(config, disk),
    )
    return [shortfall for shortfall in found if shortfall]


def forecast_disk(
    config: JobConfig,
    forecasts: Sequence[StageForecast],
    schedule: Schedule,
    ingested_bytes: int = 0,
) -> Disk:
    """Return the bytes that a job and the ingest before it take below the output."""
    # The report is written when everything else has been removed.
    kept = schedule.kept_bytes + REPORT_BYTES
    peak = max(schedule.peak_bytes, kept)
    missing = any(part.left or part.copied_bytes for part in forecasts)
    present = sum(part.present_bytes for part in forecasts)
    return {
        "written_bytes": sum(part.written_bytes for part in forecasts) + REPORT_BYTES,
        "peak_bytes": peak,
        "kept_bytes": kept,
        "needed_bytes": ingested_bytes + peak,
        "missing_bytes": ingested_bytes + (max(0, peak - present) if missing else 0),
        "free_bytes": free_bytes(ObjectStore(config.output)),
    }


def _disk_shortfall(config: JobConfig, disk: Disk) -> str | None:
    missing, free = disk["missing_bytes"], disk["free_bytes"]
    if missing is None or free is None or missing <= free:
        return None
    return (
        f"output {strip_credentials(config.output)}: the job writes {format_bytes(missing)} "
        f"and {format_bytes(free)} are free there; set output to a larger disk, or free "
        f"{format_bytes(missing - free)}"
    )
