"""Ids that several rows have.

Ids are compared by their XXH3-64, so memory is at most 32 bytes a row; among 10⁷ different ids two
have the same with a probability of 3e-6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from latentscale.array_types import UInt64Array
from latentscale_pipeline.corpus.manifest import CountedRows

MAX_ROWS = 10_000_000
"""Number of rows above which ids aren't compared, because that would take too much memory."""


NO_ID = np.uint64(xxhash.xxh3_64_intdigest(b""))
"""The hash of an id that is missing, which names no row."""


def hash_ids(blocks: Iterable[npt.NDArray[Any]]) -> Iterator[UInt64Array]:
    """Yield the XXH3-64 of every id, one array for each block."""
    for block in blocks:
        hashes = (xxhash.xxh3_64_intdigest(str(one).encode()) for one in block)
        yield np.fromiter(hashes, np.uint64, len(block))


def find_repeated_ids(hashes: Iterable[UInt64Array]) -> CountedRows:
    """Return how many rows have the id of an earlier row, and the first of them.

    Rows without an id have none that repeats.
    """
    joined = np.concatenate(list(hashes))
    ascending = np.sort(joined[joined != NO_ID])
    repeated = ascending[1:][ascending[1:] == ascending[:-1]]
    if not len(repeated):
        return CountedRows(0, None)
    several = np.flatnonzero(np.isin(joined, repeated))
    _, first = np.unique(joined[several], return_index=True)
    return CountedRows(len(repeated), int(np.delete(several, first)[0]))
