"""``latentscale run`` and ``latentscale demo``."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console

from latentscale_pipeline.cli.options import (
    ALLOW_CODE,
    JSON_RESULTS,
    KEEP,
    OVERRIDES,
    QUIET,
    TAKE_OVER,
    WAIT,
    taking,
)
from latentscale_pipeline.cli.run_progress import show_progress
from latentscale_pipeline.cli.text_files import read_text
from latentscale_pipeline.config.job import JobConfig, read_config
from latentscale_pipeline.errors import Interrupted
from latentscale_pipeline.jobs.plan import Plan, make_plan, measure_sections
from latentscale_pipeline.jobs.run import Finished, run_job
from latentscale_pipeline.progress import reported, silent
from latentscale_pipeline.report.terminal import print_summary


@click.command(no_args_is_help=True)
@click.argument("config", type=click.Path(path_type=Path))
@taking(OVERRIDES, WAIT, TAKE_OVER)
@click.option("--verify", is_flag=True, help="Check every stored byte; redo what is damaged.")
@taking(KEEP, ALLOW_CODE, JSON_RESULTS, QUIET)
def run(
    config: Path,
    overrides: tuple[str, ...],
    allow_code: bool,
    as_json: bool,
    quiet: bool,
    **how: bool,
) -> None:
    """Run the job that CONFIG (a YAML file) describes.

    Running the same command again resumes an interrupted job; a finished one is recognised in
    seconds and nothing is computed. When a job finishes, intermediate results are removed; --keep
    retains them.

    \b
    Example:
      latentscale run quickstart.yaml -o corpus=embeddings.npy -o measures.heat.k=10
    """
    with ended_by_signals():
        plan = plan_job(read_job(config, overrides), allow_code=allow_code, quiet=quiet)
        finished = run_plan(plan, quiet=quiet, **how)
    print_finished(finished, as_json)


@click.command()
@click.option(
    "--output", default="latentscale-demo", show_default=True, help="Folder for the demo's jobs."
)
@QUIET
def demo(output: str, quiet: bool) -> None:
    """Run all measures on the sentence embeddings that come with this package.

    \b
    Example:
      latentscale demo --output demo-jobs
    """
    data = Path(str(resources.files("latentscale_pipeline") / "demo"))
    overrides = (
        f"output={json.dumps(output)}",
        f"corpus={json.dumps(str(data / 'corpus.npy'))}",
        f"reference={json.dumps(str(data / 'reference.npy'))}",
    )
    with ended_by_signals():
        plan = plan_job(read_job(data / "demo.yaml", overrides), allow_code=False, quiet=quiet)
        finished = run_plan(plan, quiet=quiet)
    print_finished(finished, as_json=False)


def read_job(path: Path, overrides: Sequence[str]) -> JobConfig:
    """Read a configuration file."""
    text = read_text(path, "a YAML file that describes a job")
    return read_config(text, str(path), overrides=overrides, measures=measure_sections())


def plan_job(config: JobConfig, *, allow_code: bool, quiet: bool = False) -> Plan:
    """Plan a job; sources are ingested if necessary, with progress on standard error."""
    with reported("ingest", "rows") as progress:
        return make_plan(config, progress=silent if quiet else progress, allow_code=allow_code)


def run_plan(plan: Plan, *, quiet: bool, **how: bool) -> Finished:
    """Run a job as :func:`~latentscale_pipeline.jobs.run.run_job`, with progress."""
    with show_progress(Console(stderr=True), quiet=quiet) as notify:
        return run_job(plan, notify, command=sys.argv[1:], **how)


def print_finished(finished: Finished, as_json: bool) -> None:
    """Print a job's results, as a summary or as the results document."""
    if as_json:
        click.echo(finished.results.dump(), nl=False)
        return
    print_summary(finished.results, Console())
    click.echo(f"results: {finished.store.locate('results.json')}")
    click.echo(f"report:  {finished.store.locate('report.html')}")
    if not finished.computed:
        click.echo("nothing had to be computed: this job was already finished")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into an interruption.

    The cleanup that follows ignores another SIGTERM; another Ctrl-C ends it.
    """

    def interrupt(number: int, frame: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Interrupted(f"by {signal.Signals(number).name}")

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
