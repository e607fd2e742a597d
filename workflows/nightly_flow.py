"""The nightly evaluation as a Prefect flow: python workflows/nightly_flow.py serves it.

Needs the extra ``prefect``. It runs at 02:00 UTC, or according to NIGHTLY_CRON. Only one run is
allowed at a time; the next one waits. The flow fails if a gate fails, so Prefect's automations can
notify people. An incomplete run (exit 3) is retried, which resumes it.
"""

import os
import subprocess
import sys

from prefect import flow, task

INCOMPLETE = 3


class Unfinished(Exception):
    """Raised for an incomplete run, which can be resumed."""


def _goes_on(task: object, run: object, state: object) -> bool:
    """Return whether to retry: only an incomplete run."""
    problem = state.result(raise_on_failure=False)  # type: ignore[attr-defined]
    return isinstance(problem, Unfinished)


@task(retries=2, retry_delay_seconds=60, retry_condition_fn=_goes_on)
def evaluate(workflow: str, overrides: list[str]) -> str:
    """Run the workflow in a separate process, which frees its memory at the end."""
    options = [word for override in overrides for word in ("-o", override)]
    command = [sys.executable, "-m", "latentscale_pipeline.cli", "workflow", "run", workflow]
    ended = subprocess.run(  # noqa: S603 -- a list of words, and no shell
        [*command, "--quiet", "--json", *options], capture_output=True, text=True, check=False
    )
    if ended.returncode == INCOMPLETE:
        raise Unfinished(ended.stderr.strip())
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr.strip())
    return ended.stdout


@flow(name="latentscale-nightly")
def nightly(workflow: str = "workflows/nightly.yaml", overrides: list[str] | None = None) -> str:
    """Run one evaluation."""
    return evaluate(workflow, overrides or [])


if __name__ == "__main__":
    nightly.serve(name="nightly", cron=os.environ.get("NIGHTLY_CRON", "0 2 * * *"), limit=1)
