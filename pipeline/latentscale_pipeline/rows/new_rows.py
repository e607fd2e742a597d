"""Which rows of a job another job's corpus doesn't have, by their ids."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from latentscale.array_types import BoolArray, Int64Array, UInt64Array
from latentscale_pipeline.corpus.repeated_ids import NO_ID, hash_ids
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.rows.columns import JobRows, open_measured

RowTest = Callable[[Int64Array], BoolArray]
"""Says which of some rows, by their numbers, are wanted."""


def new_since(rows: JobRows, baseline: FinishedJob, other: str = "") -> RowTest:
    """Return the test whether a row's id is none of a baseline's same corpus.

    A row without an id is new, as nothing says that the baseline has it. ``other`` as in
    :func:`without_ids`.

    Some 8 bytes a row of the baseline are in memory.

    Raises
    ------
    BadInput
        If one of the corpora has no ids, or the baseline hasn't that corpus.
    """
    if rows.role not in baseline.corpora:
        raise BadInput(f"{baseline.url}: this job has no {rows.role}, so no row is new since")
    before = open_measured(baseline, rows.role)
    for corpus in (rows.corpus, before):
        if "ids" not in corpus.manifest.arrays:
            raise BadInput(f"{corpus.url} has no ids, so new rows can't be told from old ones")
    hashes = np.concatenate(list(hash_ids(before.companion_blocks("ids"))))
    return without_ids(rows, np.unique(hashes), other)


def without_ids(rows: JobRows, hashes: UInt64Array, other: str = "") -> RowTest:
    """Return the test whether the hash of a row's id is none of ``hashes``, which ascend.

    A row without an id is none of those. Where the column ``other`` names another row of the same
    corpus, as the one that a row repeats, it is enough that this row's id is none of them: which of
    two equal rows repeats the other depends on their order.
    """
    known = rows.columns.get(other)
    has_other = known is not None and known.row_of == rows.role

    def is_new(numbers: Int64Array) -> BoolArray:
        (found,) = hash_ids([rows.read("id", numbers).values])
        places = np.minimum(np.searchsorted(hashes, found), len(hashes) - 1)
        return np.asarray((hashes[places] != found) | (found == NO_ID))

    def test(numbers: Int64Array) -> BoolArray:
        new = is_new(numbers)
        if has_other:
            others = rows.read(other, numbers)
            named = np.flatnonzero(~others.null)
            new[named] |= is_new(others.values[named].astype(np.int64))
        return new

    return test
