"""Forecast what a job will do and cost before it runs.

A forecast reads manifests, the headers of sources that aren't ingested yet, and the results of
earlier runs below the output; it writes nothing. Each stage estimates its own work. A short
calibration converts work to time; for a job of a few seconds, typical rates do. The tasks of all
stages share as many workers as partitions and memory allow, in the order of the loop (see
:mod:`.schedule`); so do their bytes on the disk.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.config.user_functions import refuse_code
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.ingest.create import Prospect, find_corpus
from latentscale_pipeline.engine.calibration import TASK_SECONDS, TYPICAL, Rates, calibrate
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.memory import write_gibibytes
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.state import StageState, inspect_stages
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.automatic_cluster import is_short
from latentscale_pipeline.jobs.machine import describe_machine, memory_bytes
from latentscale_pipeline.jobs.plan import (
    corpus_sources,
    describe_stage,
    drop_inapplicable_measures,
    identify_plan,
    job_facts,
    plan_stages,
)
from latentscale_pipeline.jobs.run import frozen_config, work_with_caches
from latentscale_pipeline.jobs.schedule import Remaining, Schedule, foresee
from latentscale_pipeline.jobs.shared_scales import read_scales
from latentscale_pipeline.jobs.worker_pool import WorkerPool, check_machine
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import storage_options, strip_credentials

PLAN_SCHEMA = "latentscale.plan/1"

STARTUP_SECONDS = 2.0
"""Time until the worker processes have started and imported everything."""

INGEST_OPERATIONS = 4
"""Operations of an ingest per coordinate: conversion, checks, hashes."""

REPORT_BYTES = 5 * 2**20
"""Approximate size of the report and the results."""


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
        crowding = max(1.0, at_once / self.worker_pool.cores)
        return self.work_seconds / parts * math.ceil(parts / at_once) * crowding

    @property
    def written_bytes(self) -> int:
        """Return the bytes that the remaining work writes, and those that are copied."""
        return self.copied_bytes + round(self.left * self.stage.cost_estimate.bytes_written)

    @property
    def remaining(self) -> Remaining:
        """Return what remains of it when the run begins."""
        before = self.present_bytes + self.copied_bytes
        return Remaining(self.stage, self.work_seconds, self.left, before)


def forecast_job(config: JobConfig, *, allow_code: bool = False) -> dict[str, Any]:
    """Forecast a job.

    Parameters
    ----------
    config : JobConfig
        The resolved configuration.
    allow_code : bool
        Whether functions that the configuration names may be imported and run.

    Returns
    -------
    dict
        JSON of the schema ``latentscale.plan/1``.

    Raises
    ------
    BadInput
        If a corpus can't be opened, or the job doesn't fit the budget, the memory or the disk. The
        message is one line and names the setting, and the value, that would make it fit.
    """
    refuse_code(config.measures, allowed=allow_code)
    with storage_options(config.storage_options):
        return _forecast(config)


def _forecast(config: JobConfig) -> dict[str, Any]:
    scales = read_scales(config)
    found: dict[Role, Corpus | Prospect] = {
        role: find_corpus(url, config.output).without(excluded)
        for role, (url, excluded) in corpus_sources(config).items()
    }
    config = drop_inapplicable_measures(config, found)
    facts = job_facts(config, found, scales)
    stages = plan_stages(config, facts)
    corpora = {role: corpus for role, corpus in found.items() if isinstance(corpus, Corpus)}
    plan = identify_plan(config, corpora, facts, stages) if len(corpora) == len(found) else None
    rates = TYPICAL if is_short(stages) else calibrate(_pieces(found["corpus"]))
    worker_pool = WorkerPool.of(config, stages)
    # Results of earlier runs are found by keys that contain the corpora's fingerprints.
    inspected = [] if plan is None else inspect_stages(work_with_caches(plan), repair=False)
    stage_states = {stage_state.stage.name: stage_state for stage_state in inspected}
    previewed = [
        _forecast_stage(stage, worker_pool, stage_states.get(stage.name), rates) for stage in stages
    ]
    check_machine(worker_pool, [part.stage for part in previewed if part.left], memory_bytes())
    schedule = foresee([part.remaining for part in previewed], worker_pool)
    disk = _disk(config, found, previewed, schedule)
    check_disk(config, disk)
    return {
        "schema": PLAN_SCHEMA,
        "job": {
            "id": plan.id if plan else None,
            "name": config.name,
            "config_hash": plan.config_hash if plan else None,
            "folder": plan.store.url if plan else None,
        },
        "config": json.loads(frozen_config(config)),
        "corpora": {role: _describe_corpus(corpus) for role, corpus in found.items()},
        "stages": [
            {
                "key": plan.keys[part.stage.name] if plan else None,
                **describe_stage(part.stage, worker_pool.idle_bytes),
                "reuse": part.reuse,
                "left": round(part.left, 4),
                "at_once": worker_pool.at_once(part.stage),
                "work_seconds": round(part.work_seconds, 1),
                "seconds": round(part.seconds, 1),
            }
            for part in previewed
        ],
        "total": _total(
            previewed, schedule, sum(_ingest_seconds(c, rates) for c in found.values())
        ),
        "disk": disk,
        "machine": describe_machine(),
        "rates": {
            "multiply_adds_per_second": rates.float64_multiply_adds,
            "single_multiply_adds_per_second": rates.float32_multiply_adds,
            "folds_per_second": rates.elementwise_operations,
            "bytes_read_per_second": rates.read_bytes,
        },
    }


def _pieces(corpus: Corpus | Prospect) -> Iterator[int]:
    """Read a corpus, or the source to ingest, piece by piece."""
    if isinstance(corpus, Corpus):
        for i in range(corpus.shard_count):
            yield corpus.read_shard(i).nbytes
    else:
        for block in corpus.sources.items[0].blocks():
            yield block.nbytes


def _forecast_stage(
    stage: Stage, worker_pool: WorkerPool, stage_state: StageState | None, rates: Rates
) -> StageForecast:
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


def _describe_corpus(corpus: Corpus | Prospect) -> dict[str, Any]:
    return {
        "uri": corpus.url,
        "n": corpus.n,
        "d": corpus.d,
        "dtype": str(corpus.dtype),
        "shards": corpus.shard_count,
        "bytes": _stored_bytes(corpus),
        "fingerprint": corpus.fingerprint if isinstance(corpus, Corpus) else None,
        "ingested_first": isinstance(corpus, Prospect),
        "target": strip_credentials(corpus.target) if isinstance(corpus, Prospect) else None,
    }


def _total(
    previewed: Sequence[StageForecast], schedule: Schedule, ingest_seconds: float
) -> dict[str, Any]:
    work = sum(part.work_seconds for part in previewed)
    stages = [part.stage for part in previewed]
    largest = max(stage.memory_bytes for stage in stages)
    return {
        "tasks": sum(stage.tasks for stage in stages),
        "tasks_left": sum(round(part.left * part.stage.tasks) for part in previewed),
        "bytes_read": sum(stage.cost_estimate.bytes_read for stage in stages),
        "bytes_written": sum(stage.cost_estimate.bytes_written for stage in stages),
        "bytes_exchanged": sum(stage.exchanged_bytes for stage in stages),
        "bytes_kept": sum(stage.kept_bytes for stage in stages),
        "projected_memory_bytes": previewed[0].worker_pool.idle_bytes + largest,
        "multiply_adds": sum(stage.cost_estimate.total_multiply_adds for stage in stages),
        "folds": sum(stage.cost_estimate.elementwise_operations for stage in stages),
        "ingest_seconds": round(ingest_seconds, 1),
        "work_seconds": round(work, 1),
        "seconds": round(ingest_seconds + (STARTUP_SECONDS + schedule.seconds if work else 0.0), 1),
    }


def _ingest_seconds(corpus: Corpus | Prospect, rates: Rates) -> float:
    if isinstance(corpus, Corpus):
        return 0.0
    stored = _stored_bytes(corpus)
    return rates.seconds(
        CostEstimate(
            bytes_read=corpus.source_bytes + stored,  # a shard is read back
            bytes_written=stored,
            elementwise_operations=INGEST_OPERATIONS * float(corpus.n) * corpus.d,
        )
    )


def _stored_bytes(corpus: Corpus | Prospect) -> int:
    return corpus.n * corpus.d * corpus.dtype.itemsize


def _disk(
    config: JobConfig,
    corpora: Mapping[Role, Corpus | Prospect],
    previewed: Sequence[StageForecast],
    schedule: Schedule,
) -> dict[str, int | None]:
    ingested = sum(_stored_bytes(c) for c in corpora.values() if isinstance(c, Prospect))
    # The report is written when everything else has been removed.
    kept = schedule.kept_bytes + REPORT_BYTES
    peak = max(schedule.peak_bytes, kept)
    missing = any(part.left or part.copied_bytes for part in previewed)
    present = sum(part.present_bytes for part in previewed)
    return {
        "written_bytes": sum(part.written_bytes for part in previewed) + REPORT_BYTES,
        "peak_bytes": peak,
        "kept_bytes": kept,
        "needed_bytes": ingested + peak,
        "missing_bytes": ingested + (max(0, peak - present) if missing else 0),
        "free_bytes": _free_bytes(ObjectStore(config.output)),
    }


def _free_bytes(output: ObjectStore) -> int | None:
    """Return the free bytes on the disk of a local output; None for a remote store."""
    if not output.is_local:
        return None
    place = Path(output.url).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free


def check_disk(config: JobConfig, disk: Mapping[str, int | None]) -> None:
    """Refuse a job whose results don't fit on the disk of its output.

    Raises
    ------
    BadInput
        If more is needed than is free; the message gives both.
    """
    missing, free = disk["missing_bytes"], disk["free_bytes"]
    if missing is not None and free is not None and missing > free:
        raise BadInput(
            f"output {strip_credentials(config.output)}: the job writes "
            f"{write_gibibytes(missing)} and {free / 2**30:.1f}GiB are free there; set output to "
            f"a larger disk, or free {write_gibibytes(missing - free)}"
        )
