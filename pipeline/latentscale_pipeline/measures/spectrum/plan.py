"""Stages of the spectrum: one pass over every corpus, and the scores of its groups of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import xxhash

from latentscale.linalg.moments import BLOCK_ROWS
from latentscale.sampling.jackknife import GROUPS
from latentscale.spectrum.lengths import BINS
from latentscale.spectrum.scores import MIN_ROWS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.shared.random_rows import MAX_TASKS
from latentscale_pipeline.measures.spectrum.tasks import score_sums, sum_groups

MIN_GROUPS = 8
"""Fewest groups of a corpus that is divided into groups."""

MOMENT_BYTES, MAX_BYTES = 256 * 2**20, 2**30
"""Memory for the moments of all groups of a corpus, and for those of the fewest groups."""

SHARDS_PER_TASK = 8
"""Fewest shards that one task reads, unless there are fewer."""

ROW_OPERATIONS = CONVERSION_OPERATIONS + 10.0
"""Elementwise operations of a coordinate: conversion, deviation, length and direction."""

EIGENVALUES = 4.0
"""Multiply-adds of an eigenvalue problem, in units of d³; the half of each is bound by memory."""


def plan_spectrum(facts: JobFacts) -> list[Stage]:
    """Plan one pass over every corpus, and the scores."""
    return [
        _stage(corpus, role, facts.seed, count_groups(corpus) if facts.errors else 1)
        for role, corpus in facts.corpora.items()
    ]


def stage_name(role: Role) -> str:
    """Return the name of the stage of a corpus."""
    return f"spectrum-{role}"


def count_groups(corpus: CorpusFacts) -> int:
    """Return how many groups the rows of a corpus are divided into."""
    matrix = 8 * corpus.d**2
    if corpus.n < MIN_ROWS or MIN_GROUPS * matrix > MAX_BYTES:
        return 1
    return max(MIN_GROUPS, min(GROUPS, MOMENT_BYTES // matrix))


def _stage(corpus: CorpusFacts, role: Role, seed: int, groups: int) -> Stage:
    matrix, shards = 8 * corpus.d**2, max(SHARDS_PER_TASK, -(-corpus.shards // MAX_TASKS))
    parts = -(-corpus.shards // shards)
    held = groups * (matrix + 8 * BINS)
    problems = 2 + (3 * groups if groups > 1 else 0)
    return Stage(
        name=stage_name(role),
        work=sum_groups,
        finalise=score_sums,
        partitions=parts,
        corpora=(role,),
        parameters={"role": role, "groups": groups, "shards": shards},
        seed=seed,
        memory_bytes=3 * corpus.shard_stored_bytes
        + 3 * held
        + 8 * matrix
        + 6 * 8 * BLOCK_ROWS * corpus.d
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=corpus.stored_bytes + parts * held,
            bytes_written=parts * held + 8 * (corpus.d + BINS) + (parts + 1) * RESULT_BYTES,
            exchanged_bytes=parts * held,
            result_bytes=8 * (corpus.d + BINS) + RESULT_BYTES,
            float64_multiply_adds=float(corpus.n) * corpus.d**2 / 2
            + problems * EIGENVALUES * float(corpus.d) ** 3,
            elementwise_operations=ROW_OPERATIONS * corpus.n * corpus.d,
            method="moments",
            why=f"sums over the rows, in {groups} groups" if groups > 1 else "sums over the rows",
        ),
        part_inputs=tuple(_after_others(corpus.runs_of_shards(shards, seed, groups))),
    )


def _after_others(runs: Sequence[str]) -> Iterator[str]:
    """Yield the keys of runs of shards with those before: groups of rows depend on their places."""
    before = xxhash.xxh3_128()
    for run in runs:
        before.update(run.encode())
        yield f"{run} {before.hexdigest()}"
