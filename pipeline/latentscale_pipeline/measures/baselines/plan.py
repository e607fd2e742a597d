"""Plan the baselines: scores from moments, and from random rows of both corpora.

Mean similarity, IntDiv, GMStds and FID come from the moments of all rows, one pass. KID, precision,
recall, density and coverage visit pairs: of all rows, or of ``rows`` random rows of each corpus.
"""

from __future__ import annotations

from collections.abc import Mapping

from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    TILE_BYTES,
    UNIT_OPERATIONS,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.baselines.config import Baselines
from latentscale_pipeline.measures.baselines.tasks import (
    SHARDS_PER_TASK,
    compare_pair,
    join_moments,
    sum_moments,
)
from latentscale_pipeline.measures.shared.random_rows import row_bytes, sample_stage


def plan_baselines(section: Baselines, facts: JobFacts) -> list[Stage]:
    """Plan the moments of every corpus and, with a reference, the comparison."""
    stages = [_moments_stage(corpus, role) for role, corpus in facts.corpora.items()]
    if len(facts.corpora) > 1:
        samples = {
            role: f"baselines-rows-{role}"
            for role, corpus in facts.corpora.items()
            if corpus.n > section.rows
        }
        stages += [
            sample_stage(name, role, facts.corpora[role], section.rows, facts.seed)
            for role, name in samples.items()
        ]
        stages.append(_pair_stage(section, facts, samples))
    return stages


def _moments_stage(corpus: CorpusFacts, role: Role) -> Stage:
    matrix = 8 * corpus.d**2
    parts = -(-corpus.shards // SHARDS_PER_TASK)
    return Stage(
        name=f"moments-{role}",
        work=sum_moments,
        finalise=join_moments,
        partitions=parts,
        corpora=(role,),
        parameters={"role": role},
        memory_bytes=2 * corpus.shard_stored_bytes
        + 6 * matrix
        + 5 * 8 * 4096 * corpus.d
        + (parts + 2) * matrix,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * matrix,
            bytes_written=(parts + 1) * (matrix + RESULT_BYTES),
            float64_multiply_adds=corpus.n * float(corpus.d) ** 2 / 2,
            elementwise_operations=UNIT_OPERATIONS * float(corpus.n) * corpus.d,
            method="moments",
            why="sums over the rows",
        ),
        part_inputs=corpus.runs_of_shards(SHARDS_PER_TASK),
    )


def _pair_stage(section: Baselines, facts: JobFacts, samples: Mapping[Role, str]) -> Stage:
    rows = [min(section.rows, corpus.n) for corpus in facts.corpora.values()]
    for role, count in zip(facts.corpora, rows, strict=True):
        if count <= section.k:
            raise BadInput(
                f"{role}: measures.baselines.k is {section.k}, which needs more rows than {count}; "
                "use a smaller k or more rows"
            )
    d = facts.corpora["corpus"].d
    pairs = float(sum(rows)) ** 2
    stored = max(row_bytes(corpus) for corpus in facts.corpora.values()) * sum(rows)
    return Stage(
        name="baselines",
        work=compare_pair,
        corpora=tuple(facts.corpora),
        needs=(*(f"moments-{role}" for role in facts.corpora), *samples.values()),
        parameters={"k": section.k, "samples": dict(samples)},
        seed=facts.seed,
        memory_bytes=4 * 8 * sum(rows) * (d + 1)
        + 400 * section.k * sum(rows)
        + 2 * stored
        + 6 * 8 * d**2
        + TILE_BYTES
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=stored,
            bytes_written=RESULT_BYTES,
            float64_multiply_adds=2.0 * pairs * d + 30.0 * float(d) ** 3,
            float32_multiply_adds=1.5 * pairs * d,
            elementwise_operations=30.0 * pairs,
            method="exact",
            why=f"all pairs of up to {section.rows:,} rows a side",
        ),
    )
