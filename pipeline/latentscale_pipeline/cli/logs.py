"""``latentscale logs``: what happened in a job, and the logs of failed tasks."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from latentscale_pipeline.jobs.logs import RunEvents
    from latentscale_pipeline.storage.events import Event
    from latentscale_pipeline.storage.objects import ObjectStore

FOLLOW_SECONDS = 2.0
"""Between two looks at the events of a job that is followed."""


@click.command(no_args_is_help=True)
@click.argument("job")
@click.option("--stage", help="Only of this stage.")
@click.option("--failed", is_flag=True, help="Only what went wrong.")
@click.option("--follow", is_flag=True, help="Go on until the job isn't running any more.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def logs(job: str, stage: str | None, failed: bool, follow: bool, as_json: bool) -> None:
    """Show what happened in a job, run by run, then the stored logs of failed tasks and drivers.

    JOB is a job's folder: a path, or a URL such as s3://bucket/jobs/nightly-1a2b3c4d. Logs are
    kept when a task is tried again, so those of parts that were done later are shown, too.

    \b
    Example:
      latentscale logs jobs/nightly-1a2b3c4d --stage heat-corpus --failed
    """
    from latentscale_pipeline.jobs.logs import (
        find_task_logs,
        read_driver_logs,
        read_runs,
        read_task_log,
    )
    from latentscale_pipeline.jobs.status import open_job

    if follow and as_json:
        raise click.UsageError("--follow and --json don't go together: JSON is one document")
    store = open_job(job)
    if stage is not None:
        _check_stage(store, stage)
    wanted = _selection(stage, failed)
    if not as_json:
        _print_events(store, wanted, follow=follow)
    task_logs = [
        (log, read_task_log(store, log))
        for log in find_task_logs(store)
        if stage in {None, log.stage}
    ]
    if as_json:
        document = {
            "events": [
                {"run": run.number, "time": event.time, "event": event.name, **event.fields}
                for run in read_runs(store)
                for event in run.events
                if wanted(event)
            ],
            "logs": [
                {
                    "stage": log.stage,
                    "part": log.part,
                    "round": log.iteration,
                    "attempt": log.attempt,
                    "key": log.key,
                    "text": text,
                }
                for log, text in task_logs
            ],
            "driver": read_driver_logs(store) if stage is None else {},
        }
        click.echo(json.dumps(document, indent=1))
        return
    drivers = read_driver_logs(store) if stage is None else {}
    for title, text in [*((log.title, text) for log, text in task_logs), *drivers.items()]:
        _echo(f"--- {title}")
        for line in text.splitlines():
            _echo(line)


def _check_stage(store: ObjectStore, stage: str) -> None:
    from latentscale_pipeline.errors import BadInput
    from latentscale_pipeline.jobs.status import read_status

    names = [known.stage for known in read_status(store).stages]
    if names and stage not in names:
        raise BadInput(f"--stage {stage}: this job's stages are {', '.join(names)}")


def _selection(stage: str | None, failed: bool) -> Callable[[Event], bool]:
    from latentscale_pipeline.jobs.logs import FAILURES

    def wanted(event: Event) -> bool:
        if stage is not None and event.fields.get("stage") != stage:
            return False
        return not failed or event.name in FAILURES or _ended_badly(event)

    return wanted


def _ended_badly(event: Event) -> bool:
    return event.name == "run_ended" and event.fields.get("ending") != "finished"


class _Printer:
    """Prints events that weren't printed before, each run's below a line that says whose it is."""

    def __init__(self, wanted: Callable[[Event], bool]) -> None:
        self._wanted = wanted
        self._seen: Counter[int] = Counter()
        self._headed: set[int] = set()

    def print(self, run: RunEvents) -> None:
        from latentscale_pipeline.jobs.logs import describe_event

        for event in run.events[self._seen[run.number] :]:
            if not self._wanted(event):
                continue
            if run.number not in self._headed:
                self._headed.add(run.number)
                _echo(f"--- run {run.number}: process {run.holder.pid} on {run.holder.host}")
            moment = datetime.fromtimestamp(event.time, UTC)
            _echo(f"{moment:%Y-%m-%d %H:%M:%SZ} {describe_event(event)}")
        self._seen[run.number] = len(run.events)


def _print_events(store: ObjectStore, wanted: Callable[[Event], bool], *, follow: bool) -> None:
    from latentscale_pipeline.jobs.logs import read_runs
    from latentscale_pipeline.jobs.status import read_status

    printer = _Printer(wanted)
    while True:
        # Asked first: what happens after this is seen in the next round.
        going_on = follow and read_status(store).state == "running"
        for run in read_runs(store):
            printer.print(run)
        if not going_on:
            return
        time.sleep(FOLLOW_SECONDS)


def _echo(line: Any) -> None:
    from latentscale_pipeline.views.formatting import printable

    click.echo(printable(str(line).replace("\t", "    ")))
