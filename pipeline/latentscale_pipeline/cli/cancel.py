"""``latentscale cancel``: stop a running job cleanly, from any machine."""

from __future__ import annotations

import click

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.schedulers import withdraw
from latentscale_pipeline.jobs.status import open_job, read_status
from latentscale_pipeline.jobs.submission_records import last_submission, withdraw_submission
from latentscale_pipeline.storage.cancellation import request_cancel
from latentscale_pipeline.storage.lock import UNKNOWN, read_lock
from latentscale_pipeline.views.formatting import printable


@click.command(no_args_is_help=True)
@click.argument("job")
def cancel(job: str) -> None:
    """Stop a running job cleanly, from any machine that can reach its folder.

    The run notices within seconds, even during a long task, stops its workers, keeps what is done,
    and exits with code 3. latentscale resume, or the same latentscale run, continues the job.

    \b
    Example:
      latentscale cancel s3://bucket/jobs/nightly-1a2b3c4d
    """
    store = open_job(job)
    found = read_status(store)
    submission = last_submission(store)
    if found.state == "queued" and submission is not None:
        withdraw(submission)
        withdraw_submission(store)
        click.echo(f"{submission.label} was withdrawn before it started")
        return
    holder = read_lock(store).holder
    if found.state != "running" or holder is None:
        raise BadInput(
            f"{store.url}: nothing to cancel, the job isn't running: {found.state} ({found.reason})"
        )
    if holder == UNKNOWN:
        raise BadInput(
            f"{store.url}: its lock can't be read, so the process that runs it is unknown"
        )
    asked = request_cancel(store, holder)
    who = printable(f"process {holder.pid} on {holder.host}")
    click.echo(f"{who} {'will end within seconds' if asked else 'was asked to end before'}")
