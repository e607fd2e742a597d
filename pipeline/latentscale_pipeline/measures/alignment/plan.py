"""Stages of the alignment: pairs of rows, and neighbours among them by both models."""

from __future__ import annotations

import math

from latentscale.alignment.linear_cka import MIN_ROWS as MIN_PAIRS
from latentscale.sampling.halves import SPLITS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.alignment.config import Alignment
from latentscale_pipeline.measures.alignment.tasks import STAGE, find_neighbours, score_pairs
from latentscale_pipeline.measures.base import FEW_TILES_BYTES, RESULT_BYTES, JobFacts
from latentscale_pipeline.measures.shared.pairs import ROLES, pair_stages, pairs_name, rows_name
from latentscale_pipeline.measures.shared.random_rows import MIN_ROWS, row_bytes

QUERIES = 5000
"""Items whose neighbours one task finds."""

LIST_SHARE = 4
"""Length of a list over the neighbours that count: in a half of the items they are still in it."""

ENTRY_BYTES = 24
"""An entry of a list: an item, its distance, and what orders equal distances."""

PAIR_OPERATIONS, ENTRY_OPERATIONS = 4.0, 120.0
"""Elementwise operations of a pair of items, and to insert an item into a list and compare it."""


def plan_alignment(section: Alignment, facts: JobFacts) -> list[Stage]:
    """Plan pairs of rows, their neighbours by both models, and the scores."""
    pairs = pair_count(section, facts)
    if too_few_pairs(section, facts):
        return []
    return [*pair_stages(facts, pairs, STAGE), _lists_stage(section, facts, pairs)]


def pair_count(section: Alignment, facts: JobFacts) -> int:
    """Return how many pairs are compared, if all rows have a partner."""
    least = max(MIN_ROWS, section.k + 1)
    most = min(section.rows, max(least, math.isqrt(int(facts.pairs))))
    return min(most, *(corpus.n for corpus in facts.corpora.values()))


def too_few_pairs(section: Alignment, facts: JobFacts) -> str:
    """Return why the corpora have no alignment; empty if they have one."""
    pairs = pair_count(section, facts)
    if pairs < MIN_PAIRS:
        return f"fewer than {MIN_PAIRS} pairs of rows"
    if pairs <= section.k:
        return f"{section.k} neighbours of an item need {section.k + 1} pairs of rows"
    return ""


def _lists_stage(section: Alignment, facts: JobFacts, pairs: int) -> Stage:
    corpora = [facts.corpora[role] for role in ROLES]
    d, stored = sum(corpus.d for corpus in corpora), sum(row_bytes(corpus) for corpus in corpora)
    parts = -(-pairs // QUERIES)
    length = min(LIST_SHARE * section.k, pairs - 1)
    entries = 2 * pairs * length
    widest = max(corpus.d for corpus in corpora)
    return Stage(
        name=STAGE,
        work=find_neighbours,
        finalise=score_pairs,
        partitions=parts,
        needs=(pairs_name(STAGE), *(rows_name(STAGE, role) for role in ROLES)),
        parameters={
            "metric": section.metric,
            "k": section.k,
            "length": length,
            "queries": QUERIES,
        },
        seed=facts.seed,
        memory_bytes=max(
            pairs * (16 * widest + stored)
            + min(pairs, QUERIES) * (12 * widest + 2 * ENTRY_BYTES * length),
            pairs * (4 * 8 * d + stored) + 3 * 8 * widest**2,
        )
        + 24 * entries
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=(parts + 1) * stored * pairs + 8 * entries,
            bytes_written=8 * entries + 32 * pairs + (parts + 1) * RESULT_BYTES,
            exchanged_bytes=(parts + 1) * stored * pairs + 8 * entries,
            result_bytes=32 * pairs + RESULT_BYTES,
            float32_multiply_adds=float(pairs) ** 2 * d,
            float64_multiply_adds=2.0 * pairs * d**2,
            elementwise_operations=2 * PAIR_OPERATIONS * float(pairs) ** 2
            + (ENTRY_OPERATIONS + 20.0 * SPLITS) * entries,
            method="exact",
            why=f"{pairs:,} pairs of rows, and the nearest of them to each other",
        ),
    )
