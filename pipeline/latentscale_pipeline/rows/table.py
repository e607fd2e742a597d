"""Chosen rows as tables, a block of rows at a time; rows of other columns are named by id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.rows.columns import JobRows, Values

BLOCK_ROWS = 1 << 16
"""Rows of a table."""

ColumnValues = dict[str, list[Any]]
"""Columns by name: numbers, text, true, false, and None for what isn't known."""


Kind = Literal["text", "number", "row", "unsigned", "flag"]
"""What the values of a column are: text, floating-point numbers, whole numbers, true and false.

Unsigned ones are of 64 bits, as hashes are.
"""


OTHER_TEXT = "_text"
"""End of the name of a column with the texts of the rows that another column names."""


def column_kind(rows: JobRows, name: str) -> Kind:
    """Return the kind of a column's values."""
    column = rows.columns.get(name)
    if name in rows.texts or _is_text_of_others(rows, name):
        return "text"
    if column is not None and column.row_of:
        ids = "ids" in rows.corpus_of(column.row_of).manifest.arrays
        return "text" if ids else "row"
    values = rows.read(name, np.empty(0, dtype=np.int64)).values
    if values.dtype == np.uint64:
        return "unsigned"
    kinds: dict[str, Kind] = {"b": "flag", "f": "number", "T": "text"}
    return kinds.get(values.dtype.kind, "row")


def read_tables(
    rows: JobRows, chosen: Int64Array, columns: Sequence[str]
) -> Iterator[ColumnValues]:
    """Yield the chosen rows in their order, as tables of bounded size.

    A row of another column is its id or, in a corpus without ids, its number. Ids, labels and texts
    that are shown are in memory at once: those of the chosen rows, and of the rows that they refer
    to.
    """
    held = rows.texts
    texts = {name: rows.corpus.texts_at(held[name], chosen) for name in columns if name in held}
    for name in columns:
        if _is_text_of_others(rows, name):
            texts[name] = _texts_of_others(rows, name.removesuffix(OTHER_TEXT), chosen)
    ids = _ids_of_others(rows, chosen, columns)
    for start in range(0, len(chosen), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        table: ColumnValues = {}
        for name in columns:
            if name in texts:
                table[name] = texts[name][block].tolist()
                continue
            column = rows.read(name, chosen[block])
            known = rows.columns.get(name)
            role = known.row_of if known is not None else ""
            table[name] = _named(column, *ids[role]) if role in ids else _plain(column)
        yield table


def _is_text_of_others(rows: JobRows, name: str) -> bool:
    return name.endswith(OTHER_TEXT) and name.removesuffix(OTHER_TEXT) in rows.columns


def _texts_of_others(rows: JobRows, column: str, chosen: Int64Array) -> NDArray[Any]:
    """Return the texts of the rows that a column names; None where there are none."""
    near = rows.read(column, chosen)
    texts = np.full(len(chosen), None, dtype=np.dtypes.StringDType(na_object=None))
    role = rows.columns[column].row_of
    known = np.flatnonzero(~near.null)
    if role and len(known) and "texts" in rows.corpus_of(role).manifest.arrays:
        numbers = near.values[known].astype(np.int64)
        texts[known] = rows.corpus_of(role).texts_at("texts", numbers)
    return texts


def _ids_of_others(
    rows: JobRows, chosen: Int64Array, columns: Sequence[str]
) -> dict[Role, tuple[Int64Array, NDArray[Any]]]:
    """Return the rows that others refer to, ascending, and their ids, by corpus."""
    wanted: dict[Role, list[Int64Array]] = {}
    for name in columns:
        column = rows.columns.get(name)
        if column is None or not column.row_of:
            continue
        if "ids" in rows.corpus_of(column.row_of).manifest.arrays:
            for start in range(0, len(chosen), BLOCK_ROWS):
                found = rows.read(name, chosen[start : start + BLOCK_ROWS])
                wanted.setdefault(column.row_of, []).append(np.unique(found.values[~found.null]))
    together = {role: np.unique(np.concatenate(parts)) for role, parts in wanted.items()}
    return {
        role: (numbers, rows.corpus_of(role).texts_at("ids", numbers))
        for role, numbers in together.items()
    }


def _named(column: Values, numbers: Int64Array, ids: NDArray[Any]) -> list[Any]:
    """Return the ids of the rows that a column names, or their numbers where they have none."""
    named: list[Any] = [None] * len(column.values)
    known = np.flatnonzero(~column.null)
    texts = ids[np.searchsorted(numbers, column.values[known])]
    for place, text in zip(known.tolist(), texts.tolist(), strict=True):
        named[place] = text or f"row {column.values[place]}"
    return named


def _plain(column: Values) -> list[Any]:
    values: list[Any] = column.values.tolist()
    for place in np.flatnonzero(column.null).tolist():
        values[place] = None
    return values
