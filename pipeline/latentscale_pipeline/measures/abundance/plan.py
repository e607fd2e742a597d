"""Stages of abundance: random rows of both corpora, and their neighbourhoods."""

from __future__ import annotations

import math

from latentscale.abundance.neighbourhoods import DIVISIONS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.abundance.config import MIN_ROWS, AbundanceSection
from latentscale_pipeline.measures.abundance.tasks import compare_abundance, find_neighbourhoods
from latentscale_pipeline.measures.base import FEW_TILES_BYTES, RESULT_BYTES, JobFacts, Role
from latentscale_pipeline.measures.shared.random_rows import drawn_rows_stage, row_bytes

STAGE = "abundance"

QUERIES = 5000
"""Rows whose neighbourhoods one task finds."""

ENTRY_BYTES = 24
"""An entry of a list: a row, its distance, and what orders equal distances."""

PAIR_OPERATIONS, ENTRY_OPERATIONS = 4.0, 60.0
"""Elementwise operations of a pair of rows, and to insert a row into a list."""


def plan_abundance(section: AbundanceSection, facts: JobFacts) -> list[Stage]:
    """Plan random rows of both corpora, their neighbourhoods, and the comparison."""
    if too_few_rows(facts):
        return []
    drawn = [
        drawn_rows_stage(
            f"{STAGE}-rows-{role}", role, corpus, drawn_count(section, facts, role), facts.seed
        )
        for role, corpus in facts.corpora.items()
    ]
    return [*drawn, _lists_stage(section, facts, [stage.name for stage in drawn])]


def too_few_rows(facts: JobFacts) -> str:
    """Return which corpus has too few rows; empty if neither has."""
    few = [role for role, corpus in facts.corpora.items() if corpus.n < MIN_ROWS]
    return f"the {few[0]} has fewer than {MIN_ROWS} rows" if few else ""


def drawn_count(section: AbundanceSection, facts: JobFacts, role: Role) -> int:
    """Return how many rows of a corpus take part."""
    affordable = max(MIN_ROWS, math.isqrt(int(facts.pairs)) // len(facts.corpora))
    return min(facts.corpora[role].n, section.rows, affordable)


def neighbourhood(section: AbundanceSection, facts: JobFacts) -> int:
    """Return how many rows a neighbourhood has."""
    rows = sum(drawn_count(section, facts, role) for role in facts.corpora)
    return min(section.k, rows // 4)


def _lists_stage(section: AbundanceSection, facts: JobFacts, drawn: list[str]) -> Stage:
    corpora = facts.corpora
    d = corpora["corpus"].d
    counts = {role: drawn_count(section, facts, role) for role in corpora}
    rows, k = sum(counts.values()), neighbourhood(section, facts)
    parts, entries, pairs = -(-rows // QUERIES), rows * k, float(rows) ** 2
    stored = sum(row_bytes(corpora[role]) * count for role, count in counts.items())
    whole = all(counts[role] == corpora[role].n for role in corpora)
    written = 4 * entries + 13 * rows + 16 * DIVISIONS
    return Stage(
        name=STAGE,
        work=find_neighbourhoods,
        finalise=compare_abundance,
        partitions=parts,
        needs=tuple(drawn),
        parameters={
            "drawn": drawn,
            "metric": section.metric,
            "k": k,
            "queries": QUERIES,
            "count": section.count,
            "examples": section.examples,
        },
        seed=facts.seed,
        memory_bytes=16 * rows * d
        + 2 * stored
        + min(rows, QUERIES) * (12 * d + 2 * ENTRY_BYTES * k)
        + 8 * entries
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=parts * stored + 4 * entries,
            bytes_written=written + (parts + 1) * RESULT_BYTES,
            exchanged_bytes=parts * stored + 4 * entries,
            result_bytes=13 * rows + 16 * DIVISIONS + RESULT_BYTES,
            float32_multiply_adds=pairs * d,
            elementwise_operations=PAIR_OPERATIONS * pairs
            + (ENTRY_OPERATIONS + 2.0 * DIVISIONS) * entries,
            method="exact",
            why=f"the nearest of {rows:,} {'rows' if whole else 'random rows'} of both corpora",
        ),
    )
