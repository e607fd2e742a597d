"""The overhead of a task, the speedup with more workers, and the plan's forecast for many workers.

    python benchmarks/cluster.py --tasks 100000 --output cluster.json

One machine can't run a thousand workers, but it can measure what limits them. The first number is
the driver's processor time per task, scheduler included: the time of a task divided by it is the
largest number of workers that can be kept busy. The others are the speedup with 1, 2 and 4 workers
of one thread, and the forecast of ``latentscale plan`` for 10, 100 and 1000 workers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.engine.keys import stage_keys
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.executors.dask.local import local_cluster
from latentscale_pipeline.jobs.forecast import forecast_job
from latentscale_pipeline.jobs.plan import make_plan, measure_sections
from latentscale_pipeline.jobs.run import run_job
from latentscale_pipeline.storage.artifacts import Output
from latentscale_pipeline.storage.objects import ObjectStore

WORKERS = (1, 2, 4)
PLANNED = (10, 100, 1000)
ROWS, DIMENSION = 6000, 384
PLANNED_ROWS = 1_000_000


def nothing(inputs: Inputs) -> Output:
    return Output({"index": inputs.index})


def nothing_of_all(inputs: Inputs) -> Output:
    return Output({"parts": len(inputs.parts)})


def silent(event: str, **fields: Any) -> None:
    return None


def overhead(tasks: int, folder: Path) -> dict[str, Any]:
    """Run this number of tasks, which only publish an artifact, on two workers."""
    stage = Stage("nothing", nothing, 1000, partitions=tasks, finalise=nothing_of_all)
    work = Work(ObjectStore(str(folder)), [stage], stage_keys([stage], {}), {})
    spent: dict[str, float] = {}
    stage_states = inspect_stages(work)
    begun, before = time.perf_counter(), _own_seconds()

    def notify(event: str, **fields: Any) -> None:
        if event == "part_done" and fields["part"] == tasks - 1:
            spent["last"] = time.perf_counter() - begun

    run_stages(work, stage_states, lambda: local_cluster(Local(workers=2)), "bench", notify)
    seconds, own = time.perf_counter() - begun, _own_seconds() - before
    return {
        "tasks": tasks,
        "seconds": round(seconds, 1),
        "tasks_a_second": round(tasks / seconds, 1),
        "driver_cpu_seconds": round(own, 1),
        "driver_milliseconds_a_task": round(1000 * own / tasks, 3),
        "driver_peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "workers_milliseconds_a_task": round(1000 * _children_seconds() / tasks, 3),
    }


def _own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def job(folder: Path, name: str, cluster: dict[str, Any], rows: Path) -> Any:
    document = {
        "name": name,
        "corpus": str(rows),
        "output": str(folder / name),
        "measures": {"vendi": {"kernels": ["rbf"], "method": "lanczos"}},
        "cluster": cluster,
    }
    return read_config(json.dumps(document), name, measures=measure_sections())


def efficiency(folder: Path) -> list[dict[str, Any]]:
    """Run one job on 1, 2 and 4 workers of one thread."""
    rows = folder / "rows.npy"
    np.save(rows, np.random.default_rng(0).normal(size=(ROWS, DIMENSION)).astype("f4"))
    found: list[dict[str, Any]] = []
    for workers in WORKERS:
        cluster = {"kind": "local", "workers": workers, "memory_limit": "2GiB"}
        plan = make_plan(job(folder, f"workers-{workers}", cluster, rows))
        begun = time.perf_counter()
        run_job(plan, silent)
        seconds = time.perf_counter() - begun
        first = found[0]["seconds"] if found else seconds
        cores = min(workers, os.cpu_count() or 1)
        found.append(
            {
                "workers": workers,
                "seconds": round(seconds, 1),
                "speedup": round(first / seconds, 2),
                "efficiency": round(first / seconds / cores, 2),
            }
        )
    return found


def planned(folder: Path) -> list[dict[str, Any]]:
    """Return the plan's forecast for a million rows on many workers of a batch system."""
    rows = folder / "million.npy"
    np.lib.format.open_memmap(rows, "w+", "f2", (PLANNED_ROWS, DIMENSION)).flush()
    found = []
    for workers in PLANNED:
        cluster = {"kind": "slurm", "workers": workers, "memory_limit": "4GiB"}
        config = job(folder, f"planned-{workers}", cluster, rows)
        config = config.model_copy(update={"measures": {"heat": measure_sections()["heat"]()}})
        total = forecast_job(config)["total"]
        found.append(
            {
                "workers": workers,
                "rows": PLANNED_ROWS,
                "seconds": total["seconds"] - total["ingest_seconds"],
                "work_seconds": total["work_seconds"],
                "tasks": total["tasks"],
            }
        )
    return found


def measure(tasks: int, folder: Path) -> dict[str, Any]:
    """Measure all three."""
    return {
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "overhead": overhead(tasks, folder / "overhead"),
        "efficiency": efficiency(folder),
        "planned": planned(folder),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="latentscale-cluster-") as folder:
        figures = measure(asked.tasks, Path(folder))
    document = {"machine": {"system": platform.platform(), "cores": os.cpu_count()}, **figures}
    text = json.dumps(document, indent=1) + "\n"
    if asked.output:
        asked.output.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
