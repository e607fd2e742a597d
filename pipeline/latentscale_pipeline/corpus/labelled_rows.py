"""The rows of a corpus that have one label, as a separate corpus.

They keep their order and are cut into shards as the corpus is, so whatever reads a corpus reads a
label. A shard of a label is gathered from the stored shards that hold its rows, each checked whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from latentscale_pipeline.corpus.corpus import Corpus, reopen
from latentscale_pipeline.errors import BadInput


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
    def _rows(self) -> npt.NDArray[np.int64]:
        return rows_by_label(self._whole)[self.label]

    @property
    def n(self) -> int:
        """Rows."""
        return len(self._rows)

    @property
    def shard_count(self) -> int:
        """How many shards of as many rows as the corpus' they would fill."""
        return -(-self.n // self.shard_rows)

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.minimum(np.arange(self.shard_count + 1) * self.shard_rows, self.n)

    @cached_property
    def zero_rows(self) -> int:
        """How many of them are all zero; read to be counted when the corpus has some."""
        return self._count_zero_rows() if self._whole.zero_rows else 0

    def read_shard(self, i: int) -> npt.NDArray[Any]:
        """Return some of the rows, shape (rows, d), in the stored dtype; see ``Corpus``."""
        return self._whole.read_index(self._rows[self.shard_range(i)])

    def read_index(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        """Return chosen rows, numbered among those of the label; see ``Corpus``."""
        return self._whole.read_index(self._rows[rows])

    def read_rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return the rows from ``start`` up to ``stop``, numbered among those of the label."""
        return self._whole.read_index(self._rows[start:stop])

    def companion_blocks(self, name: str) -> Iterator[npt.NDArray[Any]]:
        """Yield the ids, labels or weights of these rows in order; nothing without."""
        blocks = list(self._whole.companion_blocks(name))
        if blocks:
            yield np.concatenate(blocks)[self._rows]


def rows_of_label(corpus: Corpus, label: str) -> LabelledRows:
    """Return the rows of a corpus that have a label."""
    values = {field.name: getattr(corpus, field.name) for field in fields(Corpus)}
    return LabelledRows(**values, label=label)


def _reopen_label(
    url: str, manifest_checksum: str, excluded: tuple[str, ...], label: str
) -> LabelledRows:
    return rows_of_label(reopen(url, manifest_checksum, excluded), label)


def rows_by_label(corpus: Corpus) -> dict[str, npt.NDArray[np.int64]]:
    """Return the numbers of the rows of every label, ascending; labels in order of their text.

    Raises
    ------
    BadInput
        If the corpus has no labels.
    """
    # A corpus as a value is large; its address and checksum say which it is.
    return _rows_by_label(corpus.address, corpus.manifest_checksum, corpus.excluded)


@lru_cache(maxsize=2)
def _rows_by_label(
    address: str, manifest: str, excluded: tuple[str, ...]
) -> dict[str, npt.NDArray[np.int64]]:
    corpus = reopen(address, manifest, excluded)
    labels = corpus.texts("labels")
    if labels is None:
        raise BadInput(f"{corpus.url}: it has no labels; ingest it again with --labels")
    names, codes = np.unique(np.array(labels, np.dtypes.StringDType()), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    cuts = np.cumsum(np.bincount(codes, minlength=len(names)))[:-1]
    return dict(zip(names.tolist(), np.split(order, cuts), strict=True))
