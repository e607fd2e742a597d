"""``latentscale plan``: forecast what a job will do and cost."""

from __future__ import annotations

import json
from typing import Any

import click
import yaml
from rich.console import Console

from latentscale_pipeline.cli.job_arguments import JOB_OPTIONS, read_job
from latentscale_pipeline.cli.options import ALLOW_CODE, JSON, taking
from latentscale_pipeline.jobs.forecast import forecast_job
from latentscale_pipeline.views.formatting import (
    printable,
    write_bytes,
    write_duration,
    write_number,
)
from latentscale_pipeline.views.terminal import print_lines, print_table

WORK_COLUMNS = (
    *("stage", "tasks", "at once", "memory", "read", "exchanged", "written", "kept"),
    *("multiply-adds", "elementwise", "time"),
)
METHOD_COLUMNS = ("stage", "method", "because", "earlier runs")
WORK_NOTE = (
    "memory: of one process that runs one task. exchanged: of the bytes read, those that other\n"
    "tasks of the job wrote. kept: once the job is finished. multiply-adds: in matrix products.\n"
    "elementwise: entries visited one at a time (distances, exponentials, hashes, edges)."
)


@click.command(no_args_is_help=True)
@click.argument("given", metavar="SOURCE|JOB.yaml")
@taking(*JOB_OPTIONS, ALLOW_CODE, JSON)
def plan(given: str, allow_code: bool, as_json: bool, **about: Any) -> None:
    """Forecast what a job will do and cost: that of a YAML file, or of run SOURCE.

    Shows the resolved configuration; the tasks, memory, work and method of every stage; what
    earlier runs have computed; disk and time. Nothing is written. If a source isn't a corpus yet,
    only its header is read. A job that can't fit is refused with exit code 2 and the setting that
    would make it fit.

    \b
    Example:
      latentscale plan embeddings.npy
      latentscale plan nightly.yaml -o cluster.workers=8
    """
    forecast = forecast_job(read_job(given, **about), allow_code=allow_code)
    if as_json:
        click.echo(json.dumps(forecast, indent=1, allow_nan=False))
        return
    console = Console()
    for line in yaml.safe_dump(forecast["config"], sort_keys=False).splitlines():
        click.echo(printable(line))
    click.echo()
    _print_table(console, "Work", WORK_COLUMNS, _work_rows(forecast), right=WORK_COLUMNS[1:])
    click.echo(WORK_NOTE)
    click.echo()
    _print_table(console, "Methods and earlier runs", METHOD_COLUMNS, _method_rows(forecast))
    click.echo()
    for line in _remarks(forecast):
        click.echo(printable(line))


def _print_table(
    console: Console,
    title: str,
    columns: tuple[str, ...],
    rows: list[tuple[str, ...]],
    right: tuple[str, ...] = (),
) -> None:
    cells = [dict(zip(columns, map(printable, row), strict=True)) for row in rows]
    print_lines(console, [title])
    print_table(console, columns, cells, right=right, folded=columns[1:])


def _work_rows(forecast: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            stage["stage"],
            f"{stage['tasks']:,}"
            + (f" in {stage['rounds']} iterations" if stage.get("rounds", 1) > 1 else ""),
            str(stage.get("at_once", "")),
            write_bytes(stage["projected_memory_bytes"]),
            write_bytes(stage["bytes_read"]),
            write_bytes(stage["bytes_exchanged"]),
            write_bytes(stage["bytes_written"]),
            write_bytes(stage["bytes_kept"]),
            write_number(stage["multiply_adds"], 2),
            write_number(stage["folds"], 2),
            write_duration(stage["seconds"]),
        )
        for stage in [*forecast["stages"], {"stage": "all stages", **forecast["total"]}]
    ]


def _method_rows(forecast: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (stage["stage"], stage["method"] or "", stage["why"] or "", stage["reuse"])
        for stage in forecast["stages"]
    ]


def _remarks(forecast: dict[str, Any]) -> list[str]:
    job, disk, total = forecast["job"], forecast["disk"], forecast["total"]
    lines = []
    for role, corpus in forecast["corpora"].items():
        shape = f"{corpus['n']:,} x {corpus['d']:,} {corpus['dtype']}"
        line = f"{role}: {corpus['uri']}, {shape}, {write_bytes(corpus['bytes'])}"
        if corpus["ingested_first"]:
            line += f"; it will be ingested first, to {corpus['target']}"
        lines.append(line)
    if total["ingest_seconds"]:
        lines.append(f"ingest: about {write_duration(total['ingest_seconds'])}")
    lines.append(
        f"job: {job['folder']}"
        if job["folder"]
        else "job: gets its name, and is compared with earlier runs, once its sources are ingested"
    )
    free = "" if disk["free_bytes"] is None else f", {write_bytes(disk['free_bytes'])} free"
    lines.append(
        f"disk: the job's folder takes {write_bytes(disk['peak_bytes'])} at most while it runs, "
        f"{write_bytes(disk['kept_bytes'])} in the end; {write_bytes(disk['missing_bytes'])} more "
        f"than now{free}"
    )
    if not total["tasks_left"]:
        return [*lines, "time: none; this job is finished"]
    work = write_duration(total["work_seconds"])
    cluster = forecast["config"]["cluster"]
    where = "this machine"
    if cluster["kind"] not in {"auto", "serial", "local"}:
        where = f"{cluster['workers']} workers with cores like this machine's"
    time = f"time: about {write_duration(total['seconds'])} on {where}"
    return [*lines, f"{time} ({work} of work on one thread)"]
