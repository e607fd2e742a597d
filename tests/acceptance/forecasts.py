"""What ``plan`` says of jobs, compared with what happens; run by ``make test-full``.

Times hold on a machine without other work, so the processor time of others is recorded, and beside
the time of the job what all its processes used. Bytes are those of all objects that any process
wrote to the job's folder (:mod:`tests.support.written_bytes`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.jobs import results_of, run_command
from tests.support.written_bytes import Written, recording, replay

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

CLUSTER = {"kind": "local", "workers": 2, "threads": 1, "memory_limit": "2GiB"}

TIME_FACTOR, SHARE = 2.0, 0.25
"""A forecast of time may be off by a factor of two, one of memory or bytes by a quarter."""

CENTRES, NOISE = 50, 0.5


@dataclass(frozen=True)
class Shape:
    """The rows, dimensions and measures of a job; all measures if none are named."""

    name: str
    rows: int
    dimensions: int
    measures: dict[str, Any] | None = None
    reference_rows: int = 0
    pairs: float | None = None
    """Largest number of pairs of rows; None for the default."""


SHAPES = (
    Shape("default-with-reference", 20_000, 64, reference_rows=20_000),
    Shape("heat-magnitude", 200_000, 32, {"heat": {}, "magnitude": {}}, pairs=2e10),
    Shape("vendi-kernel", 5000, 384, {"vendi": {"kernels": ["rbf"], "method": "exact"}}),
    Shape("default", 100_000, 64, pairs=2e10),
    Shape("baselines-geomca", 50_000, 128, {"baselines": {}, "geomca": {}}, 50_000),
)


def forecasts_of_five_jobs(bench: Bench) -> list[dict[str, Any]]:
    """Plan, run and compare jobs of different sizes and shapes."""
    from tests.acceptance.run import record

    figures, held = {}, []
    for shape in SHAPES:
        compared = figures[shape.name] = compare(bench.folder / "forecasts", shape)
        held.append(is_near(compared))
    return [
        record(
            "plan foresees time, memory and bytes",
            figures,
            f"seconds within a factor {TIME_FACTOR:g}; memory of a worker, bytes written, largest "
            f"and final size of the job's folder within {SHARE:.0%}",
            all(held),
        )
    ]


def compare(folder: Path, shape: Shape) -> dict[str, Any]:
    """Plan a job on ingested corpora, run it, and return both sides of every forecast."""
    from tests.acceptance.run import watch

    config = write_job(folder / shape.name, shape)
    planned = run_command("plan", config, "--json")
    assert planned.returncode == 0, planned.stderr
    forecast = json.loads(planned.stdout)
    records = folder / shape.name / "records"
    records.mkdir()
    load = os.getloadavg()[0]
    watched = watch("run", config, environment=recording(records))
    assert watched.code == 0, watched.err
    output = folder / shape.name / "jobs"
    [results] = output.glob("*/results.json")
    written, timings = replay(records, results.parent), results_of(output)["timings"]
    return {
        **two_sides(forecast, written, timings),
        "seconds": [forecast["total"]["seconds"], round(watched.seconds, 1)],
        "work_seconds": [forecast["total"]["work_seconds"], summed(timings)],
        "cpu_seconds": watched.figures()["cpu_seconds"],
        "cpu_seconds_of_others": watched.figures()["cpu_seconds_of_others"],
        "load_before": round(load, 1),
        "stages": stages(forecast, written, timings),
    }


def two_sides(
    forecast: dict[str, Any], written: Written, timings: list[dict[str, Any]]
) -> dict[str, list[float]]:
    """Return what was planned and what happened: memory of a worker, and bytes."""
    return {
        "memory_bytes": [
            forecast["total"]["projected_memory_bytes"],
            max(timing["peak_memory_bytes"] or 0 for timing in timings),
        ],
        "written_bytes": [forecast["disk"]["written_bytes"], written.total],
        "peak_bytes": [forecast["disk"]["peak_bytes"], written.peak],
        "kept_bytes": [forecast["disk"]["kept_bytes"], written.final],
    }


def stages(
    forecast: dict[str, Any], written: Written, timings: list[dict[str, Any]]
) -> dict[str, dict[str, list[float]]]:
    """Return the two sides of every stage that took a second or wrote a mebibyte."""
    found = {}
    for timing in timings:
        name = timing["stage"]
        [planned] = [stage for stage in forecast["stages"] if stage["stage"] == name]
        if max(planned["seconds"], timing["seconds"]) < 1 and written.by_stage[name] < 2**20:
            continue
        found[name] = {
            "work_seconds": [planned["work_seconds"], timing["seconds"]],
            "memory_bytes": [planned["projected_memory_bytes"], timing["peak_memory_bytes"]],
            "tasks": [planned["tasks"], timing["tasks"]],
            "written_bytes": [planned["bytes_written"], written.by_stage[name]],
            "kept_bytes": [planned["bytes_kept"], written.final_by_stage[name]],
        }
    return found


def summed(timings: list[dict[str, Any]]) -> float:
    """Add up the time of all tasks."""
    return round(sum(timing["seconds"] for timing in timings), 1)


def is_near(compared: dict[str, Any]) -> bool:
    """Return whether every forecast of a job is as near as promised."""
    planned, took = compared["seconds"]
    names = ("memory_bytes", "written_bytes", "peak_bytes", "kept_bytes")
    return took / TIME_FACTOR <= planned <= took * TIME_FACTOR and all(
        abs(compared[name][0] / compared[name][1] - 1) <= SHARE for name in names
    )


def write_job(folder: Path, shape: Shape) -> Path:
    """Ingest the rows of a job, and write its configuration."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(5)
    centres = generator.normal(size=(CENTRES, shape.dimensions))
    fields: dict[str, Any] = {
        "name": shape.name,
        "output": str(folder / "jobs"),
        "cluster": CLUSTER,
        **({} if shape.measures is None else {"measures": shape.measures}),
        **({} if shape.pairs is None else {"budget": {"pairs": shape.pairs}}),
    }
    for role, rows in (("corpus", shape.rows), ("reference", shape.reference_rows)):
        if rows:
            noise = NOISE * generator.normal(size=(rows, shape.dimensions))
            drawn = centres[generator.integers(CENTRES, size=rows)] + noise
            np.save(folder / f"{role}.npy", drawn.astype("f4"))
            fields[role] = str(folder / f"{role}.zarr")
            ended = run_command("ingest", folder / f"{role}.npy", fields[role])
            assert ended.returncode == 0, ended.stderr
    config = folder / "job.yaml"
    config.write_text(json.dumps(fields))
    return config
