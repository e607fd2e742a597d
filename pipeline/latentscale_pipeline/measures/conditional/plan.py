"""Stages of the conditional diversity: pairs of rows, and their scores."""

from __future__ import annotations

from latentscale.conditional.schur_complement import BLOCK_ROWS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import FEW_TILES_BYTES, RESULT_BYTES, JobFacts
from latentscale_pipeline.measures.conditional.config import BANDWIDTHS, Conditional
from latentscale_pipeline.measures.conditional.tasks import (
    PARTS,
    STAGE,
    join_scores,
    score_part,
)
from latentscale_pipeline.measures.shared.pairs import ROLES, pair_stages, pairs_name, rows_name
from latentscale_pipeline.measures.shared.random_rows import row_bytes

MIN_PAIRS = 100
"""Fewest pairs of rows."""

DECOMPOSITION = 4.0
"""Multiply-adds of a decomposition with vectors, over the third power of its size."""


def plan_conditional(section: Conditional, facts: JobFacts) -> list[Stage]:
    """Plan pairs of rows, and their scores."""
    if too_few_pairs(facts):
        return []
    pairs = min(section.rows, *(corpus.n for corpus in facts.corpora.values()))
    return [*pair_stages(facts, pairs, STAGE), _scores_stage(section, facts, pairs)]


def too_few_pairs(facts: JobFacts) -> str:
    """Return why the corpora have no conditional diversity; empty if they have one."""
    few = [role for role, corpus in facts.corpora.items() if corpus.n < MIN_PAIRS]
    return f"the {few[0]} has fewer than {MIN_PAIRS} rows" if few else ""


def _scores_stage(section: Conditional, facts: JobFacts, pairs: int) -> Stage:
    corpora = [facts.corpora[role] for role in ROLES]
    d, stored = sum(corpus.d for corpus in corpora), sum(row_bytes(corpus) for corpus in corpora)
    few = min(section.kernel_rows, pairs)
    return Stage(
        name=STAGE,
        work=score_part,
        finalise=join_scores,
        partitions=PARTS,
        needs=(pairs_name(STAGE), *(rows_name(STAGE, role) for role in ROLES)),
        parameters={
            "kernel": section.kernel,
            **{
                key: facts.fixed_scales.get(name, "median")
                if getattr(section, key) == "median"
                else getattr(section, key)
                for name, key in BANDWIDTHS.items()
            },
            "kernel_rows": section.kernel_rows,
            "least": MIN_PAIRS,
        },
        seed=facts.seed,
        memory_bytes=2 * stored * pairs
        + max(8 * (10 * few**2 + few * d), 8 * (5 * d**2 + 4 * BLOCK_ROWS * d + 2 * pairs))
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=2 * stored * pairs,
            bytes_written=(PARTS + 1) * RESULT_BYTES,
            exchanged_bytes=2 * stored * pairs,
            result_bytes=RESULT_BYTES,
            float64_multiply_adds=3.5 * DECOMPOSITION * float(few) ** 3
            + 1.5 * pairs * d**2
            + 2 * DECOMPOSITION * float(d) ** 3,
            elementwise_operations=20.0 * few**2 + 6.0 * pairs * d,
            method="exact",
            why=f"{pairs:,} pairs of rows, {few:,} of them for eigenvalues",
        ),
    )
