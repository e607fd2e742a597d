"""The rows of a job that stand out most, by reason, for its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from latentscale.array_types import Int64Array, UInt64Array
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.expressions import names_in
from latentscale_pipeline.measures.base import Role, RowFilter
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.registry import ROW_FILTERS
from latentscale_pipeline.results.model import RowsToLookAt, RowToLookAt
from latentscale_pipeline.rows.columns import TEXTS, JobRows, known_columns
from latentscale_pipeline.rows.new_rows import without_ids
from latentscale_pipeline.rows.selection import Order, choose_rows, count_rows
from latentscale_pipeline.rows.table import OTHER_TEXT, read_tables

MAX_ROWS = 50
"""Rows of a reason."""


def rows_to_look_at(
    job: FinishedJob, corpora: Mapping[Role, Corpus], without: UInt64Array | None = None
) -> list[RowsToLookAt] | None:
    """Return the most extreme rows of every reason that the job knows; None if it knows none.

    Those whose id has a hash among ``without``, which ascends, are left out. Arrays on a local disk
    are mapped into memory, those of an object store are read whole. One block of ids is in memory
    at a time.
    """
    found = list(_found(job, corpora, without))
    return found or None


def _found(
    job: FinishedJob, corpora: Mapping[Role, Corpus], without: UInt64Array | None
) -> Iterator[RowsToLookAt]:
    known = {role: JobRows(job, role, known_columns(job, role), dict(corpora)) for role in corpora}
    for reason, wanted in ROW_FILTERS.items():
        rows = known.get(wanted.of)
        if rows is None or not set(names_in(wanted.where)) <= set(rows.columns):
            continue
        order = Order.parse(wanted.sort) if wanted.sort else None
        test = None if without is None else without_ids(rows, without)
        numbers = choose_rows(rows, wanted.where, order, MAX_ROWS, test)
        count = count_rows(rows, wanted.where, test)
        described = _described(rows, wanted, numbers)
        yield RowsToLookAt(reason=reason, of=wanted.of, count=count, rows=described)


def _described(rows: JobRows, wanted: RowFilter, numbers: Int64Array) -> list[RowToLookAt]:
    """Describe rows by what a filter says of them: the other row, the distance to it."""
    about = [name for name in TEXTS if name in rows.names]
    distance = [wanted.distance] if wanted.distance in rows.columns else []
    other_text = f"{wanted.other}{OTHER_TEXT}"
    columns = ["row", *about, wanted.other, other_text, *distance]
    described = []
    for table in read_tables(rows, numbers, columns):
        others, other_texts = table.pop(wanted.other), table.pop(other_text)
        fields = {"distance" if name in distance else name: table[name] for name in table}
        for place, (value, text) in enumerate(zip(others, other_texts, strict=True)):
            own = {name: values[place] for name, values in fields.items()}
            key = "other_id" if isinstance(value, str) else "other"
            described.append(RowToLookAt(**own, **{key: value}, other_text=text))
    return described
