"""``latentscale run`` and ``latentscale demo``."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from latentscale_pipeline.cli.job_arguments import JOB_OPTIONS, read_job
from latentscale_pipeline.cli.options import (
    ALL_SCORES,
    ALLOW_CODE,
    JSON_RESULTS,
    KEEP,
    QUIET,
    TAKE_OVER,
    VERBOSE,
    WAIT,
    taking,
)
from latentscale_pipeline.cli.run_progress import show_progress
from latentscale_pipeline.cli.source_arguments import (
    SOURCE_OPTIONS,
    choose_sources,
    name_option,
)
from latentscale_pipeline.config.cluster import IN_THE_DRIVER
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.errors import BadInput, GateFailed, how_to_install
from latentscale_pipeline.jobs.plan import Plan, make_plan, measures_of
from latentscale_pipeline.jobs.run import Finished, is_finished, run_job
from latentscale_pipeline.jobs.sources import SOURCE_NAMES, JobSources, ingest_sources
from latentscale_pipeline.measures.fresh_samples import sample_sizes
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.progress import reported, silent
from latentscale_pipeline.report.terminal import print_scores
from latentscale_pipeline.report.terminal_summary import format_evidence, print_summary
from latentscale_pipeline.report.verdict import clean_commands, look_commands
from latentscale_pipeline.views.terminal import print_lines


@click.command(no_args_is_help=True)
@click.argument("given", metavar="SOURCE...|JOB.yaml", nargs=-1, required=True)
@taking(*JOB_OPTIONS, *SOURCE_OPTIONS)
@taking(WAIT, TAKE_OVER)
@click.option("--verify", is_flag=True, help="Check every stored byte; redo what is damaged.")
@click.option(
    "--fail-on-difference", is_flag=True, help="Exit with 1 if the corpus differs (the verdict)."
)
@click.option(
    "--performance-report",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write Dask's page on the run: tasks, workers, profiles.",
)
@taking(KEEP, ALLOW_CODE, JSON_RESULTS, ALL_SCORES, QUIET, VERBOSE)
def run(
    given: tuple[str, ...],
    wait: bool,
    take_over: bool,
    verify: bool,
    fail_on_difference: bool,
    performance_report: Path | None,
    keep: bool,
    allow_code: bool,
    as_json: bool,
    every_score: bool,
    quiet: bool,
    verbose: bool,
    **about: Any,
) -> None:
    """Measure SOURCE, or run the job that a YAML file describes.

    SOURCE is whatever ingest reads: files, a folder, a glob, a corpus. It is ingested, and all
    measures that apply are run. Several sources are one corpus. Columns named id, label and text
    are the ids, labels and texts; name others with --ids-column, --labels-column and
    --texts-column. The reference has the same ones unless --reference-labels-column, for example,
    names another; a corpus has its own. The job's folder then holds report.html, results.json and
    config.yaml, the job file that stands for this command.

    Running the same command again resumes an interrupted job; a finished one is recognised in
    seconds and nothing is computed. When a job finishes, intermediate results are removed; --keep
    retains them.

    \b
    Example:
      latentscale run vectors.npy
      latentscale run generated.parquet --reference real.parquet --measures heat,vendi
      latentscale run docs.parquet --vectors embedding --ids-column doc --labels-column topic
      latentscale run nightly.yaml --fail-on-difference
    """
    values = {name: about.pop(name) for name in SOURCE_NAMES}
    config = read_job(given[0], **about)
    config = ingest_given(config, choose_sources(given, config, values), quiet=quiet)
    plan = plan_job(config, allow_code=allow_code, quiet=quiet)
    if fail_on_difference:
        _refuse_incomparable(plan)
    if performance_report is not None:
        _refuse_performance_report(plan)
    how = {"wait": wait, "take_over": take_over, "verify": verify, "keep": keep}
    finished = run_plan(
        plan, quiet=quiet, verbose=verbose, performance_report=performance_report, **how
    )
    if performance_report is not None and not finished.computed:
        click.echo(f"{performance_report} wasn't written, as nothing ran on Dask", err=True)
    print_finished(finished, as_json=as_json, every_score=every_score)
    if fail_on_difference:
        _fail_on_difference(finished)


def _refuse_incomparable(plan: Plan) -> None:
    """Refuse a job that will have no verdict, before it runs."""
    measures, sizes = measures_of(plan.config).items(), sample_sizes(plan.facts)
    judged = any(MEASURES[name].expects(section, plan.facts) for name, section in measures)
    reason = sizes if isinstance(sizes, str) and not judged else ""
    if "reference" not in plan.facts.corpora:
        reason = "there is no reference"
    if plan.facts.pair is not None:
        reason = "its rows are paired, and p-values are for corpora that share no items"
    if reason:
        raise BadInput(f"--fail-on-difference: {plan.id} will have no verdict: {reason}")


def _refuse_performance_report(plan: Plan) -> None:
    """Refuse a performance report that can't be written, before the job runs."""
    option = "--performance-report"
    if importlib.util.find_spec("bokeh") is None:
        raise BadInput(
            f"{option} needs bokeh, which isn't installed; {how_to_install('dashboard')}"
        )
    if isinstance(plan.cluster, IN_THE_DRIVER) and not is_finished(plan):
        raise BadInput(
            f"{option}: this job runs in this process, without Dask; add -o cluster.kind=local for "
            "worker processes"
        )


def _fail_on_difference(finished: Finished) -> None:
    """End with exit code 1 if the corpus differs from the reference, with 2 if nobody can tell."""
    verdict = finished.results.verdict
    if verdict is None or verdict.value in {None, "cannot_tell"}:
        reason = "it was measured by an earlier version" if verdict is None else verdict.reason
        raise BadInput(f"--fail-on-difference: {finished.results.job.id} has no verdict: {reason}")
    if verdict.value == "differs":
        raise GateFailed(f"{finished.results.job.id} differs from its reference: {verdict.reason}")


@click.command()
@click.option(
    "--output", default="latentscale-demo", show_default=True, help="Folder for the demo's jobs."
)
@taking(ALL_SCORES, QUIET, VERBOSE)
def demo(output: str, every_score: bool, quiet: bool, verbose: bool) -> None:
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
    plan = plan_job(read_job(str(data / "demo.yaml"), overrides), allow_code=False, quiet=quiet)
    finished = run_plan(plan, quiet=quiet, verbose=verbose)
    print_finished(finished, every_score=every_score)


def ingest_given(config: JobConfig, sources: JobSources, *, quiet: bool) -> JobConfig:
    """Ingest what a job file can't name, with progress on standard error."""
    if (count := len(sources["corpus"][0])) > 1 and not quiet:
        echo_ingest(f"{count} sources are read as one corpus; --reference compares with another")
    with reported("ingest", "rows") as progress:
        shown, told = (silent, None) if quiet else (progress, echo_ingest)
        return ingest_sources(config, sources, shown, told, name_option)


def echo_ingest(line: str) -> None:
    """Say what an ingest has to say, on standard error."""
    click.echo(f"ingest: {line}", err=True)


def plan_job(config: JobConfig, *, allow_code: bool, quiet: bool = False) -> Plan:
    """Plan a job; sources are ingested if necessary, with progress on standard error."""
    with reported("ingest", "rows") as progress:
        shown = silent if quiet else progress
        told = None if quiet else echo_ingest
        return make_plan(config, progress=shown, echo=told, allow_code=allow_code)


def run_plan(plan: Plan, *, quiet: bool, verbose: bool, **how: Any) -> Finished:
    """Run a job as :func:`~latentscale_pipeline.jobs.run.run_job`, with progress."""
    with show_progress(Console(stderr=True), quiet=quiet, verbose=verbose) as notify:
        return run_job(plan, notify, command=sys.argv[1:], **how)


def print_finished(finished: Finished, *, as_json: bool = False, every_score: bool = False) -> None:
    """Print a job's results: a summary, all scores, or the results document."""
    if as_json:
        click.echo(finished.results.dump(), nl=False)
        return
    show = print_scores if every_score else print_summary
    show(finished.results, Console())
    verdict = finished.results.verdict
    if every_score and verdict is not None and verdict.value is not None:
        print_lines(Console(), format_evidence(verdict, finished.results.scores))
    click.echo()
    click.echo(f"results  {finished.store.locate('results.json')}")
    click.echo(f"report   {finished.store.locate('report.html')}")
    for command in look_commands(finished.results, finished.store.locate("")):
        click.echo(f"rows     {command}")
    for command in clean_commands(finished.results, finished.store.locate("")):
        click.echo(f"clean    {command}")
    if not finished.computed:
        what = (
            "the checksum of every file"
            if finished.thorough
            else "the sizes of all files; --verify compares their checksums"
        )
        click.echo(f"checked  {what}")
        click.echo("nothing had to be computed: this job was already finished")
