"""Tasks that fail and workers that die: tried elsewhere, counted, told in one line, no hanging."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import distributed
import psutil
import pytest

from latentscale_pipeline.config.cluster import Local
from latentscale_pipeline.config.job import JobConfig, read_config
from latentscale_pipeline.engine.executor import Executor
from latentscale_pipeline.engine.keys import stage_keys
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.engine.task import Task
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.executors.dask.executor import DaskExecutor
from latentscale_pipeline.executors.dask.local import local_cluster
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.jobs.identity import config_hash
from latentscale_pipeline.jobs.plan import measure_sections
from latentscale_pipeline.storage.objects import ObjectStore
from tests import ROOT
from tests.pipeline.engine.test_loop import Events, make_work
from tests.support import toy_stages as toy
from tests.support.jobs import damage
from tests.support.waiting import wait_for

GIB = 2**30
CHAIN = {"draw": 5, "square": 1, "side": 1}
"""Parts of the stages that nothing is wrong with."""


@pytest.fixture(scope="module")
def two_workers() -> Iterator[DaskExecutor]:
    with local_cluster(Local(workers=2, memory_limit=GIB)) as executor:
        yield executor


def failing_run(
    work: Work, executor: Callable[[], AbstractContextManager[Executor]]
) -> tuple[str, Events]:
    """Run what can't be done, and return the one line that says so."""
    events = Events()
    with pytest.raises(Incomplete) as caught:
        run_stages(work, inspect_stages(work), executor, "run", events)
    message = str(caught.value)
    assert "\n" not in message
    return message, events


def told(events: Events, name: str) -> list[dict[str, Any]]:
    return [fields for event, fields in events if event == name]


def log_of(message: str) -> Path:
    found = re.fullmatch(r".* \(log: (\S+)\); run the same command again to retry", message)
    assert found is not None, message
    return Path(found[1])


def test_a_failed_part_is_tried_on_another_worker(
    tmp_path: Path, two_workers: DaskExecutor
) -> None:
    stage = toy.one("picky", toy.fail_on_the_first_worker, met=str(tmp_path / "met"))
    work = make_work(tmp_path / "job", [stage])
    events = Events()
    run_stages(work, inspect_stages(work), lambda: nullcontext(two_workers), "run", events)
    first, second = work.result(stage).values["pids"]
    assert first != second
    [retried] = told(events, "part_retried")
    assert retried["problem"].startswith("RuntimeError: not in this process (log: stages/picky/")


@pytest.mark.parametrize("retries", [0, 1])
def test_the_last_line_names_stage_part_reason_and_log(tmp_path: Path, retries: int) -> None:
    cursed = Stage(
        "cursed", toy.fail_in_one_part, toy.MEMORY, partitions=4, finalise=toy.count_parts
    )
    work = replace(make_work(tmp_path, [cursed, *toy.chain()]), retries=retries)
    message, events = failing_run(work, ThreadExecutor)
    assert message.startswith("stage cursed, part 3 of 4: RuntimeError: part two is cursed (log: ")
    log = log_of(message)
    assert log.parent == Path(work.store.url, work.folder(cursed))
    assert "in fail_in_one_part" in log.read_text()
    assert log.read_text().endswith("RuntimeError: part two is cursed\n")
    assert len(list(log.parent.glob("*.log"))) == 1 + retries
    assert len(told(events, "part_retried")) == retries
    assert events.computed() == {"cursed": 2 + retries, **CHAIN}


def test_of_several_stages_that_failed_the_others_are_counted(tmp_path: Path) -> None:
    failing = [toy.one(name, toy.fail_until_allowed, allowed="/nowhere") for name in "abc"]
    work = replace(make_work(tmp_path, [*failing, *toy.chain()]), retries=0)
    message, events = failing_run(work, ThreadExecutor)
    assert message.startswith("stage a: RuntimeError: not today (log: ")
    assert message.endswith(".log) (and 2 more stages); run the same command again to retry")
    assert [fields["stage"] for fields in told(events, "stage_failed")] == ["a", "b", "c"]
    assert events.computed() == CHAIN


def test_a_result_that_is_damaged_again_and_again_is_told(tmp_path: Path) -> None:
    work = make_work(tmp_path, toy.chain())

    class Damaging(Events):
        def __call__(self, event: str, **fields: Any) -> None:
            super().__call__(event, **fields)
            if event == "part_done" and (fields["stage"], fields["part"]) == ("draw", 1):
                [path] = tmp_path.glob("stages/draw/*/part-00001.*/numbers.npy")
                damage(path, "flipped", at=300)

    events = Damaging()
    with pytest.raises(Incomplete) as caught:
        run_stages(work, inspect_stages(work), ThreadExecutor, "run", events)
    folder = work.folder(work.stages[0])
    assert re.fullmatch(
        rf"stage draw, finalising: {folder}/part-00001: {folder}/part-00001\.run-\S+/numbers\.npy "
        r"differs from its checksum; run the same command again to retry",
        str(caught.value),
    )
    assert len(told(events, "part_corrupt")) == 2
    assert events.computed() == {"draw": 6, "side": 1}


def test_retries_are_the_cluster_s_and_no_part_of_a_job_s_identity() -> None:
    def read(cluster: str) -> JobConfig:
        text = f"name: a\ncorpus: b.npy\ncluster: {cluster}"
        return read_config(text, "job.yaml", measures=measure_sections())

    hashes = {
        config_hash(read(f"{{kind: {kind}, retries: {retries}}}"), "f", None)
        for kind in ("serial", "local")
        for retries in (0, 7)
    }
    assert len(hashes) == 1
    assert read("{kind: serial}").cluster.retries == 2
    with pytest.raises(BadInput) as caught:
        read("{kind: local, retries: -1}")
    assert str(caught.value) == ("job.yaml: cluster.retries must be at least 0")


def test_a_worker_that_keeps_dying_is_told_and_what_waited_on_it_is_not_blamed(
    tmp_path: Path, two_workers: DaskExecutor
) -> None:
    many = Stage("many", toy.draw, toy.MEMORY, partitions=20, seed=1, finalise=toy.count_parts)
    work = replace(make_work(tmp_path, [toy.one("deadly", toy.die), many]), retries=1)
    message, events = failing_run(work, lambda: nullcontext(two_workers))
    reason = (
        "stage deadly: worker died 2 times on this task; likely out of memory: "
        "0.31 GiB projected, limit 1.00 GiB (cluster.memory_limit)"
    )
    assert message.startswith(f"{reason} (log: ")
    lines = log_of(message).read_text().splitlines()
    assert lines[0] == reason.removeprefix("stage ")
    assert lines[1].startswith("worker: tls://127.0.0.1:")
    assert events.computed() == {"many": 21}
    assert {fields["stage"] for fields in told(events, "part_retried")} == {"deadly"}


@pytest.mark.parametrize("why", [7, "\nno more", None])
def test_a_task_that_ends_its_process_fails_as_any_other(
    tmp_path: Path, two_workers: DaskExecutor, why: Any
) -> None:
    work = replace(make_work(tmp_path, [toy.one("leaving", toy.leave, why=why)]), retries=0)
    message, _ = failing_run(work, lambda: nullcontext(two_workers))
    said = {7: "SystemExit: 7", "\nno more": "SystemExit: no more", None: "SystemExit"}[why]
    assert message.startswith(f"stage leaving: {said} (log: ")


def test_a_task_whose_outcome_was_lost_with_its_worker_is_not_blamed(
    tmp_path: Path, two_workers: DaskExecutor
) -> None:
    def send_outcomes_late(dask_worker: distributed.Worker) -> None:
        dask_worker.batched_stream.interval = 1.0

    two_workers.client.run(send_outcomes_late)
    many = Stage("many", toy.draw, toy.MEMORY, partitions=6, seed=1, finalise=toy.count_parts)
    work = replace(make_work(tmp_path, [many, toy.one("deadly", toy.die)]), retries=1)
    message, events = failing_run(work, lambda: nullcontext(two_workers))
    assert message.startswith("stage deadly: worker died 2 times on this task; ")
    assert events.computed() == {"many": 7}
    assert {fields["stage"] for fields in told(events, "part_retried")} == {"deadly"}


def test_a_task_beyond_the_memory_limit_is_ended_and_told(tmp_path: Path) -> None:
    heavy = toy.one("heavy", toy.hold, bytes=5 * GIB // 4)
    work = replace(make_work(tmp_path, [heavy]), retries=0)
    message, events = failing_run(work, lambda: local_cluster(Local(workers=1, memory_limit=GIB)))
    found = re.match(
        r"stage heavy: worker died once on this task; "
        # What it held is told unless it died before it was looked at.
        r"(?:out of memory: (\d\.\d\d) GiB held, |likely out of memory: )"
        r"0\.31 GiB projected, limit 1\.00 GiB \(cluster\.memory_limit\) \(log: ",
        message,
    )
    assert found is not None, message
    assert found[1] is None or 0.98 <= float(found[1]) < 1.5
    assert events.computed() == {}


def test_workers_that_can_not_be_started_are_told(tmp_path: Path) -> None:
    """Their temporary files have no place to go to."""
    (tmp_path / "file").write_text("x")
    with (
        dask.config.set({"temporary-directory": str(tmp_path / "file")}),
        pytest.raises(Incomplete, match=r"^2 workers could not be started on this machine \(.+\);"),
        local_cluster(Local(workers=2, memory_limit=GIB)),
    ):
        pass


SCHEDULER = ("scheduler", "--host", "127.0.0.1", "--port", "0")
WORKER = (
    *("worker", "--nthreads", "1", "--nworkers", "1", "--worker-port", "0"),
    # A worker that is just starting when its scheduler dies would look for it forever.
    *("--memory-limit", "1GiB", "--resources", f"memory={2**29}", "--death-timeout", "30"),
)


@contextmanager
def dask_processes(
    folder: Path, *programs: tuple[str, ...], **settings: str
) -> Iterator[list[psutil.Process]]:
    """A scheduler and nannies, each a process of its own; all they leave is ended at the end."""
    file = folder / "scheduler.json"
    with ExitStack() as stack:
        started: list[psutil.Process] = []
        stack.callback(lambda: end(started))
        for program, *options in programs:
            module = f"distributed.cli.dask_{program}"
            places = ["--scheduler-file", str(file), "--no-dashboard"]
            started.append(
                psutil.Popen(
                    [sys.executable, "-m", module, *places, *options],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment(**settings),
                )
            )
        yield started


def environment(**changed: str) -> dict[str, str]:
    settings = {"ALLOWED_FAILURES": "0", "WORKER_TTL": "null", "NO_WORKERS_TIMEOUT": "1s"}
    settings |= changed
    named = {f"DASK_DISTRIBUTED__SCHEDULER__{name}": value for name, value in settings.items()}
    root = str(ROOT)
    path = os.pathsep.join([root, *filter(None, [os.getenv("PYTHONPATH")])])
    return {**os.environ, **named, "PYTHONPATH": path}


def family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end(processes: list[psutil.Process]) -> None:
    for process in [member for parent in processes for member in family(parent)]:
        try:
            process.kill()
            process.wait(10)
        except psutil.NoSuchProcess:
            continue


@contextmanager
def connected(folder: Path) -> Iterator[distributed.Client]:
    with distributed.Client(
        scheduler_file=str(folder / "scheduler.json"), set_as_default=False
    ) as client:
        yield client


def _tasks(dask_scheduler: distributed.Scheduler) -> list[str]:
    return list(map(str, dask_scheduler.tasks))


def test_a_scheduler_that_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = make_work(tmp_path / "job", toy.chain())
    patient = dask_processes(tmp_path, SCHEDULER, NO_WORKERS_TIMEOUT="60s")
    with patient as [scheduler], connected(tmp_path) as client:
        executor = DaskExecutor(client, GIB)
        send = executor.submit

        def submit(task: Task) -> None:
            send(task)
            if task.stage.name == "side":  # nothing else can be sent yet
                wait_for(lambda: len(client.run_on_scheduler(_tasks)) == 5)
                scheduler.kill()

        monkeypatch.setattr(executor, "submit", submit)
        message, _ = failing_run(work, lambda: nullcontext(executor))
    assert message == (
        "the scheduler is gone, and so are the workers; run the same command again to continue"
    )


def test_no_workers_at_all_is_told(tmp_path: Path) -> None:
    work = make_work(tmp_path / "job", toy.chain())
    with dask_processes(tmp_path, SCHEDULER), connected(tmp_path) as client:
        executor = DaskExecutor(client, GIB)
        message, _ = failing_run(work, lambda: nullcontext(executor))
    assert message == (
        "no worker is left and none could be started; check the free memory of this machine, "
        "then run the same command again to continue"
    )


def test_workers_that_die_before_they_begin_are_told(
    tmp_path: Path, two_workers: DaskExecutor
) -> None:
    executor = DaskExecutor(two_workers.client, GIB, idle_deaths=1)
    stage = Stage("unread", toy.after, toy.MEMORY, corpora=("corpus",))
    bomb: Any = {"corpus": toy.Bomb()}
    keys = stage_keys([stage], {"corpus": "f"})
    work = Work(ObjectStore(str(tmp_path)), [stage], keys, bomb)
    message, events = failing_run(work, lambda: nullcontext(executor))
    assert message == (
        "2 workers died one after another without ending any task; check the free memory of "
        "this machine, then run the same command again to continue"
    )
    assert told(events, "part_retried") == []


@pytest.mark.full
@pytest.mark.parametrize("victim", ["worker", "nanny", "scheduler"])
def test_each_kind_of_process_may_die(tmp_path: Path, victim: str) -> None:
    """As on a cluster: a scheduler, two nannies and two workers, each a process of its own."""
    begun = tmp_path / "begun"
    begun.mkdir()
    seconds = 100.0 if victim == "scheduler" else 3.0
    long = toy.one("long", toy.work_on, begun=str(begun), seconds=seconds)
    work = make_work(tmp_path / "job", [long, *toy.chain()])
    with dask_processes(tmp_path, SCHEDULER, WORKER, WORKER) as started:
        with connected(tmp_path) as client:
            client.wait_for_workers(2, timeout=60)
            executor = DaskExecutor(client, GIB)
            everyone: list[psutil.Process] = []

            def kill() -> None:
                while not any(begun.iterdir()):
                    time.sleep(0.05)
                worker = psutil.Process(int(next(begun.iterdir()).name))
                everyone.extend(member for process in started for member in family(process))
                parent = worker.parent()
                assert parent is not None
                {"worker": worker, "nanny": parent, "scheduler": started[0]}[victim].kill()

            killer = threading.Thread(target=kill)
            killer.start()
            if victim == "scheduler":
                message, _ = failing_run(work, lambda: nullcontext(executor))
                assert message.startswith("the scheduler is gone")
            else:
                events = Events()
                run_stages(work, inspect_stages(work), lambda: nullcontext(executor), "run", events)
                assert events.computed() == {"long": 1, **CHAIN}
                assert len(told(events, "part_retried")) == 1
            killer.join()
        if victim != "scheduler":
            started[0].kill()
        _, alive = psutil.wait_procs(everyone, timeout=60)
        assert alive == [], "workers without a scheduler end by themselves within a minute"
    if victim == "scheduler":
        events = Events()
        short = replace(long, parameters={**long.parameters, "seconds": 0.0})
        again = replace(work, stages=[short, *work.stages[1:]])
        run_stages(again, inspect_stages(again), ThreadExecutor, "again", events)
        assert events.computed()["long"] == 1
