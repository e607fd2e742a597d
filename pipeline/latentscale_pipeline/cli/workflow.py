"""``latentscale workflow``: run scheduled evaluations."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import click
from rich.console import Console

from latentscale_pipeline.cli.options import JSON, KEEP, OVERRIDES, QUIET, VERBOSE, taking
from latentscale_pipeline.cli.run import echo_ingest
from latentscale_pipeline.cli.run_progress import show_progress
from latentscale_pipeline.cli.text_files import read_text
from latentscale_pipeline.errors import BadInput, GateFailed
from latentscale_pipeline.history.entries import format_gates
from latentscale_pipeline.report.verdict import format_verdict
from latentscale_pipeline.results.model import Verdict
from latentscale_pipeline.storage.urls import strip_credentials
from latentscale_pipeline.views.formatting import counted, printable
from latentscale_pipeline.workflow.config import read_workflow
from latentscale_pipeline.workflow.evaluation import Outcome, describe_outcome, evaluate


@click.group(no_args_is_help=True)
def workflow() -> None:
    """Evaluate corpora from ingest to gate, as a workflow file describes.

    \b
    Example:
      latentscale workflow run workflows/nightly.yaml
    """


@workflow.command(no_args_is_help=True)
@click.argument("file", type=click.Path(path_type=Path))
@taking(OVERRIDES, KEEP)
@click.option("--allow-code", is_flag=True, help="Run functions and commands that are named.")
@taking(JSON, QUIET, VERBOSE)
def run(
    file: Path,
    overrides: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **how: bool,
) -> None:
    """Run one evaluation: ingest, job, comparison with a baseline, gates, history, notifications.

    An interrupted evaluation continues when the command is run again. A registered evaluation isn't
    repeated; only its verdict is printed again. While another run of the same workflow is active,
    this one steps aside and exits with 0.

    \b
    Example:
      latentscale workflow run workflows/nightly.yaml -o corpora.corpus=today.npy

    Exit codes: 0 passed or stepped aside, 1 a gate failed, 2 bad input, or jobs that can't be
    compared, 3 incomplete (run again).
    """
    text = read_text(file, "a YAML file that describes a workflow")
    read = read_workflow(text, str(file), overrides)
    with show_progress(Console(stderr=True), quiet=quiet, verbose=verbose) as notify:
        outcome = evaluate(
            read,
            str(file),
            notify,
            lambda line: click.echo(line, err=True),
            echo_ingest=None if quiet else echo_ingest,
            command=_without_secrets(sys.argv[1:]),
            **how,
        )
    if as_json:
        click.echo(json.dumps(describe_outcome(outcome), indent=1))
    _end(outcome, read.history, as_json)


def _without_secrets(arguments: list[str]) -> list[str]:
    """Leave out the value of overrides that may hold the address of a webhook."""
    return [
        "notify=…" if argument.removeprefix("-o").startswith("notify") else argument
        for argument in arguments
    ]


def _end(outcome: Outcome, history: str, as_json: bool) -> None:
    entry = outcome.entry
    if entry is None:
        return
    if not as_json:
        said = printable(format_gates(entry)) or "no gates"
        click.echo(f"{entry.job}: {said.replace('failed', 'FAILED', 1) if entry.failed else said}")
        click.echo(f"job:        {entry.url}")
        source = printable(entry.source or "unknown")
        click.echo(f"corpus:     {source}, {counted(entry.corpus_rows, 'row')}")
        click.echo(f"baseline:   {entry.baseline or outcome.no_baseline}")
        if entry.verdict_reason:
            verdict = Verdict(value=entry.verdict, reason=entry.verdict_reason)
            usual = "the baseline" if entry.baseline else "the reference"
            heading, [reason] = format_verdict(verdict, usual)
            click.echo(f"verdict:    {heading}. {printable(reason)}")
        click.echo(f"comparison: {outcome.comparison}")
        if entry.failed:
            for command in outcome.look:
                click.echo(f"rows:       {command}")
        if entry.failed and not outcome.unchecked:
            place = shlex.quote(strip_credentials(history))
            accept = f"latentscale history accept {place} {entry.job} --reason WHY"
            click.echo(f"if wanted:  {printable(accept)}")
    failures = [line for line in entry.failures.splitlines() if line not in outcome.unchecked]
    for failure in failures:
        click.echo(f"gate failed: {failure}", err=True)
    for warning in entry.warnings.splitlines():
        click.echo(f"gate warned: {warning}", err=True)
    for refusal in outcome.unchecked[1:]:
        click.echo(f"gate unchecked: {refusal}", err=True)
    if outcome.unchecked:
        raise BadInput(outcome.unchecked[0])
    if entry.failed:
        raise GateFailed(f"{counted(len(failures), 'gate')} failed")
