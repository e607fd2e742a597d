"""A run is cancelled, interrupted, succeeded and resumed; nothing that was done is lost."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.engine import TASK_THREAD
from latentscale_pipeline.engine.executor import Executor
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.errors import Cancelled, Incomplete
from latentscale_pipeline.executors.dask.local import local_cluster
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.storage.cancellation import request_cancel, stop_when_asked
from latentscale_pipeline.storage.lock import Holder, hold_lock
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.pipeline.engine.test_loop import Events, make_work
from tests.support import toy_stages as toy
from tests.support.jobs import command_line, results_of, timeless
from tests.support.waiting import wait_for
from tests.support.worker_processes import worker_processes

Command = Callable[..., Ended]


def one_worker() -> AbstractContextManager[Executor]:
    return local_cluster(Local(workers=1, memory_limit=2**30))


@pytest.mark.parametrize("executor", [ThreadExecutor, one_worker])
def test_no_task_holds_up_a_reason_to_stop(
    tmp_path: Path, executor: Callable[[], AbstractContextManager[Executor]]
) -> None:
    begun, allowed = tmp_path / "begun", tmp_path / "allowed"
    endless = toy.one("endless", toy.wait_for_file, begun=str(begun), allowed=str(allowed))
    work = make_work(tmp_path / "job", [*toy.chain()[2:], endless])
    noticed = []

    def check() -> None:
        if begun.exists():
            noticed.append(time.monotonic())
            raise Cancelled("cancelled")

    with pytest.raises(Cancelled):
        run_stages(work, inspect_stages(work), executor, "first", Events(), check)
    assert time.monotonic() - noticed[0] < 10, "the workers were stopped, too"
    assert work.result(work.stages[0]).values == {"constant": 7}, "what was done is kept"
    allowed.write_text("yes")
    wait_for(lambda: all(thread.name != TASK_THREAD for thread in threading.enumerate()))


def raised_by(check: Callable[[], None]) -> BaseException | None:
    try:
        check()
    except Incomplete as error:
        return error
    return None


def test_a_request_ends_the_run_it_was_meant_for(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    earlier = Holder.here()
    assert request_cancel(store, earlier)
    with hold_lock(store) as holder, stop_when_asked(store, holder, poll_seconds=0.01) as check:
        assert store.keys("cancel") == [], "what was meant for others is cleared"
        request_cancel(store, earlier)
        time.sleep(0.1)
        check()
        assert request_cancel(store, holder)
        wait_for(lambda: raised_by(check) is not None)
        assert str(raised_by(check)).startswith(f"cancelled from {os.uname().nodename}; to ")
        assert not request_cancel(store, holder), "it was asked before"


def test_a_run_that_was_succeeded_ends(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    with hold_lock(store) as first, stop_when_asked(store, first, poll_seconds=0.01) as check:
        store.write("lock/000002.json", b"{")
        time.sleep(0.3)
        check()
        other = {**asdict(Holder.here()), "host": "elsewhere", "pid": 12}
        store.write("lock/000002.json", json.dumps(other).encode())
        wait_for(lambda: raised_by(check) is not None)
        assert str(raised_by(check)).endswith("process 12 on elsewhere has taken over this job")


def test_a_store_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    class Moody(ObjectStore):
        answers = 0

        def read(self, key: str) -> bytes:
            if key.startswith("cancel/"):
                self.answers += 1
                if self.answers < 3:
                    raise Incomplete("out of reach")
            return super().read(key)

    store = Moody(str(tmp_path))
    with hold_lock(store) as holder, stop_when_asked(store, holder, poll_seconds=0.01) as check:
        request_cancel(store, holder)
        wait_for(lambda: raised_by(check) is not None)
    assert store.answers == 3


CONFIG = """
name: stop me
corpus: {folder}/corpus.npy
reference: {folder}/reference.npy
output: {folder}/jobs
measures:
  heat: {{times: {{count: 16}}}}
  geomca: {{}}
  vendi: {{kernels: [cosine, rbf]}}
  mmd: {{}}
  hubness: {{}}
sampling: {{method: none}}
cluster: {{kind: local, workers: 1, memory_limit: 1GiB}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    generator = np.random.default_rng(6)
    for role, rows in (("corpus", 220), ("reference", 180)):
        np.save(tmp_path / f"{role}.npy", generator.normal(size=(rows, 8)).astype("f4"))
    (tmp_path / "job.yaml").write_text(CONFIG.format(folder=tmp_path))
    return tmp_path / "job.yaml"


def gone(processes: list[psutil.Process]) -> bool:
    return not any(Path(f"/proc/{process.pid}/exe").exists() for process in processes)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a command in a process of its own that doesn't outlive the test."""
    with ExitStack() as stack:

        def command(*arguments: object) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                command_line(*arguments),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield command


def test_a_run_is_watched_cancelled_and_resumed(
    config: Path, latentscale: Command, tmp_path: Path, start: Start
) -> None:
    process = start("run", config)
    jobs = tmp_path / "jobs"
    wait_for(lambda: bool(list(jobs.glob("stop-me-*/stages/*/*/result.json"))))
    children = psutil.Process(process.pid).children(recursive=True)
    [worker] = worker_processes(process.pid)
    worker.suspend()  # its task takes as long as a task can take
    [folder] = jobs.glob("stop-me-*")
    assert not (folder / "results.json").exists()

    def stage_states() -> set[str]:
        nonlocal document
        document = json.loads(latentscale("status", folder, "--json").out)
        return {stage["state"] for stage in document["stages"]}

    document: dict[str, Any] = {}
    wait_for(lambda: stage_states() == {"done", "running", "waiting"})
    assert document["state"] == "running"
    assert document["run"]["pid"] == process.pid
    refused = latentscale("run", config)
    assert refused.code == 2
    assert f"process {process.pid} on" in refused.err
    assert "use --wait to wait for it or --take-over" in refused.err

    begun = time.monotonic()
    asked = latentscale("cancel", folder)
    assert (asked.code, asked.err) == (0, "")
    assert f"process {process.pid} on" in asked.out
    assert "will end within seconds" in asked.out
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - begun < 15
    assert process.returncode == 3
    last = err.strip().splitlines()[-1]
    assert last.startswith("latentscale: cancelled from ")
    assert last.endswith(f"or latentscale resume {folder}")
    assert "Traceback" not in err
    wait_for(lambda: gone(children))

    ended = latentscale("status", folder)
    assert ended.out.startswith(f"{folder.name}: cancelled (from ")
    # Hashes are removed once they have been counted.
    results_there = sorted(folder.glob("stages/*/*/result.json"))
    kept = [path for path in results_there if "hashes-" not in str(path)]
    stamps = [path.stat().st_mtime_ns for path in kept]
    again = latentscale("cancel", folder)
    assert again.code == 2
    assert "the job isn't running: cancelled" in again.err

    # The sources are gone; what was made of them is in the output.
    for role in ("corpus", "reference"):
        (tmp_path / f"{role}.npy").rename(tmp_path / f"{role}-moved.npy")
    resumed = latentscale("resume", folder, "-o", "cluster.kind=serial", "--json", "--quiet")
    assert resumed.code == 0, resumed.err
    results = json.loads(resumed.out)
    assert results["job"]["id"] == folder.name
    serial = {"kind": "serial", "memory_limit": 2**30, "retries": 2}
    assert results["job"]["cluster"] == serial
    assert [path.stat().st_mtime_ns for path in kept] == stamps
    assert not list(folder.glob("cancel/*"))
    document = json.loads(latentscale("status", folder, "--json").out)
    assert (document["state"], document["runs"]) == ("finished", 2)

    for role in ("corpus", "reference"):
        (tmp_path / f"{role}-moved.npy").rename(tmp_path / f"{role}.npy")
    undisturbed = latentscale(
        "run",
        config,
        "-o",
        f"output={tmp_path / 'calm'}",
        "-o",
        "cluster={kind: serial}",
        "--quiet",
    )
    assert undisturbed.code == 0, undisturbed.err
    assert timeless(results_of(tmp_path / "calm")) == timeless(results)


def test_a_signal_ends_a_long_task_of_this_process(
    config: Path, tmp_path: Path, start: Start
) -> None:
    """A task that computes without a pause holds up neither the signal nor the exit code."""
    np.save(tmp_path / "many.npy", np.random.default_rng(1).normal(size=(6000, 4)))
    arguments = (
        "run", config, "-o", f"corpus={tmp_path / 'many.npy'}", "-o", "reference=null",
        "-o", "measures={vendi: {kernels: [{name: rbf, bandwidth: 1.0}], method: exact}}",
        "-o", "cluster={kind: serial, memory_limit: 16GiB}",
    )  # fmt: skip
    process = start(*arguments)
    jobs = tmp_path / "jobs"
    wait_for(lambda: bool(list(jobs.glob("stop-me-*/stages/duplicates-*/*/result.json"))))
    time.sleep(1.5)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - begun < 10
    assert process.returncode == 3
    assert (
        err.splitlines()[-1] == "latentscale: interrupted; run the same command again to continue"
    )
    [folder] = jobs.glob("stop-me-*")
    assert sorted(path.name for path in (folder / "lock").iterdir()) == [
        "000001.json",
        "000001.released",
    ]
    assert not list(folder.glob("heartbeats/*"))


@pytest.fixture
def finished(config: Path, latentscale: Command, tmp_path: Path) -> Path:
    """The folder of a finished job of one quick measure."""
    ended = latentscale(
        "run", config, "-o", "measures={vendi: {kernels: [cosine, rbf]}}", "-o",
        "cluster={kind: serial}", "--quiet",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    [folder] = (tmp_path / "jobs").glob("stop-me-*")
    return folder


def contents(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_finished_job_is_left_as_it_is(
    finished: Path, latentscale: Command, tmp_path: Path
) -> None:
    before = contents(finished)
    ended = latentscale("resume", finished, "--wait")
    assert ended.code == 0, ended.err
    assert "nothing had to be computed" in ended.out
    assert contents(finished) == before, "no lock, no events, no heartbeat"


def test_a_moved_output_is_resumed_where_it_is(
    finished: Path, latentscale: Command, tmp_path: Path
) -> None:
    results = json.loads((finished / "results.json").read_text())
    shutil.move(tmp_path / "jobs", tmp_path / "moved")
    folder = tmp_path / "moved" / finished.name
    (folder / "results.json").unlink()
    ended = latentscale("resume", folder, "--json", "--quiet")
    assert ended.code == 0, ended.err
    assert timeless(json.loads(ended.out)) == timeless(results)
    assert not (tmp_path / "jobs").exists()


def test_scales_that_were_lent_are_kept(
    finished: Path, latentscale: Command, config: Path, tmp_path: Path
) -> None:
    arguments = ("-o", "measures={vendi: {kernels: [rbf]}}", "-o", "cluster={kind: serial}")
    output = tmp_path / "borrower"
    ran = latentscale(
        "run", config, *arguments, "-o", f"output={output}", "-o", f"scales_from={finished}",
        "-o", "reference=null", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    shutil.rmtree(finished)
    [folder] = output.glob("stop-me-*")
    (folder / "results.json").unlink()
    ended = latentscale("resume", folder, "--json", "--quiet")
    assert ended.code == 0, ended.err
    assert timeless(json.loads(ended.out)) == timeless(json.loads(ran.out))


def test_what_can_not_be_resumed_is_said_in_one_line(
    finished: Path, latentscale: Command, tmp_path: Path
) -> None:
    copies = {}
    for kind in ("renamed", "planless", "altered"):
        copies[kind] = (
            tmp_path / kind / ("stop-me-00000000" if kind == "renamed" else finished.name)
        )
        shutil.copytree(finished, copies[kind])
    (copies["planless"] / "plan.json").unlink()
    frozen = json.loads((copies["altered"] / "config.json").read_text())
    frozen["measures"]["vendi"]["orders"] = [3.0]
    (copies["altered"] / "config.json").write_text(json.dumps(frozen))
    for arguments, message in (
        (
            (finished, "-o", "seed=3"),
            "-o seed=3: only keys of cluster, driver and storage_options can change",
        ),
        ((finished, "-o", "cluster.worker=3"), "cluster.worker is unknown"),
        (
            (copies["renamed"],),
            f"give the job {finished.name}, not this one: the folder was renamed",
        ),
        ((copies["planless"],), "no readable plan.json to resume from"),
        ((copies["altered"],), "not this one"),
        ((tmp_path / "nowhere",), "no readable config.json to resume from"),
    ):
        ended = latentscale("resume", *arguments)
        assert ended.code == 2, ended.err
        assert message in ended.err
        assert len(ended.err.splitlines()) == 1


def test_another_corpus_in_its_place_is_refused(
    finished: Path, latentscale: Command, tmp_path: Path
) -> None:
    plan = json.loads((finished / "plan.json").read_text())
    place = plan["corpora"]["corpus"]["uri"]
    other = plan["corpora"]["reference"]["uri"]
    shutil.rmtree(place)
    shutil.copytree(other, place)
    ended = latentscale("resume", finished)
    assert ended.code == 2
    assert f"corpus: {place} isn't the corpus that this job was planned with" in ended.err
    assert open_corpus(place).fingerprint in ended.err
    shutil.rmtree(place)
    ended = latentscale("resume", finished)
    assert ended.code == 2
    assert place in ended.err


def test_the_frozen_configuration_changes_its_kind_of_cluster(
    finished: Path, latentscale: Command
) -> None:
    (finished / "report.html").unlink()
    arguments: list[Any] = ["-o", "cluster.kind=local", "-o", "cluster.workers=1", "--json"]
    ended = latentscale("resume", finished, *arguments, "--quiet")
    assert ended.code == 0, ended.err
    cluster = json.loads(ended.out)["job"]["cluster"]
    assert (cluster["kind"], cluster["workers"], cluster["dashboard"]) == ("local", 1, False)
    assert json.loads((finished / "config.json").read_text())["cluster"] == cluster
