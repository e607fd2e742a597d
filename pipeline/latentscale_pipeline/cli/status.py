"""``latentscale status`` and ``latentscale list``: the state of jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from latentscale_pipeline.jobs.status import JobStatus, StageStatus
    from latentscale_pipeline.storage.objects import ObjectStore

WATCH_SECONDS = 2.0
"""Between two looks at a watched job."""

LEAST_PAUSE = 4.0
"""The same in units of the time that a look takes, where the store is slow."""

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
GOING_ON = frozenset({"running", "queued"})
RESUMABLE = frozenset({"dead", "cancelled", "interrupted", "failed", "planned"})


@click.command(no_args_is_help=True)
@click.argument("job")
@click.option("--watch", is_flag=True, help="Keep looking until the job isn't running any more.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(job: str, watch: bool, as_json: bool) -> None:
    """Say where a job stands, from its folder alone.

    JOB is a job's folder: a path, or a URL such as s3://bucket/jobs/nightly-1a2b3c4d. A job is
    running, finished, dead (its process is gone, or has had no heartbeat for a minute), cancelled,
    interrupted, failed, planned, or queued (its driver waits in a cluster's scheduler). Memory is
    the peak that was measured and the one projected.

    \b
    Example:
      latentscale status jobs/nightly-1a2b3c4d --watch
    """
    from rich.console import Console

    from latentscale_pipeline.jobs.status import MarkerCosts, open_job, read_status

    if watch and as_json:
        raise click.UsageError("--watch and --json don't go together: JSON is one document")
    store = open_job(job)
    costs = MarkerCosts(store)
    found = read_status(store, costs)
    if as_json:
        click.echo(json.dumps(describe(found), indent=1))
        return
    console = Console()
    if watch:
        try:
            found = _watch(
                lambda: read_status(store, costs), found, console, lambda s: s in GOING_ON
            )
        except KeyboardInterrupt:
            return  # leaving the watch leaves the job as it is
    print_status(found, console)


@click.command("list", no_args_is_help=True)
@click.argument("output")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_jobs(output: str, as_json: bool) -> None:
    """Say where every job below an output folder stands.

    OUTPUT is what a configuration calls output: a folder, or a URL such as s3://bucket/jobs.

    \b
    Example:
      latentscale list jobs/
    """
    from rich.console import Console

    from latentscale_pipeline.jobs.status import list_statuses

    found = list_statuses(output)
    if as_json:
        click.echo(json.dumps([describe_briefly(status) for status in found], indent=1))
        return
    if not found:
        click.echo(f"{output}: no jobs", err=True)
        return
    rows = [
        {
            "job": status.job,
            "state": status.state,
            "stages": f"{status.stages_done} of {len(status.stages)}",
            "runs": str(status.runs),
            "started": _moment(status.started),
            "reason": status.reason,
        }
        for status in found
    ]
    _print_rows(rows, Console())


def describe_briefly(status: JobStatus) -> dict[str, Any]:
    """Return where a job stands as plain values, without its stages."""
    holder = status.holder
    return {
        "job": status.job,
        "folder": status.folder,
        "state": status.state,
        "reason": status.reason,
        "stages_done": status.stages_done,
        "stages_total": len(status.stages),
        "runs": status.runs,
        "run": None
        if holder is None
        else {
            "attempt": holder.attempt,
            "host": holder.host,
            "pid": holder.pid,
            "started": _iso(status.started),
            "ended": _iso(status.ended),
            "heartbeat_age_seconds": _rounded(status.heartbeat_age),
        },
        "dashboard": status.dashboard or None,
    }


def describe(status: JobStatus) -> dict[str, Any]:
    """Return where a job and each of its stages stands as plain values."""
    return {
        **describe_briefly(status),
        "stages": [
            {
                "stage": stage.stage,
                "state": stage.state,
                "reason": stage.reason,
                "parts": stage.parts,
                "parts_done": stage.done,
                "round": stage.iteration,
                "seconds": stage.seconds,
                "peak_memory_bytes": stage.peak_memory_bytes,
                "projected_memory_bytes": stage.projected_memory_bytes,
                "parts_per_second": _rounded(stage.parts_per_second, 6),
                "seconds_left": _rounded(stage.seconds_left),
            }
            for stage in status.stages
        ],
    }


def watch_job(
    store: ObjectStore, console: Console, going_on: Callable[[str], bool], *, quiet: bool
) -> JobStatus:
    """Show a job for as long as ``going_on`` says of its state, and return where it stood last."""
    from rich.console import Console

    from latentscale_pipeline.jobs.status import MarkerCosts, read_status

    costs = MarkerCosts(store)
    shown = Console(quiet=True) if quiet else console
    return _watch(lambda: read_status(store, costs), read_status(store, costs), shown, going_on)


def _watch(
    look: Callable[[], JobStatus],
    found: JobStatus,
    console: Console,
    going_on: Callable[[str], bool],
) -> JobStatus:
    """Show a job for as long as it goes on and return where it stood at last."""
    pause = WATCH_SECONDS
    with _display(console) as show:
        while going_on(found.state):
            show(found)
            time.sleep(pause)
            begun = time.monotonic()
            found = look()
            pause = max(WATCH_SECONDS, LEAST_PAUSE * (time.monotonic() - begun))
    return found


@contextmanager
def _display(console: Console) -> Iterator[Callable[[JobStatus], None]]:
    """Show one status in the place of another on a terminal, else a line where it changed."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:

            def show(status: JobStatus) -> None:
                heading = [Text(line) for line in _heading(status)]
                rows = [_row(stage) for stage in status.stages]
                live.update(
                    Group(*heading, *([_table(*_shown(rows))] if rows else [])), refresh=True
                )

            yield show
        return
    last = ""

    def tell(status: JobStatus) -> None:
        nonlocal last
        line = _brief_line(status)
        if line != last:
            console.print(Text(f"{datetime.now():%H:%M:%S} {line}"), soft_wrap=True)
            last = line

    yield tell


def _brief_line(status: JobStatus) -> str:
    from latentscale_pipeline.views.formatting import printable

    under_way = [
        f"{stage.stage} {parts_done(stage.iteration, stage.done, stage.parts)}"
        for stage in status.stages
        if stage.state == "running"
    ]
    stages = f"{status.stages_done} of {len(status.stages)} stages done"
    return printable("; ".join([f"{status.job}: {status.state}, {stages}", *under_way]))


def print_status(status: JobStatus, console: Console) -> None:
    """Print where a job stands: a table on a terminal, plain lines anywhere else."""
    from rich.text import Text

    for line in _heading(status):
        console.print(Text(line), soft_wrap=True)
    if status.stages:
        _print_rows([_row(stage) for stage in status.stages], console)
    if status.state in RESUMABLE:
        hint = f"latentscale resume {status.folder} goes on from here"
        console.print(Text(hint), soft_wrap=True)


def _heading(status: JobStatus) -> Iterator[str]:
    from latentscale_pipeline.views.formatting import printable

    yield printable(f"{status.job}: {status.state} ({status.reason})")
    yield printable(f"folder     {status.folder}")
    if status.runs:
        since = f", since {_moment(status.started)}" if status.started else ""
        yield f"run        {status.runs}{since}"
    if status.stages:
        yield f"stages     {status.stages_done} of {len(status.stages)} done"
    if status.dashboard:
        yield printable(f"dashboard  {status.dashboard} on that machine")


def _row(stage: StageStatus) -> dict[str, str]:
    from latentscale_pipeline.views.formatting import write_bytes, write_duration

    def size(count: int | None) -> str:
        return "" if count is None else write_bytes(count)

    left = stage.seconds_left
    return {
        "stage": stage.stage,
        "state": stage.state,
        "parts": parts_done(stage.iteration, stage.done, stage.parts),
        "work": "" if stage.seconds is None else write_duration(stage.seconds),
        "peak": size(stage.peak_memory_bytes),
        "projected": size(stage.projected_memory_bytes),
        "left": "" if left is None else write_duration(left),
        "reason": stage.reason,
    }


def parts_done(iteration: int | None, done: int, parts: int) -> str:
    """Write how far a stage is: of an iterated one nobody knows how many iterations are to come."""
    counted = f"{done} of {parts}"
    return counted if iteration is None else f"round {iteration}, {counted}"


def print_rows(rows: Sequence[dict[str, str]]) -> None:
    """Print rows of texts: a table on a terminal, plain lines anywhere else."""
    from rich.console import Console

    _print_rows(rows, Console())


def _print_rows(rows: Sequence[dict[str, str]], console: Console) -> None:
    from rich.text import Text

    names, shown = _shown(rows)
    if console.is_terminal:
        console.print(_table(names, shown))
        return
    shown.insert(0, {name: name for name in names})
    widths = {name: max(len(row[name]) for row in shown) for name in names}
    for row in shown:
        line = "  ".join(row[name].ljust(widths[name]) for name in names).rstrip()
        console.print(Text(line), soft_wrap=True)


def _shown(rows: Sequence[dict[str, str]]) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns that aren't empty, and the rows as they may be printed."""
    from latentscale_pipeline.views.formatting import printable

    shown = [{name: printable(cell) for name, cell in row.items()} for row in rows]
    return [name for name in shown[0] if any(row[name] for row in shown)], shown


def _table(names: Sequence[str], rows: Sequence[dict[str, str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in names:
        table.add_column(
            name,
            justify="right" if name in RIGHT_ALIGNED else "left",
            no_wrap=name != "reason",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(row[n], style=STYLES.get(row[n], "")) for n in names))
    return table


def _iso(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _moment(moment: float | None) -> str:
    return "" if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _rounded(number: float | None, digits: int = 1) -> float | None:
    return None if number is None else round(number, digits)
