"""The rows of a corpus that have one label, as a corpus.

They keep their order and have shards of the same size as the corpus, so anything that reads a
corpus can read a label. A shard of a label is gathered from the stored shards that hold its rows;
each of those is checked completely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale.array_types import Int32Array, Int64Array
from latentscale_pipeline.corpus.corpus import Corpus, reopen
from latentscale_pipeline.errors import BadInput

MAX_LABELS = 1000
"""Largest number of different labels that are compared; more are names of rows, not of kinds."""

MOST_LABELS = 100_000
"""Largest number of different labels that are numbered."""

TEXT_ROWS = 1 << 16
"""Rows whose labels are texts in memory at a time."""


@dataclass(frozen=True)
class LabelledRows(Corpus):
    """The rows with one label. Get one from :func:`rows_of_label`."""

    label: str = ""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _reopen_label, (*self._whole.__reduce__()[1], self.label)

    @cached_property
    def _whole(self) -> Corpus:
        return Corpus(*(getattr(self, field.name) for field in fields(Corpus)))

    @cached_property
    def _rows(self) -> Int64Array:
        return rows_by_label(self._whole)[self.label]

    @property
    def n(self) -> int:
        """Number of rows with the label."""
        return len(self._rows)

    @property
    def shard_count(self) -> int:
        """Number of shards, at the corpus' shard size."""
        return -(-self.n // self.shard_rows)

    @cached_property
    def _starts(self) -> Int64Array:
        return np.minimum(np.arange(self.shard_count + 1) * self.shard_rows, self.n)

    @cached_property
    def zero_rows(self) -> int:
        """Number of rows that are all zero; they are read and counted if the corpus has any."""
        return self._count_zero_rows() if self._whole.zero_rows else 0

    def read_shard(self, i: int) -> npt.NDArray[Any]:
        """Return the rows of one shard, shape (rows, d), in the stored dtype; see ``Corpus``."""
        return self._whole.read_index(self._rows[self.shard_range(i)])

    def read_runs(self, runs: Iterable[npt.NDArray[np.integer[Any]]]) -> Iterator[npt.NDArray[Any]]:
        """Yield the given rows, numbered within the label; see ``Corpus``."""
        return self._whole.read_runs(self._rows[rows] for rows in runs)

    def read_rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the rows from ``start`` up to ``stop``, numbered within the label."""
        return self._whole.read_index(self._rows[start:stop])

    def companion_blocks(self, name: str) -> Iterator[npt.NDArray[Any]]:
        """Yield the ids, labels or weights of these rows in order, if there are any."""
        first = 0
        for block in self._whole.companion_blocks(name):
            low, high = np.searchsorted(self._rows, [first, first + len(block)])
            if low < high:
                yield block[self._rows[low:high] - first]
            first += len(block)


def rows_of_label(corpus: Corpus, label: str) -> LabelledRows:
    """Return the rows of a corpus that have a label."""
    values = {field.name: getattr(corpus, field.name) for field in fields(Corpus)}
    return LabelledRows(**values, label=label)


def _reopen_label(
    url: str, manifest_checksum: str, excluded: tuple[str, ...], appended_rows: int, label: str
) -> LabelledRows:
    return rows_of_label(reopen(url, manifest_checksum, excluded, appended_rows), label)


def rows_by_label(corpus: Corpus) -> dict[str, Int64Array]:
    """Return the row numbers of every label, ascending; labels are sorted.

    Raises
    ------
    BadInput
        If the corpus has no labels.
    """
    # The cache is keyed by address and checksum, because a Corpus is expensive to hash.
    return _rows_by_label(corpus.address, corpus.manifest_checksum, corpus.excluded)


@lru_cache(maxsize=2)
def _rows_by_label(address: str, manifest: str, excluded: tuple[str, ...]) -> dict[str, Int64Array]:
    names, numbers = number_labels(reopen(address, manifest, excluded))
    order = np.argsort(numbers, kind="stable")
    cuts = np.cumsum(np.bincount(numbers, minlength=len(names)))[:-1]
    return dict(zip(names, np.split(order, cuts), strict=True))


def number_few_labels(corpus: Corpus) -> tuple[list[str], Int32Array] | None:
    """Return what :func:`number_labels` does; None beyond :data:`MAX_LABELS`, or without labels."""
    return _number(corpus, MAX_LABELS) if "labels" in corpus.manifest.arrays else None


def number_labels(corpus: Corpus) -> tuple[list[str], Int32Array]:
    """Return the labels, sorted, and for every row the place of its label among them.

    Raises
    ------
    BadInput
        If the corpus has no labels, or more than :data:`MOST_LABELS` different ones.

    Notes
    -----
    The texts of some rows are in memory at a time, 250 bytes a label, and 8 bytes a row.
    """
    if "labels" not in corpus.manifest.arrays:
        raise BadInput(f"{corpus.url}: it has no labels; ingest it again with --labels")
    found = _number(corpus, MOST_LABELS)
    if found is None:
        raise BadInput(
            f"{corpus.url}: it has more than {MOST_LABELS:,} different labels, so they name rows "
            "rather than kinds of rows; leave out what is asked for by label, or ingest it with "
            "other labels"
        )
    return found


def _number(corpus: Corpus, most: int) -> tuple[list[str], Int32Array] | None:
    met: dict[str, int] = {}
    numbers, first = np.empty(corpus.n, dtype=np.int32), 0
    for block in corpus.companion_blocks("labels"):
        for start in range(0, len(block), TEXT_ROWS):
            texts = block[start : start + TEXT_ROWS].tolist()
            numbers[first : first + len(texts)] = [met.setdefault(x, len(met)) for x in texts]
            first += len(texts)
            if len(met) > most:
                return None
    names = sorted(met)
    place = np.empty(len(names), dtype=np.int32)
    place[[met[name] for name in names]] = np.arange(len(names))
    return names, place[numbers]
