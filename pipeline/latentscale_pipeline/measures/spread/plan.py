"""Stages of the spread: random rows of each corpus, and sums of their similarities to all rows."""

from __future__ import annotations

from latentscale.tiles.device import Precision
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.shared.bandwidth import (
    bandwidth_stage,
    median_pairs,
    planned_bandwidth,
)
from latentscale_pipeline.measures.shared.random_rows import (
    MAX_TASKS,
    affordable_rows,
    row_bytes,
    sample_stage,
)
from latentscale_pipeline.measures.shared.shard_blocks import POINTS_BYTES, shards_per_block
from latentscale_pipeline.measures.spread.config import Spread
from latentscale_pipeline.measures.spread.tasks import score_sums, sum_rows

DOUBLE_PAIRS = 1e9
"""Pairs of rows up to which sums are in double precision; beyond, that would take minutes."""

PAIR_OPERATIONS = 6.0
"""Elementwise operations of a pair: its distance, and both sums at a scale."""

SCALE_OPERATIONS = 6.0
"""Elementwise operations of a pair at a scale: an exponential, and two additions."""


def plan_spread(section: Spread, facts: JobFacts) -> list[Stage]:
    """Plan random rows of every corpus, and the sums of their similarities to all rows."""
    bandwidth = planned_bandwidth(section.bandwidth, facts)
    first = [bandwidth_stage(facts)] if bandwidth == "median" else []
    roles = facts.corpora
    return [*first, *(stage for role in roles for stage in _stages(section, facts, role))]


def stage_name(role: Role) -> str:
    """Return the name of the stage with the spread of a corpus."""
    return f"spread-{role}"


def drawn_count(section: Spread, facts: JobFacts, role: Role) -> int:
    """Return how many rows of a corpus are drawn."""
    return affordable_rows(facts.corpora[role].n, section.rows, facts.pairs)


def _stages(section: Spread, facts: JobFacts, role: Role) -> list[Stage]:
    corpus, rows = facts.corpora[role], drawn_count(section, facts, role)
    # In random order, so that halves of them have nothing to do with their content.
    drawn = sample_stage(f"spread-rows-{role}", role, corpus, rows, facts.seed)
    return [drawn, _sums_stage(section, facts, role, drawn.name)]


def _sums_stage(section: Spread, facts: JobFacts, role: Role, drawn: str) -> Stage:
    corpus, rows = facts.corpora[role], drawn_count(section, facts, role)
    bandwidth = planned_bandwidth(section.bandwidth, facts)
    shards = max(shards_per_block(corpus), -(-corpus.shards // MAX_TASKS))
    parts = -(-corpus.shards // shards)
    distances = 1 if section.temperature is None else 2
    columns = len(section.scales) + distances - 1
    pairs, summed = float(rows) * corpus.n, 16 * rows * columns
    precision: Precision = "double" if pairs <= DOUBLE_PAIRS else "single"
    products = distances * pairs * corpus.d
    return Stage(
        name=stage_name(role),
        work=sum_rows,
        finalise=score_sums,
        partitions=parts,
        needs=(*(("bandwidth",) if bandwidth == "median" else ()), drawn),
        corpora=(role,),
        parameters={
            "role": role,
            "drawn": drawn,
            "scales": section.scales,
            "bandwidth": bandwidth,
            "temperature": section.temperature,
            "precision": precision,
            "errors": facts.errors,
            # Another sample moves the median of its own distances, and not that of another corpus.
            "median_pairs": median_pairs(corpus.n)
            if bandwidth == "median" and role == facts.scale_role
            else None,
            "shards": shards,
        },
        memory_bytes=2 * corpus.shard_stored_bytes
        + 4 * POINTS_BYTES
        + rows * (corpus.d * 24 + row_bytes(corpus))
        + 6 * summed
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * (row_bytes(corpus) * rows + summed),
            bytes_written=parts * (summed + RESULT_BYTES) + RESULT_BYTES,
            exchanged_bytes=parts * (row_bytes(corpus) * rows + summed),
            result_bytes=RESULT_BYTES,
            float32_multiply_adds=products if precision == "single" else 0.0,
            float64_multiply_adds=distances * float(rows) ** 2 * corpus.d
            + (products if precision == "double" else 0.0),
            elementwise_operations=pairs * (PAIR_OPERATIONS * distances)
            + (pairs + float(rows) ** 2) * SCALE_OPERATIONS * columns
            + CONVERSION_OPERATIONS * distances * corpus.n * corpus.d,
            method="row sums",
            why=f"similarities of {rows:,}"
            + (" random rows to all rows" if rows < corpus.n else " rows to each other"),
        ),
    )
