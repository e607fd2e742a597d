"""Blocks of consecutive shards with about equal bytes, one for each task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import CorpusFacts

if TYPE_CHECKING:  # with numba, which plans don't need
    from latentscale.tiles.distances import Metric, Points

BLOCK_BYTES = 96 * 2**20
"""Stored bytes of a block, unless one shard has more."""

POINTS_BYTES = 16 * 2**20
"""Rows of a block that are turned into float64 points at a time."""


def shards_per_block(facts: CorpusFacts) -> int:
    """Count the shards of a block."""
    return max(1, BLOCK_BYTES // max(facts.shard_stored_bytes, 1))


def count_blocks(facts: CorpusFacts) -> int:
    """Count the blocks of a corpus."""
    return -(-facts.shards // shards_per_block(facts))


def block_rows(facts: CorpusFacts) -> int:
    """Return the largest number of rows of a block."""
    return min(facts.n, shards_per_block(facts) * facts.shard_rows)


def block_bytes(facts: CorpusFacts) -> int:
    """Memory of a block in the stored type, a shard while it is read, and some of it as points."""
    return (
        block_rows(facts) * facts.stored_bytes // facts.n
        + facts.shard_stored_bytes
        + (2 * POINTS_BYTES)
    )


def find_block(inputs: Inputs, corpus: Corpus) -> slice:
    """Return the rows of this task's block. A view may have fewer shards than planned."""
    per_block = int(inputs.parameters["shards_per_block"])
    first = min(inputs.index * per_block, corpus.shard_count)
    last = min(first + per_block, corpus.shard_count)
    if first == last:
        return slice(corpus.n, corpus.n)
    return slice(corpus.shard_range(first).start, corpus.shard_range(last - 1).stop)


def read_points(corpus: Corpus, rows: slice, metric: Metric) -> Iterator[tuple[slice, Points]]:
    """Yield the rows of a block as points, a few at a time, with their row numbers."""
    stored = corpus.read_rows(rows.start, rows.stop)
    for piece, points in points_by_blocks(stored, metric):
        yield slice(rows.start + piece.start, rows.start + piece.stop), points


def points_by_blocks(stored: NDArray[Any], metric: Metric) -> Iterator[tuple[slice, Points]]:
    """Yield rows in the stored type as points, a few at a time, with their places."""
    from latentscale.tiles.distances import as_points, row_blocks

    for piece in row_blocks(len(stored), max(POINTS_BYTES // (8 * stored.shape[1]), 1)):
        yield piece, as_points(stored[piece], metric)
