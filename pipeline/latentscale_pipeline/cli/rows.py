"""``latentscale rows``: the rows of a finished job."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console

from latentscale_pipeline.cli.options import JSON
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import Role, RowFilter
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.rows.columns import Int64Array, JobRows, open_rows
from latentscale_pipeline.rows.selection import Order, check_column, choose_rows
from latentscale_pipeline.rows.table import read_tables
from latentscale_pipeline.rows.writing import json_lines, write_rows
from latentscale_pipeline.views.formatting import counted, printable, write_number
from latentscale_pipeline.views.terminal import format_table, print_lines

SHOWN = 20
"""Rows that are printed unless more are asked for."""

FILTERS: dict[str, RowFilter] = {
    name: found for measure in MEASURES.values() for name, found in measure.row_filters.items()
}


@click.command(no_args_is_help=True)
@click.argument("job")
@click.option("--only", type=click.Choice(list(FILTERS)), help="Rows to look at for one reason.")
@click.option(
    "--of",
    "of",
    type=click.Choice(("corpus", "reference")),
    help="Rows of which corpus; by default those that --only is about, else of the corpus.",
)
@click.option("--columns", metavar="NAME,...", help="Columns to show, in this order.")
@click.option("--where", help='Rows for which a condition holds, such as "outlier".')
@click.option("--sort", metavar="COLUMN[:desc]", help="Column of numbers to sort by.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    help=f"Largest number of rows; {SHOWN} if they are printed as a table, else all.",
)
@click.option("--output", metavar="FILE", help="Write a .parquet, .csv or .jsonl file instead.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@JSON
def rows(
    job: str,
    only: str | None,
    of: Role | None,
    columns: str | None,
    where: str | None,
    sort: str | None,
    limit: int | None,
    output: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """List the rows of JOB, the folder of a finished job, with what it knows of each.

    Columns are row, id and label, if the corpus has them, and those of the job's measures. Other
    rows, such as the one that a row repeats, are named by id, or by number without ids. --where
    compares columns with literals and with each other, as in `latentscale subset`, and with null.
    --json prints one JSON object a line.

    \b
    Example:
      latentscale rows jobs/nightly-1a2b3c4d --only near-duplicates
      latentscale rows jobs/nightly-1a2b3c4d --only leaks --output leaks.csv
      latentscale rows jobs/nightly-1a2b3c4d --where "outlier and nearest_distance > 0.4"
      latentscale rows jobs/nightly-1a2b3c4d --sort reference_distance:desc --limit 100
    """
    chosen = FILTERS.get(only or "")
    if chosen is not None and of is not None and of != chosen.of:
        raise click.UsageError(f"--only {only} is about rows of the {chosen.of}")
    found = open_rows(read_job(job), of or (chosen.of if chosen is not None else "corpus"))
    names = _names(found, columns, chosen)
    condition = _conditions(chosen, where)
    order = sort or (chosen.sort if chosen is not None else "")
    as_table = output is None and not as_json
    numbers = choose_rows(
        found,
        condition,
        Order.parse(order) if order else None,
        # One more shows whether there are others.
        (limit or SHOWN) + 1 if as_table else limit,
    )
    if as_table:
        _print(found, numbers, names, limit or SHOWN)
    elif output is None:
        for line in json_lines(read_tables(found, numbers, names)):
            click.echo(line)
    else:
        count = write_rows(read_tables(found, numbers, names), names, output, overwrite=overwrite)
        click.echo(f"{output}: {counted(count, 'row')}")


def _names(rows: JobRows, columns: str | None, chosen: RowFilter | None) -> Sequence[str]:
    if columns is not None:
        names = list(dict.fromkeys(name.strip() for name in columns.split(",") if name.strip()))
        if not names:
            raise BadInput("--columns is empty; name at least one column")
        for name in names:
            check_column(rows, name)
        return names
    if chosen is None:
        return rows.names
    about = [name for name in rows.names if name in {"row", "id", "label"}]
    return [*about, *(name for name in chosen.columns if name in rows.columns)]


def _conditions(chosen: RowFilter | None, where: str | None) -> str | None:
    given = [text for text in (chosen.where if chosen is not None else None, where) if text]
    return " and ".join(f"({text})" for text in given) or None


def _print(rows: JobRows, numbers: Int64Array, names: Sequence[str], limit: int) -> None:
    console = Console(soft_wrap=True, highlight=False)
    if not len(numbers):
        print_lines(console, ["no such rows"])
        return
    for table in read_tables(rows, numbers[:limit], names):
        cells = [
            dict(zip(table, map(_cell, row), strict=True))
            for row in zip(*table.values(), strict=True)
        ]
        print_lines(console, format_table(names, cells))
    if len(numbers) > limit:
        print_lines(console, ["there are more: --limit N, or --output FILE for all"])


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return write_number(value)
    return printable(str(value))
