"""``latentscale status`` and ``latentscale list``: the state of jobs."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from latentscale_pipeline.cli.options import JSON
from latentscale_pipeline.jobs.status import (
    JobStatus,
    MarkerCosts,
    StageStatus,
    list_statuses,
    open_job,
    read_status,
)
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.views.formatting import (
    format_bytes,
    format_duration,
    format_rough_duration,
    printable,
)
from latentscale_pipeline.views.terminal import Row, print_lines, print_table, rich_table

WATCH_SECONDS = 2.0
"""Pause between two readings of a watched job."""

MIN_PAUSE = 4.0
"""The same for slow stores, in units of the time that one reading takes."""

STYLES = {
    "running": "cyan",
    "finished": "green",
    "done": "green",
    "dead": "bold red",
    "failed": "bold red",
    "cancelled": "yellow",
    "interrupted": "yellow",
    "planned": "dim",
    "queued": "cyan",
    "waiting": "dim",
}
RIGHT_ALIGNED = frozenset({"parts", "work", "peak", "projected", "left", "stages", "runs"})
FOLDED = frozenset({"reason"})
ACTIVE_STATES = frozenset({"running", "queued"})
RESUMABLE = frozenset({"dead", "cancelled", "interrupted", "failed", "planned"})


@click.command(no_args_is_help=True)
@click.argument("job")
@click.option("--watch", is_flag=True, help="Refresh until the job stops running.")
@JSON
def status(job: str, watch: bool, as_json: bool) -> None:
    """Show the state of a job, from its folder alone.

    JOB is a job's folder: a path, or a URL such as s3://bucket/jobs/nightly-1a2b3c4d. The hash at
    the end may be left out if one job fits. A job is running, finished, dead (its process is gone,
    or has had no heartbeat for a minute), cancelled, interrupted, failed, planned, or queued (its
    driver waits in a cluster's scheduler). Memory is the measured peak and the projected one.

    \b
    Example:
      latentscale status jobs/nightly-1a2b3c4d --watch
    """
    if watch and as_json:
        raise click.UsageError("--watch and --json don't go together: JSON is one document")
    store = open_job(job)
    console = Console()
    if watch:
        try:
            found = watch_job(store, console, ACTIVE_STATES.__contains__)
        except KeyboardInterrupt:
            return  # ending the watch doesn't affect the job
    else:
        found = read_status(store, MarkerCosts(store))
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
    else:
        print_status(found, console)


@click.command("list")
@click.argument("output", default="jobs")
@JSON
def list_jobs(output: str, as_json: bool) -> None:
    """Show the state of every job in an output folder.

    OUTPUT is the output of a configuration: a folder, by default jobs, or a URL such as
    s3://bucket/jobs.

    \b
    Example:
      latentscale list jobs/
    """
    found = list_statuses(output, lambda line: click.echo(line, err=True))
    if as_json:
        described = [asdict(status) for status in found]
        for each in described:
            del each["stages"]
        click.echo(json.dumps(described, indent=1))
        return
    if not found:
        click.echo(f"{output}: no jobs", err=True)
        return
    rows = [
        {
            "job": status.job,
            "state": status.state,
            "stages": f"{status.stages_done} of {status.stages_total}",
            "runs": str(status.runs),
            "started": _started(status),
            "reason": status.reason,
        }
        for status in found
    ]
    print_rows(rows, Console())


def watch_job(store: ObjectStore, console: Console, going_on: Callable[[str], bool]) -> JobStatus:
    """Show a job's status while ``going_on`` is true of it, and return the last status."""
    costs = MarkerCosts(store)
    found = read_status(store, costs)
    pause = WATCH_SECONDS
    with _display(console) as show:
        while going_on(found.state):
            show(found)
            time.sleep(pause)
            begun = time.monotonic()
            found = read_status(store, costs)
            pause = max(WATCH_SECONDS, MIN_PAUSE * (time.monotonic() - begun))
    return found


@contextmanager
def _display(console: Console) -> Iterator[Callable[[JobStatus], None]]:
    """Yield a display of statuses: redrawn on a terminal, else a line for each change."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:

            def show(status: JobStatus) -> None:
                shown: list[Any] = [Text(line) for line in _heading(status)]
                if status.stages:
                    columns, rows = _cells([_row(stage) for stage in status.stages])
                    shown.append(rich_table(columns, rows, right=RIGHT_ALIGNED, folded=FOLDED))
                live.update(Group(*shown), refresh=True)

            yield show
        return
    last = ""

    def show_line(status: JobStatus) -> None:
        nonlocal last
        line = _brief_line(status)
        if line != last:
            print_lines(console, [f"{datetime.now():%H:%M:%S} {line}{_left(status)}"])
            last = line

    yield show_line


def _brief_line(status: JobStatus) -> str:
    under_way = [
        f"{stage.stage} {_parts_done(stage)}" for stage in status.stages if stage.state == "running"
    ]
    stages = f"{status.stages_done} of {status.stages_total} stages done"
    return printable("; ".join([f"{status.job}: {status.state}, {stages}", *under_way]))


def _left(status: JobStatus) -> str:
    left = status.seconds_left
    return "" if left is None else f"; {format_rough_duration(left)} left"


def print_status(status: JobStatus, console: Console) -> None:
    """Print a job's status: a table on a terminal, plain lines elsewhere."""
    print_lines(console, _heading(status))
    if status.stages:
        print_rows([_row(stage) for stage in status.stages], console)
    if status.state in RESUMABLE and status.copy_of is None:
        print_lines(
            console, [f"latentscale resume {shlex.quote(status.folder)} continues this job"]
        )


def _heading(status: JobStatus) -> Iterator[str]:
    yield printable(f"{status.job}: {status.state} ({status.reason})")
    yield printable(f"folder     {status.folder}")
    if status.runs:
        started = _started(status)
        since = f", since {started}" if started else ""
        yield f"run        {status.runs}{since}"
    if status.stages:
        yield f"stages     {status.stages_done} of {status.stages_total} done"
    if status.seconds_left is not None:
        yield f"left       {format_rough_duration(status.seconds_left)}"
    if status.dashboard:
        yield printable(f"dashboard  {status.dashboard} on that machine")


def _row(stage: StageStatus) -> dict[str, str]:
    def write(value: Any, as_text: Callable[[Any], str]) -> str:
        return "" if value is None else as_text(value)

    return {
        "stage": stage.stage,
        "state": stage.state,
        "parts": _parts_done(stage),
        "work": write(stage.seconds, format_duration),
        "peak": write(stage.peak_memory_bytes, format_bytes),
        "projected": write(stage.projected_memory_bytes, format_bytes),
        "left": write(stage.seconds_left, format_duration),
        "reason": stage.reason,
    }


def _parts_done(stage: StageStatus) -> str:
    """Return a stage's progress as text; the number of iterations still to come isn't known."""
    counted = f"{stage.parts_done} of {stage.parts}"
    return counted if stage.round is None else f"iteration {stage.round}, {counted}"


def print_rows(rows: Sequence[dict[str, str]], console: Console) -> None:
    """Print rows of texts, without columns that are empty."""
    columns, cells = _cells(rows)
    print_table(console, columns, cells, right=RIGHT_ALIGNED, folded=FOLDED)


def _cells(rows: Sequence[dict[str, str]]) -> tuple[list[str], list[Row]]:
    """Return the columns that aren't empty, and the rows as they may be printed."""
    cells: list[Row] = [
        {name: Text(printable(cell), STYLES.get(cell, "")) for name, cell in row.items()}
        for row in rows
    ]
    return [name for name in rows[0] if any(row[name] for row in rows)], cells


def _started(status: JobStatus) -> str:
    if status.run is None or status.run.started is None:
        return ""
    return f"{datetime.fromisoformat(status.run.started):%Y-%m-%d %H:%M:%S} UTC"
