"""``latentscale submit``: submit a job's driver to a scheduler."""

from __future__ import annotations

import json
import time
from typing import Any

import click
from rich.console import Console

from latentscale_pipeline.cli.job_arguments import JOB_OPTIONS, read_job
from latentscale_pipeline.cli.options import ALLOW_CODE, JSON, KEEP, QUIET, taking
from latentscale_pipeline.cli.run import ingest_given, plan_job
from latentscale_pipeline.cli.source_arguments import SOURCE_OPTIONS, choose_sources
from latentscale_pipeline.cli.status import ACTIVE_STATES, watch_job
from latentscale_pipeline.config.cluster import Kubernetes
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.errors import BadInput, Incomplete
from latentscale_pipeline.jobs.plan import Plan
from latentscale_pipeline.jobs.run import is_finished
from latentscale_pipeline.jobs.schedulers import look_at
from latentscale_pipeline.jobs.sources import SOURCE_NAMES, JobSources
from latentscale_pipeline.jobs.submission import (
    UNKNOWN_HASH,
    check_scheduler,
    plan_submission,
    plan_without_ingest,
    preview_workers,
    submit_job,
)
from latentscale_pipeline.jobs.submission_records import Submission
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.views.formatting import printable

ENDING_SECONDS = 30.0
"""Time for a driver's results to become visible after its scheduler says that it ended."""


@click.command(no_args_is_help=True)
@click.argument("given", metavar="SOURCE...|JOB.yaml", nargs=-1, required=True)
@taking(*JOB_OPTIONS, *SOURCE_OPTIONS)
@click.option("--dry-run", is_flag=True, help="Print what would be submitted; write nothing.")
@click.option("--wait", is_flag=True, help="Show progress until it ends; exit with its code.")
@click.option("--requeue", is_flag=True, help="Start a driver again that dies or runs out of time.")
@taking(KEEP, ALLOW_CODE, JSON, QUIET)
def submit(
    given: tuple[str, ...],
    dry_run: bool,
    wait: bool,
    requeue: bool,
    keep: bool,
    allow_code: bool,
    as_json: bool,
    quiet: bool,
    **about: Any,
) -> None:
    """Write the folder of a job (of a YAML file, or of run SOURCE) and submit its driver.

    Prints the scheduler's id and returns at once. status, logs, cancel and resume then work on the
    job's folder from any machine. driver.kind names the scheduler, else cluster.kind: slurm or
    kubernetes. Sources that aren't corpora yet are ingested first, on this machine.

    \b
    Example:
      latentscale submit nightly.yaml -o cluster.kind=slurm -o cluster.workers=40
      latentscale submit docs.parquet --vectors embedding -o cluster.kind=slurm
    """
    values = {name: about.pop(name) for name in SOURCE_NAMES}
    how = {"requeue": requeue, "keep": keep, "allow_code": allow_code}
    job = read_job(given[0], **about)
    sources = choose_sources(given, job, values)
    if dry_run and as_json:
        raise click.UsageError("--dry-run prints a script, which is no JSON; leave out --json")
    if dry_run:
        _preview(job, sources, **how)
        return
    _refuse_early(job, sources, allow_code=allow_code)
    job = ingest_given(job, sources, quiet=quiet)
    plan = plan_job(job, allow_code=how["allow_code"], quiet=quiet)
    if is_finished(plan):
        click.echo("nothing had to be submitted: this job was already finished")
    else:
        submit_and_report(plan, as_json=as_json, wait=wait, quiet=quiet, **how)


def _refuse_early(job: JobConfig, sources: JobSources, *, allow_code: bool) -> None:
    """Refuse a job that can't be submitted from here before its sources are ingested."""
    try:
        check_scheduler(job)
    except BadInput:
        plan, prospects = plan_without_ingest(job, sources, allow_code=allow_code)
        if prospects or not is_finished(plan):
            raise


def _preview(job: JobConfig, sources: JobSources, **how: bool) -> None:
    """Print what would be submitted: the driver, then what the driver submits for its workers."""
    plan, prospects = plan_without_ingest(job, sources, allow_code=how["allow_code"])
    for source in prospects:
        told = printable(f"{source}: not a corpus yet; submit would ingest it first")
        click.echo(f"{told} ({UNKNOWN_HASH} stands for the hash in the job's name)", err=True)
    click.echo(str(plan_submission(plan, **how)))
    workers = preview_workers(plan)
    if workers:
        what = (
            "creates"
            if isinstance(job.cluster, Kubernetes)
            else f"submits for each of {job.cluster.workers} workers"
        )
        click.echo(f"\n# The driver {what}:\n{workers.rstrip()}")


def submit_and_report(plan: Plan, *, as_json: bool, wait: bool, quiet: bool, **how: bool) -> None:
    """Submit a job, and print its folder and the scheduler's id.

    With ``wait`` the job is watched until its driver has ended, and this process ends with the
    driver's code.
    """
    submission = submit_job(plan, plan_submission(plan, **how), requeue=how["requeue"])
    store = plan.store
    if as_json:
        described = {"job": store.url, "scheduler": submission.scheduler, "id": submission.id}
        click.echo(json.dumps(described))
    else:
        click.echo(f"job: {store.url}")
        click.echo(f"{submission.scheduler}: {submission.id}")
    if wait:
        _wait_until_ended(store, submission, quiet=quiet)


def _wait_until_ended(store: ObjectStore, submission: Submission, *, quiet: bool) -> None:
    console = Console(stderr=True, quiet=quiet)

    def going_on(state: str) -> bool:
        look = look_at(submission)
        return state in ACTIVE_STATES if look is None else look.phase != "ended"

    found = watch_job(store, console, going_on)
    until = time.monotonic() + ENDING_SECONDS
    while found.state == "running" and time.monotonic() < until:
        time.sleep(1.0)
        found = watch_job(store, console, lambda _state: False)
    if found.state == "finished":
        return
    look = look_at(submission)
    if look is not None and look.exit_code:
        raise click.exceptions.Exit(look.exit_code)
    raise Incomplete(
        f"{store.url}: {found.state} ({found.reason}); continue with latentscale resume"
    )
