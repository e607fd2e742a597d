"""``latentscale plan``: forecast what a job will do and cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from latentscale_pipeline.cli.text_files import read_text

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 160
"""Columns of the tables where no terminal says how many there are."""

WORK_NOTE = (
    "memory: of one process that runs one task. multiply-adds: in matrix products. folds: entries\n"
    "visited one at a time (distances, exponentials, hashes, edges)."
)


@click.command(no_args_is_help=True)
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--allow-code", is_flag=True, help="Run functions that the configuration names.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def plan(config: Path, overrides: tuple[str, ...], allow_code: bool, as_json: bool) -> None:
    """Tell what the job that CONFIG (a YAML file) describes will do and take.

    Shows the resolved configuration; for every stage its tasks, memory, work and the method that
    was chosen; what earlier runs have left of it; disk and time. Nothing is written: of a source
    that isn't a corpus yet only the header is read. A job that can't fit is refused with exit code
    2 and the setting that would make it fit.

    \b
    Example:
      latentscale plan quickstart.yaml -o corpus=embeddings.npy -o cluster.workers=8
    """
    from latentscale_pipeline.config.job import read_config
    from latentscale_pipeline.jobs.forecast import forecast_job
    from latentscale_pipeline.jobs.plan import measure_sections

    resolved = read_config(
        read_text(config, "a YAML file that describes a job"),
        str(config),
        overrides=overrides,
        measures=measure_sections(),
    )
    forecast = forecast_job(resolved, allow_code=allow_code)
    if as_json:
        click.echo(json.dumps(forecast, indent=1, allow_nan=False))
    else:
        _print_forecast(forecast)


def _print_forecast(forecast: dict[str, Any]) -> None:
    import yaml
    from rich.console import Console

    from latentscale_pipeline.views.formatting import printable

    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    for line in yaml.safe_dump(forecast["config"], sort_keys=False).splitlines():
        click.echo(printable(line))
    click.echo()
    console.print(_work_table(forecast))
    click.echo(WORK_NOTE)
    click.echo()
    console.print(_method_table(forecast))
    click.echo()
    for line in _remarks(forecast):
        click.echo(printable(line))


def _work_table(forecast: dict[str, Any]) -> Table:
    from latentscale_pipeline.views.formatting import write_bytes, write_duration, write_number

    header = ("stage", "tasks", "at once", "memory", "read", "written", "multiply-adds", "folds")
    table = _table("Work", (*header, "time"))
    for column in table.columns[1:]:
        column.justify = "right"
    for stage in [*forecast["stages"], {"stage": "all stages", **forecast["total"]}]:
        iterations = f" in {stage['rounds']} rounds" if stage.get("rounds", 1) > 1 else ""
        table.add_row(
            stage["stage"],
            f"{stage['tasks']:,}{iterations}",
            str(stage.get("at_once", "")),
            write_bytes(stage["projected_memory_bytes"]),
            write_bytes(stage["bytes_read"]),
            write_bytes(stage["bytes_written"]),
            write_number(stage["multiply_adds"], 2),
            write_number(stage["folds"], 2),
            write_duration(stage["seconds"]),
        )
    return table


def _method_table(forecast: dict[str, Any]) -> Table:
    from rich.text import Text

    from latentscale_pipeline.views.formatting import printable

    table = _table("Methods and earlier runs", ("stage", "method", "because", "earlier runs"))
    for stage in forecast["stages"]:
        cells = (stage["stage"], stage["method"] or "", stage["why"] or "", stage["reuse"])
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _table(title: str, header: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    table.columns[0].no_wrap = True
    return table


def _remarks(forecast: dict[str, Any]) -> list[str]:
    from latentscale_pipeline.views.formatting import write_bytes, write_duration

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
        else "job: named, and compared with earlier runs, once its sources are ingested"
    )
    free = "" if disk["free_bytes"] is None else f", {write_bytes(disk['free_bytes'])} free"
    lines.append(
        f"disk: {write_bytes(disk['needed_bytes'])} in all, "
        f"{write_bytes(disk['missing_bytes'])} still to be written{free}"
    )
    if not total["tasks_left"]:
        return [*lines, "time: nothing has to be computed, this job is finished"]
    work = write_duration(total["work_seconds"])
    cluster = forecast["config"]["cluster"]
    where = "this machine"
    if cluster["kind"] not in {"serial", "local"}:
        where = f"{cluster['workers']} workers with cores like this machine's"
    time = f"time: about {write_duration(total['seconds'])} on {where}"
    return [*lines, f"{time} ({work} of work on one thread)"]
