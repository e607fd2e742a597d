"""Stages of the maximum mean discrepancy: all pairs of few rows, features of many."""

from __future__ import annotations

from dataclasses import replace

from latentscale.mmd.two_sample import AT_ONCE, DIVISIONS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    TILE_BYTES,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.mmd.config import Mmd, MmdKernel
from latentscale_pipeline.measures.mmd.tasks import (
    BLOCK_ROWS,
    FREQUENCIES,
    MIN_ROWS,
    PAIRED_ROWS,
    SHARDS_PER_TASK,
    choose_features,
    compare_groups,
    compare_rows,
    divide_rows,
    join_features,
    rows_taken,
    sum_features,
)
from latentscale_pipeline.measures.shared.bandwidth import bandwidth_stage, planned_bandwidth

PAIR_OPERATIONS = 3
"""Elementwise operations of one pair: distance, exponential and sum."""

FOURIER_OPERATIONS = 8
"""Elementwise operations of a frequency and a row: an angle, its cosine and sine, two sums."""


def plan_mmd(section: Mmd, facts: JobFacts) -> list[Stage]:
    """Plan the sums over groups of rows and the test, under every kernel."""
    if too_few_rows(facts):
        return []
    stages: list[Stage] = []
    for kernel in section.kernels:
        bandwidth = planned_bandwidth(section.bandwidth, facts) if kernel == "rbf" else None
        if bandwidth == "median":
            stages.insert(0, bandwidth_stage(facts))
        if sum(corpus.n for corpus in facts.corpora.values()) <= PAIRED_ROWS:
            stages.append(_paired_stage(kernel, bandwidth, facts))
        else:
            chosen = _choice_stage(kernel, bandwidth, facts)
            sums = [_features_stage(kernel, chosen.name, facts, role) for role in facts.corpora]
            stages += [chosen, *sums, _groups_stage(kernel, facts, chosen.name, sums)]
    return stages


def too_few_rows(facts: JobFacts) -> str:
    """Return why there is no test; empty if there is one."""
    few = [role for role, corpus in facts.corpora.items() if corpus.n < MIN_ROWS]
    return f"the {few[0]} has fewer than {MIN_ROWS} rows" if few else ""


def stage_name(kernel: MmdKernel) -> str:
    """Return the name of the stage with the discrepancy under a kernel."""
    return f"mmd-{kernel}"


def _test_cost(facts: JobFacts) -> CostEstimate:
    groups = float(sum(_counts(facts)))
    return CostEstimate(
        bytes_written=8 * DIVISIONS + RESULT_BYTES,
        float64_multiply_adds=DIVISIONS * groups**2,
        elementwise_operations=20.0 * DIVISIONS * groups,
    )


def _test_bytes(facts: JobFacts) -> int:
    groups = sum(_counts(facts))
    return 3 * 8 * groups**2 + 4 * 8 * AT_ONCE * groups


def _counts(facts: JobFacts) -> tuple[int, int]:
    ours, theirs = facts.corpora.values()
    return divide_rows(ours.n, theirs.n)[1]


def _bandwidth_needs(bandwidth: float | str | None) -> tuple[str, ...]:
    return ("bandwidth",) if bandwidth == "median" else ()


def _paired_stage(kernel: MmdKernel, bandwidth: float | str | None, facts: JobFacts) -> Stage:
    """Plan one task that visits all pairs."""
    corpora = facts.corpora.values()
    rows, d = float(sum(corpus.n for corpus in corpora)), facts.corpora["corpus"].d
    pairs = rows**2 / 2 if kernel == "rbf" else 0.0
    cost = _test_cost(facts)
    return Stage(
        name=stage_name(kernel),
        work=compare_rows,
        needs=_bandwidth_needs(bandwidth),
        corpora=tuple(facts.corpora),
        parameters={"kernel": kernel, "bandwidth": bandwidth},
        seed=facts.seed,
        memory_bytes=sum(3 * corpus.float_bytes + corpus.stored_bytes for corpus in corpora)
        + _test_bytes(facts)
        + TILE_BYTES,
        cost_estimate=replace(
            cost,
            bytes_read=sum(corpus.stored_bytes for corpus in corpora),
            float64_multiply_adds=cost.float64_multiply_adds + pairs * d,
            elementwise_operations=cost.elementwise_operations
            + PAIR_OPERATIONS * pairs
            + 4.0 * rows * d,
            method="pairs" if kernel == "rbf" else "features",
            why=f"at most {PAIRED_ROWS:,} rows in both corpora",
        ),
    )


def _choice_stage(kernel: MmdKernel, bandwidth: float | str | None, facts: JobFacts) -> Stage:
    """Plan the choice of what the features of both corpora are made with."""
    reference = facts.corpora["reference"]
    written = 8 * reference.d * (1 + (0 if bandwidth is None else FREQUENCIES))
    read = reference.shard_stored_bytes if bandwidth is None else 0
    return Stage(
        name=f"mmd-choice-{kernel}",
        work=choose_features,
        needs=_bandwidth_needs(bandwidth),
        # The same frequencies serve jobs of other corpora, if the bandwidth is given.
        corpora=("reference",) if bandwidth is None else (),
        parameters={"kernel": kernel, "bandwidth": bandwidth, "d": reference.d},
        seed=facts.seed,
        temporary="result",
        memory_bytes=2 * read + 3 * written,
        cost_estimate=CostEstimate(
            bytes_read=read,
            bytes_written=written + RESULT_BYTES,
            elementwise_operations=30.0 * written / 8,
        ),
    )


def _features_stage(kernel: MmdKernel, chosen: str, facts: JobFacts, role: Role) -> Stage:
    """Plan a pass over a corpus that sums the features of its rows by groups."""
    corpus, fourier = facts.corpora[role], kernel == "rbf"
    width = 2 * FREQUENCIES if fourier else corpus.d
    place = list(facts.corpora).index(role)
    groups, sizes = _counts(facts)[place], [each.n for each in facts.corpora.values()]
    taken = rows_taken(sizes[place], sizes[1 - place])
    angles = float(taken) * FREQUENCIES if fourier else 0.0
    parts = -(-corpus.shards // SHARDS_PER_TASK)
    return Stage(
        name=f"mmd-features-{kernel}-{role}",
        work=sum_features,
        finalise=join_features,
        partitions=parts,
        needs=(chosen,),
        corpora=(role,),
        parameters={
            "role": role,
            "kernel": kernel,
            "chosen": chosen,
            "groups": groups,
            "share": taken / corpus.n,
        },
        seed=facts.seed,
        temporary="result",
        memory_bytes=2 * corpus.shard_stored_bytes
        + 8 * corpus.rows_of_shard
        + 8 * BLOCK_ROWS * (3 * width + 2 * corpus.d)
        + 3 * 8 * groups * width
        + 8 * corpus.d * FREQUENCIES
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * 8 * groups * width,
            bytes_written=(parts + 1) * (8 * groups * width + RESULT_BYTES),
            float64_multiply_adds=angles * corpus.d,
            elementwise_operations=FOURIER_OPERATIONS * angles + 8.0 * taken * corpus.d,
            method="fourier" if fourier else "features",
            why=f"more than {PAIRED_ROWS:,} rows in both corpora",
        ),
    )


def _groups_stage(kernel: MmdKernel, facts: JobFacts, chosen: str, sums: list[Stage]) -> Stage:
    """Plan the test on the sums of all groups."""
    groups, fourier = sum(_counts(facts)), kernel == "rbf"
    width = 2 * FREQUENCIES if fourier else facts.corpora["corpus"].d
    names = tuple(stage.name for stage in sums)
    cost = _test_cost(facts)
    return Stage(
        name=stage_name(kernel),
        work=compare_groups,
        needs=(chosen, *names),
        parameters={
            "kernel": kernel,
            "chosen": chosen,
            "features": names,
            "n": [corpus.n for corpus in facts.corpora.values()],
        },
        seed=facts.seed,
        memory_bytes=4 * 8 * groups * width + _test_bytes(facts) + TILE_BYTES,
        cost_estimate=replace(
            cost,
            bytes_read=8 * groups * width,
            float64_multiply_adds=cost.float64_multiply_adds + float(groups) ** 2 * width,
            method="fourier" if fourier else "features",
            why="random divisions of groups",
        ),
    )
