"""Stages of the modes: a pass over the rows, their modes, and another pass for nearest rows."""

from __future__ import annotations

from latentscale.modes.difference import AT_ONCE_BYTES, DIVISIONS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    UNIT_OPERATIONS,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.modes.config import ModesKernel, ModesSection
from latentscale_pipeline.measures.modes.tasks import (
    BLOCK_ROWS,
    FREQUENCIES,
    SHARDS_PER_TASK,
    draw_features,
    find_modes,
    find_rows,
    join_moments,
    join_rows,
    sum_moments,
)
from latentscale_pipeline.measures.shared.bandwidth import bandwidth_stage, planned_bandwidth

GROUPS, MIN_GROUPS = 20, 8
"""Most and fewest groups of a corpus."""

MOMENT_BYTES = 256 * 2**20
"""Memory for the second moments of all groups of a corpus."""

MIN_ROWS = 100
"""Fewest rows of a corpus."""

PRODUCTS = 20
"""Products with a matrix to find its largest eigenvalues."""

ANGLE_OPERATIONS = 9
"""Elementwise operations of a frequency and a row: an angle, its cosine and its sine."""


def plan_modes(section: ModesSection, facts: JobFacts) -> list[Stage]:
    """Plan the second moments by groups, the modes and the rows that stand for them."""
    if too_few_rows(facts):
        return []
    stages: list[Stage] = []
    for kernel in section.kernels:
        features = None
        if kernel == "rbf":
            bandwidth = planned_bandwidth(section.bandwidth, facts)
            if bandwidth == "median":
                stages.insert(0, bandwidth_stage(facts))
            stages.append(_features_stage(bandwidth, facts))
            features = stages[-1].name
        moments = [_moments_stage(kernel, features, facts, role) for role in facts.corpora]
        nearest = [_rows_stage(section, kernel, features, facts, role) for role in facts.corpora]
        stages += [*moments, _modes_stage(section, kernel, features, facts, moments), *nearest]
    return stages


def stage_name(kernel: ModesKernel, step: str = "") -> str:
    """Return the name of the stage with the modes under a kernel, or of a step beside it."""
    names = ["modes", "" if kernel == "cosine" else kernel, step]
    return "-".join(name for name in names if name)


def too_few_rows(facts: JobFacts) -> str:
    """Return why there are no modes; empty if there are."""
    few = [role for role, corpus in facts.corpora.items() if corpus.n < MIN_ROWS]
    return f"the {few[0]} has fewer than {MIN_ROWS} rows" if few else ""


def _groups(width: int) -> int:
    return max(MIN_GROUPS, min(GROUPS, MOMENT_BYTES // (8 * width**2)))


def _width(kernel: ModesKernel, facts: JobFacts) -> int:
    """Return the length of the unit vectors."""
    return 2 * FREQUENCIES if kernel == "rbf" else facts.corpora["corpus"].d


def _vectors_cost(kernel: ModesKernel, corpus: CorpusFacts) -> CostEstimate:
    """Estimate the making of the unit vectors of all rows."""
    units = (UNIT_OPERATIONS + 1.0) * corpus.n * corpus.d
    if kernel == "cosine":
        return CostEstimate(elementwise_operations=units)
    angles = float(corpus.n) * FREQUENCIES
    return CostEstimate(
        float64_multiply_adds=angles * corpus.d, elementwise_operations=ANGLE_OPERATIONS * angles
    )


def _features_stage(bandwidth: float | str | None, facts: JobFacts) -> Stage:
    d = facts.corpora["corpus"].d
    written = 8 * d * FREQUENCIES
    return Stage(
        name=stage_name("rbf", "features"),
        work=draw_features,
        needs=("bandwidth",) if bandwidth == "median" else (),
        parameters={"bandwidth": bandwidth, "d": d},
        seed=facts.seed,
        temporary="result",
        memory_bytes=3 * written,
        cost_estimate=CostEstimate(
            bytes_written=written + RESULT_BYTES, elementwise_operations=30.0 * written / 8
        ),
    )


def _moments_stage(kernel: ModesKernel, features: str | None, facts: JobFacts, role: Role) -> Stage:
    corpus, width = facts.corpora[role], _width(kernel, facts)
    groups, parts = _groups(width), -(-corpus.shards // SHARDS_PER_TASK)
    share = min(each.n for each in facts.corpora.values()) / corpus.n
    sums, made = 8 * (groups + 1) * width**2, _vectors_cost(kernel, corpus)
    return Stage(
        name=stage_name(kernel, f"moments-{role}"),
        work=sum_moments,
        finalise=join_moments,
        partitions=parts,
        needs=(features,) if features else (),
        corpora=(role,),
        parameters={"role": role, "features": features, "groups": groups, "share": share},
        seed=facts.seed,
        temporary="result",
        memory_bytes=2 * corpus.shard_stored_bytes
        + 8 * corpus.rows_of_shard
        + 4 * 8 * BLOCK_ROWS * max(corpus.d, width)
        + 2 * sums
        + 8 * width**2
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * sums,
            bytes_written=(parts + 1) * (sums + RESULT_BYTES),
            float64_multiply_adds=made.float64_multiply_adds + float(corpus.n) * width**2 / 2,
            elementwise_operations=made.elementwise_operations + float(corpus.n) * width,
            method="moments",
            why=f"{groups} random groups of rows",
        ),
    )


def _modes_stage(
    section: ModesSection,
    kernel: ModesKernel,
    features: str | None,
    facts: JobFacts,
    moments: list[Stage],
) -> Stage:
    width = _width(kernel, facts)
    groups, names = 2 * _groups(width), [stage.name for stage in moments]
    sums, decompositions = 8 * (groups + 2) * width**2, 10 if kernel == "cosine" else 18
    return Stage(
        name=stage_name(kernel),
        work=find_modes,
        needs=(*names, features) if features else tuple(names),
        parameters={"moments": names, "count": section.count, "features": features},
        seed=facts.seed,
        memory_bytes=3 * sums + 8 * 8 * width**2 + AT_ONCE_BYTES + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=sums,
            bytes_written=2 * 8 * (DIVISIONS + width * section.count) + RESULT_BYTES,
            float64_multiply_adds=decompositions * float(width) ** 3
            + DIVISIONS * (PRODUCTS + groups) * float(width) ** 2,
            method="eigenvectors",
            why="of the difference of the second moments",
        ),
    )


def _rows_stage(
    section: ModesSection,
    kernel: ModesKernel,
    features: str | None,
    facts: JobFacts,
    role: Role,
) -> Stage:
    corpus, width, modes = facts.corpora[role], _width(kernel, facts), stage_name(kernel)
    parts = -(-corpus.shards // SHARDS_PER_TASK)
    kept, made = 16 * section.count * section.examples, _vectors_cost(kernel, corpus)
    return Stage(
        name=stage_name(kernel, f"rows-{role}"),
        work=find_rows,
        finalise=join_rows,
        partitions=parts,
        corpora=(role,),
        needs=(modes, features) if features else (modes,),
        parameters={
            "role": role,
            "modes": modes,
            "features": features,
            "examples": section.examples,
        },
        memory_bytes=2 * corpus.shard_stored_bytes
        + 4 * 8 * BLOCK_ROWS * (max(corpus.d, width) + section.count)
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * kept,
            bytes_written=(parts + 1) * (kept + RESULT_BYTES),
            float64_multiply_adds=made.float64_multiply_adds
            + float(corpus.n) * width * section.count,
            elementwise_operations=made.elementwise_operations + 40.0 * corpus.n * section.count,
            method="exact",
            why="the rows nearest to each mode",
        ),
    )
