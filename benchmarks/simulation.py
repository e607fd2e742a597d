"""The time of jobs of 10⁷, 10⁸ and 10⁹ rows on 10, 100 and 1000 workers, simulated.

    python benchmarks/simulation.py --overhead 6.1 --output simulation.json

First two jobs of the same measures run here, with the same stages as a large one, on some rows and
on three times as many. The increase in time from the smaller to the larger job, for the parts of a
stage and for the tasks that join them, is compared with the increase that ``latentscale plan``
forecasts for this machine. The ratio corrects the plan's times. The remaining time counts as a
constant for each task. Then every task of the planned stages is simulated. It waits for the stages
that it needs, for a worker, and for the scheduler, which spends ``--overhead`` milliseconds on each
task (``benchmarks/cluster.py`` measures it). It reads and writes with its worker's share of the
store's bandwidth, and its work takes a random time about the mean.

The simulation ignores failing nodes, other users of a shared store, and slow networks. The last
column is the bandwidth that the store needs to keep the workers busy.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from latentscale_pipeline.config.job import JobConfig, read_config
from latentscale_pipeline.engine.calibration import Rates, calibrate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.jobs.plan import (
    make_plan,
    measure_sections,
    plan_stages,
)
from latentscale_pipeline.jobs.run import run_job
from latentscale_pipeline.measures.base import CorpusFacts, JobFacts
from latentscale_pipeline.measures.shared.neighbours.assign import place_cells

ROWS = (10**7, 10**8, 10**9)
WORKERS = (10, 100, 1000)
DIMENSION = 384
SHARD_BYTES = 64 * 2**20
MEASURES = {
    "heat": {"neighbours": "cells", "probes": 4},  # enough for so many rows; few rows need more
    "vendi": {"kernels": ["cosine"]},
}
SPREAD = 0.2
"""Relative deviation of the work of a stage's tasks; assumed."""

WORKER_BANDWIDTH, STORE_BANDWIDTH = 200e6, 20e9
"""Largest bandwidth of one worker and of all workers together, in bytes a second; assumed."""

ROUTES = {
    "latentscale_pipeline.measures.shared.neighbours.sizes.MAX_SECTIONS": 0,
    "latentscale_pipeline.measures.heat.plan.GRAPH_BYTES": 0,
    "latentscale.neighbours.two_level_cells.MAX_UNDIVIDED": 4,
}
"""Settings by which a plan uses the stages of large corpora: coarse groups, row blocks."""

TIMES_LARGER = 3
"""Ratio of the numbers of rows of the two jobs."""

MIN_ROWS = 100_000
"""A third of them is more than a cell may hold."""


@dataclass(frozen=True)
class Measured:
    """Seconds that the parts of a stage took together, and that the tasks that join them took."""

    parts: float
    joins: float
    stage: Stage


@dataclass(frozen=True)
class TaskCost:
    """The cost of a task of a stage.

    Attributes
    ----------
    seconds, bytes : float
        Work of a part, and the bytes that it reads and writes.
    join_seconds : float
        Work of the task that joins the parts of an iteration.
    """

    seconds: float
    bytes: float
    join_seconds: float


def configure(source: str, output: str, cluster: Mapping[str, Any]) -> JobConfig:
    """Describe a job of the simulated measures."""
    document = {
        "name": "simulated",
        "corpus": source,
        "output": output,
        "measures": MEASURES,
        "cluster": {"memory_limit": "4GiB", **cluster},
    }
    return read_config(json.dumps(document), "job", measures=measure_sections())


def measure_stages(rows: int, folder: Path) -> dict[str, Measured]:
    """Run a job with the stages of large ones; return the seconds of its stages by kind of work."""
    folder.mkdir()
    source = folder / "rows.npy"
    generator = np.random.default_rng(0)
    centres = 3.0 * generator.normal(size=(200, 16))
    turn = np.linalg.qr(generator.normal(size=(128, 16)))[0].T
    drawn = centres[generator.integers(200, size=rows)] + generator.normal(size=(rows, 16))
    np.save(source, (drawn @ turn + 0.05 * generator.normal(size=(rows, 128))).astype("f4"))
    with ExitStack() as patches:
        for name, value in ROUTES.items():
            patches.enter_context(patch(name, value))
        # In this process, because separate workers would not have these settings.
        plan = make_plan(configure(str(source), str(folder / "jobs"), {"kind": "serial"}))
        seconds: dict[str, list[float]] = {stage.name: [0.0, 0.0] for stage in plan.stages}

        def notify(event: str, **fields: Any) -> None:
            if event == "part_done":
                seconds[fields["stage"]][fields["part"] < 0] += fields["seconds"]

        finished = run_job(plan, notify, keep=True)
    [coarse] = Path(finished.store.url).glob("stages/cells-corpus/**/coarse.npy")
    if len(np.load(coarse)) == 1:
        raise SystemExit(f"{rows} rows fit one cell; --rows must be at least {MIN_ROWS}")
    return {
        name_work(stage): Measured(*seconds[stage.name], stage)
        for stage in plan.stages
        if "again" not in stage.name
    }


def name_work(stage: Stage) -> str:
    """Return the name of what a stage computes: its function's, or else its own."""
    return getattr(stage.work, "__name__", stage.name)


def work_of_parts(stage: Stage, rates: Rates) -> float:
    """Return the work of all parts at calibrated rates, without reading and writing.

    The task that joins places the centres of cells; the parts do everything else.
    """
    cost_estimate = stage.cost_estimate
    products = (
        0.0
        if stage.finalise is place_cells
        else cost_estimate.float64_multiply_adds / rates.float64_multiply_adds
    )
    return (
        products
        + cost_estimate.float32_multiply_adds / rates.float32_multiply_adds
        + cost_estimate.elementwise_operations / rates.elementwise_operations
    )


def work_of_joins(stage: Stage, rates: Rates) -> float:
    """Return the work of all tasks that join, which for most is reading every part."""
    if stage.finalise is place_cells:
        return stage.cost_estimate.float64_multiply_adds / rates.float64_multiply_adds
    return float(count_tasks(stage))


def count_tasks(stage: Stage) -> int:
    """Return the number of parts of all iterations."""
    return stage.partitions * max(1, stage.cost_estimate.iterations)


def costs_of(
    stages: Sequence[Stage],
    rates: Rates,
    small: Mapping[str, Measured],
    large: Mapping[str, Measured],
) -> dict[str, TaskCost]:
    """Return the costs of tasks: the plan's, corrected by measurements of the same work."""
    found = {}
    for stage in stages:
        pair = [measured[name_work(stage)] for measured in (small, large)]
        tasks, iterations = count_tasks(stage), max(1, stage.cost_estimate.iterations)
        slope, fixed = line_through(
            [(work_of_parts(known.stage, rates), known.parts) for known in pair],
            count_tasks(pair[0].stage),
        )
        join_slope, join_fixed = line_through(
            [(work_of_joins(known.stage, rates), known.joins) for known in pair],
            max(1, pair[0].stage.cost_estimate.iterations),
        )
        moved = stage.cost_estimate.bytes_read + stage.cost_estimate.bytes_written
        found[stage.name] = TaskCost(
            fixed + slope * work_of_parts(stage, rates) / tasks,
            moved / tasks,
            join_fixed + join_slope * work_of_joins(stage, rates) / iterations,
        )
    return found


def line_through(pair: Sequence[tuple[float, float]], tasks: int) -> tuple[float, float]:
    """Return seconds per unit of work, and per task, from the work and seconds of two stages.

    If the work is equal, or the larger stage didn't take longer, all time is ascribed to the work.
    """
    (work, seconds), (more_work, more_seconds) = pair
    if more_work <= work or more_seconds <= seconds:
        return more_seconds / max(more_work, 1e-9), 0.0
    slope = (more_seconds - seconds) / (more_work - work)
    return slope, max(0.0, seconds - slope * work) / tasks


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
    config = configure("rows", "jobs", {"kind": "local", "workers": 10})
    return list(plan_stages(config, JobFacts({"corpus": corpus}, 0, 2e11, "corpus")))


def simulate(
    stages: Sequence[Stage],
    costs: Mapping[str, TaskCost],
    workers: int,
    overhead: float,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """Simulate a job; the stage that is ready first goes first.

    The scheduler hands out one task after the other, to the worker that is free first.
    """
    cluster = Cluster([0.0] * workers, overhead)
    ended: dict[str, float] = {}
    waiting = list(stages)
    while waiting:
        ready = [stage for stage in waiting if all(name in ended for name in stage.needs)]
        stage = min(ready, key=lambda s: max((ended[name] for name in s.needs), default=0.0))
        waiting.remove(stage)
        cost, at = costs[stage.name], max((ended[name] for name in stage.needs), default=0.0)
        for _ in range(max(1, stage.cost_estimate.iterations)):
            deviation = np.sqrt(np.log1p(SPREAD**2))
            factors = generator.lognormal(-(deviation**2) / 2, deviation, stage.partitions)
            together = min(workers, stage.partitions)
            moving = cost.bytes / min(WORKER_BANDWIDTH, STORE_BANDWIDTH / together)
            at = max(cluster.run(at, cost.seconds * factor + moving) for factor in factors)
            if stage.finalise is not None or stage.advance is not None:
                at = cluster.run(at, cost.join_seconds)
        ended[stage.name] = at
    wall = max(ended.values())
    moved = sum(s.cost_estimate.bytes_read + s.cost_estimate.bytes_written for s in stages)
    return {
        "workers": workers,
        "hours": round(wall / 3600, 3),
        "worker_hours": round(cluster.busy / 3600, 1),
        "utilisation": round(cluster.busy / wall / workers, 3),
        "tasks": cluster.tasks,
        "scheduler_busy": round(cluster.tasks * overhead / wall, 4),
        "terabytes_moved": round(moved / 1e12, 2),
        "store_gigabytes_a_second": round(moved / wall / 1e9, 3),
        "longest_alone_seconds": round(max(cost.join_seconds for cost in costs.values()), 1),
    }


@dataclass
class Cluster:
    """Workers with the times at which they are free, and a scheduler that serves one at a time."""

    free: list[float]
    overhead: float
    served: float = 0.0
    busy: float = 0.0
    tasks: int = 0

    def run(self, ready: float, seconds: float) -> float:
        """Run a task; return the time of its end."""
        self.served = max(self.served, ready) + self.overhead
        ends = max(heapq.heappop(self.free), self.served) + seconds
        heapq.heappush(self.free, ends)
        self.busy, self.tasks = self.busy + seconds, self.tasks + 1
        return ends


def measure(rows: int, overhead: float, folder: Path) -> dict[str, Any]:
    """Measure the factors, and simulate all sizes on all clusters."""
    rates = calibrate(iter(()))
    # The first job compiles.
    counts = (rows // TIMES_LARGER, rows // TIMES_LARGER, rows)
    _, small, large = (measure_stages(count, folder / str(job)) for job, count in enumerate(counts))
    sizes = []
    for n in ROWS:
        stages = planned(n)
        costs = costs_of(stages, rates, small, large)
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
        "measured_rows": [rows // TIMES_LARGER, rows],
        "measured_seconds": {
            name: {"parts": round(found.parts, 2), "joins": round(found.joins, 2)}
            for name, found in large.items()
        },
        "scheduler_milliseconds_a_task": overhead,
        "worker_bytes_a_second": WORKER_BANDWIDTH,
        "store_bytes_a_second": STORE_BANDWIDTH,
        "sizes": sizes,
    }


def main() -> None:
    from shown import simulated_table

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000, help="of the job that is measured")
    parser.add_argument(
        "--overhead", type=float, default=1.0, help="the scheduler's milliseconds for a task"
    )
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with tempfile.TemporaryDirectory(prefix="latentscale-simulation-") as folder:
        figures = measure(asked.rows, asked.overhead, Path(folder))
    document = {
        "benchmark": "simulation of scale",
        "started": started,
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        **figures,
    }
    if asked.output:
        asked.output.write_text(json.dumps(document, indent=1) + "\n")
    print(simulated_table(document))


if __name__ == "__main__":
    main()
