"""Killing a job's processes at random, and finding out what it cost.

A job on local workers is two kinds of processes: the *driver*, in which client, scheduler and
nannies live together, and its *workers*; beside them Python has a *helper* of its own. When the
*machine* goes, all of them go at once. Each may be killed at any time, and what is left behind is
left to itself.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from tests.support.jobs import command_line

ROLES = ("driver", "worker", "worker", "machine", "helper")
"""Who may be killed; who is named twice is twice as likely."""

ORPHAN_SECONDS = 60.0
"""Within which workers without a driver have to end by themselves."""

Moment = Callable[[float], bool]
"""Whether it is time to kill, given the seconds since the start."""


@dataclass
class Disturbance:
    """What happened to a job that was disturbed, and what it took to finish it.

    Attributes
    ----------
    killed : list of str
        Role and second of each kill.
    codes : list of int
        Exit codes of its runs: one that was disturbed, and one more when that didn't finish.
    orphans : int
        Workers that outlived their driver by more than a minute.
    again : list of str
        Parts that were computed although their result was there.
    retried : int
        Parts that were under way on a worker that died.
    computed : int
        Parts computed in all runs, as far as the runs got to tell.
    said : str
        The last line of the last run.
    """

    killed: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    orphans: int = 0
    again: list[str] = field(default_factory=list)
    retried: int = 0
    computed: int = 0
    said: str = ""

    @property
    def finished(self) -> bool:
        """Whether the job was done after at most one more run."""
        return self.codes[-1] == 0


def disturb(
    config: Path,
    output: Path,
    moments: Sequence[Moment],
    generator: np.random.Generator,
    *,
    roles: Sequence[str] = ROLES,
    patience: float = 3600.0,
) -> Disturbance:
    """Run a job, kill one of its processes at each moment, and run it once more if need be.

    Parameters
    ----------
    config : Path
        The job, on local workers.
    output : Path
        Its output folder, used by no other job.
    moments : sequence of callable
        When to kill; those that come after the end of the run are left out.
    generator : numpy.random.Generator
        Chooses whom.
    roles : sequence of str
        Who may be killed.
    patience : float
        Seconds after which a run counts as hanging.
    """
    found = Disturbance()
    with tempfile.TemporaryFile("w+") as err:
        process = psutil.Popen(command_line("run", config), stdout=subprocess.DEVNULL, stderr=err)
        left = _kill_now_and_then(process, moments, generator, roles, found)
        found.codes.append(_wait(process, patience))
        found.said = _last_line(err)
    _, alive = psutil.wait_procs(left, timeout=ORPHAN_SECONDS)
    found.orphans = len(alive)
    _end(alive)
    there = artifact(output)
    if not found.finished:
        with tempfile.TemporaryFile("w+") as err:
            process = psutil.Popen(
                command_line("run", config), stdout=subprocess.DEVNULL, stderr=err
            )
            found.codes.append(_wait(process, patience))
            found.said = _last_line(err)
    _account(found, output, there)
    return found


def artifact(output: Path) -> set[str]:
    """Return the parts below an output folder that have a marker."""
    markers = output.glob("*/stages/*/*/**/*.json")
    return {marker.relative_to(output).with_suffix("").as_posix() for marker in markers}


def parts_done(output: Path) -> list[list[str]]:
    """Return the parts that each run below an output folder says it computed, run by run."""
    runs = []
    for log in output.glob("*/events/*.jsonl"):
        events = [json.loads(line) for line in log.read_text().splitlines()]
        job = log.parent.parent.name
        done = [f"{job}/{event['key']}" for event in events if event["event"] == "part_done"]
        runs.append((events[0]["time"], done))
    return [done for _, done in sorted(runs)]


def _kill_now_and_then(
    process: psutil.Popen,
    moments: Sequence[Moment],
    generator: np.random.Generator,
    roles: Sequence[str],
    found: Disturbance,
) -> list[psutil.Process]:
    """Kill at each moment; return the processes that a dead driver left behind."""
    begun = time.monotonic()
    for due in moments:
        while not due(time.monotonic() - begun):
            if process.poll() is not None:
                return []
            time.sleep(0.01)
        family = _family(process)
        present = [role for role in roles if role in family]
        if process.poll() is not None or not present:
            return []
        role = str(generator.choice(present))
        victims = family[role]
        if role != "machine":
            victims = [victims[int(generator.integers(len(victims)))]]
        _end(victims)
        found.killed.append(f"{role} at {time.monotonic() - begun:.1f} s")
        if role in {"driver", "machine"}:
            return [member for member in family["machine"] if member.pid != process.pid]
    return []


def _family(process: psutil.Popen) -> dict[str, list[psutil.Process]]:
    """Return a job's processes by role."""
    family: dict[str, list[psutil.Process]] = {"driver": [process], "machine": [process]}
    try:
        children = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return {}
    for child in children:
        try:
            helps = any("resource_tracker" in word for word in child.cmdline())
        except psutil.Error:
            continue
        family.setdefault("helper" if helps else "worker", []).append(child)
        family["machine"].append(child)
    return family


def _wait(process: psutil.Popen, patience: float) -> int:
    try:
        return int(process.wait(patience))
    except psutil.TimeoutExpired:
        _end([*process.children(recursive=True), process])
        process.wait()
        raise AssertionError(f"the run still went on after {patience:.0f} s") from None


def _end(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def _last_line(err: object) -> str:
    err.seek(0)  # type: ignore[attr-defined]
    lines = err.read().strip().splitlines()  # type: ignore[attr-defined]
    return lines[-1] if lines else ""


def _account(found: Disturbance, output: Path, there: set[str]) -> None:
    """Find what was computed again although it was there."""
    runs = parts_done(output)
    found.computed = sum(map(len, runs))
    for done in runs:
        found.again += [part for part, times in Counter(done).items() if times > 1]
    if len(found.codes) > 1 and len(runs) > 1:
        results = {part.rpartition("/")[0] for part in there if part.endswith("/result")}
        found.again += [
            part for part in runs[-1] if part in there or _stage_folder(part) in results
        ]
    for log in output.glob("*/events/*.jsonl"):
        found.retried += log.read_text().count('"event": "part_retried"')


def _stage_folder(part: str) -> str:
    """Return the folder of a part's stage; parts of rounds lie one deeper."""
    return "/".join(part.split("/")[:4])
