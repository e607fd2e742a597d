"""Stages of the modes: a pass over the rows, their modes, and another pass for nearest rows."""

from __future__ import annotations

from latentscale.modes.difference import DIVISIONS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    UNIT_OPERATIONS,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.modes.config import ModesSection
from latentscale_pipeline.measures.modes.tasks import (
    BLOCK_ROWS,
    SHARDS_PER_TASK,
    find_modes,
    find_rows,
    join_moments,
    join_rows,
    sum_moments,
)

GROUPS, LEAST_GROUPS = 20, 8
"""Most and fewest groups of a corpus."""

MOMENT_BYTES = 256 * 2**20
"""Memory for the second moments of all groups of a corpus."""

LEAST_ROWS = 100
"""Fewest rows of a corpus."""

PRODUCTS = 20
"""Products with a matrix to find its largest eigenvalues."""


def plan_modes(section: ModesSection, facts: JobFacts) -> list[Stage]:
    """Plan the second moments by groups, the modes and the rows that stand for them."""
    if too_few_rows(facts):
        return []
    moments = [_moments_stage(facts, role) for role in facts.corpora]
    nearest = [_rows_stage(section, facts, role) for role in facts.corpora]
    return [*moments, _modes_stage(section, facts, moments), *nearest]


def too_few_rows(facts: JobFacts) -> str:
    """Return why there are no modes; empty if there are."""
    few = [role for role, corpus in facts.corpora.items() if corpus.n < LEAST_ROWS]
    return f"the {few[0]} has fewer than {LEAST_ROWS} rows" if few else ""


def _groups(d: int) -> int:
    return max(LEAST_GROUPS, min(GROUPS, MOMENT_BYTES // (8 * d * d)))


def _moments_stage(facts: JobFacts, role: Role) -> Stage:
    corpus = facts.corpora[role]
    groups, parts = _groups(corpus.d), -(-corpus.shards // SHARDS_PER_TASK)
    share = min(each.n for each in facts.corpora.values()) / corpus.n
    sums = 8 * (groups + 1) * corpus.d**2
    return Stage(
        name=f"modes-moments-{role}",
        work=sum_moments,
        finalise=join_moments,
        partitions=parts,
        corpora=(role,),
        parameters={"role": role, "groups": groups, "share": share},
        seed=facts.seed,
        temporary="result",
        memory_bytes=2 * corpus.shard_stored_bytes
        + 8 * corpus.rows_of_shard
        + 4 * 8 * BLOCK_ROWS * corpus.d
        + 2 * sums
        + 8 * corpus.d**2
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * sums,
            bytes_written=(parts + 1) * (sums + RESULT_BYTES),
            float64_multiply_adds=float(corpus.n) * corpus.d**2 / 2,
            elementwise_operations=(UNIT_OPERATIONS + 2.0) * corpus.n * corpus.d,
            method="moments",
            why=f"{groups} random groups of rows",
        ),
    )


def _modes_stage(section: ModesSection, facts: JobFacts, moments: list[Stage]) -> Stage:
    d = facts.corpora["corpus"].d
    groups, names = 2 * _groups(d), [stage.name for stage in moments]
    sums = 8 * (groups + 2) * d**2
    return Stage(
        name="modes",
        work=find_modes,
        needs=tuple(names),
        parameters={"moments": names, "count": section.count},
        seed=facts.seed,
        memory_bytes=3 * sums + 8 * 8 * d**2 + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=sums,
            bytes_written=2 * 8 * (DIVISIONS + d * section.count) + RESULT_BYTES,
            float64_multiply_adds=float(d) ** 3 * 10 + DIVISIONS * PRODUCTS * float(d) ** 2,
            elementwise_operations=DIVISIONS * 2.0 * groups * d**2,
            method="eigenvectors",
            why="of the difference of the second moments",
        ),
    )


def _rows_stage(section: ModesSection, facts: JobFacts, role: Role) -> Stage:
    corpus = facts.corpora[role]
    parts = -(-corpus.shards // SHARDS_PER_TASK)
    kept = 16 * section.count * section.examples
    return Stage(
        name=f"modes-rows-{role}",
        work=find_rows,
        finalise=join_rows,
        partitions=parts,
        corpora=(role,),
        needs=("modes",),
        parameters={"role": role, "examples": section.examples},
        memory_bytes=2 * corpus.shard_stored_bytes
        + 4 * 8 * BLOCK_ROWS * (corpus.d + section.count)
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * kept,
            bytes_written=(parts + 1) * (kept + RESULT_BYTES),
            float64_multiply_adds=float(corpus.n) * corpus.d * section.count,
            elementwise_operations=(UNIT_OPERATIONS + 1.0) * corpus.n * corpus.d
            + 40.0 * corpus.n * section.count,
            method="exact",
            why="the rows nearest to each mode",
        ),
    )
