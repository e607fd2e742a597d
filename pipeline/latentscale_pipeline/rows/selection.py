"""Choose rows of a job by a condition, sort them, and keep the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from latentscale.array_types import Int64Array
from latentscale_pipeline.config.section import nearest
from latentscale_pipeline.corpus.expressions import (
    matching_rows,
    names_compared,
    names_in,
    suggest_quotes,
)
from latentscale_pipeline.corpus.formats.container import UnknownField
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.rows.columns import JobRows
from latentscale_pipeline.rows.new_rows import RowTest

BLOCK_ROWS = 1 << 17
"""Rows whose columns are in memory at once."""

ONLY_NULL = (
    "{name} names other rows, and can only be compared with null: write {name} is null, or "
    "{name} is not null"
)


@dataclass(frozen=True)
class Order:
    """The column that rows are sorted by."""

    column: str
    descending: bool = False

    @classmethod
    def parse(cls, text: str) -> Order:
        """Return the order that ``column``, ``column:asc`` or ``column:desc`` means."""
        name, _, direction = text.rpartition(":")
        ordered = name and direction in {"asc", "desc"}
        return cls(name, direction == "desc") if ordered else cls(text)


def choose_rows(
    rows: JobRows,
    where: str | None,
    order: Order | None,
    limit: int | None,
    test: RowTest | None = None,
) -> Int64Array:
    """Return the numbers of the rows that meet a condition and a test, in their order.

    Rows without a value to sort by come last. Equal ones stay in the order of the corpus.

    Raises
    ------
    BadInput
        If a column is unknown, or can't be compared or sorted.
    """
    _check_names(rows, where, order)
    best = np.empty(0, dtype=np.int64)
    for chosen in matching_blocks(rows, where, test):
        best = np.concatenate([best, chosen])
        if order is None:
            if limit is not None and len(best) >= limit:
                break
        elif limit is not None and len(best) > limit + BLOCK_ROWS:
            # What can't be among the first goes before memory is full of it.
            best = _first(rows, order, best, limit)
    return best[:limit] if order is None else _first(rows, order, best, limit)


def matching_blocks(
    rows: JobRows, where: str | None, test: RowTest | None = None
) -> Iterator[Int64Array]:
    """Yield the numbers of the rows that meet a condition and a test, ascending, in blocks."""
    for block in _blocks(rows.corpus.n):
        yield _matching(rows, where, block, test)


def count_rows(rows: JobRows, where: str | None, test: RowTest | None = None) -> int:
    """Return how many rows meet a condition and a test."""
    return sum(map(len, matching_blocks(rows, where, test)))


def one_of_each(rows: JobRows, column: str, among: Int64Array) -> Int64Array:
    """Return the first of some rows with each value of a column that names rows of the corpus.

    A row without a value stands for itself.

    Parameters
    ----------
    rows : JobRows
        The rows of a job.
    column : str
        A column with the row that stays in place of another one.
    among : ndarray of int64
        Ascending row numbers.
    """
    stays = rows.read(column, among)
    leaders = np.where(stays.null, among, stays.values)
    _, first = np.unique(leaders, return_index=True)
    return among[np.sort(first)]


def _blocks(n: int) -> Iterator[Int64Array]:
    for start in range(0, n, BLOCK_ROWS):
        yield np.arange(start, min(start + BLOCK_ROWS, n))


def _first(rows: JobRows, order: Order, chosen: Int64Array, limit: int | None) -> Int64Array:
    """Return the first of some rows in an order; those without a value come last."""
    column = rows.read(order.column, chosen)
    keys, null = column.values, column.null
    if keys.dtype.kind == "f":
        null = null | np.isnan(keys)
    if order.descending:
        # Of whole numbers, the complement reverses the order of all, the smallest included.
        keys = -keys if keys.dtype.kind == "f" else ~keys
    keys = np.where(null, np.zeros(1, keys.dtype), keys)
    return chosen[np.lexsort((keys, null))[:limit]]


def _matching(
    rows: JobRows, where: str | None, block: Int64Array, test: RowTest | None
) -> Int64Array:
    if where is not None:
        found = {name: rows.read(name, block) for name in names_in(where)}
        values = {name: column.values for name, column in found.items()}
        nulls = {name: column.null for name, column in found.items()}
        block = block[matching_rows(where, values, len(block), nulls)]
    return block if test is None or not len(block) else block[test(block)]


def _check_names(rows: JobRows, where: str | None, order: Order | None) -> None:
    named = names_in(where) if where is not None else []
    for name in named:
        check_column(rows, name, suggest_quotes(where or "", name))
    if order is not None:
        check_column(rows, order.column)
    if where is not None:
        for name in named:
            column = rows.columns.get(name)
            if column is not None and column.row_of and name in names_compared(where):
                raise BadInput(f"{where!r}: {ONLY_NULL.format(name=name)}")
    if order is not None and _is_text(rows, order.column):
        raise BadInput(f"{order.column} is text, which isn't sorted; choose a column of numbers")


def _is_text(rows: JobRows, name: str) -> bool:
    return name in rows.texts or rows.read(name, np.empty(0, np.int64)).values.dtype.kind == "T"


def check_columns_cover_all(rows: JobRows, where: str) -> None:
    """Refuse a condition on a column that the job knows of some rows only."""
    for name in names_in(where):
        if not rows.covers(name):
            raise BadInput(
                f"{rows.job.url}: {name} is known of some random rows only, so a condition on it "
                "would leave the others out or in by chance; let the measure compare all rows"
            )


def check_column(rows: JobRows, name: str, advice: str = "") -> None:
    """Refuse a column that neither the job nor the table has."""
    if name in rows.names:
        return
    known = nearest(name, rows.names)
    if advice and "did you mean" not in known:
        known = advice
    unknown = f"{rows.job.url}: there is no column {name}"
    if rows.table is None:
        raise BadInput(f"{unknown}{known}")
    try:
        rows.read(name, np.empty(0, np.int64))
    except UnknownField as error:
        raise BadInput(f"{unknown}{known}; {error}") from None
