"""Tasks of the spread: sum the similarities of random rows to all rows, and score the sums."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from latentscale.array_types import Float64Array
from latentscale.estimate import Scored
from latentscale.spread.row_sums import RowSums, sum_similarities
from latentscale.spread.scores import sampling_errors, spread
from latentscale.tiles.distances import Metric, Points, as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import store_scored
from latentscale_pipeline.measures.shared.bandwidth import read_bandwidth
from latentscale_pipeline.measures.shared.shard_blocks import points_by_blocks
from latentscale_pipeline.storage.artifacts import Artifact, Output

_ARRAYS = ("sums", "errors", "drawn_sums", "strata")
"""Fields that are arrays."""


def sum_rows(inputs: Inputs) -> Output:
    """Sum the similarities of every drawn row to the rows of some shards."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    first = inputs.index * p["shards"]
    shards = range(first, min(first + p["shards"], corpus.shard_count))
    drawn = {metric: _drawn(inputs, metric) for metric in _scales(inputs)}
    rows = inputs.results[p["drawn"]].array("rows")
    found: dict[Metric, RowSums] = {}
    for shard in shards:
        stored = corpus.read_shard(shard)
        begin = corpus.shard_range(shard).start
        for metric, scales in _scales(inputs).items():
            points, origin = drawn[metric]
            for piece, block in points_by_blocks(stored, metric):
                sums = sum_similarities(
                    points,
                    block.about(origin),
                    scales,
                    corpus.n,
                    rows - begin - piece.start,
                    precision=p["precision"],
                )
                found[metric] = found[metric] + sums if metric in found else sums
    return Output(
        values={"rows": {metric: sums.rows for metric, sums in found.items()}},
        arrays={
            f"{metric}_{name}": getattr(sums, name)
            for metric, sums in found.items()
            for name in _ARRAYS
        },
    )


def score_sums(inputs: Inputs) -> Output:
    """Add the sums over all shards, and compute the spread at every scale."""
    found: dict[str, Any] = {}
    bandwidth, reason = read_bandwidth(inputs)
    pairs = inputs.parameters["median_pairs"]
    moving = {} if pairs is None else {"median": bandwidth, "median_pairs": pairs}
    for metric, scales in _scales(inputs).items():
        sums = reduce(add, (_sums(part, metric) for part in inputs.parts))
        errors: list[float | None] = [None] * len(scales)
        if inputs.parameters["errors"]:
            errors = sampling_errors(
                _drawn(inputs, metric)[0], sums, scales, **(moving if metric == "euclidean" else {})
            )
        found[metric] = [
            store_scored(Scored(estimate, error))
            for estimate, error in zip(spread(sums), errors, strict=True)
        ]
    return Output(values={**found, "bandwidth": bandwidth, "reason": reason})


def _sums(part: Artifact, metric: Metric) -> RowSums:
    arrays = {name: part.array(f"{metric}_{name}") for name in _ARRAYS}
    return RowSums(rows=part.values["rows"][metric], **arrays)


def _drawn(inputs: Inputs, metric: Metric) -> tuple[Points, Float64Array]:
    """Return the drawn rows about an origin that all tasks share, and that origin."""
    drawn = as_points(inputs.results[inputs.parameters["drawn"]].array("vectors"), metric)
    origin = drawn.rows.mean(axis=0)
    return drawn.about(origin), origin


def _scales(inputs: Inputs) -> dict[Metric, list[float]]:
    """Return the scales under each distance, in one over its unit."""
    p, scales = inputs.parameters, dict[Metric, list[float]]()
    bandwidth, _ = read_bandwidth(inputs)
    if bandwidth is not None:
        scales["euclidean"] = [scale / bandwidth for scale in p["scales"]]
    if p["temperature"] is not None:
        scales["cosine"] = [1.0 / p["temperature"]]
    return scales
