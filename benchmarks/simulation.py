"""What a job of 10⁷, 10⁸ and 10⁹ rows would take on 10, 100 and 1000 workers.

    python benchmarks/simulation.py --overhead 0.6 --output simulation.json

First a job of the same measures runs here, on two workers. Its stages' measured seconds a task,
against what ``latentscale plan`` foresees of them on this machine, correct the plan's figures. Then
every task of the planned stages is played through: it waits for its stage's turn, for a worker, and
for the scheduler, which spends ``--overhead`` milliseconds on each (measured by
``benchmarks/cluster.py``); it reads and writes at what its worker's share of the store gives, and
its work takes a random time about its mean, spread as much as that of the measured tasks' stages.

What no simulation shows: nodes that fail, neighbours on a shared store, slow networks. The last
columns say what the store would have to give for the workers to be kept busy.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentscale_pipeline.engine.calibration import Rates, calibrate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.job.config import JobConfig, read_config
from latentscale_pipeline.plan import (
    comparing_measures,
    make_plan,
    measure_sections,
    plan_stages,
)
from latentscale_pipeline.run import run_job
from latentscale_pipeline.stages.measure import CorpusFacts, JobFacts

ROWS = (10**7, 10**8, 10**9)
WORKERS = (10, 100, 1000)
DIMENSION = 384
SHARD_BYTES = 64 * 2**20
MEASURES = {"heat": {"neighbours": "cells"}, "vendi": {"kernels": ["cosine"]}}
SPREAD = 0.2
"""Relative deviation of the work of a stage's tasks."""

WORKER_BANDWIDTH, STORE_BANDWIDTH = 200e6, 20e9
"""Bytes a second that a worker reads or writes at most, and all of them together."""


@dataclass(frozen=True)
class Cost:
    """What a task of a stage takes: seconds of work, and bytes moved."""

    seconds: float
    bytes: float


def configure(source: str, output: str, workers: int) -> JobConfig:
    """Describe a job of the simulated measures."""
    document = {
        "name": "simulated",
        "corpus": source,
        "output": output,
        "measures": MEASURES,
        "cluster": {"kind": "local", "workers": workers, "memory_limit": "4GiB"},
    }
    return read_config(
        json.dumps(document), "job", measures=measure_sections(), comparing=comparing_measures()
    )


def silent(event: str, **fields: Any) -> None:
    return None


def work_seconds(stage: Stage, rates: Rates) -> float:
    """Work of a whole stage at calibrated rates, without what it moves."""
    effort = stage.effort
    return (
        effort.products / rates.products
        + effort.single_products / rates.single_products
        + effort.folds / rates.folds
    )


def measured_factors(rows: int, folder: Path, rates: Rates) -> dict[str, float]:
    """Run a job; return, by kind of stage, measured seconds over those that are planned."""
    source = folder / "rows.npy"
    generator = np.random.default_rng(0)
    centres = 3.0 * generator.normal(size=(200, 16))
    turn = np.linalg.qr(generator.normal(size=(128, 16)))[0].T
    drawn = centres[generator.integers(200, size=rows)] + generator.normal(size=(rows, 16))
    np.save(source, (drawn @ turn + 0.05 * generator.normal(size=(rows, 128))).astype("f4"))
    plan = make_plan(configure(str(source), str(folder / "jobs"), workers=2))
    results = run_job(plan, silent).results
    took = {timing["stage"]: timing["seconds"] for timing in results["timings"]}
    return {
        stage.name: took[stage.name] / max(foreseen, 1e-9)
        for stage in plan.stages
        if (foreseen := work_seconds(stage, rates)) > 0.1 and took[stage.name] > 0.1
    }


def planned(rows: int) -> list[Stage]:
    """Plan the stages of a job on so many rows, without any data."""
    shard_rows = SHARD_BYTES // (2 * DIMENSION)
    corpus = CorpusFacts(
        n=rows,
        d=DIMENSION,
        dtype="float16",
        shards=-(-rows // shard_rows),
        shard_rows=shard_rows,
    )
    config = configure("rows", "jobs", workers=10)
    return list(plan_stages(config, JobFacts({"corpus": corpus}, 0, 2e11, "corpus")))


def tasks_of(stage: Stage, cost: Cost, generator: np.random.Generator) -> Iterator[float]:
    """Yield the seconds of work of every task of a round."""
    spread = np.sqrt(np.log1p(SPREAD**2))
    for factor in generator.lognormal(-(spread**2) / 2, spread, stage.partitions):
        yield cost.seconds * factor


def simulate(
    stages: Sequence[Stage],
    costs: Mapping[str, Cost],
    workers: int,
    overhead: float,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """Play a job through: stages by their needs, tasks on the worker that is free first.

    The scheduler hands out one task after the other. Stages whose needs are met at the same time
    share the workers in the order of the plan.
    """
    bandwidth = min(WORKER_BANDWIDTH, STORE_BANDWIDTH / workers)
    ended: dict[str, float] = {}
    free = [0.0] * workers
    handed_out, busy, moved, tasks = 0.0, 0.0, 0.0, 0
    for stage in sorted(stages, key=lambda s: max((ended_estimate(s, stages)), default=0)):
        begin = max((ended[name] for name in stage.needs), default=0.0)
        for _ in range(max(1, stage.effort.rounds)):
            last = begin
            for seconds in tasks_of(stage, costs[stage.name], generator):
                handed_out = max(handed_out, begin) + overhead
                start = max(heapq.heappop(free), handed_out)
                took = seconds + costs[stage.name].bytes / bandwidth
                heapq.heappush(free, start + took)
                last = max(last, start + took)
                busy, moved, tasks = busy + took, moved + costs[stage.name].bytes, tasks + 1
            begin = last  # what joins the parts is short beside them
        ended[stage.name] = begin
    wall = max(ended.values())
    return {
        "workers": workers,
        "hours": round(wall / 3600, 3),
        "worker_hours": round(busy / 3600, 1),
        "utilisation": round(busy / wall / workers, 3),
        "tasks": tasks,
        "scheduler_busy": round(tasks * overhead / wall, 4),
        "terabytes_moved": round(moved / 1e12, 2),
        "store_gigabytes_a_second": round(moved / wall / 1e9, 3),
    }


def ended_estimate(stage: Stage, stages: Sequence[Stage]) -> list[int]:
    """Return the places in the plan of the stages that one needs: plans are in such an order."""
    order = {other.name: place for place, other in enumerate(stages)}
    return [order[name] + 1 for name in stage.needs]


def costs_of(
    stages: Sequence[Stage], rates: Rates, factors: Mapping[str, float]
) -> dict[str, Cost]:
    """Return what a task of every stage takes, corrected by what was measured of its kind."""
    typical = float(np.median(list(factors.values())))
    found = {}
    for stage in stages:
        rounds = max(1, stage.effort.rounds)
        tasks = stage.partitions * rounds
        factor = factors.get(stage.name, typical)
        moved = stage.effort.bytes_read + stage.effort.bytes_written
        found[stage.name] = Cost(factor * work_seconds(stage, rates) / tasks, moved / tasks)
    return found


def measure(rows: int, overhead: float, folder: Path) -> dict[str, Any]:
    """Measure the factors, and simulate all sizes on all clusters."""
    rates = calibrate(iter(()))
    factors = measured_factors(rows, folder, rates)
    sizes = []
    for n in ROWS:
        stages = planned(n)
        costs = costs_of(stages, rates, factors)
        sizes.append(
            {
                "rows": n,
                "dimension": DIMENSION,
                "largest_stage_tasks": max(stage.tasks for stage in stages),
                "largest_task_gib": round(max(s.memory_bytes for s in stages) / 2**30, 2),
                "clusters": [
                    simulate(stages, costs, workers, overhead / 1000, np.random.default_rng(1))
                    for workers in WORKERS
                ],
            }
        )
    return {
        "measured_rows": rows,
        "measured_over_planned": {name: round(value, 2) for name, value in factors.items()},
        "scheduler_milliseconds_a_task": overhead,
        "worker_bytes_a_second": WORKER_BANDWIDTH,
        "store_bytes_a_second": STORE_BANDWIDTH,
        "sizes": sizes,
    }


def table(figures: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    head = "rows | workers | hours | worker-hours | busy | tasks | scheduler busy | TB moved | GB/s"
    lines = [f"| {head} |", "|" + "---|" * 9]
    for size in figures["sizes"]:
        for c in size["clusters"]:
            cells = (
                f"{size['rows']:.0e}",
                c["workers"],
                c["hours"],
                c["worker_hours"],
                f"{c['utilisation']:.0%}",
                c["tasks"],
                f"{c['scheduler_busy']:.1%}",
                c["terabytes_moved"],
                c["store_gigabytes_a_second"],
            )
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000, help="of the job that is measured")
    parser.add_argument(
        "--overhead", type=float, default=1.0, help="the scheduler's milliseconds for a task"
    )
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="latentscale-simulation-") as folder:
        figures = measure(asked.rows, asked.overhead, Path(folder))
    machine = {"system": platform.platform(), "cores": os.cpu_count()}
    document = {"benchmark": "simulation of scale", "machine": machine, **figures}
    if asked.output:
        asked.output.write_text(json.dumps(document, indent=1) + "\n")
    print(table(figures))


if __name__ == "__main__":
    main()
