"""The rows of a job that stand out most, by reason, for its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np

from latentscale.array_types import Int32Array, Int64Array, UInt64Array
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.expressions import names_in
from latentscale_pipeline.corpus.labelled_rows import number_few_labels
from latentscale_pipeline.measures.base import Role, RowFilter
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.registry import ROW_FILTERS
from latentscale_pipeline.results.model import LabelToLookAt, RowsToLookAt, RowToLookAt
from latentscale_pipeline.rows.columns import TEXTS, JobRows, known_columns
from latentscale_pipeline.rows.new_rows import RowTest, without_ids
from latentscale_pipeline.rows.selection import Order, choose_rows, matching_blocks
from latentscale_pipeline.rows.table import OTHER_TEXT, read_tables

MAX_ROWS = 50
"""Rows of a reason."""

MAX_LABELS = 10
"""Labels of a reason."""

LEVEL = 0.05
"""Level of p, of all labels together, at which one has more rows of a reason than others."""


Labels = tuple[list[str], Int32Array] | None
"""The labels of a corpus, if they are few, and the place of every row's label among them."""


def rows_to_look_at(
    job: FinishedJob, corpora: Mapping[Role, Corpus], without: UInt64Array | None = None
) -> list[RowsToLookAt] | None:
    """Return the most extreme rows of every reason that the job knows; None if it knows none.

    Those whose id has a hash among ``without``, which ascends, are left out, unless they repeat a
    row that stays (:func:`without_ids`). Arrays on a local disk
    are mapped into memory, those of an object store are read whole. One block of ids is in memory
    at a time, and of labels 4 bytes a row.
    """
    found = list(_found(job, corpora, without))
    return found or None


def _found(
    job: FinishedJob, corpora: Mapping[Role, Corpus], without: UInt64Array | None
) -> Iterator[RowsToLookAt]:
    known = {
        role: JobRows(job, role, known_columns(job, role), _opened=dict(corpora))
        for role in corpora
    }
    labels = cache(lambda role: number_few_labels(known[role].corpus))
    for reason, wanted in ROW_FILTERS.items():
        rows = known.get(wanted.of)
        if rows is None or not set(names_in(wanted.where)) <= set(rows.columns):
            continue
        order = Order.parse(wanted.sort) if wanted.sort else None
        test = None if without is None else without_ids(rows, without, wanted.stays or wanted.other)
        numbers = choose_rows(rows, wanted.where, order, MAX_ROWS, test)
        count, most = _count(rows, wanted.where, test, labels)
        described = _described(rows, wanted, numbers)
        yield RowsToLookAt(
            reason=reason, of=wanted.of, count=count, labels=most or None, rows=described
        )


def _count(
    rows: JobRows, where: str, test: RowTest | None, labels: Callable[[Role], Labels]
) -> tuple[int, list[LabelToLookAt]]:
    """Count the rows that meet a condition, and return the labels that more of them have."""
    count, found, known = 0, np.empty(0, dtype=np.int64), None
    for block in matching_blocks(rows, where, test):
        count += len(block)
        known = labels(rows.role) if count else None
        if known is not None:
            found = _tally(known, block, found)
    if known is None:
        return count, []
    # SciPy takes long to import, and most commands don't need it.
    from latentscale.sampling.shares import p_of_excess

    names, sizes = known[0], np.zeros_like(found)
    for block in _looked_at(rows, where, test):
        sizes = _tally(known, block, sizes)
    often = np.flatnonzero(len(names) * p_of_excess(found, sizes) < LEVEL)
    excess = found - count * sizes / sizes.sum()
    most = [
        LabelToLookAt(label=names[place], count=int(found[place]), rows=int(sizes[place]))
        for place in often[np.argsort(-excess[often], kind="stable")]
        if names[place]
    ]
    return count, most[:MAX_LABELS]


def _tally(
    labels: tuple[list[str], Int32Array], block: Int64Array, before: Int64Array
) -> Int64Array:
    """Add the numbers of rows with each label to those before, if there are some."""
    names, numbers = labels
    tally = np.bincount(numbers[block], minlength=len(names))
    return tally + before if len(before) else tally


def _looked_at(rows: JobRows, where: str, test: RowTest | None) -> Iterator[Int64Array]:
    """Yield the numbers of the rows that may meet a condition, in blocks."""
    some = rows.looked_at(names_in(where))
    for block in matching_blocks(rows, None, test):
        yield block if some is None else block[np.isin(block, some, assume_unique=True)]


def _described(rows: JobRows, wanted: RowFilter, numbers: Int64Array) -> list[RowToLookAt]:
    """Describe rows by what a filter says of them: the other row, if any, the distance to it."""
    about = [name for name in TEXTS if name in rows.names]
    distance = [wanted.distance] if wanted.distance in rows.columns else []
    if not wanted.other:
        tables = read_tables(rows, numbers, ["row", *about])
        return [
            RowToLookAt(**{name: values[place] for name, values in table.items()})
            for table in tables
            for place in range(len(table["row"]))
        ]
    other_text = f"{wanted.other}{OTHER_TEXT}"
    stays = [wanted.stays] if wanted.stays not in {"", wanted.other} else []
    columns = ["row", *about, wanted.other, other_text, *distance, *stays]
    described = []
    for table in read_tables(rows, numbers, columns):
        others, other_texts = table.pop(wanted.other), table.pop(other_text)
        kept = table.pop(wanted.stays) if stays else others
        fields = {"distance" if name in distance else name: table[name] for name in table}
        for place, (value, text, stay) in enumerate(zip(others, other_texts, kept, strict=True)):
            own = {name: values[place] for name, values in fields.items()}
            suffix = "_id" if isinstance(value, str) else ""
            own[f"other{suffix}"] = value
            if stay != value:
                own[f"stays{suffix}"] = stay
            described.append(RowToLookAt(**own, other_text=text))
    return described
