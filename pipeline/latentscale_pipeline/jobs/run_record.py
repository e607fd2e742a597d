"""The record of a run, built from its events: state, cost and rate of each stage.

A run keeps this record for its own display. ``latentscale status`` rebuilds it from the stored
events, on any machine that can read the job's folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from latentscale_pipeline.storage.artifacts import Cost
from latentscale_pipeline.storage.events import Event

FINALISING = -1
"""Part number in events of the task that finalises a stage, or an iteration of it."""

ESTIMATE_WEIGHT = 0.1
"""Share of a run after which its pace says as much about the time left as the estimate does."""

MAX_UNFINISHED = 0.95
"""Share of a stage that is taken as done at most before it is complete."""


@dataclass
class StageRecord:
    """One stage in one run.

    Attributes
    ----------
    parts, done : int
        Number of parts, and of finished parts; in the current iteration of an iterated stage.
    iteration : int or None
        Current iteration of an iterated stage; the number of iterations isn't known in advance.
    reason : str
        Why it was or wasn't computed.
    problem : str
        The last error.
    started, complete, failed : bool
        Its progress.
    costs : dict
        Cost of the parts that this run computed, by iteration (0 if not iterated) and part.
    begun, last : float or None
        When the first of these parts began and the last one ended, in seconds since 1970.
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
        """Return the peak memory of a process, measured while it ran a part of this stage."""
        return max((cost.peak_memory_bytes for cost in self.costs.values()), default=None)

    @property
    def rate(self) -> float | None:
        """Return parts per second, from the start of the first part to the end of the last."""
        computed = sum(part != FINALISING for _, part in self.costs)
        if not computed or self.begun is None or self.last is None or self.last <= self.begun:
            return None
        return computed / (self.last - self.begun)

    def seconds_left(self, now: float) -> float | None:
        """Estimate how long the missing parts will take at the rate so far.

        None before the first part is done, when only finalising is left, and for an iterated stage,
        whose number of iterations isn't known.
        """
        rate = self.rate
        if self.done >= self.parts or self.iteration is not None:
            return None
        if rate is None or self.last is None:
            return None
        return max(0.0, (self.parts - self.done) / rate - (now - self.last))


@dataclass(frozen=True)
class StageEstimate:
    """What was missing of a stage when the run began.

    Attributes
    ----------
    work_seconds : float
        Time that its missing tasks would take on one thread.
    tasks : int
        Their number; of an iterated stage, the number foreseen.
    """

    work_seconds: float
    tasks: int


@dataclass(frozen=True)
class RunEstimate:
    """How long a run would take, estimated when it began.

    Attributes
    ----------
    seconds : float
        Time until the last stage is done.
    stages : mapping of str to StageEstimate
        The stages that weren't done, by name.
    made : float
        When, in seconds since 1970.
    """

    seconds: float
    stages: Mapping[str, StageEstimate]
    made: float

    def seconds_left(self, stages: Mapping[str, StageRecord], now: float) -> float:
        """Estimate the time left from the stages' progress.

        The pace so far corrects the estimate, the more the longer the run has lasted.
        """
        work = sum(stage.work_seconds for stage in self.stages.values())
        done = sum(
            stage.work_seconds * _share_done(stages.get(name), stage.tasks)
            for name, stage in self.stages.items()
        )
        share = done / work
        weight = ESTIMATE_WEIGHT * self.seconds
        pace = (now - self.made + weight) / (share * self.seconds + weight)
        return max(0.0, (1 - share) * self.seconds * pace)


def _share_done(stage: StageRecord | None, tasks: int) -> float:
    """Return which share of the missing tasks is done; never all before the stage is complete."""
    if stage is None:
        return 0.0
    return 1.0 if stage.complete else min(len(stage.costs) / max(tasks, 1), MAX_UNFINISHED)


@dataclass
class RunRecord:
    """The record of one run.

    Attributes
    ----------
    started, ended : float or None
        Seconds since 1970.
    ending : str
        ``finished``, ``cancelled``, ``interrupted`` or ``failed``; empty while it is running.
    problem : str
        The error message at its end.
    dashboard : str
        Address of the Dask dashboard.
    estimate : RunEstimate or None
        How long it would take; None for a short run.
    stages : dict
        The stages that have had events, by name.
    """

    started: float | None = None
    ended: float | None = None
    ending: str = ""
    problem: str = ""
    dashboard: str = ""
    estimate: RunEstimate | None = None
    stages: dict[str, StageRecord] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> RunRecord:
        """Build the record from events."""
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
        elif event.name == "run_estimated":
            self.estimate = _read_estimate(event)
        elif "stage" in fields:
            self._take_stage(event, self.stages.setdefault(str(fields["stage"]), StageRecord()))

    def seconds_left(self, now: float) -> float | None:
        """Estimate how long the run will still take; None if it ended or had no estimate."""
        if self.estimate is None or self.ending:
            return None
        return self.estimate.seconds_left(self.stages, now)

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


def _read_estimate(event: Event) -> RunEstimate | None:
    """Return the estimate in an event; None if it says nothing that can be used."""
    given = event.fields.get("work")
    stages = {
        str(name): StageEstimate(_number(stage.get("work_seconds")), _whole(stage.get("tasks")))
        for name, stage in (given if isinstance(given, dict) else {}).items()
        if isinstance(stage, dict) and _number(stage.get("work_seconds")) > 0
    }
    seconds = _number(event.fields.get("seconds"))
    return RunEstimate(seconds, stages, event.time) if stages and seconds > 0 else None


def _take_part(event: Event, stage: StageRecord) -> None:
    fields = event.fields
    part, seconds = _whole(fields.get("part")), _number(fields.get("seconds"))
    stage.parts = _whole(fields.get("parts", stage.parts))
    stage.done = min(stage.parts, _whole(fields.get("done")))
    number = 0
    if "round" in fields:
        number = _whole(fields["round"])
        # The state of an iteration has been written, so the next iteration begins without parts.
        stage.iteration = number + (part == FINALISING)
        stage.done = 0 if part == FINALISING else stage.done
    stage.costs[number, part] = Cost(seconds, _whole(fields.get("peak_memory_bytes")))
    begun = event.time - seconds
    stage.begun = begun if stage.begun is None else min(stage.begun, begun)
    stage.last = event.time


def _number(value: Any) -> float:
    known = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if known else 0.0


def _whole(value: Any) -> int:
    return int(_number(value))
