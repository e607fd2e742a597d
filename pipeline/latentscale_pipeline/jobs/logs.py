"""Read the log of a job: the events of all its runs, and the logs of failed tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from latentscale_pipeline.jobs.run_record import FINALISING
from latentscale_pipeline.storage.events import Event, read_events
from latentscale_pipeline.storage.lock import Holder, read_holders
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.views.formatting import (
    format_bytes,
    format_duration,
    format_rough_duration,
)

FAILURES = frozenset({"part_retried", "part_corrupt", "stage_failed"})
"""Events that report a failure in a stage."""

_LOG = re.compile(
    r"stages/(?P<stage>[^/]+)/[^/]+/(?:round-(?P<round>\d+)/)?"
    r"(?:part-(?P<part>\d+)|result|state)\.(?P<attempt>[A-Za-z0-9-]+)\.log"
)


@dataclass(frozen=True)
class TaskLog:
    """The address of a failed task's log.

    Attributes
    ----------
    stage : str
        The stage.
    part : int or None
        The part, counted from 0; None for the task that makes the stage's result.
    round : int or None
        Iteration of an iterated stage.
    attempt : str
        The run and the attempt that failed.
    key : str
        Key of the log in the job's folder.
    """

    stage: str
    part: int | None
    round: int | None
    attempt: str
    key: str

    @property
    def title(self) -> str:
        """Return a title for display; parts are counted from 1 there."""
        where = [] if self.round is None else [f"iteration {self.round}"]
        where += [] if self.part is None else [f"part {self.part + 1}"]
        return f"{', '.join([self.stage, *where])}: {self.key}"


def read_driver_logs(store: ObjectStore) -> dict[str, str]:
    """Return the logs of drivers that a scheduler ran, by key."""
    keys = sorted(key for key in store.keys("driver") if key.endswith(".log"))
    return {key: store.read(key).decode("utf-8", "replace") for key in keys}


def read_runs(store: ObjectStore) -> list[tuple[Holder, list[Event]]]:
    """Return the process and the events of every run of a job, the oldest run first."""
    return [(holder, read_events(store, holder.attempt)) for holder in read_holders(store)]


def find_task_logs(store: ObjectStore) -> list[TaskLog]:
    """Return the logs of failed tasks by stage and part, even if the parts succeeded later."""
    matches = [match for key in store.keys("stages") if (match := _LOG.fullmatch(key))]
    return [
        TaskLog(
            stage=match["stage"],
            part=None if match["part"] is None else int(match["part"]),
            round=None if match["round"] is None else int(match["round"]),
            attempt=match["attempt"],
            key=match[0],
        )
        for match in matches
    ]


def read_task_log(store: ObjectStore, log: TaskLog) -> str:
    """Return the text of a failed task's log; empty if it has been removed since."""
    try:
        return store.read(log.key).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def describe_event(event: Event) -> str:
    """Return an event as a line of text; an unknown event as its name and fields."""
    write = _WRITERS.get(event.name)
    try:
        text = write(event.fields) if write else f"{event.name} {json.dumps(dict(event.fields))}"
    except (KeyError, TypeError, ValueError):
        text = f"{event.name} {json.dumps(dict(event.fields))}"
    stage = event.fields.get("stage")
    return f"{stage}: {text}" if stage is not None and write else text


def _part(fields: Mapping[str, Any]) -> str:
    where = [f"iteration {fields['round']}"] if "round" in fields else []
    if fields["part"] == FINALISING:
        where.append("finalising")
    elif fields.get("parts") != 1:
        counted = f"part {fields['part'] + 1}"
        where.append(f"{counted} of {fields['parts']}" if "parts" in fields else counted)
    return ", ".join(where) or "work"


def _part_done(fields: Mapping[str, Any]) -> str:
    took, memory = format_duration(fields["seconds"]), format_bytes(fields["peak_memory_bytes"])
    return f"{_part(fields)} done in {took} with {memory}"


def _run_ended(fields: Mapping[str, Any]) -> str:
    problem = f": {fields['error']}" if fields.get("error") else ""
    return f"run ended, {fields['ending']}{problem}"


_WRITERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "run_started": "run started, {stages} stages".format_map,
    "run_estimated": lambda fields: f"{format_rough_duration(fields['seconds'])} foreseen",
    "run_ended": _run_ended,
    "dashboard_opened": "dashboard at {link}".format_map,
    "dashboard_missing": "{problem}".format_map,
    "cluster_warned": "{problem}".format_map,
    "stage_found": "{reason}".format_map,
    "stage_started": "started ({reason})".format_map,
    "stage_done": "done".format_map,
    "stage_failed": "failed: {problem}".format_map,
    "part_done": _part_done,
    "part_retried": lambda fields: f"{_part(fields)} is tried again: {fields['problem']}",
    "part_corrupt": "damaged, and done again: {problem}".format_map,
}
