"""``latentscale run`` and ``latentscale demo``."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from latentscale_pipeline.cli.text_files import read_text
from latentscale_pipeline.errors import Interrupted

if TYPE_CHECKING:
    from latentscale_pipeline.jobs.plan import Plan
    from latentscale_pipeline.jobs.run import Finished


@click.command(no_args_is_help=True)
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--wait", is_flag=True, help="Wait while another run holds the job.")
@click.option("--take-over", is_flag=True, help="Succeed another run, alive or not.")
@click.option("--verify", is_flag=True, help="Check every stored byte; redo what is damaged.")
@click.option("--keep", is_flag=True, help="Keep temporary and superseded results.")
@click.option("--allow-code", is_flag=True, help="Run functions that the configuration names.")
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of a summary.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def run(
    config: Path,
    overrides: tuple[str, ...],
    wait: bool,
    take_over: bool,
    verify: bool,
    keep: bool,
    allow_code: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the job that CONFIG (a YAML file) describes.

    Running the same command again resumes an interrupted job; a finished one is recognised in
    seconds and nothing is computed. When a job is finished, results that only its other stages read
    are removed; --keep retains them.

    \b
    Example:
      latentscale run quickstart.yaml -o corpus=embeddings.npy -o measures.heat.k=10
    """
    with ended_by_signals():
        text = read_text(config, "a YAML file that describes a job")
        finished = _run_text(
            text,
            str(config),
            overrides,
            wait=wait,
            take_over=take_over,
            verify=verify,
            keep=keep,
            allow_code=allow_code,
            quiet=quiet,
        )
    print_finished(finished, as_json)


@click.command()
@click.option(
    "--output", default="latentscale-demo", show_default=True, help="Folder for the demo's jobs."
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
def demo(output: str, quiet: bool) -> None:
    """Run all measures on the sentence embeddings that come with this package.

    \b
    Example:
      latentscale demo --output demo-jobs
    """
    data = resources.files("latentscale_pipeline") / "demo"
    overrides = (
        f"output={json.dumps(output)}",
        f"corpus={json.dumps(str(data / 'corpus.npy'))}",
        f"reference={json.dumps(str(data / 'reference.npy'))}",
    )
    text = (data / "demo.yaml").read_text(encoding="utf-8")
    with ended_by_signals():
        finished = _run_text(text, "demo.yaml", overrides, quiet=quiet)
    print_finished(finished, as_json=False)


def _run_text(
    text: str,
    where: str,
    overrides: tuple[str, ...],
    *,
    wait: bool = False,
    take_over: bool = False,
    verify: bool = False,
    keep: bool = False,
    allow_code: bool = False,
    quiet: bool = False,
) -> Finished:
    def plan() -> Plan:
        return _plan_text(text, where, overrides, allow_code=allow_code, quiet=quiet)

    return run_plan(plan, wait=wait, take_over=take_over, verify=verify, keep=keep, quiet=quiet)


def plan_of_file(
    config: Path, overrides: tuple[str, ...], *, allow_code: bool, quiet: bool = False
) -> Plan:
    """Read a configuration file and plan its job; what isn't a corpus yet is ingested."""
    log_to_stderr()
    text = read_text(config, "a YAML file that describes a job")
    return _plan_text(text, str(config), overrides, allow_code=allow_code, quiet=quiet)


def _plan_text(
    text: str, where: str, overrides: tuple[str, ...], *, allow_code: bool, quiet: bool
) -> Plan:
    from latentscale_pipeline.config.job import read_config
    from latentscale_pipeline.jobs.plan import make_plan, measure_sections
    from latentscale_pipeline.progress import reported, silent

    config = read_config(
        text,
        where,
        overrides=overrides,
        measures=measure_sections(),
    )
    with reported("ingest", "rows") as progress:
        shown = silent if quiet else progress
        return make_plan(config, progress=shown, allow_code=allow_code)


def run_plan(
    plan: Callable[[], Plan],
    *,
    wait: bool,
    take_over: bool,
    verify: bool = False,
    keep: bool = False,
    quiet: bool,
) -> Finished:
    """Make a plan and run it, with progress on standard error."""
    from rich.console import Console

    from latentscale_pipeline.cli.run_progress import show_progress
    from latentscale_pipeline.jobs.run import run_job

    log_to_stderr()
    planned = plan()
    with show_progress(Console(stderr=True), quiet=quiet) as notify:
        return run_job(
            planned,
            notify,
            wait=wait,
            take_over=take_over,
            verify=verify,
            keep=keep,
            command=sys.argv[1:],
        )


def print_finished(finished: Finished, as_json: bool) -> None:
    """Print what a job found, as a summary for people or as its results document."""
    from rich.console import Console

    from latentscale_pipeline.report.terminal import print_summary

    if as_json:
        click.echo(json.dumps(finished.results, indent=1))
        return
    print_summary(dict(finished.results), Console())
    click.echo(f"results: {finished.store.locate('results.json')}")
    click.echo(f"report:  {finished.store.locate('report.html')}")
    if not finished.computed:
        click.echo("nothing had to be computed: this job was finished before")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Take Ctrl-C and SIGTERM as an interruption.

    What follows is tidying up, which another SIGTERM may not end; an impatient Ctrl-C may.
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


def log_to_stderr() -> None:
    """Send log lines to standard error, each with its time."""
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("latentscale")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
