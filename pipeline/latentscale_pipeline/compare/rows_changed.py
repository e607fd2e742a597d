"""Count the rows that a job's corpus gained and lost since a baseline, by their ids and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from latentscale.array_types import Int32Array, UInt64Array
from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.corpus.earlier import find_earlier
from latentscale_pipeline.corpus.labelled_rows import MAX_LABELS
from latentscale_pipeline.corpus.repeated_ids import NO_ID, hash_ids
from latentscale_pipeline.errors import LatentscaleError
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.report.verdict import LEVEL
from latentscale_pipeline.results.model import RowsToLookAt
from latentscale_pipeline.rows.examples import rows_to_look_at
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.views.formatting import counted, printable

MAX_ROWS = 10_000_000
"""Rows of a corpus up to which ids and labels are read."""

NO_LABEL = ""
"""The label of a row that has none."""

SHOWN_LABELS = 3
"""Labels of one kind that a sentence names."""

Hashes = UInt64Array

Places = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
"""Numbers of rows of either corpus that have the same id."""


@dataclass(frozen=True)
class LabelChange:
    """A label with its rows in the job's corpus and in the baseline's."""

    label: str
    rows: int
    baseline_rows: int

    def __str__(self) -> str:
        name = printable(self.label)
        if self.rows and self.baseline_rows:
            return f"{name} {self.baseline_rows:,} → {counted(self.rows, 'row')}"
        return f"{name} {counted(self.rows or self.baseline_rows, 'row')}"

    def is_chance(self, rows: int, baseline_rows: int, labels: int) -> bool:
        """Return whether some label of two samples of one source may change as much."""
        if not (self.rows and self.baseline_rows):
            return False
        # SciPy takes long to import, and most commands don't need it.
        from latentscale.sampling.counts import ExpectedCount

        return ExpectedCount(self.rows, rows, self.baseline_rows, baseline_rows, labels).p > LEVEL


@dataclass(frozen=True)
class LabelChanges:
    """How labels changed.

    Attributes
    ----------
    count : int
        Labels in either corpus.
    changed : tuple of LabelChange
        Those that are new, gone, or have another number of rows, the largest change of their share
        first. Where the corpora aren't known to share half of their rows, one with more or fewer
        rows is listed only if chance doesn't explain it.
    unlabelled : LabelChange or None
        Rows without a label, if their number changed.
    relabelled : int or None
        Rows in both corpora, by ids that are unique in both, with another label; None without ids.
    """

    count: int
    changed: tuple[LabelChange, ...]
    unlabelled: LabelChange | None
    relabelled: int | None

    def __str__(self) -> str:
        new = [change for change in self.changed if not change.baseline_rows]
        gone = [change for change in self.changed if not change.rows]
        other = [change for change in self.changed if change.rows and change.baseline_rows]
        said = [
            f"{len(found):,} of {counted(self.count, 'label')} {what} ({_first(found)})"
            for what, found in (("new", new), ("gone", gone), ("with more or fewer rows", other))
            if found
        ]
        if self.unlabelled:
            before, now = self.unlabelled.baseline_rows, self.unlabelled.rows
            said.append(f"{before:,} → {counted(now, 'row')} without a label")
        if self.relabelled:
            said.append(f"{counted(self.relabelled, 'kept row')} with another label")
        alike = f"{counted(self.count, 'label')}, no share changed by more than chance"
        return "; ".join(said) or alike


@dataclass(frozen=True)
class RowChanges:
    """What changed between the rows of two corpora.

    Attributes
    ----------
    added, removed, kept : int or None
        Rows by their ids that only the job has, that only the baseline has, and that both have;
        None without ids.
    labels : LabelChanges or None
        How labels changed; None without labels.
    new : tuple of RowsToLookAt
        Rows to look at, by reason, that only the job has by their ids.
    """

    added: int | None
    removed: int | None
    kept: int | None
    labels: LabelChanges | None = None
    new: tuple[RowsToLookAt, ...] = ()

    @property
    def lines(self) -> dict[str, str]:
        """Return what is known of ``rows`` and ``labels``, each in one line."""
        lines = {}
        if self.added is not None:
            added, removed = counted(self.added, "row"), f"{self.removed:,} removed"
            lines["rows"] = f"{added} added, {removed}, {self.kept:,} kept, by their ids"
        if self.labels is not None:
            lines["labels"] = str(self.labels)
        return lines


def count_changes(job: FinishedJob, baseline: FinishedJob) -> RowChanges | None:
    """Compare ids and labels of two jobs' corpora; some 40 bytes a row of each are in memory.

    Returns
    -------
    RowChanges or None
        None if the corpora have neither ids nor labels, or more than :data:`MAX_ROWS` rows, or
        aren't on this machine as the jobs measured them. More than :data:`MAX_LABELS` labels count
        as none.
    """
    corpora = [corpus for each in (job, baseline) if (corpus := _open(each)) is not None]
    if len(corpora) < 2:
        return None
    try:
        ids = [_hash_ids(corpus) for corpus in corpora]
        names: dict[str, int] = {}
        labels = [_number_labels(corpus, names) for corpus in corpora]
    except (LatentscaleError, OSError):
        return None
    ours, theirs = ids
    if ours is None or theirs is None:
        found = _compare_labels(labels, names, 0, None)
        return None if found is None else RowChanges(None, None, None, found)
    kept, places = _kept_rows(ours, theirs)
    found = _compare_labels(labels, names, kept, places)
    new = _new_rows(job, corpora[0], np.unique(theirs))
    return RowChanges(len(ours) - kept, len(theirs) - kept, kept, found, new)


def _new_rows(job: FinishedJob, corpus: Corpus, known: Hashes) -> tuple[RowsToLookAt, ...]:
    try:
        return tuple(rows_to_look_at(job, {"corpus": corpus}, known) or ())
    except (LatentscaleError, OSError):
        return ()


def _open(job: FinishedJob) -> Corpus | None:
    known = job.corpora.get("corpus")
    if known is None or known.n > MAX_ROWS or known.excluded_shards:
        return None
    try:
        place = job.locate("corpus")
        if place is None or not ObjectStore(place).is_local:
            return None
        return find_earlier(open_corpus(place), known.n, known.fingerprint)
    except (LatentscaleError, OSError):
        return None


def are_rows_gone(job: FinishedJob) -> bool:
    """Return whether the corpus of a job isn't on this machine any more as it was measured.

    A corpus elsewhere, or one of which shards were left out, counts as still there.
    """
    known = job.corpora.get("corpus")
    if known is None or known.excluded_shards:
        return False
    try:
        place = job.locate("corpus")
        if place is None or not ObjectStore(place).is_local:
            return False
        return find_earlier(open_corpus(place), known.n, known.fingerprint) is None
    except (LatentscaleError, OSError):
        return True


def _hash_ids(corpus: Corpus) -> Hashes | None:
    """Return a hash of every id, in the order of rows; None without ids."""
    blocks = list(hash_ids(corpus.companion_blocks("ids")))
    return np.concatenate(blocks) if blocks else None


def _kept_rows(ours: Hashes, theirs: Hashes) -> tuple[int, Places]:
    """Return how many rows both have by their ids, and the places of those whose id is unique.

    Of an id that repeats, as many rows are kept as both have. Of rows without an id none is.
    """
    (ids, first, counts), (their_ids, their_first, their_counts) = (
        np.unique(each, return_index=True, return_counts=True) for each in (ours, theirs)
    )
    both = np.intersect1d(ids, their_ids, assume_unique=True)
    both = both[both != NO_ID]
    at, there = np.searchsorted(ids, both), np.searchsorted(their_ids, both)
    kept = int(np.minimum(counts[at], their_counts[there]).sum())
    once = (counts[at] == 1) & (their_counts[there] == 1)
    return kept, (first[at[once]], their_first[there[once]])


def _number_labels(corpus: Corpus, names: dict[str, int]) -> Int32Array | None:
    """Return the number of every row's label, and give numbers to new ones."""
    blocks = []
    for block in corpus.companion_blocks("labels"):
        numbers = [names.setdefault(label, len(names)) for label in block.tolist()]
        if len(names) > MAX_LABELS:
            return None
        blocks.append(np.array(numbers, dtype=np.int32))
    return np.concatenate(blocks) if blocks else None


def _compare_labels(
    labels: Sequence[Int32Array | None],
    names: Mapping[str, int],
    kept: int,
    places: Places | None,
) -> LabelChanges | None:
    ours, theirs = labels
    if ours is None or theirs is None:
        return None
    counts = (np.bincount(each, minlength=len(names)).tolist() for each in (ours, theirs))
    sizes, count = (len(ours), len(theirs)), len(names.keys() - {NO_LABEL})
    found = map(LabelChange, names, *counts)
    changed = [label for label in found if label.rows != label.baseline_rows]
    if 2 * kept < min(sizes):
        changed = [label for label in changed if not label.is_chance(*sizes, len(names))]
    changed.sort(key=lambda each: -abs(each.rows / sizes[0] - each.baseline_rows / sizes[1]))
    unlabelled = next((label for label in changed if label.label == NO_LABEL), None)
    labelled = tuple(label for label in changed if label.label != NO_LABEL)
    relabelled = None
    if places is not None:
        relabelled = int(np.count_nonzero(ours[places[0]] != theirs[places[1]]))
    return LabelChanges(count, labelled, unlabelled, relabelled)


def _first(changes: Sequence[LabelChange]) -> str:
    more = len(changes) - SHOWN_LABELS
    also = [f"{more:,} more"] if more > 0 else []
    return ", ".join([*map(str, changes[:SHOWN_LABELS]), *also])
