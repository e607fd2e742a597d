"""``latentscale resume``: continue a job from its folder alone."""

from __future__ import annotations

import click

from latentscale_pipeline.cli.options import (
    ALLOW_CODE,
    JSON_RESULTS,
    KEEP,
    QUIET,
    RUNTIME_OVERRIDES,
    TAKE_OVER,
    VERBOSE,
    WAIT,
    taking,
)
from latentscale_pipeline.cli.run import print_finished, run_plan
from latentscale_pipeline.cli.submit import submit_and_report
from latentscale_pipeline.jobs.resume import plan_again
from latentscale_pipeline.jobs.run import is_finished
from latentscale_pipeline.jobs.submission_records import last_submission
from latentscale_pipeline.measures.finished_job import find_job


@click.command(no_args_is_help=True)
@click.argument("job")
@RUNTIME_OVERRIDES
@click.option("--here", is_flag=True, help="Run in this process, even if the job was submitted.")
@taking(WAIT, TAKE_OVER, KEEP, ALLOW_CODE, JSON_RESULTS, QUIET, VERBOSE)
def resume(
    job: str,
    overrides: tuple[str, ...],
    here: bool,
    wait: bool,
    take_over: bool,
    keep: bool,
    allow_code: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Continue a job from its folder, which names its configuration and corpora.

    JOB is a job's folder: a path, or a URL such as s3://bucket/jobs/nightly-1a2b3c4d. Only keys of
    cluster, driver and storage_options may be overridden: any other key would make another job.
    Credentials come from the environment.

    A job that was submitted is submitted again; --wait then waits for its end. --here runs it in
    this process instead.

    \b
    Example:
      latentscale resume jobs/nightly-1a2b3c4d -o cluster.workers=8
    """
    store = find_job(job)
    plan = plan_again(store.address, overrides, allow_code=allow_code)
    submission = None if here else last_submission(store)
    if submission is not None and not is_finished(plan):
        how = {"requeue": submission.requeue, "keep": keep, "allow_code": allow_code}
        submit_and_report(plan, as_json=as_json, wait=wait, quiet=quiet, **how)
        return
    how = {"wait": wait, "take_over": take_over, "keep": keep}
    finished = run_plan(plan, quiet=quiet, verbose=verbose, **how)
    print_finished(finished, as_json=as_json)
