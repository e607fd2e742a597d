"""Moments of a corpus and the comparison of two, as tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from latentscale.baselines.frechet import frechet_distance
from latentscale.baselines.kernel_distance import kernel_distance
from latentscale.baselines.manifold_overlap import approximate_overlap, exact_overlap
from latentscale.baselines.moments import (
    geometric_mean_deviation,
    internal_diversity,
    mean_similarity,
)
from latentscale.estimate import Estimate
from latentscale.linalg.moments import Moments, merge_row_moments, row_moments
from latentscale.tiles.distances import Points, as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import store_estimate
from latentscale_pipeline.measures.shared.records import load_record, record_output
from latentscale_pipeline.storage.artifacts import Output

OF_MOMENTS: Mapping[str, Callable[[Moments], Estimate]] = {
    "mean similarity": mean_similarity,
    "IntDiv": internal_diversity,
    "GMStds": geometric_mean_deviation,
}
"""Scores of one corpus."""

LARGEST_RATIO = 2
"""Rows of the larger corpus in neighbour lists, at most this many times those of the smaller.

The lists are of both corpora together, and would hold hardly any rows of one much smaller.
"""

SHARDS_PER_TASK = 8
"""Shards whose moments one task sums."""


def sum_moments(inputs: Inputs) -> Output:
    """Sum the moments of a run of shards."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    first = inputs.index * SHARDS_PER_TASK
    shards = range(first, min(first + SHARDS_PER_TASK, corpus.shard_count))
    moments = merge_row_moments([row_moments(corpus.read_shard(shard)) for shard in shards])
    return record_output(moments)


def join_moments(inputs: Inputs) -> Output:
    """Join the moments in order and score the corpus."""
    moments = merge_row_moments([load_record(Moments, part) for part in inputs.parts])
    output = record_output(moments)
    scores: dict[str, Any] = {}
    for name, compute in OF_MOMENTS.items():
        try:
            scores[name] = store_estimate(compute(moments))
        except ValueError as problem:
            scores[name] = {"reason": str(problem)}
    return Output(values={**output.values, "scores": scores}, arrays=output.arrays)


def compare_pair(inputs: Inputs) -> Output:
    """Compare the corpus with the reference."""
    p, generator = inputs.parameters, inputs.generator()
    roles = ("corpus", "reference")
    evaluated, reference = (_read(inputs, role) for role in roles)
    moments = [load_record(Moments, inputs.results[f"moments-{role}"]) for role in roles]
    shuffles, choice = generator.spawn(2)
    kid = kernel_distance(shuffles.permutation(evaluated), shuffles.permutation(reference))
    a, b = as_points(evaluated, "euclidean"), as_points(reference, "euclidean")
    scores: dict[str, Any] = {"rows": [len(evaluated), len(reference)], "kid": asdict(kid)}
    if min(moment.count for moment in moments) >= 2:
        scores["fid"] = store_estimate(frechet_distance(*moments))
    scores["exact"] = asdict(exact_overlap(a, b, p["k"]))
    scores["graph"] = _overlap_of_lists(a, b, scores["exact"], p["k"], generator, choice)
    return Output(values=scores)


def _overlap_of_lists(
    a: Points,
    b: Points,
    exact: Mapping[str, float],
    k: int,
    generator: np.random.Generator,
    choice: np.random.Generator,
) -> dict[str, float]:
    """Return the exact scores with the difference that approximate neighbour lists make."""
    most = LARGEST_RATIO * min(len(a), len(b))
    few_a, few_b = (_some(points, most, choice) for points in (a, b))
    found = asdict(approximate_overlap(few_a, few_b, k, generator))
    if max(len(a), len(b)) <= most:
        return found
    beside = asdict(exact_overlap(few_a, few_b, k))
    return {name: value + (found[name] - beside[name]) for name, value in exact.items()}


def _some(points: Points, count: int, generator: np.random.Generator) -> Points:
    """Return at most ``count`` of the points, drawn at random."""
    if len(points) <= count:
        return points
    return points.take(np.sort(generator.choice(len(points), count, replace=False)))


def _read(inputs: Inputs, role: str) -> np.ndarray[Any, Any]:
    """Read all rows of a corpus, or a random sample."""
    sample = inputs.parameters["samples"].get(role)
    if sample is None:
        return inputs.corpora[role].read_all()
    return inputs.results[sample].array("vectors")
