"""Workers are forked from a process that has imported everything."""

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

import pytest

from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.executors.dask import fork_server
from latentscale_pipeline.executors.dask.environment import WORKER_ENVIRONMENT
from latentscale_pipeline.executors.dask.local import local_cluster

linux = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


def environment() -> dict[str, str]:
    return dict(os.environ)


def end_with_a_failure_unless_loaded(module: str) -> None:
    sys.exit(module not in sys.modules)


def parent_command() -> str:
    return Path(f"/proc/{os.getppid()}/cmdline").read_text()


@linux
def test_a_forked_worker_has_the_variables_of_the_driver_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LATENTSCALE_TEST_BEFORE", "1")
    fork_server.start_fork_server()
    monkeypatch.delenv("LATENTSCALE_TEST_BEFORE")
    monkeypatch.setenv("LATENTSCALE_TEST_AFTER", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with local_cluster(Local(workers=1)) as executor:
        seen = executor.client.submit(environment).result()
        assert "forkserver" in executor.client.submit(parent_command).result()
    assert "LATENTSCALE_TEST_BEFORE" not in seen
    assert seen["LATENTSCALE_TEST_AFTER"] == "2"
    assert {name: seen[name] for name in WORKER_ENVIRONMENT} == WORKER_ENVIRONMENT


@linux
def test_a_process_is_forked_with_the_compiler_loaded() -> None:
    fork_server.start_fork_server()
    context = multiprocessing.get_context("forkserver")
    forked = context.Process(target=end_with_a_failure_unless_loaded, args=(fork_server.COMPILER,))
    forked.start()
    forked.join(60)
    assert forked.exitcode == 0


def test_the_variables_of_the_driver_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    fork_server.start_fork_server()
    assert dict(os.environ) == before


@linux
def test_where_a_socket_has_no_place_workers_begin_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fork_server.start_method() == "forkserver"
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert fork_server.start_method() == "spawn"
    with local_cluster(Local(workers=1)) as executor:
        assert "forkserver" not in executor.client.submit(parent_command).result()
