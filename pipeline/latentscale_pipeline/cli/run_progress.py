"""Progress of a run: bars on a terminal, plain lines in a log file."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

from latentscale_pipeline.engine.loop import Notify
from latentscale_pipeline.jobs.run_record import FINALISING, RunRecord, StageRecord
from latentscale_pipeline.storage.events import Event
from latentscale_pipeline.views.formatting import write_bytes, write_duration

SECONDS_BETWEEN_LINES = 5.0
"""Between two lines about the parts of one stage."""

WIDE = 110
"""Columns of a terminal that has room for long bars."""

_log = logging.getLogger("latentscale")


@contextmanager
def show_progress(console: Console, *, quiet: bool = False) -> Iterator[Notify]:
    """Show what a run tells, for the time of a ``with`` block.

    Parameters
    ----------
    console : Console
        Standard error; decides between bars and lines by whether it is a terminal.
    quiet : bool
        Show nothing but warnings.
    """
    if quiet:
        yield _warn
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30 if console.width >= WIDE else 10),
            MofNCompleteColumn(),
            _ElapsedColumn(),
            _PaceColumn(),
        )
        with Progress(*columns, console=console) as progress:
            yield _Bars(progress)
    else:
        yield _Lines()


def write_pace(stage: StageRecord, now: float) -> str:
    """Write how fast a stage goes, when its parts will be done, and what they held at most.

    Parameters
    ----------
    stage : StageRecord
        What is known of it.
    now : float
        Seconds since 1970.
    """
    rate, left, peak = stage.rate, stage.seconds_left(now), stage.peak_memory_bytes
    words = []
    if stage.parts > 1 and rate is not None and not stage.complete:
        words.append(write_rate(rate))
        if left is not None:
            words.append(f"{write_duration(left)} left")
    if peak is not None:
        words.append(write_bytes(peak))
    return ", ".join(words)


def write_rate(rate: float) -> str:
    """Write a throughput in parts a second, minute or hour, whichever is at least one."""
    for unit, seconds in (("s", 1), ("min", 60)):
        if rate * seconds >= 1:
            return f"{rate * seconds:.1f} parts/{unit}"
    return f"{rate * 3600:.1f} parts/h"


def _warn(event: str, **fields: Any) -> None:
    if event in {"part_retried", "part_corrupt", "stage_failed"}:
        _log.warning("%s: %s", fields["stage"], fields["problem"])
    elif event in {"dashboard_missing", "cluster_warned"}:
        _log.warning("%s", fields["problem"])


class _ElapsedColumn(ProgressColumn):
    """Time since a stage was started; a bar that is full may begin another iteration."""

    def render(self, task: Task) -> Text:
        minutes, seconds = divmod(round(task.elapsed or 0.0), 60)
        hours, minutes = divmod(minutes, 60)
        return Text(f"{hours}:{minutes:02d}:{seconds:02d}", style="progress.elapsed")


class _PaceColumn(ProgressColumn):
    """The pace of the stage whose bar it is, and why it is computed."""

    def render(self, task: Task) -> Text:
        stage: StageRecord | None = task.fields["record"]
        if stage is None:
            return Text("stages")
        words = [] if stage.iteration is None else [f"round {stage.iteration}"]
        words += [write_pace(stage, time.time()), *_notes(stage)]
        return Text("; ".join(word for word in words if word), style="dim")


class _Bars:
    """A bar for the stages that are done, and one for every stage that was started."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._record = RunRecord()
        self._bars: dict[str, TaskID] = {}

    def __call__(self, event: str, **fields: Any) -> None:
        self._record.take(Event(event, time.time(), fields))
        if event == "run_started":
            self._say(f"job {fields['job']} in {fields['folder']}")
            self._bars[""] = self._progress.add_task("job", total=fields["stages"], record=None)
        elif event == "waiting":
            self._say(fields["line"])
        elif event == "dashboard_opened":
            self._say(f"dashboard: {fields['link']}")
        elif "stage" in fields:
            self._show_stage(fields["stage"])
        _warn(event, **fields)

    def _say(self, line: str) -> None:
        self._progress.console.print(line, soft_wrap=True, markup=False, highlight=False)

    def _show_stage(self, name: str) -> None:
        stage = self._record.stages[name]
        if stage.started and name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=stage.parts, record=stage)
        if name in self._bars:
            self._progress.update(self._bars[name], completed=stage.done)
            if stage.complete or stage.failed:
                self._progress.stop_task(self._bars[name])
        if "" in self._bars:
            done = sum(stage.complete for stage in self._record.stages.values())
            self._progress.update(self._bars[""], completed=done)


class _Lines:
    """A line for whatever happens to a stage, and now and then one for its parts."""

    def __init__(self) -> None:
        self._record = RunRecord()
        self._said: dict[str, float] = {}

    def __call__(self, event: str, **fields: Any) -> None:
        now = time.time()
        self._record.take(Event(event, now, fields))
        name = fields.get("stage", "")
        if event == "run_started":
            _log.info("job %s in %s: %d stages", fields["job"], fields["folder"], fields["stages"])
        elif event == "waiting":
            _log.info("%s", fields["line"])
        elif event == "dashboard_opened":
            _log.info("dashboard: %s", fields["link"])
        elif event == "stage_found":
            _log.info("%s: %s", name, fields["reason"])
        elif event == "stage_started":
            notes = "".join(f"; {note}" for note in _notes(self._record.stages[name]))
            _log.info("%s: queued, tasks: %d%s", name, fields["parts"], notes)
        elif event == "part_done" and fields["part"] != FINALISING and fields["parts"] > 1:
            self._tell_parts(name, self._record.stages[name], now)
        elif event == "stage_done":
            seconds = sum(cost.seconds for cost in self._record.stages[name].costs.values())
            _log.info("%s: done, %.1f s of work", name, seconds)
        _warn(event, **fields)

    def _tell_parts(self, name: str, stage: StageRecord, now: float) -> None:
        last = stage.done == stage.parts and stage.iteration is None
        if not last and now - self._said.get(name, 0.0) < SECONDS_BETWEEN_LINES:
            return
        self._said[name] = now
        where = "" if stage.iteration is None else f"round {stage.iteration}, "
        pace = write_pace(stage, now)
        _log.info("%s: %stask %d of %d done (%s)", name, where, stage.done, stage.parts, pace)


def _notes(stage: StageRecord) -> list[str]:
    return [] if stage.reason == "computed" else [stage.reason]
