"""``latentscale logs``: what happened in a job, and the logs of failed tasks."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime

import click

from latentscale_pipeline.cli.options import JSON
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.logs import (
    FAILURES,
    describe_event,
    find_task_logs,
    read_driver_logs,
    read_runs,
    read_task_log,
)
from latentscale_pipeline.jobs.status import open_job, read_status
from latentscale_pipeline.storage.events import Event
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.views.formatting import printable

FOLLOW_SECONDS = 2.0
"""Pause between two readings of a followed job's events."""


@click.command(no_args_is_help=True)
@click.argument("job")
@click.option("--stage", help="Only this stage.")
@click.option("--failed", is_flag=True, help="Only failures.")
@click.option("--follow", is_flag=True, help="Keep printing until the job stops running.")
@JSON
def logs(job: str, stage: str | None, failed: bool, follow: bool, as_json: bool) -> None:
    """Show what happened in a job, run by run, then the stored logs of failed tasks and drivers.

    JOB is a job's folder: a path, or a URL such as s3://bucket/jobs/nightly-1a2b3c4d. Logs are
    kept when a task is retried, so logs of parts that succeeded later are shown, too.

    \b
    Example:
      latentscale logs jobs/nightly-1a2b3c4d --stage heat-corpus --failed
    """
    if follow and as_json:
        raise click.UsageError("--follow and --json don't go together: JSON is one document")
    store = open_job(job)
    if stage is not None:
        _check_stage(store, stage)

    def wanted(event: Event) -> bool:
        if stage is not None and event.fields.get("stage") != stage:
            return False
        ended_badly = event.name == "run_ended" and event.fields.get("ending") != "finished"
        return not failed or event.name in FAILURES or ended_badly

    told = not as_json and _print_events(store, wanted, follow=follow)
    tasks = [
        (log, read_task_log(store, log))
        for log in find_task_logs(store)
        if stage in {None, log.stage}
    ]
    drivers = read_driver_logs(store) if stage is None else {}
    if as_json:
        listed = [
            {"run": number, "time": event.time, "event": event.name, **event.fields}
            for number, (_, events) in enumerate(read_runs(store), start=1)
            for event in events
            if wanted(event)
        ]
        logged = [{**asdict(log), "text": text} for log, text in tasks]
        click.echo(json.dumps({"events": listed, "logs": logged, "driver": drivers}, indent=1))
        return
    if not (told or tasks or drivers):
        click.echo(f"{store.url}: {_say_nothing(store, stage, failed)}", err=True)
    for title, text in [*((log.title, text) for log, text in tasks), *drivers.items()]:
        _echo(f"--- {title}")
        for line in text.splitlines():
            _echo(line)


def _check_stage(store: ObjectStore, stage: str) -> None:
    names = [known.stage for known in read_status(store).stages]
    if names and stage not in names:
        raise BadInput(f"--stage {stage}: this job's stages are {', '.join(names)}")


def _say_nothing(store: ObjectStore, stage: str | None, failed: bool) -> str:
    """Say why there is nothing to show."""
    runs = read_runs(store)
    if not runs:
        return "no run of this job has begun; latentscale status shows which stages are done"
    if not any(events for _, events in runs):
        return "the events of its runs are missing from the folder"
    return f"nothing {'failed' if failed else 'happened'}{f' in stage {stage}' if stage else ''}"


def _print_events(store: ObjectStore, wanted: Callable[[Event], bool], *, follow: bool) -> bool:
    """Print events, with a heading for each run, and go on with new ones; say if there were any."""
    seen: Counter[int] = Counter()
    headed: set[int] = set()
    while True:
        # Asked first: events after this moment are printed by the next pass.
        going_on = follow and read_status(store).state == "running"
        for number, (holder, told) in enumerate(read_runs(store), start=1):
            for event in filter(wanted, told[seen[number] :]):
                if number not in headed:
                    headed.add(number)
                    _echo(f"--- run {number}: process {holder.pid} on {holder.host}")
                moment = datetime.fromtimestamp(event.time, UTC)
                _echo(f"{moment:%Y-%m-%d %H:%M:%SZ} {describe_event(event)}")
            seen[number] = len(told)
        if not going_on:
            return bool(headed)
        time.sleep(FOLLOW_SECONDS)


def _echo(line: str) -> None:
    click.echo(printable(line.replace("\t", "    ")))
