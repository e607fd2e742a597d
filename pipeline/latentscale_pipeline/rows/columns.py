"""The columns of a finished job's rows, read a block at a time.

Arrays on a local disk are mapped into memory, so that only what is asked for is read; those of an
object store are read whole, once.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import BoolArray, Int64Array
from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.corpus.earlier import find_earlier
from latentscale_pipeline.corpus.tables import Table
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import Role, RowColumn
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.views.formatting import counted

TEXTS: Mapping[str, str] = {"id": "ids", "label": "labels", "text": "texts"}
"""Columns of text, and the arrays of a corpus that hold them."""


WEIGHT = "weight"
"""Column of the weights, if rows have some."""

SOURCE_ROW = "source_row"
"""Column of the numbers among all rows of the sources, where some of these were left out."""


@dataclass(frozen=True)
class Values:
    """Values of a column for some rows.

    Attributes
    ----------
    values : ndarray, shape (rows,)
        Numbers, true and false, row numbers, or text.
    null : ndarray of bool, shape (rows,)
        Which of them aren't known or don't apply.
    """

    values: NDArray[Any]
    null: BoolArray


@dataclass(frozen=True)
class JobRows:
    """The rows of one corpus of a finished job.

    Attributes
    ----------
    job : FinishedJob
        The job.
    role : str
        The corpus.
    columns : mapping
        What measures know, by name.
    table : Table, optional
        Other columns of the corpus' rows, a user's own. One with the name of another column isn't
        read.
    """

    job: FinishedJob
    role: Role
    columns: Mapping[str, RowColumn]
    table: Table | None = None
    _opened: dict[Role, Corpus] = field(default_factory=dict, repr=False)
    _read: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    _of_table: dict[str, Values] = field(default_factory=dict, repr=False)

    @property
    def corpus(self) -> Corpus:
        """The corpus whose rows these are."""
        return self.corpus_of(self.role)

    def corpus_of(self, role: Role) -> Corpus:
        """Return a corpus of the job, opened when it is first asked for."""
        if role not in self._opened:
            self._opened[role] = open_measured(self.job, role)
        return self._opened[role]

    @property
    def texts(self) -> dict[str, str]:
        """Columns of texts that the corpus has, with the names of their arrays."""
        arrays = self.corpus.manifest.arrays
        return {name: array for name, array in TEXTS.items() if array in arrays}

    @property
    def names(self) -> list[str]:
        """The names of all columns but those of the table; texts, which are long, come last."""
        held = self.texts
        short = [name for name in held if name != "text"]
        short += [WEIGHT] if self._has_weights else []
        numbers = ["row", *([SOURCE_ROW] if self.corpus.lacks_rows else [])]
        return [*numbers, *short, *self.columns, *(name for name in held if name == "text")]

    def read(self, name: str, rows: Int64Array) -> Values:
        """Return the values of a column for some rows, in any order; ids of other rows as rows.

        Raises
        ------
        BadInput
            If it's a column of the table, and the table hasn't it or has other rows.
        """
        if name in ("row", SOURCE_ROW):
            numbers = rows if name == "row" else self.corpus.source_rows(rows)
            return Values(numbers, np.zeros(len(rows), dtype=bool))
        if name in self.texts or (name == WEIGHT and self._has_weights):
            held = self._companions(TEXTS.get(name, "weights"))
            return Values(held[rows], np.zeros(len(rows), dtype=bool))
        if self.table is not None and name not in self.columns:
            if name not in self._of_table:
                self._of_table[name] = Values(*self.table.column(name))
            own = self._of_table[name]
            return Values(own.values[rows], own.null[rows])
        column = self.columns[name]
        places, known = rows, np.ones(len(rows), dtype=bool)
        if column.rows:
            held = self._array(column.rows)
            if not len(held):
                return Values(np.full(len(rows), -1), np.ones(len(rows), dtype=bool))
            places = np.minimum(np.searchsorted(held, rows), len(held) - 1)
            known = held[places] == rows
        values = column.make(*(np.asarray(self._array(each)[places]) for each in column.arrays))
        null = ~known
        if column.row_of:
            null |= values < 0
        return Values(values, null)

    def covers(self, name: str) -> bool:
        """Return whether the value of a column is known for every row."""
        column = self.columns.get(name)
        if column is None or not column.rows or column.elsewhere_none:
            return True
        return len(self._array(column.rows)) == self.corpus.n

    def looked_at(self, names: Sequence[str]) -> Int64Array | None:
        """Return the numbers of the rows for which all of some columns are known; None for all."""
        partial = [self.columns[name].rows for name in names if not self.covers(name)]
        held = [np.asarray(self._array(array)) for array in dict.fromkeys(partial)]
        return reduce(np.intersect1d, held) if held else None

    @property
    def _has_weights(self) -> bool:
        return "weights" in self.corpus.manifest.arrays

    def _companions(self, name: str) -> NDArray[Any]:
        if name not in self._read:
            self._read[name] = np.concatenate(list(self.corpus.companion_blocks(name)))
        return self._read[name]

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self._read:
            self._read[name] = open_array(self.job, name)
        return self._read[name]


def open_array(job: FinishedJob, name: str) -> NDArray[Any]:
    """Open an array of a finished job by its name: a local one is mapped, another one read.

    Raises
    ------
    BadInput
        If its file is missing or damaged.
    """
    store, key = ObjectStore(job.url), job.results.arrays[name]
    where = store.locate(key)
    try:
        source: Any = Path(where) if store.is_local else io.BytesIO(store.read(key))
        found: NDArray[Any] = np.load(
            source, mmap_mode="r" if store.is_local else None, allow_pickle=False
        )
    except FileNotFoundError:
        raise BadInput(f"{where}: the array is missing; run the job again") from None
    except (ValueError, EOFError):
        raise BadInput(f"{where}: the array is damaged; run the job again") from None
    return found


def open_rows(
    job: FinishedJob, role: Role, corpus: Corpus | None = None, *, table: str | None = None
) -> JobRows:
    """Return the rows of a corpus of a finished job; of an open one, wherever it is now.

    A table is files with more columns for them.

    Raises
    ------
    BadInput
        If the job hasn't that corpus, the corpus has changed or can't be opened, or no measure
        knows anything of its rows.
    """
    if role not in job.corpora:
        raise BadInput(f"{job.url}: the job has no {role}; look at the rows of its corpus")
    columns = known_columns(job, role)
    if not columns:
        raise BadInput(
            f"{job.url}: no measure of this job knows the rows of the {role}; run it again with "
            f"one of: {', '.join(_measures_of_rows())}"
        )
    found = JobRows(job, role, columns, _opened={} if corpus is None else {role: corpus})
    return found if table is None else replace(found, table=Table(found.corpus, table))


def known_columns(job: FinishedJob, role: Role) -> dict[str, RowColumn]:
    """Return what the measures of a job know of the rows of a corpus, by name."""
    columns: dict[str, RowColumn] = {}
    for name, measure in MEASURES.items():
        part = job.results.part(name)
        for column in measure.row_columns(part, role) if part is not None else ():
            wanted = (*column.arrays, *([column.rows] if column.rows else []))
            if all(array in job.results.arrays for array in wanted):
                columns[column.name] = column
    return columns


def rows_of_corpus(job: FinishedJob, corpus: Corpus, *, table: str | None = None) -> JobRows:
    """Return the rows of a corpus that a job has measured, by its fingerprint.

    It may be the one that :func:`open_measured` returns, without rows that were appended since.

    Raises
    ------
    BadInput
        If the job hasn't measured it, or not all of its rows.
    """
    whole = replace(corpus, excluded=(), appended_rows=0)
    stored = {shard.key for shard in corpus.manifest.vectors.shards}
    others = []
    for role, described in job.corpora.items():
        if described.fingerprint == corpus.fingerprint and described.n == corpus.n:
            return open_rows(job, role, corpus, table=table)
        excluded = set(described.excluded_shards or ())
        if not excluded < stored:
            continue
        known = find_earlier(whole, described.n, described.fingerprint, excluded)
        if known is not None and known.excluded == corpus.excluded:
            return open_rows(job, role, corpus, table=table)
        others += [] if known is None else [known.n]
    if others:
        raise BadInput(
            f"{job.url}: the job has measured {others[0]:,} of the {counted(corpus.n, 'row')} of "
            f"{corpus.url}; give the job instead of it for these, or run it again for all"
        )
    raise BadInput(f"{job.url}: the job hasn't measured {corpus.url}; name one that has")


def _measures_of_rows() -> Sequence[str]:
    return [name for name, measure in MEASURES.items() if measure.row_filters]


def open_measured(job: FinishedJob, role: Role) -> Corpus:
    """Open a corpus of a finished job.

    Raises
    ------
    BadInput
        If it isn't there, or has changed. Rows may have been appended to it.
    """
    described = job.corpora[role]
    place = job.locate(role)
    if place is None:
        raise BadInput(f"{job.url}: the results don't say where the {role} is; run the job again")
    excluded = described.excluded_shards or ()
    corpus = find_earlier(open_corpus(place), described.n, described.fingerprint, excluded)
    if corpus is None:
        raise BadInput(
            f"{place}: it isn't the {role} that was measured any more; run the job again"
        )
    return corpus
