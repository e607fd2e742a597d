"""How long a run will take: said when it begins, and as far as it has come."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.cli.job_arguments import read_job
from latentscale_pipeline.engine.calibration import TYPICAL
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.jobs import forecast, run_estimate
from latentscale_pipeline.jobs.forecast import forecast_job
from latentscale_pipeline.jobs.plan import make_plan
from latentscale_pipeline.jobs.run import work_with_caches
from latentscale_pipeline.jobs.run_estimate import estimate_run
from tests.conftest import Ended

Command = Callable[..., Ended]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(300, 6)))
    return tmp_path / "rows.npy"


def test_a_run_is_estimated_as_its_plan_is(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (forecast, run_estimate):
        monkeypatch.setattr(module, "calibrate", lambda pieces, threads: TYPICAL)
    monkeypatch.setattr(run_estimate, "WORTH_AN_ESTIMATE_SECONDS", 0.0)
    config = read_job(str(source), name="x", output=str(tmp_path / "jobs"))
    plan = make_plan(config)
    estimate = estimate_run(plan, inspect_stages(work_with_caches(plan)))
    assert estimate is not None
    total = forecast_job(config)["total"]
    assert estimate.seconds == pytest.approx(total["seconds"], abs=0.06)
    work = sum(stage.work_seconds for stage in estimate.stages.values())
    assert work == pytest.approx(total["work_seconds"], abs=0.06)
    assert sum(stage.tasks for stage in estimate.stages.values()) == total["tasks_left"]


def test_an_estimate_is_kept_with_the_job_and_told(
    source: Path, tmp_path: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("run", source, "--measures", "vendi", "--name", "x", "--output", tmp_path / "jobs")
    short = latentscale(*run)
    assert "this will take" not in short.err
    assert "foreseen" not in latentscale("logs", tmp_path / "jobs" / "x").out

    monkeypatch.setattr(run_estimate, "WORTH_AN_ESTIMATE_SECONDS", 0.0)
    other = latentscale(*run, "-o", "seed=1")
    assert "this will take about 10 s" in other.err
    [job] = [folder for folder in (tmp_path / "jobs").glob("x-*") if str(folder) in other.err]
    assert "about 10 s foreseen" in latentscale("logs", job).out
    assert "left" not in latentscale("status", job).out
