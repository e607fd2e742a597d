"""``latentscale stage``: run single stages as plain processes, e.g. in batch arrays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from latentscale_pipeline.engine.state import StageState
    from latentscale_pipeline.executors.stepwise import Share

_SHARE = re.compile(r"(\d+)/(\d+)")

_OVERRIDES = click.option(
    "-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of cluster, driver."
)
_ALLOW_CODE = click.option(
    "--allow-code", is_flag=True, help="Run functions that the configuration names."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group(no_args_is_help=True)
def stage() -> None:
    """Compute a job stage by stage, by processes that share nothing but files.

    For clusters whose machines can't reach each other: no Dask, no open port. A stage takes three
    steps: init, work by any number of processes, and finalise. The results are those of latentscale
    run. A stage that goes in rounds takes the three steps once a round: init prints 0 when nothing
    is left to compute, and finalise exits with 0 each time. Any other exit code means that a step
    has to be done again.

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
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@_ALLOW_CODE
def prepare(config: Path, overrides: tuple[str, ...], allow_code: bool) -> None:
    """Write the folder of the job that CONFIG describes, and print where it is.

    Sources that aren't corpora yet are ingested first. Nothing else is computed.

    \b
    Example:
      latentscale stage prepare nightly.yaml -o corpus=embeddings.zarr
    """
    from latentscale_pipeline.cli.run import ended_by_signals, plan_of_file
    from latentscale_pipeline.jobs.run import prepare_job
    from latentscale_pipeline.storage.urls import storage_options

    with ended_by_signals():
        plan = plan_of_file(config, overrides, allow_code=allow_code)
        with storage_options(plan.config.storage_options):
            store = prepare_job(plan)
    click.echo(store.url)


@stage.command("list", no_args_is_help=True)
@click.argument("job")
@_OVERRIDES
@_ALLOW_CODE
def list_stages(job: str, overrides: tuple[str, ...], allow_code: bool) -> None:
    """Print the names of JOB's stages, each after those it needs.

    \b
    Example:
      latentscale stage list jobs/nightly-1a2b3c4d
    """
    from latentscale_pipeline.jobs.stepwise import StagedJob

    for name in StagedJob.open(job, overrides, allow_code=allow_code).stages:
        click.echo(name)


@stage.command(no_args_is_help=True)
@click.argument("job")
@click.argument("name", metavar="STAGE")
@_OVERRIDES
@_ALLOW_CODE
@_JSON
def init(job: str, name: str, overrides: tuple[str, ...], allow_code: bool, as_json: bool) -> None:
    """Get STAGE of JOB ready and print how many parts are to be worked on now.

    What is damaged is withdrawn, what other jobs have is copied. 0 means that the stage is done. A
    stage that goes in rounds takes all three steps until then. Where all parts of a stage, or a
    round, are there and only finalise is missing, 1 is printed: an array of one process then finds
    nothing to do.

    \b
    Example:
      latentscale stage init jobs/nightly-1a2b3c4d heat-corpus
    """
    state = _in_job(job, overrides, allow_code, lambda staged: staged.init(name))
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
@_OVERRIDES
@_ALLOW_CODE
def work(job: str, name: str, share: str, overrides: tuple[str, ...], allow_code: bool) -> None:
    """Compute the missing parts of STAGE of JOB that are this process' share.

    Parts that are there already aren't computed again, so a process that died is simply started
    again. When parts fail, the others are computed and the exit code is 3.

    \b
    Example:
      latentscale stage work jobs/nightly-1a2b3c4d heat-corpus --partition 3/16
    """
    own = _read_share(share)
    done = _in_job(job, overrides, allow_code, lambda staged: staged.work(name, own))
    click.echo(f"{name}: {done} parts computed", err=True)


@stage.command(no_args_is_help=True)
@click.argument("job")
@click.argument("name", metavar="STAGE")
@_OVERRIDES
@_ALLOW_CODE
@_JSON
def finalise(
    job: str, name: str, overrides: tuple[str, ...], allow_code: bool, as_json: bool
) -> None:
    """Make the result of STAGE of JOB, or of its round, from its parts; exit with 3 without them.

    Prints done, or the round of the stage that comes next.

    \b
    Example:
      latentscale stage finalise jobs/nightly-1a2b3c4d heat-corpus
    """
    state = _in_job(job, overrides, allow_code, lambda staged: staged.finalise(name))
    if as_json:
        click.echo(json.dumps(_describe(state)))
    else:
        click.echo("done" if state.done else f"round {state.iteration}")


def _in_job(
    job: str, overrides: tuple[str, ...], allow_code: bool, act: Callable[[Any], Any]
) -> Any:
    from latentscale_pipeline.cli.run import ended_by_signals
    from latentscale_pipeline.jobs.stepwise import StagedJob

    with ended_by_signals():
        return act(StagedJob.open(job, overrides, allow_code=allow_code))


def _read_share(text: str) -> Share:
    from latentscale_pipeline.errors import BadInput
    from latentscale_pipeline.executors.stepwise import Share

    match = _SHARE.fullmatch(text)
    try:
        if match is None:
            raise ValueError("it isn't two numbers")
        return Share(int(match[1]), int(match[2]))
    except ValueError as error:
        raise BadInput(f"--partition {text}: {error}; write it as 3/16") from None


def _describe(state: StageState) -> dict[str, Any]:
    from latentscale_pipeline.executors.stepwise import missing_parts

    stage = state.stage
    return {
        "stage": stage.name,
        "done": state.done,
        "round": None if stage.advance is None or state.done else state.iteration,
        "partitions": stage.partitions,
        "missing": [part + 1 for part in missing_parts(state)],
    }
