"""Stages of the projection: rows drawn from each corpus, and their places in the plane."""

from __future__ import annotations

from latentscale.projection.tsne import EARLY, LATE, MIN_ROWS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import FEW_TILES_BYTES, RESULT_BYTES, JobFacts, Role
from latentscale_pipeline.measures.projection.config import ProjectionSection
from latentscale_pipeline.measures.projection.tasks import lay_out
from latentscale_pipeline.measures.shared.random_rows import drawn_rows_stage

ROW_BYTES = 15_360
"""Memory of the layout for a row, beside its coordinates, at a perplexity of 30."""

PAIR_OPERATIONS = 0.2
"""Elementwise operations for a pair of rows in a step of the layout."""

NEIGHBOUR_OPERATIONS = 3.0
"""The same for a row and one of its neighbours."""

SEARCH_OPERATIONS = 60.0
"""Elementwise operations to find the nearest rows, for a pair of rows."""


def plan_projection(section: ProjectionSection, facts: JobFacts) -> list[Stage]:
    """Plan random rows of each corpus, and their places."""
    if sum(drawn_rows(section, facts).values()) < MIN_ROWS:
        return []
    drawn = [
        drawn_rows_stage(f"projection-rows-{role}", role, facts.corpora[role], rows, facts.seed)
        for role, rows in drawn_rows(section, facts).items()
    ]
    return [*drawn, _layout_stage(section, facts, drawn)]


def drawn_rows(section: ProjectionSection, facts: JobFacts) -> dict[Role, int]:
    """Return how many rows of each corpus are chosen."""
    corpora = {
        role: corpus
        for role, corpus in facts.corpora.items()
        if corpus.d == facts.corpora["corpus"].d
    }
    return {role: min(corpus.n, section.rows // len(corpora)) for role, corpus in corpora.items()}


def _layout_stage(section: ProjectionSection, facts: JobFacts, drawn: list[Stage]) -> Stage:
    rows, d = sum(drawn_rows(section, facts).values()), facts.corpora["corpus"].d
    pairs, steps = float(rows) ** 2, EARLY + LATE
    near = 2.0 * 3.0 * min(section.perplexity, rows / 3.0)
    return Stage(
        name="projection",
        work=lay_out,
        needs=tuple(stage.name for stage in drawn),
        parameters={
            "drawn": [stage.name for stage in drawn],
            "metric": section.metric,
            "perplexity": section.perplexity,
        },
        seed=facts.seed,
        memory_bytes=rows * (4 * 8 * d + int(ROW_BYTES * max(1.0, section.perplexity / 30.0)))
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=8 * rows * d,
            bytes_written=16 * rows + RESULT_BYTES,
            float32_multiply_adds=pairs * d,
            elementwise_operations=SEARCH_OPERATIONS * pairs
            + steps * (PAIR_OPERATIONS * pairs + NEIGHBOUR_OPERATIONS * rows * near),
            method="t-SNE",
            why=f"{rows:,} rows at random",
        ),
    )
