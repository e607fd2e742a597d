"""``latentscale subset`` and ``latentscale export``: copy selected rows of a corpus."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from latentscale.array_types import Int64Array
from latentscale_pipeline.cli.info import show_corpus
from latentscale_pipeline.cli.options import JSON, SELECTION, taking
from latentscale_pipeline.cli.run import run_plan
from latentscale_pipeline.cli.text_files import read_text
from latentscale_pipeline.config.job import resolve_config
from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.corpus.diversity import Metric, choose_unlike
from latentscale_pipeline.corpus.export import export as write_file
from latentscale_pipeline.corpus.expressions import names_in
from latentscale_pipeline.corpus.formats.text import TABLES, unescape_formula
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.corpus.ingest.sidecars import TEXT_LENGTH, read_column
from latentscale_pipeline.corpus.selection import Selection, choose_rows, chosen_source, unknown_ids
from latentscale_pipeline.corpus.tables import Table
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.machine import memory_bytes
from latentscale_pipeline.jobs.plan import make_plan, measure_sections
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.finished_job import find_job, read_job
from latentscale_pipeline.measures.registry import ROW_FILTERS
from latentscale_pipeline.progress import reported
from latentscale_pipeline.rows.columns import open_measured, rows_of_corpus
from latentscale_pipeline.rows.query import check_reason
from latentscale_pipeline.rows.selection import check_columns_cover_all, count_rows, one_of_each
from latentscale_pipeline.rows.selection import choose_rows as find_rows
from latentscale_pipeline.rows.writing import WRITERS
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.views.formatting import format_number, printable

MAX_COMPARED = 200_000
"""Rows of a corpus up to which all are compared with each other; of more, those in cells."""

MIN_COMPARED = 100
"""Fewest rows that the measure can be asked to compare."""

STAYS = "near_duplicate_of is null"
"""What is true of rows that no earlier one is near."""


WITHOUT = click.option(
    "--without",
    multiple=True,
    type=click.Choice([name for name, found in ROW_FILTERS.items() if found.of == "corpus"]),
    help="Leave out the rows that the job names for this reason; may be repeated.",
)

OF = click.option(
    "--of",
    type=click.Choice(["corpus", "reference"]),
    help="Which corpus of a finished job CORPUS stands for  [default: corpus].",
)


@click.command()
@click.argument("corpus")
@click.argument("target", metavar="NEW")
@taking(*SELECTION, WITHOUT, OF)
@click.option("--overwrite", is_flag=True, help="Replace an existing corpus.")
@JSON
def subset(
    corpus: str, target: str, overwrite: bool, as_json: bool, of: Role | None, **chosen: Any
) -> None:
    """Make a new corpus of some rows of another one.

    The new corpus has the rows that meet all conditions, in their order, with their ids, labels and
    weights. CORPUS may be a finished job, which stands for its corpus, or with --of for its
    reference: --without leaves out the rows that it names for a reason, and keeps one of those that
    are near each other, of those that meet all other conditions. --where compares the columns ids,
    labels and weights, and those of --table, with literals and with each other: ==, !=, <, <=, >,
    >=, in [...], and, or, not, parentheses. A column of true and false is a condition by itself,
    and a name with spaces stands in backticks. With a job it compares what that knows of each row,
    the columns of `latentscale rows`, also with null, for example with --where "near_duplicate_of
    is null". --drop-duplicates keeps the first of rows that are near each other. Then --diverse
    chooses rows that raise the Vendi score of order 2 most, and --cover those farthest from each
    other, so that all others are near one. Outliers are among the first of both, so leave these out
    before.

    \b
    Example:
      latentscale subset jobs/nightly-1a2b3c4d clean.zarr --without near-duplicates
      latentscale subset corpus.zarr english.zarr --label en --label en-GB
      latentscale subset corpus.zarr recent.zarr --table meta.parquet --where "year >= 2020"
      latentscale subset corpus.zarr good.zarr --table meta.npz --where "checked and not draft"
      latentscale subset corpus.zarr small.zarr --sample 10000 --seed 1
      latentscale subset corpus.zarr distinct.zarr --drop-duplicates 0.05
      latentscale subset corpus.zarr diverse.zarr --diverse 1000
    """
    opened, chosen["job"] = _open(corpus, of=of, **chosen)
    rows = _choose(opened, **chosen)
    with reported("subset", "rows") as progress:
        written = ingest(
            chosen_source(opened, rows),
            target,
            dtype=opened.dtype.name,
            overwrite=overwrite,
            progress=progress,
            left_out=_left_out(opened, **chosen) if len(rows) < opened.n else opened.left_out,
        )
    show_corpus(written, as_json)


def _left_out(
    corpus: Corpus,
    without: Sequence[str],
    drop_duplicates: float | None,
    job: str | None,
    where: str | None,
    **_: Any,
) -> list[str]:
    """Return why rows were left out of a corpus, here or before."""
    compared = names_in(where) if job is not None and where is not None else ()
    by_column = [
        reason
        for reason, found in ROW_FILTERS.items()
        if {*names_in(found.where), *found.columns, found.distance}.intersection(compared)
    ]
    near = [] if drop_duplicates is None else ["near-duplicates"]
    return list(dict.fromkeys([*corpus.left_out, *without, *by_column, *near]))


@click.command()
@click.argument("corpus")
@click.argument("target", metavar="FILE")
@taking(*SELECTION, WITHOUT, OF)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def export(corpus: str, target: str, overwrite: bool, of: Role | None, **chosen: Any) -> None:
    """Write a corpus, or some rows of it, to a .npy or .parquet file.

    A .npy file holds the vectors. A Parquet file has them in the column "vector", beside ids,
    labels, the beginnings of texts and weights, and in "row" the number of each row in the corpus,
    counted from 0; where rows were left out of the source, or shards by the job, "source_row"
    counts these, too. A corpus has no other columns: of your own table take the rows with these
    numbers. Rows are selected as in `latentscale subset`.

    \b
    Example:
      latentscale export corpus.zarr vectors.npy
      latentscale export jobs/nightly-1a2b3c4d clean.parquet --without near-duplicates
      latentscale export corpus.zarr sample.parquet --sample 10000 --where "labels != 'test'"
    """
    opened, chosen["job"] = _open(corpus, of=of, **chosen)
    rows = _choose(opened, **chosen)
    with reported("export", "rows") as progress:
        numbers = {"row": rows}
        if opened.manifest.dropped.count or opened.excluded:
            numbers["source_row"] = opened.source_rows(rows)
        source = chosen_source(opened, rows)
        write_file(source, numbers, target, overwrite=overwrite, progress=progress)
    beside = ""
    if target.lower().endswith(".parquet"):
        names = [*numbers, *source.items[0].columns]
        cut = f"texts (their first {TEXT_LENGTH} characters)"
        beside = f", with {', '.join(cut if name == 'texts' else name for name in names)}"
    click.echo(f"{target}: {len(rows):,} rows of {opened.d} dimensions{beside}")


def _open(
    corpus: str,
    job: str | None,
    where: str | None,
    without: Sequence[str],
    of: Role | None,
    **_: Any,
) -> tuple[Corpus, str | None]:
    """Open a corpus, or one of a finished job that is named instead.

    Returns the job as well if it is needed. Of a job whose source is named, says where its corpora
    are.
    """
    try:
        opened = open_corpus(corpus)
    except BadInput:
        if job is None and find_job(corpus).exists("results.json"):
            finished, role = read_job(corpus), of or "corpus"
            if role not in finished.corpora:
                raise BadInput(f"{corpus}: the job has no {role}") from None
            return open_measured(finished, role), corpus if where or without else None
        if job is None and without:
            raise BadInput(
                f"{corpus}: neither a corpus nor a finished job; --without needs a job, as CORPUS "
                "or by --rows"
            ) from None
        measured = {} if job is None else read_job(job).corpora
        if not measured or not ObjectStore(corpus).exists(""):
            raise
        named = " or ".join(f"{found.uri} ({role})" for role, found in measured.items())
        raise BadInput(f"{corpus}: not a corpus; name one that {job} measured: {named}") from None
    if of is not None:
        raise click.UsageError("--of is for a finished job as CORPUS, which stands for one of two")
    return opened, job


def _choose(
    corpus: Corpus,
    drop_duplicates: float | None,
    diverse: int | None,
    cover: int | None,
    metric: Metric,
    sample: int | None,
    seed: int,
    **chosen: Any,
) -> Int64Array:
    """Return the rows that the options select."""
    if diverse and cover:
        raise click.UsageError("--diverse and --cover are two ways to choose; name one")
    rows = _select(corpus, **chosen)
    if drop_duplicates is not None:
        rows = _without_duplicates(corpus, rows, drop_duplicates, metric)
    if sample is not None:
        rows = choose_rows(corpus, Selection(sample=sample, seed=seed), rows)
    count = diverse or cover
    if count is None:
        return rows
    with reported("choose", "rows") as progress:
        found = choose_unlike(
            corpus,
            rows,
            count,
            cover=cover is not None,
            metric=metric,
            seed=seed,
            memory_bytes=memory_bytes(),
            progress=progress,
        )
    for name, kept in (("chosen", found.retained), ("random", found.by_random_rows)):
        click.echo(
            f"{count:,} {name} rows: effective number (cosine, order 2) "
            f"{format_number(kept.effective_number, 4)}, one within "
            f"{format_number(kept.radius, 3)} ({metric if cover else 'cosine'}) of every row",
            err=True,
        )
    return found.rows


def _without_duplicates(
    corpus: Corpus, rows: Int64Array, within: float, metric: Metric
) -> Int64Array:
    """Return the rows that stay if none is near an earlier one that does, by a job of its own."""
    n = len(rows)
    if n < 2:
        return rows
    compared = {"rows": max(n, MIN_COMPARED)} if n <= MAX_COMPARED else {"neighbours": "cells"}
    with tempfile.TemporaryDirectory() as folder:
        if n < corpus.n or corpus.excluded:
            corpus = ingest(chosen_source(corpus, rows), str(Path(folder) / "rows.zarr"))
        document = {
            "name": "subset",
            "corpus": corpus.address,
            "output": folder,
            "measures": {"duplicates": {"metric": metric, "within": within, **compared}},
            "sampling": {"method": "none"},
        }
        config = resolve_config(document, "subset", measures=measure_sections())
        finished = run_plan(make_plan(config), quiet=not sys.stderr.isatty(), verbose=False)
        job = read_job(finished.store.url)
        known = rows_of_corpus(job, corpus)
        check_columns_cover_all(known, STAYS)
        kept = rows[find_rows(known, STAYS, None, None)]
    click.echo(
        f"{n - len(kept):,} of {n:,} rows left out: each is within {within:g} ({metric}) of an "
        "earlier one that stays",
        err=True,
    )
    checked = job.results.part("duplicates").corpus.checked
    if checked is not None:
        click.echo(
            f"near rows were looked for in cells: of {checked.rows:,} random rows {checked.near:,} "
            f"have another one near, and for {checked.near_found:,} one was found",
            err=True,
        )
    return kept


def _select(corpus: Corpus, job: str | None, table: str | None, **chosen: Any) -> Int64Array:
    """Return the rows that meet all conditions; with a job, --where names columns of that."""
    if table is not None and chosen["where"] is None:
        raise click.UsageError("--table gives columns to --where; write a condition on one")
    if job is None:
        if chosen.pop("without"):
            raise click.UsageError(
                "--without needs a finished job: name it as CORPUS, or by --rows"
            )
        own = None if table is None else Table(corpus, table)
        _say_joined(own)
        return _chosen(corpus, _selection(table=own, **chosen), None)
    given, without = chosen.pop("where"), chosen.pop("without")
    filters = {reason: ROW_FILTERS[reason] for reason in without}
    if given is None and not without:
        raise click.UsageError(
            "--rows gives columns to --where and reasons to --without; write one of these"
        )
    known = rows_of_corpus(read_job(job), corpus, table=table)
    _say_joined(known.table)
    for reason in filters:
        check_reason(known, reason)
    alone = {reason: found for reason, found in filters.items() if not found.stays}
    given = [] if given is None else [f"({given})"]
    where = " and ".join([*given, *(f"not ({found.where})" for found in alone.values())])
    for condition in (*given, *(found.where for found in filters.values())):
        check_columns_cover_all(known, condition)
    for reason, found in alone.items():
        _say_left_out(count_rows(known, found.where), corpus.n, reason)
    among = find_rows(known, where or None, None, None)
    rows = _chosen(corpus, _selection(where=None, **chosen), among)
    # Of rows that are near each other one stays, so all other conditions come first.
    for reason, found in filters.items():
        if found.stays:
            kept = one_of_each(known, found.stays, rows)
            _say_left_out(len(rows) - len(kept), len(rows), reason)
            rows = kept
    if without:
        click.echo(f"{len(rows):,} of {corpus.n:,} rows stay", err=True)
    return rows


def _say_joined(table: Table | None) -> None:
    if table is not None:
        click.echo(printable(table.describe()), err=True)


def _say_left_out(count: int, rows: int, reason: str) -> None:
    click.echo(f"{count:,} of {rows:,} rows left out: {reason}", err=True)


def _chosen(corpus: Corpus, selection: Selection, among: Int64Array | None) -> Int64Array:
    """Return the rows of a selection, and say which ids are of no row."""
    rows = choose_rows(corpus, selection, among)
    wanted = set(selection.ids or ())
    if missing := unknown_ids(corpus, wanted):
        such = f"such as {printable(missing[0])}"
        click.echo(f"{len(missing):,} of {len(wanted):,} ids are of no row, {such}", err=True)
    return rows


def _selection(ids: Path | None, labels: tuple[str, ...], **chosen: Any) -> Selection:
    wanted = None if ids is None else _read_ids(ids)
    return Selection(ids=wanted, labels=labels or None, **chosen)


def _read_ids(path: Path) -> list[str]:
    """Read ids, without those that are missing."""
    found = [one for one in _read_column_of_ids(path) if one]
    if not found:
        raise BadInput(f"{path}: it names no ids; write one per line")
    return found


def _read_column_of_ids(path: Path) -> list[str]:
    """Read one id a line, or the column id of a table such as `latentscale rows` writes."""
    suffix = path.suffix.lower()
    if suffix in WRITERS:
        try:
            found = [str(one) for block in read_column("ids", str(path), "id") for one in block]
        except BadInput:
            if suffix != ".csv":  # which may have one id a line
                raise
        else:
            return [unescape_formula(one) for one in found] if suffix == ".csv" else found
    if suffix in TABLES:
        return [str(one) for block in read_column("ids", str(path)) for one in block]
    lines = read_text(path, "a text file with one id per line")
    return re.split(r"\r?\n", lines.removesuffix("\n"))
