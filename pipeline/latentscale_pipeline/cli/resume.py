"""``latentscale resume``: continue a job from its folder alone."""

from __future__ import annotations

import click


@click.command(no_args_is_help=True)
@click.argument("job")
@click.option(
    "-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of cluster, driver."
)
@click.option("--here", is_flag=True, help="Run it in this process, even if it was submitted.")
@click.option("--wait", is_flag=True, help="Wait while another run holds the job.")
@click.option("--take-over", is_flag=True, help="Succeed another run, alive or not.")
@click.option("--keep", is_flag=True, help="Keep temporary and superseded results.")
@click.option("--allow-code", is_flag=True, help="Run functions that the configuration names.")
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of a summary.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
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
) -> None:
    """Go on with a job from the configuration and the corpora stored in its folder.

    JOB is a job's folder: a path, or a URL such as s3://bucket/jobs/nightly-1a2b3c4d. What the job
    is can't change, so only keys of cluster, driver and storage_options may be overridden.
    Credentials come from the environment.

    A job that was submitted is submitted again; --wait then waits for its end. --here runs it in
    this process instead.

    \b
    Example:
      latentscale resume jobs/nightly-1a2b3c4d -o cluster.workers=8
    """
    from latentscale_pipeline.cli.run import ended_by_signals, print_finished, run_plan

    with ended_by_signals():
        from latentscale_pipeline.jobs.resume import plan_again
        from latentscale_pipeline.jobs.submission_records import last_submission
        from latentscale_pipeline.storage.objects import ObjectStore

        store = ObjectStore(job)
        submission = None if here else last_submission(store)
        if submission is not None:
            from latentscale_pipeline.cli.submit import tell, wait_until_ended
            from latentscale_pipeline.jobs.run import is_finished
            from latentscale_pipeline.jobs.submission import submit_job

            plan = plan_again(job, overrides, allow_code=allow_code)
            if not is_finished(plan):
                again = submit_job(plan, requeue=submission.requeue, allow_code=allow_code)
                tell(store, again, as_json=as_json)
                if wait:
                    wait_until_ended(store, again, quiet=quiet)
                return
        finished = run_plan(
            lambda: plan_again(job, overrides, allow_code=allow_code),
            wait=wait,
            take_over=take_over,
            keep=keep,
            quiet=quiet,
        )
    print_finished(finished, as_json)
