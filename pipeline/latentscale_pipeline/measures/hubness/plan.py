"""Stages of hubness: random rows of each corpus, and their neighbours among each other."""

from __future__ import annotations

import math

from latentscale.sampling.halves import SPLITS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.hubness.config import Hubness
from latentscale_pipeline.measures.hubness.tasks import find_neighbours, score_lists
from latentscale_pipeline.measures.shared.random_rows import MIN_ROWS, drawn_rows_stage, row_bytes

QUERIES = 5000
"""Rows whose neighbours one task finds."""

LIST_SHARE = 4
"""Length of a list over the neighbours that count: in a half of the rows they are still in it."""

ENTRY_BYTES = 24
"""An entry of a list: a row, its distance, and what orders equal distances."""

PAIR_OPERATIONS, ENTRY_OPERATIONS = 4.0, 60.0
"""Elementwise operations of a pair of rows, and to insert a row into a list."""


def plan_hubness(section: Hubness, facts: JobFacts) -> list[Stage]:
    """Plan random rows of every corpus, and their neighbours among each other."""
    return [
        stage
        for role, corpus in facts.corpora.items()
        if not too_few_rows(section, corpus)
        for stage in _stages(section, facts, role)
    ]


def too_few_rows(section: Hubness, corpus: CorpusFacts) -> str:
    """Return why a corpus has no hubness; empty if it has one."""
    if corpus.n > section.k:
        return ""
    return f"{section.k} neighbours of a row need {section.k + 1} rows"


def stage_name(role: Role) -> str:
    """Return the name of the stage with the hubness of a corpus."""
    return f"hubness-{role}"


def drawn_count(section: Hubness, facts: JobFacts, role: Role) -> int:
    """Return how many rows of a corpus are drawn."""
    affordable = max(MIN_ROWS, math.isqrt(int(facts.pairs)))
    return min(facts.corpora[role].n, max(section.k + 1, min(section.rows, affordable)))


def _stages(section: Hubness, facts: JobFacts, role: Role) -> list[Stage]:
    corpus, rows = facts.corpora[role], drawn_count(section, facts, role)
    drawn = drawn_rows_stage(f"hubness-rows-{role}", role, corpus, rows, facts.seed)
    return [drawn, _lists_stage(section, facts, role, drawn.name)]


def _lists_stage(section: Hubness, facts: JobFacts, role: Role, drawn: str) -> Stage:
    corpus, rows = facts.corpora[role], drawn_count(section, facts, role)
    errors = facts.errors or rows < corpus.n
    parts = -(-rows // QUERIES)
    length = min(LIST_SHARE * section.k if errors else section.k, rows - 1)
    entries, pairs = rows * length, float(rows) ** 2
    return Stage(
        name=stage_name(role),
        work=find_neighbours,
        finalise=score_lists,
        partitions=parts,
        needs=(drawn,),
        corpora=(role,),
        parameters={
            "role": role,
            "drawn": drawn,
            "metric": section.metric,
            "k": section.k,
            "length": length,
            "queries": QUERIES,
            "errors": errors,
        },
        seed=facts.seed,
        memory_bytes=rows * (corpus.d * 16 + row_bytes(corpus))
        + min(rows, QUERIES) * (12 * corpus.d + 2 * ENTRY_BYTES * length)
        + 40 * entries
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=parts * row_bytes(corpus) * rows + 8 * entries,
            bytes_written=8 * entries + 12 * rows + (parts + 1) * RESULT_BYTES,
            exchanged_bytes=parts * row_bytes(corpus) * rows + 8 * entries,
            result_bytes=12 * rows + RESULT_BYTES,
            float32_multiply_adds=pairs * corpus.d,
            elementwise_operations=PAIR_OPERATIONS * pairs
            + ENTRY_OPERATIONS * entries
            + (20.0 * SPLITS * entries if errors else 0.0),
            method="exact",
            why=f"the nearest of {rows:,} "
            + ("random rows" if rows < corpus.n else "rows")
            + " to each other",
        ),
    )
