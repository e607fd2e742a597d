"""Short jobs run on threads of the driver, longer ones on workers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.config.cluster import Auto, Cluster, Local, Serial, Threads
from latentscale_pipeline.engine.calibration import TYPICAL
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.jobs.automatic_cluster import WORTH_WORKERS_SECONDS, choose_cluster
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.storage.artifacts import Output


def nothing(inputs: Inputs) -> Output:
    return Output()


def stage(seconds: float) -> Stage:
    work = CostEstimate(float64_multiply_adds=seconds * TYPICAL.float64_multiply_adds)
    return Stage(name="a", work=nothing, memory_bytes=1, cost_estimate=work)


def test_the_work_decides() -> None:
    auto = Auto(workers=3, threads=2, memory_limit=3 * 2**30, retries=5)
    assert choose_cluster(auto, [stage(0.5 * WORTH_WORKERS_SECONDS)]) == Threads(
        kind="threads", threads=6, memory_limit=9 * 2**30, retries=5
    )
    workers = Local(workers=3, threads=2, memory_limit=3 * 2**30, retries=5)
    assert choose_cluster(auto, [stage(2 * WORTH_WORKERS_SECONDS)]) == workers
    assert choose_cluster(auto, [stage(0.6 * WORTH_WORKERS_SECONDS)] * 2) == workers


def test_a_dashboard_needs_workers() -> None:
    assert choose_cluster(Auto(dashboard=True), [stage(0.0)]) == Local(dashboard=True)


@pytest.mark.parametrize("cluster", [Serial(kind="serial"), Local(workers=1)])
def test_what_is_asked_for_is_taken(cluster: Cluster) -> None:
    for seconds in (0.0, 100 * WORTH_WORKERS_SECONDS):
        assert choose_cluster(cluster, [stage(seconds)]) is cluster


def test_a_short_job_needs_no_workers_and_has_the_same_numbers(
    tmp_path: Path, latentscale: Callable[..., object]
) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(300, 6)))
    found = {}
    for name in ("auto", "serial", "local"):
        options = ("--measures", "heat,vendi", "-o", f"cluster={{kind: {name}}}")
        output = tmp_path / name
        latentscale(
            "run", tmp_path / "rows.npy", "--name", "x", "--output", output, "--quiet", *options
        )
        (folder,) = output.glob("x-*")
        found[name] = read_job(str(folder))
    kinds = {name: (job.results.job.cluster or {})["kind"] for name, job in found.items()}
    assert kinds == {"auto": "threads", "serial": "serial", "local": "local"}
    scores = [
        [(s.measure, s.score, s.of, s.value, s.lower, s.upper) for s in job.scores]
        for job in found.values()
    ]
    assert scores[0] == scores[1] == scores[2]
    assert len(scores[0]) > 10
