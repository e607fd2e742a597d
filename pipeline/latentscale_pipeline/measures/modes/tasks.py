"""Tasks of the modes: second moments by groups, their difference, and the nearest rows."""

from __future__ import annotations

import numpy as np

from latentscale.array_types import Float64Array, Int64Array
from latentscale.linalg.fourier_features import draw_frequencies
from latentscale.modes.difference import (
    GroupMoments,
    divide_groups,
    leading_modes,
    mode_errors,
    moments_difference,
    sum_group_moments,
)
from latentscale.modes.features import eigenvalue_intervals, unit_features
from latentscale.tiles.distances import row_blocks
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.shared.bandwidth import read_bandwidth
from latentscale_pipeline.storage.artifacts import Output

SHARDS_PER_TASK = 8
"""Shards that one task reads."""

BLOCK_ROWS = 8192
"""Rows that are scaled to unit length at a time."""

KINDS = {"corpus": "novel", "reference": "missing"}
"""The modes that the rows of each corpus stand for."""

FREQUENCIES = 256
"""Random Fourier frequencies of the RBF kernel; the largest mode is known to some percent."""


def draw_features(inputs: Inputs) -> Output:
    """Draw the frequencies of the RBF kernel."""
    bandwidth, reason = read_bandwidth(inputs)
    if bandwidth is None:
        return Output(values={"reason": reason})
    d = inputs.parameters["d"]
    frequencies = draw_frequencies("rbf", bandwidth, d, FREQUENCIES, inputs.generator())
    return Output(values={"bandwidth": bandwidth}, arrays={"frequencies": frequencies})


def sum_moments(inputs: Inputs) -> Output:
    """Sum the outer products of the unit vectors of some shards, by random groups.

    The rows that no division needs, because the other corpus has fewer, are the last group.
    """
    p, generator = inputs.parameters, inputs.generator()
    frequencies, reason = _frequencies(inputs)
    if reason:
        return Output(values={"reason": reason})
    corpus, groups = inputs.corpora[p["role"]], p["groups"]
    width = corpus.d if frequencies is None else 2 * FREQUENCIES
    matrices, sizes = np.zeros((groups + 1, width, width)), np.zeros(groups + 1, np.int64)
    for shard in _shards(inputs):
        rows = corpus.read_shard(shard)
        group = np.minimum(generator.integers(round(groups / p["share"]), size=len(rows)), groups)
        for block in row_blocks(len(rows), BLOCK_ROWS):
            unit = unit_features(rows[block], frequencies)
            sum_group_moments(unit, group[block], matrices, sizes)
    return Output(values={}, arrays={"matrices": matrices, "sizes": sizes})


def join_moments(inputs: Inputs) -> Output:
    """Add the sums of all parts in their order."""
    first, *others = inputs.parts
    if reason := first.values.get("reason"):
        return Output(values={"reason": reason})
    matrices, sizes = first.array("matrices").copy(), first.array("sizes").copy()
    for part in others:
        matrices += part.array("matrices")
        sizes += part.array("sizes")
    return Output(values={}, arrays={"matrices": matrices, "sizes": sizes})


def find_modes(inputs: Inputs) -> Output:
    """Find the largest modes of both kinds, and what random divisions make of them."""
    p = inputs.parameters
    parts = [inputs.results[name] for name in p["moments"]]
    if reason := parts[0].values.get("reason"):
        return Output(values={"reason": reason})
    matrices, sizes = ([part.array(name) for part in parts] for name in ("matrices", "sizes"))
    whole = GroupMoments(
        np.stack([each.sum(axis=0) for each in matrices]),
        np.array([each.sum() for each in sizes]),
        1,
    )
    divided = GroupMoments(
        np.concatenate([each[:-1] for each in matrices]),
        np.concatenate([each[:-1] for each in sizes]),
        len(sizes[0]) - 1,
    )
    chance = divide_groups(divided, inputs.generator())
    rows = (int(whole.sizes[0]), int(whole.sizes[1]))
    arrays, values = {}, {"rows": int(divided.sizes[: divided.first].sum())}
    for place, name in enumerate(("novel", "missing")):
        modes, found = (leading_modes(each, p["count"])[place] for each in (whole, divided))
        arrays[f"{name}_values"] = modes.values
        arrays[f"{name}_errors"] = mode_errors(divided, modes.directions, rows)
        arrays[f"{name}_directions"] = modes.directions
        arrays[f"{name}_shares"] = modes.shares
        arrays[f"{name}_divided"] = chance[place]
        arrays[f"{name}_found"] = found.values[:1]
    if p["features"]:
        values["bandwidth"] = inputs.results[p["features"]].values["bandwidth"]
        intervals = eigenvalue_intervals(moments_difference(whole))
        arrays["novel_interval"], arrays["missing_interval"] = intervals
    return Output(values=values, arrays=arrays)


def find_rows(inputs: Inputs) -> Output:
    """Find the rows of some shards that are nearest to each mode."""
    p, corpus = inputs.parameters, inputs.corpora[inputs.parameters["role"]]
    frequencies, reason = _frequencies(inputs)
    if reason:
        return Output(values={"reason": reason})
    directions = inputs.results[p["modes"]].array(f"{KINDS[p['role']]}_directions")
    rows: Int64Array = np.empty((0, directions.shape[1]), np.int64)
    cosines: Float64Array = np.empty((0, directions.shape[1]))
    for shard in _shards(inputs):
        start, read = corpus.shard_range(shard).start, corpus.read_shard(shard)
        for block in row_blocks(len(read), BLOCK_ROWS):
            found = np.abs(unit_features(read[block], frequencies) @ directions)
            numbers = np.arange(start + block.start, start + block.stop)[:, None]
            rows, cosines = _nearest(
                np.concatenate([rows, np.broadcast_to(numbers, found.shape)]),
                np.concatenate([cosines, found]),
                p["examples"],
            )
    return Output(values={}, arrays={"rows": rows, "cosines": np.minimum(cosines, 1.0)})


def join_rows(inputs: Inputs) -> Output:
    """Choose the nearest rows of all parts."""
    if reason := inputs.parts[0].values.get("reason"):
        return Output(values={"reason": reason})
    rows, cosines = (
        np.concatenate([part.array(name) for part in inputs.parts]) for name in ("rows", "cosines")
    )
    rows, cosines = _nearest(rows, cosines, inputs.parameters["examples"])
    return Output(values={}, arrays={"rows": rows, "cosines": cosines})


def _frequencies(inputs: Inputs) -> tuple[Float64Array | None, str]:
    """Return the frequencies, None for the cosine kernel, and why they aren't known."""
    name = inputs.parameters["features"]
    if name is None:
        return None, ""
    found = inputs.results[name]
    reason = found.values.get("reason", "")
    return (None, reason) if reason else (found.array("frequencies"), "")


def _nearest(
    rows: Int64Array, cosines: Float64Array, count: int
) -> tuple[Int64Array, Float64Array]:
    """Return the rows with the largest cosines in every column, of equal ones the first."""
    order = np.argsort(-cosines, axis=0, kind="stable")[:count]
    return np.take_along_axis(rows, order, 0), np.take_along_axis(cosines, order, 0)


def _shards(inputs: Inputs) -> range:
    first = inputs.index * SHARDS_PER_TASK
    count = inputs.corpora[inputs.parameters["role"]].shard_count
    return range(first, min(first + SHARDS_PER_TASK, count))
