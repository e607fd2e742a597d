"""Stages of the intrinsic dimension: random rows of each corpus, and their nearest neighbours."""

from __future__ import annotations

import math

from latentscale.intrinsic_dimension.estimators import MIN_ROWS
from latentscale.sampling.halves import SPLITS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.intrinsic_dimension.config import IntrinsicDimension
from latentscale_pipeline.measures.intrinsic_dimension.tasks import (
    find_neighbours,
    score_rows,
    store_drawn,
)
from latentscale_pipeline.measures.shared.random_rows import (
    MAX_TASKS,
    affordable_rows,
    drawing_bytes,
    read_drawn,
    row_bytes,
    share_reading,
)
from latentscale_pipeline.measures.shared.shard_blocks import POINTS_BYTES, shards_per_block

NEIGHBOURS = (5, 10, 20, 50, 100)
"""Numbers of neighbours at which the dimension is shown, beside that of the score."""

LIST_ROWS, SHORT_LIST_ROWS = 256, 128
"""Neighbours that are looked up: more than twice as many as the largest number, so that halves have
as many; or without sampling errors, more than the largest number.
"""

MANY = 4
"""From so many times the rows looked up on, these say beforehand how far neighbours may be."""

ENTRY_BYTES = 24
"""An entry of a list: a row, its distance, and what orders equal distances."""

SEEN_BYTES = 64
"""A row of a part, of which it is known how often it was seen: twice, and what joins both."""

PAIR_OPERATIONS = 4.0
"""Elementwise operations of a pair of rows: is it nearer than the last in the list?"""

ENTRY_OPERATIONS = 60.0
"""Elementwise operations to insert a row into a list, of 1 + log(n / l) for each place in it."""


def plan_dimensions(section: IntrinsicDimension, facts: JobFacts) -> list[Stage]:
    """Plan random rows of every corpus, and the search for their neighbours."""
    return [
        stage
        for role, corpus in facts.corpora.items()
        if corpus.n >= MIN_ROWS
        for stage in _stages(section, facts, role)
    ]


def too_few_rows(section: IntrinsicDimension, corpus: CorpusFacts) -> str:
    """Return why the maximum likelihood gives a corpus no dimension; empty if it gives one."""
    if corpus.n > section.k:
        return ""
    return f"{section.k} neighbours of a row need {section.k + 1} rows"


def stage_name(role: Role) -> str:
    """Return the name of the stage with the dimensions of a corpus."""
    return f"dimension-{role}"


def numbers_of_neighbours(section: IntrinsicDimension, corpus: CorpusFacts) -> list[int]:
    """Return the numbers of neighbours at which the dimension of a corpus is computed."""
    return sorted(k for k in {*NEIGHBOURS, section.k} if k < corpus.n)


def looked_up(section: IntrinsicDimension, facts: JobFacts, role: Role) -> int:
    """Return how many rows of a corpus are looked up."""
    return affordable_rows(facts.corpora[role].n, section.rows, facts.pairs)


def _stages(section: IntrinsicDimension, facts: JobFacts, role: Role) -> list[Stage]:
    corpus, rows = facts.corpora[role], looked_up(section, facts, role)
    drawn = Stage(
        name=f"dimension-rows-{role}",
        work=store_drawn,
        temporary="result",
        corpora=(role,),
        parameters={
            "role": role,
            "rows": rows,
            "metric": section.metric,
            "among_drawn": _among_drawn(rows, corpus.n),
        },
        seed=facts.seed,
        memory_bytes=(2 * row_bytes(corpus) + 24 * corpus.d + 3 * ENTRY_BYTES * LIST_ROWS) * rows
        + drawing_bytes(corpus.n, rows)
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_written=(row_bytes(corpus) + 16) * rows + RESULT_BYTES,
            float32_multiply_adds=float(rows) ** 2 * corpus.d,
        ),
    )
    return [
        share_reading(drawn, corpus, read_drawn, rows),
        _search_stage(section, facts, role, drawn.name),
    ]


def _among_drawn(rows: int, n: int) -> int:
    """Return which neighbour among the rows drawn is farther than all in a list; 0 for none.

    Of the rows in a list, ``expected`` are among those drawn, on average; so many more than that
    hardly ever are.
    """
    if n < MANY * rows:
        return 0
    expected = LIST_ROWS * rows / n
    return math.ceil(expected + 4.0 * math.sqrt(expected) + 5.0)


def _search_stage(section: IntrinsicDimension, facts: JobFacts, role: Role, drawn: str) -> Stage:
    corpus, rows = facts.corpora[role], looked_up(section, facts, role)
    errors = facts.errors or rows < corpus.n
    shards = max(shards_per_block(corpus), -(-corpus.shards // MAX_TASKS))
    parts = -(-corpus.shards // shards)
    length = min(LIST_ROWS if errors else SHORT_LIST_ROWS, corpus.n - 1)
    entries, pairs = rows * length, float(rows) * corpus.n
    neighbours = numbers_of_neighbours(section, corpus)
    return Stage(
        name=stage_name(role),
        work=find_neighbours,
        finalise=score_rows,
        partitions=parts,
        needs=(drawn,),
        corpora=(role,),
        parameters={
            "role": role,
            "drawn": drawn,
            "metric": section.metric,
            "length": length,
            "neighbours": neighbours,
            "errors": errors,
            "shards": shards,
        },
        seed=facts.seed,
        memory_bytes=2 * corpus.shard_stored_bytes
        + 2 * POINTS_BYTES
        + rows * (corpus.d * 24 + row_bytes(corpus))
        + 8 * ENTRY_BYTES * entries
        + SEEN_BYTES * min(shards * corpus.shard_rows, corpus.n)
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * ENTRY_BYTES * entries,
            bytes_written=parts * (ENTRY_BYTES * entries + RESULT_BYTES) + RESULT_BYTES,
            exchanged_bytes=parts * ENTRY_BYTES * entries,
            result_bytes=RESULT_BYTES,
            float32_multiply_adds=pairs * corpus.d,
            elementwise_operations=PAIR_OPERATIONS * pairs
            + CONVERSION_OPERATIONS * corpus.n * corpus.d
            + ENTRY_OPERATIONS * entries * parts
            + 4.0 * SPLITS * len(neighbours) * 8.0 * entries,
            method="exact",
            why=f"the nearest of all rows to {rows:,}"
            + (" random rows" if rows < corpus.n else ""),
        ),
    )
