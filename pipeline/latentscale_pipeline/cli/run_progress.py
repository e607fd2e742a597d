"""Progress of a run: bars on a terminal, plain lines in a log file.

By default only what is running is shown, and bars vanish at the end, so that the results are what
remains on the screen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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
from latentscale_pipeline.progress import Echo
from latentscale_pipeline.storage.events import Event
from latentscale_pipeline.views.formatting import (
    format_bytes,
    format_duration,
    format_rough_duration,
)

SECONDS_BETWEEN_LINES = 5.0
"""Minimum time between two lines about the parts of one stage."""

SECONDS_BETWEEN_SUMMARIES = 30.0
"""Minimum time between two lines about the whole run; a shorter run has none."""

SHOWN_STAGES = 3
"""Running stages that such a line names."""

WIDE = 110
"""Width of a terminal from which bars are long."""

WARNINGS = {
    **dict.fromkeys(("part_retried", "part_corrupt", "stage_failed"), "{stage}: {problem}"),
    **dict.fromkeys(("dashboard_missing", "cluster_warned"), "{problem}"),
    **dict.fromkeys(("file_damaged", "corpus_damaged"), "{problem}"),
}
"""Lines for failures, which are shown even with ``--quiet``."""

NEWS = {
    **WARNINGS,
    "run_started": "job {job} in {folder}: {stages} stages",
    "run_estimated": "this will take {time}",
    "waiting": "{line}",
    "dashboard_opened": "dashboard: {link}",
}
"""Lines for events that no bar shows."""


@contextmanager
def show_progress(
    console: Console, *, quiet: bool = False, verbose: bool = False
) -> Iterator[Notify]:
    """Show the events of a run during a ``with`` block.

    Parameters
    ----------
    console : Console
        Standard error. A terminal gets bars, anything else gets lines.
    quiet : bool
        Show nothing but warnings.
    verbose : bool
        Show every stage, with the reason why it is computed; bars stay.
    """

    def echo(line: str) -> None:
        console.print(Text(f"{time.strftime('%H:%M:%S')} {line}"), soft_wrap=True)

    if quiet:
        yield lambda event, **fields: _echo_news(echo, WARNINGS, event, fields)
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30 if console.width >= WIDE else 10),
            MofNCompleteColumn(),
            _ElapsedColumn(),
            _PaceColumn(),
        )
        with Progress(*columns, console=console, transient=not verbose) as progress:
            yield _Bars(progress, echo, finished_stay=verbose)
    else:
        yield _Lines(echo) if verbose else _Summaries(echo)


def _echo_news(echo: Echo, words: Mapping[str, str], event: str, fields: Mapping[str, Any]) -> None:
    if event in words:
        if event == "run_estimated":
            fields = {**fields, "time": format_rough_duration(fields["seconds"])}
        echo(words[event].format_map(fields))


def format_pace(stage: StageRecord, now: float) -> str:
    """Return a stage's rate, the time left and the peak memory of its parts, as text.

    Parameters
    ----------
    stage : StageRecord
        The stage's record.
    now : float
        Seconds since 1970.
    """
    rate, left, peak = stage.rate, stage.seconds_left(now), stage.peak_memory_bytes
    words = []
    if stage.parts > 1 and rate is not None and not stage.complete:
        words.append(format_rate(rate))
        if left is not None:
            words.append(f"{format_duration(left)} left")
    if peak is not None:
        words.append(format_bytes(peak))
    return ", ".join(words)


def format_rate(rate: float) -> str:
    """Return a throughput in parts per second, minute or hour, in the first unit that gives one."""
    for unit, seconds in (("s", 1), ("min", 60)):
        if rate * seconds >= 1:
            return f"{rate * seconds:.1f} parts/{unit}"
    return f"{rate * 3600:.1f} parts/h"


class _ElapsedColumn(ProgressColumn):
    """Time since a stage started; a full bar may begin another iteration."""

    def render(self, task: Task) -> Text:
        minutes, seconds = divmod(round(task.elapsed or 0.0), 60)
        hours, minutes = divmod(minutes, 60)
        return Text(f"{hours}:{minutes:02d}:{seconds:02d}", style="progress.elapsed")


class _PaceColumn(ProgressColumn):
    """The pace of the bar's stage, and why it is computed."""

    def render(self, task: Task) -> Text:
        record: RunRecord | StageRecord = task.fields["record"]
        if isinstance(record, RunRecord):
            return Text("; ".join(["stages", *_left(record)]))
        stage = record
        words = [] if stage.iteration is None else [f"iteration {stage.iteration}"]
        words += [format_pace(stage, time.time()), *_notes(stage)]
        return Text("; ".join(word for word in words if word), style="dim")


class _Bars:
    """A bar for all finished stages, and one for every stage that is running or that stays."""

    def __init__(self, progress: Progress, echo: Echo, *, finished_stay: bool) -> None:
        self._finished_stay = finished_stay
        self._progress = progress
        self._echo = echo
        self._record = RunRecord()
        self._bars: dict[str, TaskID] = {}

    def __call__(self, event: str, **fields: Any) -> None:
        self._record.take(Event(event, time.time(), fields))
        _echo_news(self._echo, NEWS, event, fields)
        if event == "run_started":
            self._bars[""] = self._progress.add_task(
                "job", total=fields["stages"], record=self._record
            )
        elif "stage" in fields:
            self._show_stage(fields["stage"])

    def _show_stage(self, name: str) -> None:
        stage = self._record.stages[name]
        if stage.started and name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=stage.parts, record=stage)
        if name in self._bars:
            self._progress.update(self._bars[name], completed=stage.done)
            if stage.complete or stage.failed:
                self._progress.stop_task(self._bars[name])
            hidden = stage.complete and not self._finished_stay
            self._progress.update(self._bars[name], visible=not hidden)
        if "" in self._bars:
            done = sum(stage.complete for stage in self._record.stages.values())
            self._progress.update(self._bars[""], completed=done)


class _Summaries:
    """A line from time to time: how many stages are done, and which are running."""

    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self._record = RunRecord()
        self._stages = 0
        self._last = time.monotonic()

    def __call__(self, event: str, **fields: Any) -> None:
        self._record.take(Event(event, time.time(), fields))
        _echo_news(self._echo, NEWS, event, fields)
        if event == "run_started":
            self._stages = fields["stages"]
        if time.monotonic() - self._last >= SECONDS_BETWEEN_SUMMARIES:
            self._last = time.monotonic()
            self._echo(self._summary())

    def _summary(self) -> str:
        stages = self._record.stages
        done = sum(stage.complete for stage in stages.values())
        begun = [
            (name, stage)
            for name, stage in stages.items()
            if stage.started and not (stage.complete or stage.failed)
        ]
        # Of most stages all tasks may still wait for a worker.
        begun.sort(key=lambda each: not 0 < each[1].done < each[1].parts)
        running = [_format_running(name, stage) for name, stage in begun[:SHOWN_STAGES]]
        running += [f"{len(begun) - SHOWN_STAGES} more"] * (len(begun) > SHOWN_STAGES)
        counted = ", ".join([f"{done} of {self._stages} stages done", *_left(self._record)])
        return f"{counted}, running: {'; '.join(running)}" if running else counted


def _left(record: RunRecord) -> list[str]:
    left = record.seconds_left(time.time())
    return [] if left is None else [f"{format_rough_duration(left)} left"]


def _format_running(name: str, stage: StageRecord) -> str:
    where = "" if stage.iteration is None else f"iteration {stage.iteration}, "
    pace = format_pace(stage, time.time())
    return f"{name} ({where}task {stage.done} of {stage.parts}{f', {pace}' if pace else ''})"


class _Lines:
    """A line for every event of a stage, and from time to time one for its parts."""

    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self._record = RunRecord()
        self._said: dict[str, float] = {}

    def __call__(self, event: str, **fields: Any) -> None:
        now = time.time()
        self._record.take(Event(event, now, fields))
        _echo_news(self._echo, {**NEWS, "stage_found": "{stage}: {reason}"}, event, fields)
        if event == "stage_started":
            name = fields["stage"]
            notes = "".join(f"; {note}" for note in _notes(self._record.stages[name]))
            self._echo(f"{name}: queued, tasks: {fields['parts']}{notes}")
        elif event == "part_done" and fields["part"] != FINALISING and fields["parts"] > 1:
            self._tell_parts(fields["stage"], now)
        elif event == "stage_done":
            costs = self._record.stages[fields["stage"]].costs.values()
            seconds = sum(cost.seconds for cost in costs)
            self._echo(f"{fields['stage']}: done, {seconds:.1f} s of work")

    def _tell_parts(self, name: str, now: float) -> None:
        stage = self._record.stages[name]
        last = stage.done == stage.parts and stage.iteration is None
        if not last and now - self._said.get(name, 0.0) < SECONDS_BETWEEN_LINES:
            return
        self._said[name] = now
        where = "" if stage.iteration is None else f"iteration {stage.iteration}, "
        self._echo(
            f"{name}: {where}task {stage.done} of {stage.parts} done ({format_pace(stage, now)})"
        )


def _notes(stage: StageRecord) -> list[str]:
    return [] if stage.reason == "computed" else [stage.reason]
