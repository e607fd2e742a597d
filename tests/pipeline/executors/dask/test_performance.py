"""Dask's performance report is one page that needs no network, and never hides how a run ended."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.executors.dask.local import local_cluster
from latentscale_pipeline.executors.dask.performance import write_performance_report
from tests.conftest import Ended

pytest.importorskip("bokeh")


def halve(number: float) -> float:
    return number / 2.0


def test_a_failed_run_has_a_report_and_its_own_error(tmp_path: Path) -> None:
    told: list[str] = []
    place = tmp_path / "taken"
    with local_cluster(Local(workers=1, memory_limit=2**30)) as executor:
        client = executor.client

        def fail_with_report() -> None:
            with write_performance_report(client, tmp_path / "report.html", told.append):
                assert client.submit(halve, 3.0, key="halve-0").result() == 1.5
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_with_report()
        assert told == []
        with write_performance_report(client, place / "report.html", told.append):
            place.write_text("a file")
    page = (tmp_path / "report.html").read_text()
    assert "halve" in page
    assert "number of tasks: 1 " in page
    assert "<script src=" not in page
    assert len(told) == 1
    assert told[0].startswith(f"--performance-report: {place}/report.html could not be written: ")


def test_run_writes_it_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, latentscale: Callable[..., Ended]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(3).normal(size=(60, 4)).astype("float32"))
    job = ("run", "rows.npy", "--measures", "vendi", "--quiet", "--performance-report")
    workers = ("-o", "cluster={kind: local, workers: 1, memory_limit: 2GiB}")
    assert latentscale(*job, "report.html").err.splitlines()[-1] == (
        "latentscale: --performance-report: this job runs in this process, without Dask; "
        "add -o cluster.kind=local for worker processes"
    )
    assert latentscale(*job, "new/report.html", *workers).code == 0
    assert "vendi-cosine" in Path("new/report.html").read_text()
    again = latentscale(*job, "again.html", *workers)
    assert "again.html wasn't written, as nothing ran on Dask" in again.err
    assert not Path("again.html").exists()
