"""Where a job stands, and what happened in it, as its folder tells from any machine."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from rich.console import Console

from latentscale_pipeline.cli import status as status_command
from latentscale_pipeline.cli.cancel import cancel
from latentscale_pipeline.engine.loop import run_stages
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.state import inspect_stages
from latentscale_pipeline.errors import Incomplete
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.jobs import submission
from latentscale_pipeline.jobs.status import JobStatus, MarkerCosts, StageStatus, read_status
from latentscale_pipeline.jobs.submission_records import Submission, record_submission
from latentscale_pipeline.storage.artifacts import SPENT, need_marker
from latentscale_pipeline.storage.cancellation import request_cancel
from latentscale_pipeline.storage.events import EventLog, read_events
from latentscale_pipeline.storage.lock import Holder, hold_lock
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.pipeline.engine.test_iterations import Killed, MortalExecutor
from tests.pipeline.engine.test_loop import make_work
from tests.support import toy_stages as toy
from tests.support.jobs import CONTROL, command_line
from tests.support.waiting import wait_for

Command = Callable[..., Ended]


def run_toy(
    root: Path, stages: list[Stage], executor: Callable[[], Any] = ThreadExecutor, **ending: str
) -> ObjectStore:
    """Run toy stages as a job is run: with a plan, a lock and events."""
    work = make_work(root, stages)
    plan = [
        {
            "stage": stage.name,
            "key": work.keys[stage.name],
            "needs": list(stage.needs),
            "partitions": stage.partitions,
            "peak_memory_bytes": 2**20,
        }
        for stage in stages
    ]
    work.store.write("plan.json", json.dumps({"stages": plan}).encode())
    with hold_lock(work.store) as holder:
        events = EventLog(work.store, holder.attempt)
        events.record("run_started", stages=len(stages))
        try:
            run_stages(work, inspect_stages(work), executor, holder.attempt, events.record)
            events.record("run_ended", ending="finished")
        except (Incomplete, Killed) as error:
            events.record("run_ended", **{"ending": "failed", "error": str(error), **ending})
        events.flush()
    return work.store


def look(store: ObjectStore) -> JobStatus:
    return read_status(store, MarkerCosts(store))


def stages_of(status: JobStatus) -> dict[str, StageStatus]:
    return {stage.stage: stage for stage in status.stages}


@pytest.fixture
def failed_job(tmp_path: Path) -> ObjectStore:
    stages = [
        toy.one("failing", toy.fail_until_allowed, allowed=str(tmp_path / "allowed")),
        Stage("after", toy.after, toy.MEMORY, needs=("failing",)),
        *toy.chain(),
    ]
    return run_toy(tmp_path / "jobs" / "toy-1", stages)


def test_a_failed_stage_is_named_with_those_that_wait_for_it(failed_job: ObjectStore) -> None:
    status = look(failed_job)
    assert status.state == "failed"
    assert status.reason.startswith("stage failing: RuntimeError: not today (log: ")
    assert "run the same command" not in status.reason
    found = stages_of(status)
    assert {
        name: (stage.state, stage.parts_done, stage.parts) for name, stage in found.items()
    } == {
        "failing": ("failed", 0, 1),
        "after": ("waiting", 0, 1),
        "draw": ("done", 4, 4),
        "square": ("done", 1, 1),
        "side": ("done", 1, 1),
    }
    assert found["after"].reason == "needs failing, which failed"
    assert found["failing"].reason.startswith("RuntimeError: not today")
    assert found["failing"].seconds is None
    assert found["side"].reason == "computed"
    assert (status.runs, status.stages_done) == (1, 3)


def test_costs_are_those_of_the_markers(failed_job: ObjectStore) -> None:
    [key] = failed_job.folders("stages/draw")
    folder = f"stages/draw/{key}"
    parts = [f"{folder}/part-{i:05d}" for i in range(4)] + [f"{folder}/result"]
    costs = [need_marker(failed_job, part).cost for part in parts]
    expected = (
        pytest.approx(sum(cost.seconds for cost in costs), abs=2e-3),
        max(cost.peak_memory_bytes for cost in costs),
    )
    told = stages_of(look(failed_job))["draw"]
    assert (told.seconds, told.peak_memory_bytes) == expected
    assert told.projected_memory_bytes == 2**20
    for key in failed_job.keys("events"):
        failed_job.remove(key)
    read = stages_of(look(failed_job))["draw"]
    assert (read.seconds, read.peak_memory_bytes) == expected
    assert read.state == "done"


def test_rounds_are_counted_without_knowing_how_many_there_will_be(tmp_path: Path) -> None:
    stage = toy.iterated()
    store = run_toy(tmp_path / "toy-1", [stage], lambda: MortalExecutor(7))
    [found] = look(store).stages
    assert (found.state, found.round, found.parts_done, found.parts) == ("waiting", 2, 2, 3)
    assert found.reason == "was under way"
    [row] = [status_command._row(found)]
    assert row["parts"] == "iteration 2, 2 of 3"
    spent = found.seconds
    assert spent is not None

    run_toy(tmp_path / "toy-1", [stage])
    [found] = look(store).stages
    assert (found.state, found.round, found.parts_done) == ("done", None, 3)
    [key] = store.folders("stages/halve")
    total = need_marker(store, f"stages/halve/{key}/result").values[SPENT]
    assert found.seconds == pytest.approx(total["seconds"], abs=2e-3)
    assert found.seconds >= spent
    assert found.peak_memory_bytes == total["peak_memory_bytes"]


@contextmanager
def held(store: ObjectStore, **changes: Any) -> Iterator[Holder]:
    """A lock that this process, or one on another host, holds."""
    holder = replace(Holder.here(), **changes)
    store.write("lock/000007.json", json.dumps(asdict(holder)).encode())
    store.write(f"heartbeats/{holder.attempt}.json", json.dumps({"time": time.time()}).encode())
    events = EventLog(store, holder.attempt)
    events.record("run_started", stages=5)
    events.record("stage_started", stage="failing", parts=1, found=0, reason="computed")
    events.flush()
    yield holder
    store.create("lock/000007.released", b"")


def test_a_heartbeat_is_what_counts_on_another_host(failed_job: ObjectStore) -> None:
    with held(failed_job, host="elsewhere", pid=77, pid_space="boot/pid:[1]") as holder:
        status = look(failed_job)
        assert status.state == "running"
        assert re.fullmatch(r"process 77 on elsewhere, heartbeat \d s ago", status.reason)
        assert stages_of(status)["failing"].state == "running"

        beaten = json.dumps({"time": time.time() - 61}).encode()
        failed_job.write(f"heartbeats/{holder.attempt}.json", beaten)
        status = look(failed_job)
        assert status.state == "dead"
        silent = r"process 77 on elsewhere has had no heartbeat for 6\d s"
        assert re.fullmatch(silent, status.reason)
        assert stages_of(status)["failing"].state == "waiting"

        failed_job.remove(f"heartbeats/{holder.attempt}.json")
        assert look(failed_job).reason == "process 77 on elsewhere has no heartbeat"


def test_a_stopped_process_still_holds_its_job(failed_job: ObjectStore) -> None:
    with held(failed_job) as holder:
        beaten = json.dumps({"time": time.time() - 300}).encode()
        failed_job.write(f"heartbeats/{holder.attempt}.json", beaten)
        status = look(failed_job)
        assert status.state == "running"
        assert re.search(r"without a heartbeat for 3\d\d s", status.reason)
        request_cancel(failed_job, holder)
        assert ", asked to end from " in look(failed_job).reason


@pytest.mark.parametrize(
    ("requeue", "word", "state"),
    [
        (True, "PENDING", "queued"),
        (True, "FAILED", "interrupted"),
        (False, "PENDING", "interrupted"),
    ],
)
def test_a_driver_that_waits_in_the_queue_again_is_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requeue: bool, word: str, state: str
) -> None:
    store = run_toy(tmp_path / "toy-1", toy.chain())
    with hold_lock(store):
        pass
    record_submission(store, Submission("slurm", "77", "", 0, requeue, 0.0))
    (tmp_path / "bin").mkdir()
    for name, said in (("scontrol", f"JobId=77 JobState={word} Restarts=1"), ("scancel", "")):
        command = tmp_path / "bin" / name
        command.write_text(f"#!/bin/sh\necho {name} $* >> {tmp_path}/asked\necho '{said}'\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert look(store).state == state
    if state == "queued":
        assert CliRunner().invoke(cancel, [store.url]).exit_code == 0
        assert "scancel 77\n" in (tmp_path / "asked").read_text()


def catches(pid: int, signal_number: int) -> bool:
    """Tell whether a process has a handler of a signal."""
    [caught] = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (signal_number - 1) & 1)


@pytest.mark.parametrize(("signal_name", "requeued"), [("KILL", True), ("TERM", False)])
def test_a_driver_that_is_told_to_end_isnt_queued_again(
    tmp_path: Path, signal_name: str, requeued: bool
) -> None:
    """Slurm's scancel sends TERM to the script; a killed driver is no wish of anybody."""
    script = submission._SCRIPT.format(
        directives="", command="sleep 30", requeue=submission._REQUEUE
    )
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\ntouch {tmp_path}/requeued\nexit 1\n")
    scontrol.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}
    process = subprocess.Popen(["/bin/bash", "-c", script], env=environment)
    wait_for(lambda: bool(psutil.Process(process.pid).children()))
    [driver] = psutil.Process(process.pid).children()
    wait_for(lambda: catches(process.pid, signal.SIGTERM))
    if signal_name == "KILL":
        driver.kill()
    else:
        process.terminate()
    assert process.wait(timeout=20) > 128
    assert (tmp_path / "requeued").exists() == requeued


def test_results_say_finished_and_nothing_says_planned(tmp_path: Path) -> None:
    store = run_toy(tmp_path / "toy-1", toy.chain())
    assert look(store).state == "interrupted", "it has no results"
    store.write("results.json", b"{}")
    assert look(store).state == "finished"
    assert re.fullmatch(r"in \d+\.\d s", look(store).reason)
    never = ObjectStore(str(tmp_path / "toy-2"))
    never.write("plan.json", store.read("plan.json"))
    assert (look(never).state, look(never).reason) == ("planned", "never started")
    assert {stage.state for stage in look(never).stages} == {"waiting"}
    never.write("stages/draw/0123456789abcdef/part-00000.json", b"{}")
    assert look(never).reason == "stages are computed one by one"
    never.remove("stages/draw/0123456789abcdef/part-00000.json")
    assert look(never).stages[1].reason == "needs draw"


def test_a_copy_isnt_the_job_that_it_was_made_of(
    cli_job: Path, latentscale: Command, tmp_path: Path
) -> None:
    """Its lock and its submission are those of the original, which may be running."""
    assert latentscale("run", cli_job).code == 0
    [folder] = (tmp_path / "jobs").glob("*/plan.json")
    job, copied = folder.parent, tmp_path / "jobs" / "copied"
    shutil.copytree(job, copied)
    with hold_lock(ObjectStore(str(job))):
        shutil.copytree(job / "lock", copied / "lock", dirs_exist_ok=True)
        assert read_status(ObjectStore(str(job))).state == "running"
        found = read_status(ObjectStore(str(copied)))
        assert (found.job, found.copy_of, found.state) == ("copied", job.name, "finished")
        (copied / "results.json").unlink()
        refused = latentscale("cancel", copied)
        assert refused.err.endswith(
            f"/copied: nothing to cancel, the job isn't running: interrupted (the folder of "
            f"{job.name}, copied or renamed)\n"
        )
        assert "resume" not in latentscale("status", copied).out
        listed = json.loads(latentscale("list", tmp_path / "jobs", "--json").out)
    assert {each["job"]: each["copy_of"] for each in listed} == {"copied": job.name, job.name: None}
    ended = latentscale("list", copied)
    assert ended.err.endswith("copied: a job, not a folder of jobs; latentscale status shows it\n")
    shutil.rmtree(copied / "events")
    ended = latentscale("logs", copied)
    assert ended.err.endswith("copied: the events of its runs are missing from the folder\n")
    (copied / "config.json").write_text('{"name": "c')
    ended = latentscale("resume", copied)
    assert "restore it, or use latentscale run with the job's configuration" in ended.err
    (tmp_path / "link").symlink_to(job)
    assert latentscale("resume", tmp_path / "link").code == 0


def test_damaged_and_hostile_objects_are_survived(failed_job: ObjectStore) -> None:
    hostile = {**asdict(Holder.here()), "attempt": "../../elsewhere"}
    failed_job.write("lock/000002.json", json.dumps(hostile).encode())
    assert look(failed_job).reason.startswith("a lock that can't be read")
    failed_job.write("lock/000002.released", b"")
    [events] = [key for key in failed_job.keys("events") if failed_job.sizes(key)]
    stored = failed_job.read(events)
    failed_job.write(events, b'{"event": 3}\n[]\nnonsense \xff\n' + stored)
    assert look(failed_job).state == "failed"
    failed_job.write("plan.json", b'{"stages": [3]}')
    assert look(failed_job).stages == ()


@pytest.fixture
def cli_job(tmp_path: Path) -> Path:
    """A job of two quick measures in one process."""
    generator = np.random.default_rng(17)
    np.save(tmp_path / "corpus.npy", generator.normal(size=(300, 8)).astype("f4"))
    config = tmp_path / "job.yaml"
    job = {
        "name": "small",
        "corpus": str(tmp_path / "corpus.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {"heat": {"times": {"count": 8}}, "vendi": {"kernels": ["cosine"]}},
        "sampling": {"method": "none"},
        "cluster": {"kind": "serial"},
    }
    config.write_text(json.dumps(job))
    return config


def test_a_command_keeps_nothing_in_memory(cli_job: Path, latentscale: Command) -> None:
    for command in ("run", "plan"):
        ended = latentscale(command, cli_job, "-o", "output=memory://jobs")
        assert (ended.code, ended.out) == (2, "")
        assert "output: memory:// is this process's own memory" in ended.err


def test_a_remote_job_is_seen_from_its_folder(
    cli_job: Path, latentscale: Command, s3_url: str
) -> None:
    output = f"{s3_url}/jobs"
    ran = latentscale("run", cli_job, "-o", f"output={output}", "--json", "--quiet")
    assert ran.code == 0, ran.err
    results = json.loads(ran.out)
    folder = f"{output}/{results['job']['id']}"
    document = json.loads(latentscale("status", folder, "--json").out)
    assert (document["job"], document["folder"]) == (results["job"]["id"], folder)
    assert (document["state"], document["runs"]) == ("finished", 1)
    by_stage = {stage["stage"]: stage for stage in document["stages"]}
    assert [*by_stage] == [timing["stage"] for timing in results["timings"]]
    for timing in results["timings"]:
        stage = by_stage[timing["stage"]]
        assert (stage["state"], stage["parts_done"]) == ("done", stage["parts"])
        assert stage["seconds"] == pytest.approx(timing["seconds"], abs=2e-3)
        assert stage["peak_memory_bytes"] == timing["peak_memory_bytes"]
    [listed] = json.loads(latentscale("list", output, "--json").out)
    assert listed == {key: value for key, value in document.items() if key != "stages"}

    for command, message in (
        (("cancel", folder), "nothing to cancel, the job isn't running: finished (in "),
        (
            ("status", output),
            f"the folder holds jobs but isn't a job; name one of them, such as {output}",
        ),
        (("verify", output), "the folder holds jobs but isn't a job; name one of them, such as"),
        (("report", output), "the folder holds jobs but isn't a job; name one of them, such as"),
        (("resume", output), "the folder holds jobs but isn't a job; name one of them, such as"),
        (("logs", f"{output}/nowhere"), "nothing is there; name the folder of a job"),
    ):
        ended = latentscale(*command)
        assert ended.code == 2
        assert message in ended.err
        assert len(ended.err.splitlines()) == 1

    again = latentscale("resume", folder, "-o", "cluster.memory_limit=2GiB")
    assert again.code == 0, again.err
    assert "nothing had to be computed" in again.out
    events = json.loads(latentscale("logs", folder, "--json").out)["events"]
    assert [event["event"] for event in events[:2]] == ["run_started", "stage_started"]
    assert (events[-1]["event"], events[-1]["ending"]) == ("run_ended", "finished")


def test_a_killed_run_is_dead(cli_job: Path, latentscale: Command, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command_line("run", cli_job, "-o", "measures.heat.probes=4000"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    jobs = tmp_path / "jobs"
    wait_for(lambda: len(list(jobs.glob("*/stages/*/*/result.json"))) >= 2)
    [folder] = jobs.glob("small-*")
    document = json.loads(latentscale("status", folder, "--json").out)
    assert document["state"] == "running"
    assert document["run"]["pid"] == process.pid
    process.kill()
    process.wait()
    ended = latentscale("status", folder)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert re.fullmatch(rf"{folder.name}: dead \(process {process.pid} on .* is gone\)", lines[0])
    assert lines[-1] == f"latentscale resume {folder} continues this job"
    assert re.search(r"^duplicates-corpus +done +1 of 1 ", ended.out, re.MULTILINE)
    assert re.search(r"^heat-corpus +waiting +0 of 1 ", ended.out, re.MULTILINE)
    cancelled = latentscale("cancel", folder)
    assert cancelled.code == 2
    assert "isn't running: dead" in cancelled.err


def test_plain_watching_tells_what_changes(
    failed_job: ObjectStore, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_command, "WATCH_SECONDS", 0.01)
    looks = 0
    original = read_status

    with held(failed_job) as holder:

        def looked(store: ObjectStore, costs: MarkerCosts | None = None) -> JobStatus:
            nonlocal looks
            looks += 1
            if looks == 4:
                store.create("lock/000007.released", b"")
            return original(store, costs)

        monkeypatch.setattr(status_command, "read_status", looked)
        ended = latentscale("status", failed_job.url, "--watch")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert re.fullmatch(r"[\d:]{8} toy-1: running, 3 of 5 stages done; failing 0 of 1", lines[0]), (
        lines[0]
    )
    assert lines[1].startswith("toy-1: interrupted"), "one line for what didn't change"
    assert holder.attempt not in ended.out


def test_a_running_job_has_the_time_left(failed_job: ObjectStore, latentscale: Command) -> None:
    with held(failed_job) as holder:
        assert look(failed_job).seconds_left is None
        events = EventLog(failed_job, holder.attempt)
        work = {"failing": {"work_seconds": 1200.0, "tasks": 1}}
        events.record("run_estimated", seconds=1200.0, work=work)
        events.flush()
        assert look(failed_job).seconds_left == pytest.approx(1200.0, rel=0.1)
        ended = latentscale("status", failed_job.url)
        brief = status_command._left(look(failed_job))
    assert "left       about 20 min" in ended.out.splitlines()
    assert brief == "; about 20 min left"


def test_watching_on_a_terminal_replaces_what_it_showed(failed_job: ObjectStore) -> None:
    console = Console(force_terminal=True, width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with status_command._display(console) as show:
        show(look(failed_job))
    status_command.print_status(look(failed_job), console)
    seen = CONTROL.sub("", console.export_text())
    assert re.search(r"draw +done +4 of 4", seen)
    console.file.close()


def test_watching_and_json_are_refused(latentscale: Command, tmp_path: Path) -> None:
    for arguments in (("status", "--watch"), ("logs", "--follow")):
        ended = latentscale(*arguments, tmp_path, "--json")
        assert ended.code == 2
        assert "JSON is one document" in ended.err


def test_logs_tell_what_happened(failed_job: ObjectStore, latentscale: Command) -> None:
    ended = latentscale("logs", failed_job.url)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert re.fullmatch(r"--- run 1: process \d+ on \S+", lines[0])
    told = [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ ", "", line) for line in lines]
    assert told[1] == "run started, 5 stages"
    assert "failing: started (computed)" in told
    cost = r"done in \S+ (s|min) with \S+ [MG]iB"
    assert any(re.fullmatch(f"draw: part 3 of 4 {cost}", line) for line in told)
    assert any(re.fullmatch(f"draw: finalising {cost}", line) for line in told)
    assert sum(t.startswith("failing: work is tried again: RuntimeError: n") for t in told) == 2
    assert any(t.startswith("run ended, failed: stage failing: ") for t in told)
    headers = [line for line in lines if line.startswith("--- failing: stages/failing/")]
    assert len(headers) == 3
    assert lines[-2:] == ["RuntimeError: not today", "nor tomorrow"]


def test_logs_can_be_narrowed(failed_job: ObjectStore, latentscale: Command) -> None:
    document = json.loads(latentscale("logs", failed_job.url, "--failed", "--json").out)
    names = [event["event"] for event in document["events"]]
    assert names == ["part_retried", "part_retried", "stage_failed", "run_ended"]
    assert {(log["stage"], log["part"], log["round"]) for log in document["logs"]} == {
        ("failing", None, None)
    }
    assert all("RuntimeError: not today\nnor tomorrow" in log["text"] for log in document["logs"])
    ended = latentscale("logs", failed_job.url, "--stage", "side")
    assert ended.out.splitlines()[1].endswith("Z side: started (computed)")
    assert "failing" not in ended.out
    ended = latentscale("logs", failed_job.url, "--stage", "side", "--failed")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.strip().endswith(": nothing failed in stage side")
    ended = latentscale("logs", failed_job.url, "--stage", "slide")
    assert ended.code == 2
    assert "this job's stages are failing, after, draw, square, side" in ended.err


def test_logs_name_the_round_and_the_part(tmp_path: Path, latentscale: Command) -> None:
    store = run_toy(tmp_path / "toy-1", [toy.iterated()])
    [key] = store.folders("stages/halve")
    store.write(f"stages/halve/{key}/round-0003/part-00001.a1-0-b.log", b"\x1b[2Jhostile\n")
    ended = latentscale("logs", store.url)
    told = [line.partition("Z ")[2] for line in ended.out.splitlines()]
    assert any(t.startswith("halve: iteration 0, finalising done in") for t in told)
    assert any(t.startswith("halve: iteration 4, part 3 of 3 done in") for t in told)
    assert ended.out.splitlines()[-2].startswith("--- halve, iteration 3, part 2: stages/halve/")
    assert ended.out.splitlines()[-1] == "\N{REPLACEMENT CHARACTER}[2Jhostile"


def test_following_goes_on_until_the_run_ends(
    failed_job: ObjectStore, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []
    with held(failed_job) as holder:

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            events = [*read_events(failed_job, holder.attempt)]
            lines = [{"event": e.name, "time": e.time, **e.fields} for e in events]
            lines.append({"event": "stage_done", "time": time.time(), "stage": "failing"})
            text = "\n".join(json.dumps(line) for line in lines)
            failed_job.write(f"events/{holder.attempt}.jsonl", text.encode())
            failed_job.create("lock/000007.released", b"")

        monkeypatch.setattr("latentscale_pipeline.cli.logs.time.sleep", pause)
        ended = latentscale("logs", failed_job.url, "--follow")
    assert len(pauses) == 1
    assert ended.out.count("run started") == 2, "an event is printed once"
    assert ended.out.count("failing: done") == 1


def test_events_are_seen_soon_and_a_slow_store_holds_nobody_up(tmp_path: Path) -> None:
    class Slow(ObjectStore):
        def write(self, key: str, data: bytes) -> None:
            recorded.wait(30.0)
            super().write(key, data)

    recorded = threading.Event()
    store = ObjectStore(str(tmp_path))
    log = EventLog(Slow(store.url), "a1")
    for number in range(1000):
        log.record("part_done", part=number)
    assert read_events(store, "a1") == []
    recorded.set()
    wait_for(lambda: len(read_events(store, "a1")) > 0)
    log.flush()
    assert [event.fields["part"] for event in read_events(store, "a1")] == [*range(1000)]
