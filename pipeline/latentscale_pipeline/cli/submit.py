"""``latentscale submit``: submit a job's driver to a scheduler."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from latentscale_pipeline.jobs.submission_records import Submission
    from latentscale_pipeline.storage.objects import ObjectStore

ENDING_SECONDS = 30.0
"""How long a driver's results may take to be seen once its scheduler says that it ended."""


@click.command(no_args_is_help=True)
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--dry-run", is_flag=True, help="Print exactly what would be submitted.")
@click.option("--wait", is_flag=True, help="Show progress until it ends; exit with its code.")
@click.option("--requeue", is_flag=True, help="Start a driver again that dies or runs out of time.")
@click.option("--allow-code", is_flag=True, help="Run functions that the configuration names.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def submit(
    config: Path,
    overrides: tuple[str, ...],
    dry_run: bool,
    wait: bool,
    requeue: bool,
    allow_code: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the folder of the job that CONFIG describes and hand its driver to a scheduler.

    Returns at once with the scheduler's id. status, logs, cancel and resume then work on the job's
    folder from any machine. The scheduler is that of driver.kind, else of cluster.kind: slurm or
    kubernetes. Sources that aren't corpora yet are ingested first, here.

    \b
    Example:
      latentscale submit nightly.yaml -o cluster.kind=slurm -o cluster.workers=40
    """
    from latentscale_pipeline.cli.run import ended_by_signals, plan_of_file
    from latentscale_pipeline.jobs.run import is_finished
    from latentscale_pipeline.jobs.submission import plan_submission, submit_job
    from latentscale_pipeline.storage.objects import ObjectStore

    with ended_by_signals():
        plan = plan_of_file(config, overrides, allow_code=allow_code, quiet=quiet)
        if dry_run:
            click.echo(str(plan_submission(plan, requeue=requeue, allow_code=allow_code)))
            return
        if is_finished(plan):
            click.echo("nothing had to be submitted: this job was finished before")
            return
        submission = submit_job(plan, requeue=requeue, allow_code=allow_code)
        store = ObjectStore(plan.config.output).child(plan.id)
        tell(store, submission, as_json=as_json)
        if wait:
            wait_until_ended(store, submission, quiet=quiet)


def tell(store: ObjectStore, submission: Submission, *, as_json: bool) -> None:
    """Print where a job is and what its scheduler calls it."""
    if as_json:
        described = {"job": store.url, "scheduler": submission.scheduler, "id": submission.id}
        click.echo(json.dumps(described))
        return
    click.echo(f"job: {store.url}")
    click.echo(f"{submission.scheduler}: {submission.id}")


def wait_until_ended(store: ObjectStore, submission: Submission, *, quiet: bool) -> None:
    """Watch a job until its driver has ended, and exit with the driver's code."""
    from rich.console import Console

    from latentscale_pipeline.cli.status import watch_job
    from latentscale_pipeline.errors import Incomplete
    from latentscale_pipeline.jobs.schedulers import look_at

    def going_on(state: str) -> bool:
        look = look_at(submission)
        if look is None:
            return state in {"running", "queued"}
        return look.phase != "ended"

    found = watch_job(store, Console(stderr=True), going_on, quiet=quiet)
    until = time.monotonic() + ENDING_SECONDS
    while found.state == "running" and time.monotonic() < until:
        time.sleep(1.0)
        found = watch_job(store, Console(stderr=True), lambda _state: False, quiet=True)
    if found.state == "finished":
        return
    look = look_at(submission)
    code = look.exit_code if look is not None else None
    if code:
        raise click.exceptions.Exit(code)
    raise Incomplete(f"{store.url}: {found.state} ({found.reason}); latentscale resume goes on")
