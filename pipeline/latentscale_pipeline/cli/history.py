"""``latentscale history``: a registry of finished jobs."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click
from rich.console import Console

from latentscale_pipeline.cli.options import JSON, OUTPUT, WRITTEN_AS, several_jobs, taking
from latentscale_pipeline.cli.status import print_rows
from latentscale_pipeline.cli.text_files import write_text
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.history.entries import (
    Entry,
    format_gates,
    last_evaluations,
    last_used,
    make_entry,
    series_of,
)
from latentscale_pipeline.history.registry import LATEST, Registry, pick_baseline
from latentscale_pipeline.history.report import series_report
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.report import FORMATS
from latentscale_pipeline.views.formatting import printable

OUTCOME = ("baseline", "verdict", "passed", "accepted", "rejected")
"""What a list says of how a job fared."""

WHY = (
    click.option("--reason", default="", metavar="TEXT", help="Why, for the list and the report."),
    click.option("--undo", is_flag=True, help="Take it back."),
)


@click.group(no_args_is_help=True)
def history() -> None:
    """Register finished jobs: list them, plot trends, pick a baseline.

    HISTORY is a folder or a URL such as s3://bucket/history, which any number of writers may add to
    at once. It holds one Parquet file per job, with a row for every score.

    \b
    Example:
      latentscale history add history/ jobs/nightly-1a2b3c4d --tag release
      latentscale history list history/
      latentscale history plot history/ --output trends.html
      latentscale compare jobs/nightly-1a2b3c4d $(latentscale history pick history/)
    """


@history.command(no_args_is_help=True)
@click.argument("registry", metavar="HISTORY")
@several_jobs()
@click.option("--tag", help="A word by which the (last) job can be picked as a baseline.")
@click.option("--failed", is_flag=True, help="Their gates failed: they set no limits or baseline.")
def add(registry: str, jobs: tuple[str, ...], tag: str | None, failed: bool) -> None:
    """Register finished jobs, or the new places of folders that were moved.

    Jobs that are registered already are left unchanged otherwise.
    A workflow registers its jobs itself, with the outcome of their gates.

    \b
    Example:
      latentscale history add history/ jobs/nightly-1a2b3c4d --tag release
    """
    known = Registry.at(registry)
    if known.store.exists("results.json"):
        raise BadInput(
            f"{known.store.url}: this is a job, not a history; name the folder of the history first"
        )
    kept = []
    for url in jobs:
        entry = make_entry(read_job(url), passed=False if failed else None)
        added = known.add(entry)
        moved = not added and known.move(entry.job, entry.url)
        said = "was there already" + f"; its folder is now {printable(entry.url)}" * moved
        click.echo(f"{entry.job}: {'added' if added else said}")
        kept += [] if added else [entry.job]
        if tag is not None and url == jobs[-1]:
            known.tag(tag, entry.job)
            click.echo(f"{entry.job}: tagged {tag}")
    stored = known.entries() if failed and kept else []
    for entry in stored:
        if entry.job in kept and entry.is_usual:
            place = printable(shlex.quote(known.store.url))
            raise BadInput(
                f"{entry.job} was registered before as one that didn't fail; to mark it, use "
                f"latentscale history reject {place} {entry.job} --reason WHY"
            )


@history.command(no_args_is_help=True)
@click.argument("registry", metavar="HISTORY")
@click.argument("job")
@click.argument("tag")
def tag(registry: str, job: str, tag: str) -> None:
    """Give a registered JOB (its id) a TAG; the job that had it loses it.

    \b
    Example:
      latentscale history tag history/ nightly-1a2b3c4d release
    """
    Registry.at(registry).tag(tag, job)
    click.echo(f"{job}: tagged {tag}")


@history.command(no_args_is_help=True)
@click.argument("registry", metavar="HISTORY")
@click.argument("job")
@taking(*WHY)
def accept(registry: str, job: str, reason: str, undo: bool) -> None:
    """Accept a registered JOB (its id or folder) whose gates failed, because its change is wanted.

    It becomes the baseline of the jobs after it, and a workflow that evaluates it again ends with
    0. The jobs before it set no control limits any more, so gates with drift begin anew. Given
    again, the reason is replaced; --undo takes it back.

    \b
    Example:
      latentscale history accept history/ nightly-1a2b3c4d --reason 'a new product line'
    """
    name, why = _judged(job, reason, undo)
    entry = Registry.existing(registry).accept(name, why)
    if undo:
        click.echo(f"{name}: no longer accepted")
    else:
        though = "" if entry.passed is False else ", though no gate of it had failed"
        click.echo(f"{name}: accepted{though}; limits of drift begin anew with it")
        latest = pick_baseline(Registry.existing(registry), LATEST, entry.name)
        if latest is not None and latest.job != entry.job:
            click.echo(f"{latest.job} was evaluated after it and stays the latest baseline")


@history.command(no_args_is_help=True)
@click.argument("registry", metavar="HISTORY")
@click.argument("job")
@taking(*WHY)
def reject(registry: str, job: str, reason: str, undo: bool) -> None:
    """Reject a registered JOB (its id or folder), whatever its gates said.

    It is no baseline and sets no control limits any more. Given again, the reason is replaced;
    --undo takes it back.

    \b
    Example:
      latentscale history reject history/ nightly-1a2b3c4d --reason 'a broken export'
    """
    name, why = _judged(job, reason, undo)
    Registry.existing(registry).reject(name, why)
    said = "no longer rejected" if undo else "rejected; it is no baseline and sets no limits"
    click.echo(f"{name}: {said}")


def _judged(job: str, reason: str, undo: bool) -> tuple[str, str | None]:
    """Return the id of a job by its id or folder, and the reason; None to take a judgement back."""
    if undo and reason:
        raise click.UsageError("--undo takes no --reason")
    if reason == "WHY":
        raise click.UsageError("--reason WHY: write the reason in place of WHY")
    return job.rstrip("/").rpartition("/")[2], None if undo else reason


@history.command("list", no_args_is_help=True)
@click.argument("registry", metavar="HISTORY")
@click.option("--name", help="Only jobs of this name or workflow.")
@JSON
def list_entries(registry: str, name: str | None, as_json: bool) -> None:
    """List the registered jobs by their last use: when they were evaluated, or else finished.

    \b
    Example:
      latentscale history list history/ --name nightly
    """
    known = Registry.existing(registry)
    entries, tags = known.entries(name), known.tags()
    if as_json:
        click.echo(json.dumps([_describe(entry, tags) for entry in entries], indent=1))
        return
    if not entries:
        click.echo(f"{known.store.url}: no jobs", err=True)
        return
    print_rows(
        [
            {
                "last used": last_used(entry),
                "job": entry.job,
                "corpus": entry.source or "",
                "rows": f"{entry.corpus_rows:,}",
                "workflow": entry.workflow or "",
                "gates": format_gates(entry),
                "tags": ", ".join(word for word, job in tags.items() if job == entry.job),
                "folder": entry.url,
            }
            for entry in entries
        ],
        Console(),
    )


@history.command(no_args_is_help=True)
@click.argument("registry", metavar="HISTORY")
@click.option("--baseline", default="latest", show_default=True, help="latest, or a tag.")
@click.option("--name", help="For latest: only jobs of this name or workflow.")
def pick(registry: str, baseline: str, name: str | None) -> None:
    """Print the folder of a baseline: the latest job that didn't fail, or the tagged one.

    \b
    Example:
      latentscale history pick history/ --baseline release
    """
    known = Registry.at(registry)
    entry = pick_baseline(known, baseline, name)
    if entry is None:
        raise BadInput(f"{known.store.url}: no job can be the baseline; add a finished one")
    click.echo(entry.url)


@history.command(no_args_is_help=True)
@click.argument("registry", metavar="HISTORY")
@click.option("--name", help="Only jobs of this name or workflow.")
@click.option("--last", type=click.IntRange(1), help="Show only the newest jobs, this many.")
@taking(WRITTEN_AS, OUTPUT)
def plot(
    registry: str, name: str | None, last: int | None, written_as: str, output: str | None
) -> None:
    """Plot every score of all rows from job to job, with its brackets.

    \b
    Example:
      latentscale history plot history/ --name nightly --output trends.html
    """
    known = Registry.existing(registry)
    entries = last_evaluations(known.entries(name), name)
    if not entries:
        raise BadInput(f"{known.store.url}: no jobs{f' of {name}' if name else ''} to plot")
    title = name or ", ".join(dict.fromkeys(map(series_of, entries)))
    write_text(output, FORMATS[written_as](series_report(entries, title, known.tags(), last)))


def _describe(entry: Entry, tags: dict[str, str]) -> dict[str, Any]:
    same = (
        "job",
        "name",
        "source",
        "finished",
        "registered",
        "seconds",
        "peak_memory_bytes",
        "workflow",
        "evaluation",
    )
    return {
        **{name: getattr(entry, name) for name in (*same, *OUTCOME)},
        "folder": entry.url,
        "rows": entry.corpus_rows,
        "failures": entry.failures.splitlines(),
        "warnings": entry.warnings.splitlines(),
        "tags": [word for word, job in tags.items() if job == entry.job],
        "scores": [
            {name: value for name, value in score.flat().items() if value is not None}
            for score in entry.scores
        ],
    }
