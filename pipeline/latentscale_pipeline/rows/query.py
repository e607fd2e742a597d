"""Ask a finished job for rows: by the reason to look at them, a condition, an order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Int64Array
from latentscale_pipeline.corpus.expressions import names_in, texts_equalled
from latentscale_pipeline.corpus.selection import no_row_has
from latentscale_pipeline.corpus.text_arrays import is_among
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import Role, RowFilter
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.registry import MEASURES, ROW_FILTERS
from latentscale_pipeline.rows.columns import SOURCE_ROW, JobRows, open_rows
from latentscale_pipeline.rows.new_rows import RowTest, new_since
from latentscale_pipeline.rows.selection import Order, check_column, choose_rows, count_rows
from latentscale_pipeline.rows.table import OTHER_TEXT, ColumnValues, Kind, column_kind, read_tables


@dataclass(frozen=True)
class FoundRows:
    """Rows of a finished job.

    Attributes
    ----------
    rows : JobRows
        All rows of the corpus.
    numbers : ndarray of int64
        The rows that were found, in their order.
    names : sequence of str
        The columns to show.
    where : str or None
        The condition that they meet.
    test : callable or None
        The test that they meet.
    """

    rows: JobRows
    numbers: Int64Array
    names: Sequence[str]
    where: str | None = None
    test: RowTest | None = None

    @property
    def count(self) -> int:
        """Number of rows that meet the condition and the test, found or beyond the limit."""
        if self.where is None and self.test is None:
            return self.rows.corpus.n
        return count_rows(self.rows, self.where, self.test)

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kind of every column's values, whatever rows were found."""
        return {name: column_kind(self.rows, name) for name in self.names}

    def tables(self) -> Iterator[ColumnValues]:
        """Yield the rows as tables of bounded size."""
        return read_tables(self.rows, self.numbers, self.names)


def find_rows(
    job: FinishedJob,
    *,
    of: Role | None = None,
    only: str | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    sort: str | None = None,
    limit: int | None = None,
    baseline: FinishedJob | None = None,
    table: str | None = None,
) -> FoundRows:
    """Find rows of a corpus of a finished job.

    Parameters
    ----------
    job : FinishedJob
        The job.
    of : str, optional
        The corpus; by default the one that ``only`` is about, or else the corpus.
    only : str, optional
        A reason to look at rows, of :data:`ROW_FILTERS`.
    columns : sequence of str, optional
        The columns to show; by default all, or those that matter for the reason.
    where : str, optional
        A condition on columns, in addition.
    sort : str, optional
        A column of numbers, or ``column:desc``.
    limit : int, optional
        Largest number of rows.
    baseline : FinishedJob, optional
        A job whose corpus doesn't have these rows, or the rows that they repeat, by their ids.
    table : str, optional
        Files with more columns for the rows of the corpus.

    Raises
    ------
    BadInput
        If the reason, a column or the corpus is unknown, or the condition isn't valid, or ids of
        both corpora are needed and not known.
    """
    if only is not None and only not in ROW_FILTERS:
        raise BadInput(f"{only} is no reason to look at rows; it can be {', '.join(ROW_FILTERS)}")
    reason = None if only is None else ROW_FILTERS[only]
    if table is not None and not (where or sort or columns):
        raise BadInput(f"{table}: a table gives columns to where, sort and columns; give one")
    rows = open_rows(job, of or (reason.of if reason is not None else "corpus"), table=table)
    if only is not None:
        check_reason(rows, only)
    names = _names(rows, columns, reason)
    order = sort or (reason.sort if reason is not None else "")
    condition = _condition(reason, where)
    other = "" if reason is None else reason.stays or reason.other
    test = None if baseline is None else new_since(rows, baseline, other)
    numbers = choose_rows(rows, condition, Order.parse(order) if order else None, limit, test)
    if columns is None:
        named = [*names_in(where or "true"), Order.parse(sort or "row").column]
        names = [*names, *(name for name in named if name not in rows.names)]
    return FoundRows(rows, numbers, names, condition, test)


def explain_none(found: FoundRows) -> str:
    """Say that no row was found, and which id or label of the condition no row has."""
    for name in ("label", "id"):
        given = texts_equalled(found.where, name) if found.where is not None else []
        if given:
            known = found.rows.read(name, np.arange(found.rows.corpus.n)).values
            there = set(known[is_among(known, given)].tolist())
            if missing := [one for one in given if one not in there]:
                return f"no such rows: {no_row_has(name, missing, known)}"
    return "no such rows"


def check_reason(rows: JobRows, only: str) -> None:
    """Refuse a reason to look at rows that these rows can't have, or that the job doesn't know."""
    job, reason = rows.job, ROW_FILTERS[only]
    of = {score.of for score in job.results.scores if score.score == reason.score}
    if rows.role != reason.of and rows.role not in of:
        raise BadInput(f"{only} are rows of the {reason.of}, not of the {rows.role}")
    if not set(names_in(reason.where)) <= set(rows.names):
        raise BadInput(f"{job.url}: {_why_unknown(job, only, reason, rows.corpus.n)}")


def _why_unknown(job: FinishedJob, only: str, reason: RowFilter, n: int) -> str:
    """Say why a job doesn't know the rows of a reason, and what to do."""
    measure = next(name for name, each in MEASURES.items() if only in each.row_filters)
    if job.settings is not None and measure not in job.measure_settings:
        return f"{only} are found by the measure {measure}; run it again with it"
    counted = any(score.score == reason.score for score in job.scores)
    if "reference" not in job.corpora and not counted:
        return f"a job without a reference knows no {only}; run it again with one"
    return (
        f"only a job that looks at all {n:,} rows knows its {only}; this one took random rows. "
        "Run it again without the key rows, or neighbours: exact, of the measure"
    )


def _condition(reason: RowFilter | None, where: str | None) -> str | None:
    """Return the condition that rows must meet, if any."""
    if where is None:
        return None if reason is None else reason.where
    names_in(where)  # a mistake in it is told without the other condition
    return where if reason is None else f"({reason.where}) and ({where}\n)"


def _names(rows: JobRows, columns: Sequence[str] | None, reason: RowFilter | None) -> Sequence[str]:
    if columns is not None:
        if not columns:
            raise BadInput("no columns are named; name at least one")
        for name in columns:
            check_column(rows, name)
        return list(dict.fromkeys(columns))
    if reason is None:
        return rows.names
    about = [name for name in rows.names if name in {"row", SOURCE_ROW, "id", "label"}]
    text = [name for name in rows.names if name == "text"]
    other = rows.columns[reason.other].row_of if reason.other in rows.columns else ""
    if other and "texts" in rows.corpus_of(other).manifest.arrays:
        text.append(f"{reason.other}{OTHER_TEXT}")
    return [*about, *(name for name in reason.columns if name in rows.columns), *text]
