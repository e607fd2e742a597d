"""``latentscale rows``: the rows of a finished job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click
from rich.console import Console

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.expressions import names_in
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.measures.registry import ROW_FILTERS
from latentscale_pipeline.rows.columns import SOURCE_ROW, TEXTS
from latentscale_pipeline.rows.query import FoundRows, explain_none, find_rows
from latentscale_pipeline.rows.table import OTHER_TEXT
from latentscale_pipeline.rows.writing import json_lines, write_rows
from latentscale_pipeline.views.formatting import counted, format_number, printable, shorten
from latentscale_pipeline.views.terminal import format_table, print_lines

TEXT_LENGTH = 60
"""Characters of a text that are printed in a table."""

SHOWN = 20
"""Rows that are printed unless more are asked for."""


def _one_reason(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> str | None:
    if len(given) > 1:
        condition = " or ".join(f"({ROW_FILTERS[only].where})" for only in given)
        raise click.UsageError(f"--only takes one reason; for several: --where '{condition}'")
    return next(iter(given), None)


@click.command(
    no_args_is_help=True,
    # Reasons are written with hyphens, columns with underscores.
    context_settings={"token_normalize_func": lambda token: token.replace("_", "-")},
)
@click.argument("job")
@click.option(
    "--only",
    type=click.Choice(list(ROW_FILTERS)),
    multiple=True,
    callback=_one_reason,
    help="Rows to look at for one reason.",
)
@click.option(
    "--of",
    "of",
    type=click.Choice(("corpus", "reference")),
    help="Rows of which corpus; by default those that --only is about, else of the corpus.",
)
@click.option(
    "--new-since",
    "baseline",
    metavar="JOB",
    help="Rows whose ids the corpus of another finished job doesn't have, or that repeat one.",
)
@click.option("--columns", metavar="NAME,...", help="Columns to show, in this order.")
@click.option("--where", help='Rows for which a condition holds, such as "outlier".')
@click.option("--sort", metavar="COLUMN[:desc]", help="Column of numbers to sort by.")
@click.option(
    "--table",
    metavar="FILE",
    help="Files with more columns for --columns, --where and --sort, as of `latentscale subset`.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    help=f"Largest number of rows; {SHOWN} if they are printed as a table, else all.",
)
@click.option("--output", metavar="FILE", help="Write a .parquet, .csv or .jsonl file instead.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a row.")
def rows(
    job: str,
    only: str | None,
    of: Role | None,
    baseline: str | None,
    columns: str | None,
    where: str | None,
    sort: str | None,
    table: str | None,
    limit: int | None,
    output: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """List the rows of JOB, the folder of a finished job, with what it knows of each.

    Columns are row, id, label and text, if the corpus has them, and those of the measures. Other
    rows, such as the one that a row repeats, are named by id, or by number without ids. --where
    compares columns with literals and with each other, as in `latentscale subset`, and with null.
    Rows that are asked for by --where or --sort are printed with the columns that these name;
    --columns takes others. --table gives these options columns of your own files. --json prints one
    JSON object a line.

    \b
    Example:
      latentscale rows jobs/nightly-1a2b3c4d --only near-duplicates
      latentscale rows jobs/nightly-1a2b3c4d --only leaks --output leaks.csv
      latentscale rows jobs/tuesday --only outliers --new-since jobs/monday
      latentscale rows jobs/nightly-1a2b3c4d --where "outlier and nearest_distance > 0.4"
      latentscale rows jobs/nightly-1a2b3c4d --sort reference_distance:desc --limit 100
      latentscale rows jobs/nightly-1a2b3c4d --only outliers --table docs.parquet --columns id,url
    """
    if table is not None and not (where or sort or columns):
        raise click.UsageError("--table gives columns to --where, --sort and --columns; write one")
    if as_json and output is not None:
        raise click.UsageError("--json prints, and --output writes a file, by its suffix; name one")
    as_table = output is None and not as_json
    shown = limit or SHOWN
    found = find_rows(
        read_job(job),
        of=of,
        only=only,
        columns=None if columns is None else _listed(columns),
        where=where,
        sort=sort,
        # One more shows whether there are others.
        limit=shown + 1 if as_table else limit,
        baseline=None if baseline is None else read_job(baseline),
        table=table,
    )
    if found.rows.table is not None:
        click.echo(printable(found.rows.table.describe()), err=True)
    if "row" in found.names and found.rows.corpus.lacks_rows:
        click.echo(_left_out(found.rows.corpus), err=True)
    others: Sequence[str] = ()
    if as_table and only is None and columns is None and (where or sort):
        found, others = _narrowed(found, sort)
    if as_table:
        _print(found, shown, others)
    elif output is None:
        for line in json_lines(found.tables(), plain=True):
            click.echo(line)
    else:
        count = write_rows(found.tables(), found.kinds, output, overwrite=overwrite)
        title = "" if only is None else ROW_FILTERS[only].title
        about = f", {title[0].lower()}{title[1:]}" if title else ""
        click.echo(f"{output}: {counted(count, 'row')}{about}")


def _listed(columns: str) -> list[str]:
    return [name.strip() for name in columns.split(",") if name.strip()]


def _narrowed(found: FoundRows, sort: str | None) -> tuple[FoundRows, Sequence[str]]:
    """Return rows with the columns that were asked about, which fit on a line, and the others."""
    of_condition = names_in(found.where) if found.where is not None else []
    asked = {"row", SOURCE_ROW, *TEXTS, *of_condition, (sort or "").partition(":")[0]}
    names = [name for name in found.names if name in asked]
    return replace(found, names=names), [name for name in found.names if name not in asked]


def _print(found: FoundRows, limit: int, others: Sequence[str]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    more = len(found.numbers) > limit
    lines = []
    for table in replace(found, numbers=found.numbers[:limit]).tables():
        for name in table:
            own = name not in found.rows.names and found.kinds[name] == "text"
            if name == "text" or name.endswith(OTHER_TEXT) or own:
                table[name] = [shorten(text or "", TEXT_LENGTH) for text in table[name]]
        cells = [
            {name: _cell(value) for name, value in zip(table, row, strict=True)}
            for row in zip(*table.values(), strict=True)
        ]
        lines += format_table(found.names, cells)
    print_lines(console, lines or [explain_none(found)])
    if lines and others:
        print_lines(console, [f"other columns, with --columns: {', '.join(others)}"])
    if more:
        shown = f"{limit:,} of {found.count:,} rows"
        print_lines(console, [f"{shown}: --limit N for more, or --output FILE for all"])


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_number(value)
    return printable(str(value))


def _left_out(corpus: Corpus) -> str:
    """Say which rows of the sources have no number in a job."""
    rows = corpus.manifest.dropped.count + corpus.excluded_rows
    return f"row: without the {counted(rows, 'row')} of the source left out; source_row counts them"
