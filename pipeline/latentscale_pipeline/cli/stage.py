"""``latentscale stage``: run single stages as plain processes, e.g. in batch arrays."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from latentscale_pipeline.cli.job_arguments import read_job
from latentscale_pipeline.cli.options import (
    ALLOW_CODE,
    JSON,
    KEEP,
    OVERRIDES,
    RUNTIME_OVERRIDES,
    taking,
)
from latentscale_pipeline.cli.run import plan_job
from latentscale_pipeline.engine.state import StageState
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.executors.stepwise import (
    Share,
    finalise_stage,
    find_stage,
    init_stage,
    missing_parts,
    work_on_stage,
)
from latentscale_pipeline.jobs.plan import Plan
from latentscale_pipeline.jobs.resume import plan_again
from latentscale_pipeline.jobs.run import job_work, prepare_job, work_with_caches
from latentscale_pipeline.measures.finished_job import find_job
from latentscale_pipeline.storage.lock import refuse_if_running
from latentscale_pipeline.storage.urls import storage_options

_SHARE = re.compile(r"(\d+)/(\d+)")
_JOB = (RUNTIME_OVERRIDES, ALLOW_CODE)
"""Options of steps that plan a job again."""


@click.group(no_args_is_help=True)
def stage() -> None:
    """Compute a job stage by stage, by processes that share nothing but files.

    For clusters whose machines can't reach each other: no Dask, no open port. A stage takes three
    steps: init, work by any number of processes, and finalise. The results are those of latentscale
    run. An iterated stage takes the three steps once per iteration: init prints 0 when nothing is
    left to compute, and finalise exits with 0 each time. Any other exit code means that the step
    has to be repeated.

    \b
    Example:
      latentscale stage prepare nightly.yaml
      job=jobs/nightly-1a2b3c4d
      for stage in $(latentscale stage list $job); do
        while parts=$(latentscale stage init $job $stage) || exit; [ "$parts" != 0 ]; do
          seq $parts | xargs -I{} latentscale stage work $job $stage --partition {}/$parts
          latentscale stage finalise $job $stage || exit
        done
      done
      latentscale resume $job
    """


@stage.command(no_args_is_help=True)
@click.argument("config", type=click.Path(path_type=Path))
@taking(OVERRIDES, ALLOW_CODE)
def prepare(config: Path, overrides: tuple[str, ...], allow_code: bool) -> None:
    """Write the folder of the job that CONFIG describes, and print its location.

    Sources that aren't corpora yet are ingested first. Nothing else is computed.

    \b
    Example:
      latentscale stage prepare nightly.yaml -o corpus=embeddings.zarr
    """
    plan = plan_job(read_job(str(config), overrides), allow_code=allow_code)
    with storage_options(plan.config.storage_options):
        prepare_job(plan)
        click.echo(plan.store.url)


@stage.command("list", no_args_is_help=True)
@click.argument("job")
@taking(*_JOB)
def list_stages(job: str, overrides: tuple[str, ...], allow_code: bool) -> None:
    """Print the names of JOB's stages, each after those it needs.

    \b
    Example:
      latentscale stage list jobs/nightly-1a2b3c4d
    """
    with _planned(job, overrides, allow_code) as plan:
        for planned in plan.stages:
            click.echo(planned.name)


@stage.command(no_args_is_help=True)
@click.argument("job")
@click.argument("name", metavar="STAGE")
@taking(*_JOB, JSON)
def init(job: str, name: str, as_json: bool, **how: Any) -> None:
    """Prepare STAGE of JOB and print how many parts are to be computed now.

    Damaged results are withdrawn, and results of other jobs are copied. 0 means that the stage is
    done. Repeat all three steps of an iterated stage until init prints 0. If all parts of a stage
    or iteration exist and only finalise is missing, 1 is printed: an array of one process then
    finds nothing to do.

    \b
    Example:
      latentscale stage init jobs/nightly-1a2b3c4d heat-corpus
    """
    with _planned(job, **how) as plan:
        # Other jobs may have what is missing.
        todo = work_with_caches(plan)
        state = init_stage(todo, find_stage(todo, name), _attempt())
    described = _describe(state)
    if as_json:
        click.echo(json.dumps(described))
    else:
        click.echo(0 if state.done else max(1, len(described["missing"])))


@stage.command(no_args_is_help=True)
@click.argument("job")
@click.argument("name", metavar="STAGE")
@click.option(
    "--partition",
    "share",
    metavar="I/OF",
    default="1/1",
    help="This is process I of OF, counted from 1; default 1/1, which takes all parts.",
)
@taking(*_JOB)
def work(job: str, name: str, share: str, **how: Any) -> None:
    """Compute this process' share of the missing parts of STAGE of JOB.

    Existing parts aren't computed again, so a process that died is simply started again. If parts
    fail, the others are still computed and the exit code is 3.

    \b
    Example:
      latentscale stage work jobs/nightly-1a2b3c4d heat-corpus --partition 3/16
    """
    own = _read_share(share)
    with _planned(job, **how) as plan:
        todo = job_work(plan)
        done = work_on_stage(todo, find_stage(todo, name), own, _attempt())
    click.echo(f"{name}: {done} parts computed", err=True)


@stage.command(no_args_is_help=True)
@click.argument("job")
@click.argument("name", metavar="STAGE")
@taking(*_JOB, KEEP, JSON)
def finalise(job: str, name: str, keep: bool, as_json: bool, **how: Any) -> None:
    """Combine the parts of STAGE of JOB, or of its iteration; exit with 3 if parts are missing.

    Prints done, or the next iteration of the stage. Temporary results that no stage reads any more
    are removed.

    \b
    Example:
      latentscale stage finalise jobs/nightly-1a2b3c4d heat-corpus
    """
    with _planned(job, **how) as plan:
        todo = replace(job_work(plan), keep=keep)
        state = finalise_stage(todo, find_stage(todo, name), _attempt())
    if as_json:
        click.echo(json.dumps(_describe(state)))
    else:
        click.echo("done" if state.done else f"iteration {state.iteration}")


@contextmanager
def _planned(job: str, overrides: tuple[str, ...], allow_code: bool) -> Iterator[Plan]:
    """Plan a job again from its folder, unless it is running."""
    plan = plan_again(find_job(job).address, overrides, allow_code=allow_code)
    with storage_options(plan.config.storage_options):
        refuse_if_running(plan.store)
        yield plan


def _attempt() -> str:
    """Return an attempt id that is part of the names of everything this process writes."""
    return uuid.uuid4().hex[:12]


def _read_share(text: str) -> Share:
    match = _SHARE.fullmatch(text)
    try:
        if match is None:
            raise ValueError("it isn't two numbers")
        return Share(int(match[1]), int(match[2]))
    except ValueError as error:
        raise BadInput(f"--partition {text}: {error}; write it as 3/16") from None


def _describe(state: StageState) -> dict[str, Any]:
    stage = state.stage
    return {
        "stage": stage.name,
        "done": state.done,
        "round": None if stage.advance is None or state.done else state.iteration,
        "partitions": stage.partitions,
        "missing": [part + 1 for part in missing_parts(state)],
    }
