"""Random rows of a corpus of any size, read in one pass that several tasks share.

Row numbers are drawn first, which takes memory for the rows drawn and not for those of the corpus.
Each task then reads some of the shards, every one at most once, and keeps the drawn rows in them.
The rows don't depend on how the corpus is cut into shards. A corpus of few shards is read by the
stage's only task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage, Work
from latentscale_pipeline.measures.base import RESULT_BYTES, CorpusFacts, Role
from latentscale_pipeline.measures.shared.shard_blocks import count_blocks
from latentscale_pipeline.storage.artifacts import Artifact, Output

MAX_TASKS = 256
"""Largest number of tasks that share the shards of a corpus."""

MIN_ROWS = 100
"""Fewest rows that are compared with all, whatever the budget."""

BLOCK_ROWS = 1024
"""Rows that are turned into float64 at once."""

PERMUTED_SHARE = 50
"""NumPy permutes all numbers to draw more than one in 50 of them; otherwise it keeps a hash set."""

SET_BYTES = 40
"""Memory of a drawn number: its places in the hash set, and its number as given and as sorted."""


class Shards(Protocol):
    """Rows that are read by shards: a corpus, or the rows drawn from one."""

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def d(self) -> int:
        """Number of dimensions."""

    @property
    def shard_count(self) -> int:
        """Number of shards."""

    def shard_range(self, i: int) -> slice:
        """Return the range of rows in a shard."""

    def read_shard(self, i: int) -> NDArray[Any]:
        """Return the rows of a shard in the stored dtype."""

    def read_index(self, rows: Int64Array) -> NDArray[Any]:
        """Return the rows with the given numbers, which ascend."""


def drawing_bytes(n: int, drawn: int) -> int:
    """Return the memory to draw row numbers without repetition."""
    return SET_BYTES * drawn + (8 * n if n < PERMUTED_SHARE * drawn or n <= 10_000 else 0)


def row_bytes(facts: CorpusFacts) -> int:
    """Return the stored bytes of a row."""
    return facts.stored_bytes // facts.n


# --- reading ------------------------------------------------------------------------------------


def reading_tasks(facts: CorpusFacts) -> int:
    """Count the tasks that share the shards of a corpus."""
    return min(count_blocks(facts), MAX_TASKS)


def share_reading(stage: Stage, facts: CorpusFacts, read: Work, drawn: int) -> Stage:
    """Let several tasks read the rows that a stage needs.

    Parameters
    ----------
    stage : Stage
        A stage of one task, whose work takes its rows from :func:`gather_rows`.
    facts : CorpusFacts
        The corpus.
    read : callable
        The work of a task that reads: it returns :func:`read_share` of the same rows.
    drawn : int
        Number of rows.
    """
    tasks = reading_tasks(facts)
    cost = stage.cost_estimate
    rows = row_bytes(facts) * drawn
    reading = 2 * facts.shard_stored_bytes + rows + drawing_bytes(facts.n, drawn)
    touched = replace(
        cost, bytes_read=min(facts.stored_bytes, drawn * facts.shard_stored_bytes) + rows
    )
    stage = replace(
        stage, memory_bytes=max(stage.memory_bytes + rows, reading), cost_estimate=touched
    )
    if tasks == 1:
        return stage
    written = cost.bytes_written + rows + tasks * RESULT_BYTES
    return replace(
        stage,
        work=read,
        finalise=stage.work,
        partitions=tasks,
        cost_estimate=replace(
            touched,
            bytes_written=written,
            exchanged_bytes=rows,
            result_bytes=cost.bytes_written,
        ),
    )


def shards_of_task(inputs: Inputs, corpus: Shards) -> range:
    """Return the shards that a task reads. A view may have fewer shards than planned."""
    count, tasks = corpus.shard_count, inputs.stage.partitions
    return range(inputs.index * count // tasks, (inputs.index + 1) * count // tasks)


def read_share(inputs: Inputs, corpus: Corpus, rows: Int64Array) -> Output:
    """Read the rows in the shards of this task, out of all rows drawn, which ascend."""
    shards = shards_of_task(inputs, corpus)
    held = [0, 0]
    if shards:
        held = [corpus.shard_range(shards[0]).start, corpus.shard_range(shards[-1]).stop]
    vectors = corpus.read_index(rows[slice(*np.searchsorted(rows, held))])
    return Output(values={"count": len(vectors)}, arrays={"vectors": vectors})


def gather_rows(inputs: Inputs, corpus: Corpus, rows: Int64Array) -> NDArray[Any]:
    """Return the rows drawn, which ascend: from the tasks that read them, or from the corpus."""
    if not inputs.parts:
        return corpus.read_index(rows)
    return np.concatenate([part.array("vectors") for part in inputs.parts])


def gather_in_order(inputs: Inputs, corpus: Corpus, rows: Int64Array) -> NDArray[Any]:
    """Return the rows drawn as :func:`gather_rows`, which may come in any order."""
    ascending = np.argsort(rows)
    vectors = np.empty((len(rows), corpus.d), corpus.dtype)
    vectors[ascending] = gather_rows(inputs, corpus, rows[ascending])
    return vectors


def read_in_order(corpus: Shards, rows: Int64Array) -> NDArray[Any]:
    """Return the given rows, which may come in any order."""
    ascending = np.argsort(rows, kind="stable")
    vectors = corpus.read_index(rows[ascending])
    if (ascending[1:] > ascending[:-1]).all():
        return vectors
    ordered = np.empty_like(vectors)
    ordered[ascending] = vectors
    return ordered


def drawn_rows(inputs: Inputs) -> Int64Array:
    """Return the numbers of a stage's random rows, ascending: ``rows`` of those of ``role``."""
    n, rows = inputs.corpora[inputs.parameters["role"]].n, inputs.parameters["rows"]
    return np.sort(inputs.common_generator().choice(n, rows, replace=False)).astype(np.int64)


def read_drawn(inputs: Inputs) -> Output:
    """Read the drawn rows in some shards."""
    return read_share(inputs, inputs.corpora[inputs.parameters["role"]], drawn_rows(inputs))


def affordable_rows(n: int, most: int, pairs: float) -> int:
    """Return how many rows are compared with all n: within the budget of pairs, but not too few."""
    return min(n, most, max(MIN_ROWS, int(pairs / n)))


# --- random rows as a stage ---------------------------------------------------------------------


def drawn_rows_stage(name: str, role: Role, facts: CorpusFacts, rows: int, seed: int) -> Stage:
    """Plan random rows: their ``vectors``, and the numbers of these ``rows``, which ascend."""
    drawn = Stage(
        name=name,
        temporary="result",
        work=store_drawn,
        corpora=(role,),
        parameters={"role": role, "rows": rows},
        seed=seed,
        memory_bytes=2 * row_bytes(facts) * rows + drawing_bytes(facts.n, rows),
        cost_estimate=CostEstimate(bytes_written=(row_bytes(facts) + 8) * rows + RESULT_BYTES),
    )
    return share_reading(drawn, facts, read_drawn, rows)


def store_drawn(inputs: Inputs) -> Output:
    """Store the drawn rows with their numbers."""
    rows, corpus = drawn_rows(inputs), inputs.corpora[inputs.parameters["role"]]
    return Output(arrays={"rows": rows, "vectors": gather_rows(inputs, corpus, rows)})


def sample_stage(name: str, role: Role, facts: CorpusFacts, rows: int, seed: int) -> Stage:
    """Plan a random sample without repetition, whose ``vectors`` are stored in random order."""
    sampled = Stage(
        name=name,
        temporary="result",
        work=store_sample,
        corpora=(role,),
        parameters={"role": role, "rows": rows},
        seed=seed,
        memory_bytes=2 * row_bytes(facts) * rows + drawing_bytes(facts.n, rows),
        cost_estimate=CostEstimate(bytes_written=(row_bytes(facts) + 8) * rows + RESULT_BYTES),
    )
    return share_reading(sampled, facts, read_sample, rows)


def read_sample(inputs: Inputs) -> Output:
    """Read the rows of the sample in some shards."""
    corpus, rows = inputs.corpora[inputs.parameters["role"]], _drawn(inputs)
    return read_share(inputs, corpus, np.sort(rows))


def store_sample(inputs: Inputs) -> Output:
    """Store the sample in random order, so that any part of it is a random sample too."""
    corpus, rows = inputs.corpora[inputs.parameters["role"]], _drawn(inputs)
    return Output(arrays={"rows": rows, "vectors": gather_in_order(inputs, corpus, rows)})


def _drawn(inputs: Inputs) -> Int64Array:
    n, rows = inputs.corpora[inputs.parameters["role"]].n, inputs.parameters["rows"]
    drawn: Int64Array = inputs.common_generator().choice(n, rows, replace=False)
    return drawn


# --- rows drawn, read like a corpus -------------------------------------------------------------


@dataclass(frozen=True)
class DrawnRows:
    """The rows that the tasks of a stage have read, as shards: one for each task.

    Attributes
    ----------
    artifact : Artifact
        Result of the stage.
    counts : tuple of int
        Rows that each task has read.
    d : int
        Number of dimensions.
    """

    artifact: Artifact
    counts: tuple[int, ...]
    d: int

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(self.counts)

    @property
    def shard_count(self) -> int:
        """Number of shards."""
        return len(self.counts)

    @cached_property
    def _starts(self) -> Int64Array:
        return np.cumsum([0, *self.counts])

    def shard_range(self, i: int) -> slice:
        """Return the range of rows in a shard."""
        return slice(int(self._starts[i]), int(self._starts[i + 1]))

    def read_shard(self, i: int) -> NDArray[Any]:
        """Return the rows of a shard in the stored dtype."""
        return self.artifact.partition(i).array("vectors")

    def read_index(self, rows: Int64Array) -> NDArray[Any]:
        """Return the rows with the given numbers, which ascend."""
        found = [
            self.read_shard(shard)[rows[inside] - self.shard_range(shard).start]
            for shard, inside in rows_by_shard(self, rows)
        ]
        return np.concatenate(found)


def rows_by_shard(corpus: Shards, rows: Int64Array) -> Iterator[tuple[int, slice]]:
    """Yield every shard that holds some of the rows, which ascend, and the places of these."""
    for shard in range(corpus.shard_count):
        held = corpus.shard_range(shard)
        start, stop = np.searchsorted(rows, [held.start, held.stop]).tolist()
        if start < stop:
            yield shard, slice(start, stop)


def read_blocks(corpus: Shards, rows: Int64Array) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield the vectors of ascending rows in blocks; every shard is read at most once."""
    from latentscale.tiles.distances import row_blocks  # with numba, which plans don't need

    for shard, inside in rows_by_shard(corpus, rows):
        first, vectors = corpus.shard_range(shard).start, corpus.read_shard(shard)
        for block in row_blocks(inside.stop - inside.start, BLOCK_ROWS):
            places = slice(inside.start + block.start, inside.start + block.stop)
            yield places, vectors[rows[places] - first]
