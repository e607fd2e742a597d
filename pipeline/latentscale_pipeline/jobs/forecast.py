"""Forecast what a job will do and cost before it runs.

A forecast reads manifests, the headers of sources that aren't ingested yet, and the results of
earlier runs below the output; it writes nothing. Each stage estimates its own work. A short
calibration converts work to time; for a job of a few seconds, typical rates do. The tasks of all
stages share as many workers as partitions and memory allow, in the order of the loop (see
:mod:`.schedule`); so do their bytes on the disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.config.user_functions import refuse_code
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.ingest.create import UningestedCorpus
from latentscale_pipeline.engine.calibration import TYPICAL, Rates, calibrate
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.jobs.automatic_cluster import typical_work_seconds
from latentscale_pipeline.jobs.machine import describe_machine
from latentscale_pipeline.jobs.plan import (
    describe_stage,
    drop_inapplicable_measures,
    identify_plan,
    job_facts,
    plan_stages,
)
from latentscale_pipeline.jobs.resources import find_shortfalls, forecast_disk
from latentscale_pipeline.jobs.run import frozen_config, work_with_caches
from latentscale_pipeline.jobs.run_estimate import WORTH_AN_ESTIMATE_SECONDS, read_shards
from latentscale_pipeline.jobs.schedule import Schedule, simulate_schedule
from latentscale_pipeline.jobs.shared_scales import read_scales
from latentscale_pipeline.jobs.sources import JobSources, find_corpora
from latentscale_pipeline.jobs.stage_forecast import StageForecast, forecast_stage
from latentscale_pipeline.jobs.worker_pool import WorkerPool
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.progress import Echo
from latentscale_pipeline.storage.urls import storage_options, strip_credentials

PLAN_SCHEMA = "latentscale.plan/1"

INGEST_OPERATIONS = 4
"""Operations of an ingest per coordinate: conversion, checks, hashes."""


def forecast_job(
    config: JobConfig,
    sources: JobSources | None = None,
    *,
    allow_code: bool = False,
    echo: Echo | None = None,
) -> dict[str, Any]:
    """Forecast a job.

    Parameters
    ----------
    config : JobConfig
        The resolved configuration.
    sources : mapping, optional
        The sources of each corpus and what is read of them; by default those of the configuration.
    allow_code : bool
        Whether functions that the configuration names may be imported and run.
    echo : callable, optional
        Called with a line that names the measures that these corpora don't suit.

    Returns
    -------
    dict
        JSON of the schema ``latentscale.plan/1``.

    Raises
    ------
    BadInput
        If a corpus can't be opened, or the job doesn't fit the budget or the memory limit. The
        message is one line and names the setting, and the value, that would make it fit. What this
        machine has too little memory or disk for is said in ``shortfalls``; it may run elsewhere.
    """
    refuse_code(config.measures, allowed=allow_code)
    with storage_options(config.storage_options):
        return _forecast(config, sources, echo)


def _forecast(config: JobConfig, sources: JobSources | None, echo: Echo | None) -> dict[str, Any]:
    scales = read_scales(config)
    found = find_corpora(config, sources)
    config = drop_inapplicable_measures(config, found, echo)
    facts = job_facts(config, found, scales)
    stages = plan_stages(config, facts)
    corpora = {role: corpus for role, corpus in found.items() if isinstance(corpus, Corpus)}
    plan = identify_plan(config, corpora, facts, stages) if len(corpora) == len(found) else None
    short = typical_work_seconds(stages) < WORTH_AN_ESTIMATE_SECONDS
    worker_pool = WorkerPool.of(config, stages)
    rates = ingest_rates = TYPICAL
    if not short:
        rates = ingest_rates = calibrate(_pieces(found["corpus"]), worker_pool.busy_cores)
    if isinstance(found["corpus"], UningestedCorpus):
        # Stages read shards, which is many times as fast as decoding Parquet or text.
        rates = replace(rates, read_bytes=TYPICAL.read_bytes)
    # Results of earlier runs are found by keys that contain the corpora's fingerprints.
    inspected = [] if plan is None else inspect_stages(work_with_caches(plan), repair=False)
    stage_states = {stage_state.stage.name: stage_state for stage_state in inspected}
    previewed = [
        forecast_stage(stage, worker_pool, stage_states.get(stage.name), rates) for stage in stages
    ]
    schedule = simulate_schedule([part.pending for part in previewed], worker_pool)
    ingested = sum(_stored_bytes(c) for c in found.values() if isinstance(c, UningestedCorpus))
    disk = forecast_disk(config, previewed, schedule, ingested)
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
        "not_computed": {
            name: reason
            for name, section in config.measures.items()
            if (reason := MEASURES[name].why_not_computed(section, facts))
        },
        "total": _total(
            previewed, schedule, sum(_ingest_seconds(c, ingest_rates) for c in found.values())
        ),
        "disk": disk,
        "shortfalls": find_shortfalls(config, previewed, disk),
        "machine": describe_machine(),
        "rates": {
            "multiply_adds_per_second": rates.float64_multiply_adds,
            "single_multiply_adds_per_second": rates.float32_multiply_adds,
            "folds_per_second": rates.elementwise_operations,
            "bytes_read_per_second": rates.read_bytes,
        },
    }


def _pieces(corpus: Corpus | UningestedCorpus) -> Iterator[int]:
    """Read a corpus, or the source to ingest, piece by piece."""
    if isinstance(corpus, Corpus):
        yield from read_shards(corpus)
    else:
        for block in corpus.sources.items[0].blocks():
            yield block.nbytes


def _describe_corpus(corpus: Corpus | UningestedCorpus) -> dict[str, Any]:
    target = corpus.target if isinstance(corpus, UningestedCorpus) else None
    return {
        "uri": corpus.url,
        "n": corpus.n,
        "d": corpus.d,
        "dtype": str(corpus.dtype),
        "shards": corpus.shard_count,
        "bytes": _stored_bytes(corpus),
        "fingerprint": corpus.fingerprint if isinstance(corpus, Corpus) else None,
        "ingested_first": target is not None,
        "target": target and strip_credentials(target),
    }


def _total(
    previewed: Sequence[StageForecast], schedule: Schedule, ingest_seconds: float
) -> dict[str, Any]:
    work = sum(part.work_seconds for part in previewed)
    stages = [part.stage for part in previewed]
    pool = previewed[0].worker_pool
    running = pool.startup_seconds + schedule.seconds if work else 0.0
    largest = max(stage.memory_bytes for stage in stages)
    return {
        "tasks": sum(stage.tasks for stage in stages),
        "tasks_left": sum(round(part.left * part.stage.tasks) for part in previewed),
        "bytes_read": sum(stage.cost_estimate.bytes_read for stage in stages),
        "bytes_written": sum(stage.cost_estimate.bytes_written for stage in stages),
        "bytes_exchanged": sum(stage.exchanged_bytes for stage in stages),
        "bytes_kept": sum(stage.kept_bytes for stage in stages),
        "projected_memory_bytes": pool.idle_bytes + largest,
        "multiply_adds": sum(stage.cost_estimate.total_multiply_adds for stage in stages),
        "folds": sum(stage.cost_estimate.elementwise_operations for stage in stages),
        "ingest_seconds": round(ingest_seconds, 1),
        "work_seconds": round(work, 1),
        "seconds": round(ingest_seconds + running, 1),
    }


def _ingest_seconds(corpus: Corpus | UningestedCorpus, rates: Rates) -> float:
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


def _stored_bytes(corpus: Corpus | UningestedCorpus) -> int:
    return corpus.n * corpus.d * corpus.dtype.itemsize
