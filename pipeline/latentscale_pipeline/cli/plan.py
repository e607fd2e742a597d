"""``latentscale plan``: forecast what a job will do and cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
from rich.console import Console

from latentscale_pipeline.cli.job_arguments import JOB_OPTIONS, read_job
from latentscale_pipeline.cli.options import ALLOW_CODE, JSON, taking
from latentscale_pipeline.cli.source_arguments import SOURCE_OPTIONS, choose_sources
from latentscale_pipeline.jobs.forecast import forecast_job
from latentscale_pipeline.jobs.sources import SOURCE_NAMES
from latentscale_pipeline.views.formatting import (
    counted,
    format_bytes,
    format_duration,
    format_number,
    printable,
)
from latentscale_pipeline.views.terminal import print_lines, print_table

METHOD_COLUMNS = ("stage", "of", "method", "because", "time")
WORK_COLUMNS = (
    *("stage", "tasks", "at once", "memory", "read", "exchanged", "written", "kept"),
    *("multiply-adds", "elementwise", "time", "earlier runs"),
)
WORK_NOTE = (
    "memory: of one process that runs one task. exchanged: of the bytes read, those that other\n"
    "tasks of the job wrote. kept: once the job is finished. multiply-adds: in matrix products.\n"
    "elementwise: entries visited one at a time (distances, exponentials, hashes, edges)."
)

Forecast = dict[str, Any]
Row = dict[str, str]


@click.command(no_args_is_help=True)
@click.argument("given", metavar="SOURCE...|JOB.yaml", nargs=-1, required=True)
@taking(*JOB_OPTIONS, *SOURCE_OPTIONS, ALLOW_CODE)
@click.option("--stages", is_flag=True, help="Also show the work of every stage, and its reuse.")
@taking(JSON)
def plan(
    given: tuple[str, ...], allow_code: bool, stages: bool, as_json: bool, **about: Any
) -> None:
    """Forecast what a job will do and cost: that of a YAML file, or of run SOURCE.

    Shows time, memory and disk, and the method of every stage with the reason for it; --stages adds
    tasks, bytes and work. Nothing is written. If a source isn't a corpus yet, only its header is
    read. What this machine has too little of is said; the job may still run elsewhere. A job that
    exceeds its own memory limit or pair budget is refused with exit code 2, and with the setting
    that would make it fit. latentscale config prints the settings.

    \b
    Example:
      latentscale plan embeddings.npy
      latentscale plan docs.parquet --vectors embedding --reference real.parquet
      latentscale plan nightly.yaml -o cluster.workers=8
    """
    values = {name: about.pop(name) for name in SOURCE_NAMES}
    config = read_job(given[0], **about)
    sources = choose_sources(given, config, values)
    forecast = forecast_job(config, sources, allow_code=allow_code, echo=_note)
    if as_json:
        click.echo(json.dumps(forecast, indent=1, allow_nan=False))
        return
    console = Console()
    print_lines(console, map(printable, _summary(forecast)))
    print_lines(console, ["", "Methods"])
    print_table(console, METHOD_COLUMNS, _method_rows(forecast), folded=("method", "because"))
    missing = forecast["not_computed"].items()
    print_lines(console, (f"{name}: not computed: {printable(reason)}" for name, reason in missing))
    if stages:
        print_lines(console, ["", "Stages"])
        rows = _work_rows(forecast)
        print_table(console, WORK_COLUMNS, rows, right=WORK_COLUMNS[1:-1], folded=WORK_COLUMNS[1:])
        print_lines(console, WORK_NOTE.splitlines())
    for shortfall in forecast["shortfalls"]:
        click.echo(f"warning: {printable(shortfall)}", err=True)


def _note(line: str) -> None:
    click.echo(f"plan: {line}", err=True)


def _summary(forecast: Forecast) -> Iterator[str]:
    job, total, disk = forecast["job"], forecast["total"], forecast["disk"]
    for role, corpus in forecast["corpora"].items():
        yield f"{role:<9}  {_corpus_sentence(corpus)}"
    yield f"time       {_time_sentence(forecast)}"
    machine = format_bytes(forecast["machine"]["memory_bytes"])
    yield (
        f"memory     {format_bytes(total['projected_memory_bytes'])} in one process at most; "
        f"this machine has {machine}"
    )
    free = "" if disk["free_bytes"] is None else f"; {format_bytes(disk['free_bytes'])} are free"
    yield (
        f"disk       {format_bytes(disk['needed_bytes'])} at most while it runs, "
        f"{format_bytes(disk['kept_bytes'])} in the end, "
        f"{format_bytes(disk['missing_bytes'])} more than now{free}"
    )
    reused = sum(not stage["left"] for stage in forecast["stages"])
    if reused:
        yield f"reused     {reused} of {counted(len(forecast['stages']), 'stage')} (--stages)"
    yield f"folder     {job['folder'] or 'named once the sources are ingested'}"


def _corpus_sentence(corpus: dict[str, Any]) -> str:
    shape = f"{corpus['n']:,} × {corpus['d']:,} {corpus['dtype']}, {format_bytes(corpus['bytes'])}"
    target = f", ingested first to {corpus['target']}" if corpus["ingested_first"] else ""
    return f"{shape}: {corpus['uri']}{target}"


def _time_sentence(forecast: Forecast) -> str:
    total, cluster = forecast["total"], forecast["config"]["cluster"]
    if not total["tasks_left"]:
        return "none; this job is finished"
    where = "this machine"
    if cluster["kind"] not in {"auto", "serial", "threads", "local"}:
        where = f"{cluster['workers']} workers with cores like this machine's"
    work = f"{format_duration(total['work_seconds'])} of work on one thread"
    ingest = total["ingest_seconds"]
    first = f", {format_duration(ingest)} of ingest first" if ingest else ""
    return f"about {format_duration(total['seconds'])} on {where} ({work}{first})"


def _method_rows(forecast: Forecast) -> list[Row]:
    """Return the methods, one row for both corpora where they are treated alike."""
    rows: dict[tuple[str, str, str], tuple[list[str], float]] = {}
    for stage in forecast["stages"]:
        if stage["method"]:
            name, _, last = stage["stage"].rpartition("-")
            name, role = (name, last) if last in forecast["corpora"] else (stage["stage"], "")
            key = (name, stage["method"], stage["why"] or "")
            roles, seconds = rows.get(key, ([], 0.0))
            rows[key] = ([*roles, role], seconds + stage["seconds"])
    return [
        dict(
            zip(
                METHOD_COLUMNS,
                map(printable, (name, ", ".join(roles), method, why, format_duration(seconds))),
                strict=True,
            )
        )
        for (name, method, why), (roles, seconds) in rows.items()
    ]


def _reuse(stage: dict[str, Any]) -> str:
    """Return what earlier runs have left of a stage."""
    found: str = stage.get("reuse", "")
    return "none" if found == "computed" else found


def _work_rows(forecast: Forecast) -> list[Row]:
    rows = [
        (
            stage["stage"],
            f"{stage['tasks']:,}"
            + (f" in {stage['rounds']} iterations" if stage.get("rounds", 1) > 1 else ""),
            str(stage.get("at_once", "")),
            format_bytes(stage["projected_memory_bytes"]),
            format_bytes(stage["bytes_read"]),
            format_bytes(stage["bytes_exchanged"]),
            format_bytes(stage["bytes_written"]),
            format_bytes(stage["bytes_kept"]),
            format_number(stage["multiply_adds"], 2),
            format_number(stage["folds"], 2),
            format_duration(stage["seconds"]),
            _reuse(stage),
        )
        for stage in [*forecast["stages"], {"stage": "all stages", **forecast["total"]}]
    ]
    return [dict(zip(WORK_COLUMNS, map(printable, row), strict=True)) for row in rows]
