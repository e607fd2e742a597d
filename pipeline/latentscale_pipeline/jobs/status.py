"""Read the status of a job from its folder alone.

The *lock* names the last run of the job and records whether that run released it; a *heartbeat*
shows whether the run is alive. The *events* of the run record how it ended, why each stage was
computed, and its rate; the *markers* record which results exist and what they cost. A job is

- ``running`` if the lock is held and its holder is alive;
- ``finished`` if its results are there: they are written last, and removed before anything is
  recomputed;
- ``dead`` if the lock is held and its holder is gone, or has had no heartbeat for a minute;
- ``cancelled``, ``interrupted`` or ``failed`` if its last run recorded that it was cancelled, was
  ended by a signal, or failed;
- ``queued`` if its driver was submitted to a scheduler and hasn't started;
- ``planned`` if it was never started.

Reading a status takes one listing of the folder, a few small objects, and the markers of the parts
that the last run didn't compute.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.run_record import FINALISING, RunRecord, StageRecord
from latentscale_pipeline.jobs.schedulers import look_at
from latentscale_pipeline.jobs.stored_plan import (
    StoredPlan,
    planned_stages,
    read_plan,
    stage_folder,
)
from latentscale_pipeline.jobs.submission_records import Submission, last_submission
from latentscale_pipeline.measures.finished_job import (
    find_job,
    is_job,
    refuse_folder_of_jobs,
    suggest_job,
)
from latentscale_pipeline.progress import Echo
from latentscale_pipeline.storage.artifacts import SPENT, Cost, read_marker
from latentscale_pipeline.storage.cancellation import read_cancel_request
from latentscale_pipeline.storage.events import read_events
from latentscale_pipeline.storage.lock import (
    Holder,
    Liveness,
    Lock,
    check_liveness,
    read_holders,
    read_lock,
)
from latentscale_pipeline.storage.objects import ObjectStore, run_requests
from latentscale_pipeline.views.formatting import format_duration

State = Literal[
    "queued", "running", "finished", "dead", "cancelled", "interrupted", "failed", "planned"
]

ENDED: tuple[State, ...] = ("cancelled", "interrupted", "failed")
"""States of a job whose last run ended without results."""

_MARKER = re.compile(
    r"(?P<folder>stages/[^/]+/[^/]+)/(?P<name>(?:round-\d{4,}/)?(?:part-\d{5,}|[a-z]+))\.json"
)


@dataclass(frozen=True)
class StageStatus:
    """The state of one stage.

    Attributes
    ----------
    stage : str
        Its name.
    state : str
        ``done``, ``running``, ``waiting`` or ``failed``.
    reason : str
        Why it was computed, what it waits for, or what went wrong.
    parts, parts_done : int
        Number of parts, and of finished parts; in the current iteration of an iterated stage.
    round : int or None
        The current iteration of an iterated stage that isn't done.
    seconds : float or None
        Compute time of the existing results; None if there are none.
    peak_memory_bytes : int or None
        Peak memory of a process, measured while it ran a part of the stage.
    projected_memory_bytes : int or None
        The peak memory that was planned for.
    parts_per_second, seconds_left : float or None
        Only while it is running; derived from the parts that this run has computed.
    """

    stage: str
    state: str
    reason: str
    parts: int
    parts_done: int
    round: int | None
    seconds: float | None
    peak_memory_bytes: int | None
    projected_memory_bytes: int | None
    parts_per_second: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True)
class LastRun:
    """The process that ran a job last, and when, in UTC and ISO 8601.

    ``heartbeat_age_seconds`` is the age of the last heartbeat; None if the run released the lock.
    """

    attempt: str
    host: str
    pid: int
    started: str | None
    ended: str | None
    heartbeat_age_seconds: float | None


@dataclass(frozen=True)
class JobStatus:
    """The state of a job.

    Attributes
    ----------
    job, folder : str
        Its id, which is the name of its folder, and the folder's URL.
    copy_of : str or None
        The id that it was planned under, if its folder was copied or renamed since.
    state, reason : str
        One word, and the evidence for it.
    stages_done, stages_total : int
        Number of finished stages, and of all stages; 0 until there is a plan.
    seconds_left : float or None
        Estimate for the whole run; None unless it is running and takes more than moments.
    runs : int
        How many times it was started.
    run : LastRun or None
        The last run.
    dashboard : str or None
        Address of the Dask dashboard on the machine that runs it.
    stages : tuple of StageStatus
        In the order of the plan; empty until there is one.
    """

    job: str
    folder: str
    copy_of: str | None
    state: State
    reason: str
    stages_done: int
    stages_total: int
    seconds_left: float | None
    runs: int
    run: LastRun | None
    dashboard: str | None
    stages: tuple[StageStatus, ...]


@dataclass(frozen=True)
class _Progress:
    """The progress of a stage according to its markers.

    ``counted`` holds the markers whose costs add up to the cost of the stage so far, with the
    iteration and the part of the event for each; None if a marker covers all earlier iterations.
    """

    done: int
    complete: bool
    iteration: int | None
    counted: Mapping[str, tuple[int, int] | None]


class MarkerCosts:
    """Reads the costs of parts from their markers, each marker once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[str, Cost] = {}

    def read(self, parts: Iterable[str]) -> list[Cost]:
        """Return the costs of the parts that have a valid marker."""
        wanted = list(parts)
        unknown = [part for part in wanted if part not in self._known]
        if unknown:
            found = run_requests(self._store, self._read, unknown)
            self._known |= {part: cost for part, cost in zip(unknown, found, strict=True) if cost}
        return [self._known[part] for part in wanted if part in self._known]

    def _read(self, part: str) -> Cost | None:
        marker = read_marker(self._store, part)
        if marker is None:
            return None
        spent = marker.values.get(SPENT)
        if isinstance(spent, dict):
            return Cost(spent["seconds"], spent["peak_memory_bytes"])
        return marker.cost


def open_job(url: str) -> ObjectStore:
    """Open a job's folder, which may be named without the hash at its end.

    Raises
    ------
    BadInput
        If it isn't a job's folder; the message suggests what to name instead.
    """
    store = find_job(url)
    if is_job(store):
        return store
    if not store.exists(""):
        raise BadInput(
            f"{store.url}: nothing is there; name the folder of a job{suggest_job(store)}"
        )
    refuse_folder_of_jobs(store)
    raise BadInput(
        f"{store.url}: not a job (it has neither plan.json nor a lock); name the folder of a job, "
        "which latentscale list finds below the job's output"
    )


def list_statuses(output: str, echo: Echo) -> list[JobStatus]:
    """Return the status of every job directly in an output folder, without costs.

    A folder that is closed to this user is named by ``echo``.

    Raises
    ------
    BadInput
        If there is no such folder.
    """
    store = ObjectStore(output)
    if is_job(store):
        raise BadInput(f"{store.url}: a job, not a folder of jobs; latentscale status shows it")
    names = [name for name in store.folders() if name != "corpora"]
    if not names and not store.exists(""):
        raise BadInput(f"{store.url}: nothing is there; name the output folder of jobs")
    if not names and store.is_local and Path(store.address).is_file():
        raise BadInput(f"{store.url}: a file, not a folder; name the output folder of jobs")

    def look(name: str) -> JobStatus | None:
        job = store.child(name)
        try:
            return read_status(job) if is_job(job) else None
        except BadInput as error:
            echo(str(error))
            return None

    return [status for status in run_requests(store, look, names) if status is not None]


def read_status(store: ObjectStore, costs: MarkerCosts | None = None) -> JobStatus:
    """Read the status of a job.

    Parameters
    ----------
    store : ObjectStore
        The job's folder.
    costs : MarkerCosts, optional
        Costs of the same folder; without it, only the parts that the last run computed have costs.
    """
    plan, lock = read_plan(store), read_lock(store)
    # A link to a job is the job.
    name = Path(os.path.realpath(store.url) if store.is_local else store.url).name
    planned = str(plan.get("job") or name)
    copy_of = None if planned == name else planned
    liveness = None
    # The lock in a copy is that of the job it was made of.
    if lock.holder is not None and not lock.released and copy_of is None:
        liveness = check_liveness(store, lock.holder)
        if not liveness.alive and read_lock(store) != lock:
            return read_status(store, costs)  # the run ended between two reads
    keys = store.sizes()
    record = _last_record(store, lock)
    if copy_of is None:
        state, reason = _state(store, keys, lock, liveness, record)
    else:
        state = "finished" if "results.json" in keys else "interrupted"
        reason = f"the folder of {copy_of}, copied or renamed"
    running = state == "running"
    stages = _stages(plan, keys, record, running, costs)
    return JobStatus(
        job=name,
        folder=store.url,
        copy_of=copy_of,
        state=state,
        reason=reason,
        stages_done=sum(stage.state == "done" for stage in stages),
        stages_total=len(stages),
        seconds_left=_rounded(record.seconds_left(time.time())) if running else None,
        runs=lock.generation,
        run=_last_run(lock.holder, liveness, record),
        dashboard=(record.dashboard or None) if running else None,
        stages=stages,
    )


def _last_run(
    holder: Holder | None, liveness: Liveness | None, record: RunRecord
) -> LastRun | None:
    if holder is None:
        return None
    started, ended = (
        None
        if moment is None
        else datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
        for moment in (record.started, record.ended)
    )
    age = (
        None
        if liveness is None or liveness.heartbeat_age is None
        else round(liveness.heartbeat_age, 1)
    )
    return LastRun(holder.attempt, holder.host, holder.pid, started, ended, age)


def _last_record(store: ObjectStore, lock: Lock) -> RunRecord:
    """Build the record of the last run that recorded events."""
    record = _record(store, lock.holder)
    if record.started is not None or not lock.released:
        return record
    # The last run may have had nothing to do.
    earlier = (_record(store, holder) for holder in reversed(read_holders(store)[:-1]))
    return next((found for found in earlier if found.started is not None), record)


def _record(store: ObjectStore, holder: Holder | None) -> RunRecord:
    return RunRecord.of(read_events(store, holder.attempt) if holder else ())


def _state(
    store: ObjectStore,
    keys: Mapping[str, int],
    lock: Lock,
    liveness: Liveness | None,
    record: RunRecord,
) -> tuple[State, str]:
    if liveness is not None and liveness.alive:
        return "running", _evidence_of_running(store, lock, liveness)
    if "results.json" in keys:
        lasted = record.ended is not None and record.started is not None
        return "finished", f"in {_span(record)}" if lasted else "its results are there"
    submission = last_submission(store, keys)
    if submission is not None and (submission.runs >= lock.generation or _waits_again(submission)):
        return _state_of_waiting(submission)
    if liveness is not None:
        return "dead", liveness.evidence
    if lock.holder is None:
        begun = any(key.startswith("stages/") for key in keys)
        return "planned", "stages are computed one by one" if begun else "never started"
    for state in ENDED:
        if record.ending == state:
            return state, record.problem.partition(";")[0].removeprefix("cancelled ")
    return "interrupted", "it ended without results; run it again"


def _waits_again(submission: Submission) -> bool:
    """Return whether a driver that has run is in its scheduler's queue again, or starts."""
    look = look_at(submission) if submission.requeue else None
    return look is not None and look.phase != "ended"


def _state_of_waiting(submission: Submission) -> tuple[State, str]:
    """Return the state of a job whose driver was submitted and hasn't held the lock yet."""
    look = look_at(submission)
    if look is None:
        return "queued", f"{submission.label}, not started when last heard of"
    if look.phase == "ended":
        return "dead", f"{submission.label} ended before it began ({look.word})"
    return "queued", f"{submission.label}, {look.word.lower()}"


def _span(record: RunRecord) -> str:
    return format_duration((record.ended or 0.0) - (record.started or 0.0))


def _evidence_of_running(store: ObjectStore, lock: Lock, liveness: Liveness) -> str:
    request = read_cancel_request(store, lock.holder) if lock.holder else None
    if request is not None:
        return f"{liveness.evidence}, asked to end from {request.get('host', 'somewhere')}"
    if liveness.heartbeat_age is None:
        return liveness.evidence
    return f"{liveness.evidence}, heartbeat {liveness.heartbeat_age:.0f} s ago"


def _stages(
    plan: StoredPlan,
    keys: Iterable[str],
    record: RunRecord,
    running: bool,
    costs: MarkerCosts | None,
) -> tuple[StageStatus, ...]:
    markers: dict[str, set[str]] = {}
    for match in filter(None, map(_MARKER.fullmatch, keys)):
        markers.setdefault(match["folder"], set()).add(match["name"])
    statuses: dict[str, StageStatus] = {}
    for name, stage in planned_stages(plan).items():
        told = record.stages.get(name, StageRecord())
        folder = stage_folder(stage)
        progress = _progress(folder, int(stage["partitions"]), markers.get(folder, set()))
        needed = [statuses[need] for need in stage.get("needs", ()) if need in statuses]
        statuses[name] = _stage(stage, progress, told, running, needed, costs)
    return tuple(statuses.values())


def _stage(
    stage: Mapping[str, Any],
    progress: _Progress,
    told: StageRecord,
    running: bool,
    needed: Sequence[StageStatus],
    costs: MarkerCosts | None,
) -> StageStatus:
    state = "waiting"
    if progress.complete:
        state = "done"
    elif told.failed:
        state = "failed"
    elif running and told.started:
        state = "running"
    spent = _spent(progress, told, costs)
    rate = told.rate if state == "running" else None
    left = told.seconds_left(time.time()) if state == "running" else None
    return StageStatus(
        stage=str(stage["stage"]),
        state=state,
        reason=_reason(state, told, needed),
        parts=int(stage["partitions"]),
        parts_done=progress.done,
        round=progress.iteration,
        seconds=round(sum(cost.seconds for cost in spent), 3) if spent else None,
        peak_memory_bytes=max((cost.peak_memory_bytes for cost in spent), default=None),
        projected_memory_bytes=stage.get("peak_memory_bytes"),
        parts_per_second=None if rate is None else round(rate, 6),
        seconds_left=_rounded(left),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _progress(folder: str, planned: int, markers: Collection[str]) -> _Progress:
    result = "result" in markers
    if "collected" in markers:
        return _Progress(planned, True, None, {f"{folder}/collected": None})
    states = [_number(name) for name in markers if name.endswith("/state")]
    if states and not result:
        newest = max(states)
        inside = f"round-{newest + 1:04d}/"
        before = f"{folder}/round-{newest:04d}/state"
    else:
        newest, inside, before = -1, "", None
    parts = sorted(_number(name) for name in markers if name.startswith(f"{inside}part-"))
    counted: dict[str, tuple[int, int] | None] = {} if before is None else {before: None}
    for part in parts:
        counted[f"{folder}/{inside}part-{part:05d}"] = (newest + 1, part)
    if result:
        # The result of an iterated stage covers all its iterations, whose parts have been removed.
        iterated = bool(states) or (planned > 1 and not parts)
        counted[f"{folder}/result"] = None if iterated else (0, FINALISING if parts else 0)
    complete = result and (not parts or len(parts) >= planned)
    done = planned if complete else len(parts)
    return _Progress(done, complete, None if before is None else newest + 1, counted)


def _number(marker: str) -> int:
    """Return the number of a part, or the iteration of a state."""
    return int(marker.removesuffix("/state").rpartition("-")[2])


def _spent(progress: _Progress, told: StageRecord, costs: MarkerCosts | None) -> list[Cost]:
    named = {part: name for part, name in progress.counted.items() if name in told.costs}
    known = [told.costs[name] for name in named.values() if name is not None]
    if costs is None:
        return known
    return known + costs.read(part for part in progress.counted if part not in named)


def _reason(state: str, told: StageRecord, needed: Sequence[StageStatus]) -> str:
    if state == "failed":
        return told.problem
    if state == "running" and told.problem:
        return f"{told.reason}; tried again: {told.problem}"
    if state != "waiting":
        return told.reason
    missing = [need for need in needed if need.state != "done"]
    if missing:
        failed = ", which failed" if missing[0].state == "failed" else ""
        return f"needs {missing[0].stage}{failed}"
    return "was under way" if told.started else ""
