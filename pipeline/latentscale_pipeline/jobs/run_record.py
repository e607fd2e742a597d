"""The record of a run, summed from its events: state, cost and pace of each stage.

The same record is kept by the run itself, for its display, and made again from the stored events
by whoever looks at the job's folder, on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from latentscale_pipeline.storage.artifacts import Cost
from latentscale_pipeline.storage.events import Event

FINALISING = -1
"""What events call the task that finalises a stage, or an iteration of it."""


@dataclass
class StageRecord:
    """One stage in one run.

    Attributes
    ----------
    parts, done : int
        Parts in all and those there are; of the current iteration of an iterated stage.
    iteration : int or None
        The iteration of an iterated stage that is under way; how many there will be isn't known.
    reason : str
        Why it was computed, or wasn't.
    problem : str
        What went wrong last.
    started, complete, failed : bool
        How far it came.
    costs : dict
        Cost of what this run computed, by iteration (0 where there are none) and part.
    begun, last : float or None
        When the first of these began and the last one ended, in seconds since 1970.
    """

    parts: int = 0
    done: int = 0
    iteration: int | None = None
    reason: str = ""
    problem: str = ""
    started: bool = False
    complete: bool = False
    failed: bool = False
    costs: dict[tuple[int, int], Cost] = field(default_factory=dict)
    begun: float | None = None
    last: float | None = None

    @property
    def peak_memory_bytes(self) -> int | None:
        """The most memory that a process was measured to hold during any of its parts."""
        return max((cost.peak_memory_bytes for cost in self.costs.values()), default=None)

    @property
    def rate(self) -> float | None:
        """Parts a second, from when work on the first began to when the last one ended."""
        computed = sum(part != FINALISING for _, part in self.costs)
        if not computed or self.begun is None or self.last is None or self.last <= self.begun:
            return None
        return computed / (self.last - self.begun)

    def seconds_left(self, now: float) -> float | None:
        """Estimate how long the missing parts take at the rate so far.

        None before the first part is done, when only finalising is left, and in an iterated stage:
        nobody knows how many iterations are to come.
        """
        rate = self.rate
        if self.done >= self.parts or self.iteration is not None:
            return None
        if rate is None or self.last is None:
            return None
        return max(0.0, (self.parts - self.done) / rate - (now - self.last))


@dataclass
class RunRecord:
    """One run.

    Attributes
    ----------
    started, ended : float or None
        Seconds since 1970.
    ending : str
        ``finished``, ``cancelled``, ``interrupted`` or ``failed``; empty while it lasts.
    problem : str
        What it said at its end.
    dashboard : str
        Address of the scheduler's pages.
    stages : dict
        Those that were spoken of, by name.
    """

    started: float | None = None
    ended: float | None = None
    ending: str = ""
    problem: str = ""
    dashboard: str = ""
    stages: dict[str, StageRecord] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> RunRecord:
        """Add up events."""
        record = cls()
        for event in events:
            record.take(event)
        return record

    def take(self, event: Event) -> None:
        """Add one event to the record; unknown events are ignored."""
        fields = event.fields
        if event.name == "run_started":
            self.started = event.time
        elif event.name == "run_ended":
            self.ended = event.time
            self.ending = str(fields.get("ending", "failed"))
            self.problem = str(fields.get("error", ""))
        elif event.name == "dashboard_opened":
            self.dashboard = str(fields.get("link", ""))
        elif "stage" in fields:
            self._take_stage(event, self.stages.setdefault(str(fields["stage"]), StageRecord()))

    def _take_stage(self, event: Event, stage: StageRecord) -> None:
        fields = event.fields
        if event.name == "stage_found":
            stage.complete, stage.reason = True, str(fields.get("reason", ""))
        elif event.name == "stage_started":
            stage.started, stage.complete, stage.failed = True, False, False
            stage.parts, stage.done = _whole(fields.get("parts")), _whole(fields.get("found"))
            stage.reason = str(fields.get("reason", ""))
        elif event.name == "part_done":
            _take_part(event, stage)
        elif event.name == "stage_done":
            stage.complete, stage.done = True, stage.parts
        elif event.name in {"part_retried", "part_corrupt", "stage_failed"}:
            stage.problem = str(fields.get("problem", ""))
            stage.failed = event.name == "stage_failed"
            stage.complete = stage.complete and event.name == "part_retried"


def _take_part(event: Event, stage: StageRecord) -> None:
    fields = event.fields
    part, seconds = _whole(fields.get("part")), _number(fields.get("seconds"))
    stage.parts = _whole(fields.get("parts", stage.parts))
    stage.done = min(stage.parts, _whole(fields.get("done")))
    number = 0
    if "round" in fields:
        number = _whole(fields["round"])
        # The state of an iteration is there: the next one begins, with none of its parts.
        stage.iteration = number + (part == FINALISING)
        stage.done = 0 if part == FINALISING else stage.done
    stage.costs[number, part] = Cost(seconds, _whole(fields.get("peak_memory_bytes")))
    begun = event.time - seconds
    stage.begun = begun if stage.begun is None else min(stage.begun, begun)
    stage.last = event.time


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _whole(value: Any) -> int:
    return int(_number(value))
