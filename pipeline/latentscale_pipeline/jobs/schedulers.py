"""Query and cancel submitted drivers through their schedulers' interfaces.

Commands are lists of arguments and never pass through a shell. Variable arguments have been checked
to be ids.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Literal

from latentscale_pipeline.errors import Incomplete
from latentscale_pipeline.jobs.submission_records import Submission

ASKING_SECONDS = 20.0
"""Timeout of a query to a scheduler."""

Phase = Literal["waiting", "running", "ended"]

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "SUSPENDED")
_RUNNING = ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING")
_PHASES: dict[str, Phase] = {
    **dict.fromkeys(_WAITING, "waiting"),
    **dict.fromkeys(_RUNNING, "running"),
}
"""States of Slurm. Every state that isn't in these two lists means that the job has ended."""


@dataclass(frozen=True)
class DriverState:
    """The state of a driver: its phase, the scheduler's name for that state, and its exit code."""

    phase: Phase
    word: str
    exit_code: int | None = None


def look_at(submission: Submission) -> DriverState | None:
    """Return the state of a driver; None if its scheduler can't be queried from here."""
    if submission.scheduler == "slurm":
        return _look_at_slurm(submission)
    return _look_at_kubernetes(submission)


def withdraw(submission: Submission) -> None:
    """Cancel a driver, whether it is running or still queued.

    Raises
    ------
    Incomplete
        If the scheduler can't be reached from here.
    """
    if submission.scheduler == "slurm":
        _ask(submission, "scancel", *_cluster(submission), submission.id)
        return
    try:
        _kubernetes_job(submission).delete(propagation_policy="Background")
    except Exception as error:  # noqa: BLE001 -- any failure means that it can't be withdrawn
        raise Incomplete(f"{submission.label} can't be withdrawn from here: {error}") from None


def _look_at_slurm(submission: Submission) -> DriverState | None:
    if shutil.which("scontrol") is None:
        return None
    try:
        where = _cluster(submission)
        said = _ask(submission, "scontrol", *where, "--oneliner", "show", "job", submission.id)
    except Incomplete as error:
        # Slurm forgets jobs some time after they end.
        return DriverState("ended", "no longer known") if "Invalid job id" in str(error) else None
    word = re.search(r"\bJobState=(\w+)", said)
    code = re.search(r"\bExitCode=(\d+):(\d+)", said)
    if word is None:
        return None
    phase = _PHASES.get(word[1], "ended")
    exit_code = int(code[1]) if code and phase == "ended" and code[2] == "0" else None
    return DriverState(phase, word[1], exit_code)


def _cluster(submission: Submission) -> list[str]:
    """Return the option for the cluster that has a driver, if it isn't this machine's."""
    return [f"--clusters={submission.place}"] if submission.place else []


def _ask(submission: Submission, *command: str) -> str:
    try:
        ended = subprocess.run(  # noqa: S603 -- a list of checked words, no shell
            command, capture_output=True, text=True, timeout=ASKING_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Incomplete(f"{submission.label}: {command[0]} can't be run here ({error})") from None
    if ended.returncode != 0:
        said = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Incomplete(f"{submission.label}: {command[0]} says: {said}")
    return ended.stdout


def _look_at_kubernetes(submission: Submission) -> DriverState | None:
    try:
        found = _kubernetes_job(submission)
        if not found.exists():
            return DriverState("ended", "no longer known")
        found.refresh()
        status: dict[str, Any] = dict(found.raw.get("status", {}))
    except Exception:  # noqa: BLE001 -- any failure means that its state is unknown
        return None
    for condition in status.get("conditions", ()):
        if condition["type"] in {"Complete", "Failed"} and condition.get("status") == "True":
            # The policy by which a failed driver isn't started again says the code it ended with.
            code = re.search(r"\bexit code (\d+)\b", condition.get("message", ""))
            return DriverState("ended", condition["type"], int(code[1]) if code else None)
    if status.get("ready"):
        return DriverState("running", "Active")
    return DriverState("waiting", "Pending")


def _kubernetes_job(submission: Submission) -> Any:
    library = importlib.import_module("kr8s.objects")
    return library.Job({"metadata": {"name": submission.id, "namespace": submission.place}})
