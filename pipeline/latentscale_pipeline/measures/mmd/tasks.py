"""Tasks of the maximum mean discrepancy: sums over groups of rows, and the test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array
from latentscale.estimate import divide_chance, student_quantile
from latentscale.linalg.fourier_features import draw_frequencies, fourier_features
from latentscale.mmd.group_sums import GroupSums, sum_feature_pairs, sum_rbf_pairs
from latentscale.mmd.two_sample import Discrepancy, two_sample_discrepancy
from latentscale.tiles.distances import as_points, row_blocks
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.shared.bandwidth import read_bandwidth
from latentscale_pipeline.storage.artifacts import Output

MAX_ROWS = 10_000_000
"""Most rows of a corpus that are looked at; beyond, random ones are."""

MAX_RATIO = 100
"""How many times as many rows are looked at of the larger corpus."""

MAX_GROUPS, MAX_TOGETHER = 500, 2000
"""Most groups of the smaller corpus, and of both together."""

MIN_ROWS = 20
"""Fewest rows of a corpus."""

PAIRED_ROWS = 20_000
"""Rows of both corpora up to which all their pairs are visited."""

FREQUENCIES = 1024
"""Random Fourier frequencies; MMD² from these has a relative error of some percent."""

ORIGIN_ROWS = 101
"""First rows of the reference whose median is the origin; the median is robust to outliers."""

BLOCK_ROWS = 4096
"""Rows converted to features at a time."""

SHARDS_PER_TASK = 8
"""Shards whose features one task sums."""

ROUNDING = 1e-12
"""Error of MMD² from the rounding of similarities and their sums."""

CONFIDENCE = 0.975
"""Upper quantile of Student's distribution for the interval over frequencies."""


def rows_taken(n: int, other: int) -> int:
    """Return how many rows of a corpus are looked at, beside another one."""
    return min(n, MAX_ROWS, MAX_RATIO * min(other, MAX_ROWS))


def divide_rows(m: int, n: int) -> tuple[int, tuple[int, int]]:
    """Return the rows of a group, and the number of groups of two corpora of m and n rows."""
    m, n = rows_taken(m, n), rows_taken(n, m)
    size = max(1, -(-min(m, n) // MAX_GROUPS), -(-(m + n) // MAX_TOGETHER))
    return size, (m // size, n // size)


# --- few rows ------------------------------------------------------------------------------------


def compare_rows(inputs: Inputs) -> Output:
    """Compare two corpora that fit in memory, by groups of equally many rows."""
    bandwidth, reason = read_bandwidth(inputs)
    if reason:
        return Output(values={"reason": reason})
    generator = inputs.generator()
    corpora = [inputs.corpora[role] for role in ("corpus", "reference")]
    size, counts = divide_rows(*(corpus.n for corpus in corpora))
    chosen = [
        corpus.read_all()[generator.permutation(corpus.n)[: count * size]]
        for corpus, count in zip(corpora, counts, strict=True)
    ]
    rows = np.concatenate(chosen).astype(np.float64)
    sizes = np.full(sum(counts), size)
    kernel = inputs.parameters["kernel"]
    if kernel == "rbf":
        assert bandwidth is not None  # noqa: S101  (the plan has seen to it)
        points = as_points(rows, "euclidean").about(rows.mean(axis=0))
        pairs, own = sum_rbf_pairs(points, sizes, bandwidth), sizes.astype(np.float64)
    else:
        features = _exact_features(kernel, rows, rows.mean(axis=0))
        grouped = features.reshape(len(sizes), size, -1)
        pairs = sum_feature_pairs(grouped.sum(axis=1))
        own = _squares(features).reshape(len(sizes), size).sum(axis=1)
    found = two_sample_discrepancy(GroupSums(pairs, own, sizes, counts[0]), generator)
    taken = [count * size for count in counts]
    chance, error = _divide(found, taken, [corpus.n for corpus in corpora])
    reach = ROUNDING * max(_unit(kernel), float(own.max()) / size) + chance
    bounds = "interval95" if chance else "exact"
    values = {"lower": found.value - reach, "upper": found.value + reach, "bounds": bounds}
    shape = {"groups": list(counts), "rows": taken}
    method = "pairs" if kernel == "rbf" else "features"
    known = {**values, **shape, "method": method, "bandwidth": bandwidth}
    return _output(found, known, error)


def _divide(found: Discrepancy, taken: Sequence[int], n: Sequence[int]) -> tuple[float, float]:
    """Return how far MMD² of random rows may be from that of all, and the error of all."""
    shares = [rows / all_rows for rows, all_rows in zip(taken, n, strict=True)]
    return divide_chance(found.sampling_error, shares)


def _unit(kernel: str) -> float:
    """Return the largest similarity of a kernel that has one; others have the data's unit."""
    return 0.0 if kernel == "linear" else 1.0


# --- many rows -----------------------------------------------------------------------------------


def choose_features(inputs: Inputs) -> Output:
    """Choose what the features of both corpora are made with: frequencies, or an origin."""
    bandwidth, reason = read_bandwidth(inputs)
    if reason:
        return Output(values={"reason": reason})
    if bandwidth is not None:
        # Another origin turns the features of both corpora alike, which changes no distance.
        d = inputs.parameters["d"]
        frequencies = draw_frequencies("rbf", bandwidth, d, FREQUENCIES, inputs.generator())
        return Output(
            values={"bandwidth": bandwidth},
            arrays={"origin": np.zeros(d), "frequencies": frequencies},
        )
    reference = inputs.corpora["reference"]
    rows = reference.read_rows(0, min(ORIGIN_ROWS, reference.n)).astype(np.float64)
    return Output(values={"bandwidth": None}, arrays={"origin": np.median(rows, axis=0)})


def sum_features(inputs: Inputs) -> Output:
    """Sum the features of the rows of some shards by random groups."""
    p, chosen = inputs.parameters, inputs.results[inputs.parameters["chosen"]]
    if reason := chosen.values.get("reason"):
        return Output(values={"reason": reason})
    corpus, generator, count = inputs.corpora[p["role"]], inputs.generator(), p["groups"]
    origin = chosen.array("origin")
    frequencies = chosen.array("frequencies") if p["kernel"] == "rbf" else None
    sums = np.zeros((count, corpus.d if frequencies is None else 2 * FREQUENCIES))
    own, sizes = np.zeros(count), np.zeros(count, np.int64)
    first = inputs.index * SHARDS_PER_TASK
    for shard in range(first, min(first + SHARDS_PER_TASK, corpus.shard_count)):
        rows = corpus.read_shard(shard)
        # A row whose number is too large is left out.
        group = generator.integers(round(count / p["share"]), size=len(rows))
        for block in row_blocks(len(rows), BLOCK_ROWS):
            kept = np.flatnonzero(group[block] < count)
            if not len(kept):
                continue
            kept = kept[np.argsort(group[block][kept], kind="stable")]
            numbers = group[block][kept]
            features = _features(p["kernel"], rows[block][kept], origin, frequencies)
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            sums[numbers[starts]] += np.add.reduceat(features, starts, axis=0, dtype=np.float64)
            own += np.bincount(numbers, _squares(features), minlength=count)
            sizes += np.bincount(numbers, minlength=count)
    return Output(values={}, arrays={"sums": sums, "own": own, "sizes": sizes})


def join_features(inputs: Inputs) -> Output:
    """Add the sums of all shards in their order."""
    first, *others = inputs.parts
    if reason := first.values.get("reason"):
        return Output(values={"reason": reason})
    joined = {name: first.array(name) for name in ("sums", "own", "sizes")}
    for part in others:
        joined = {name: array + part.array(name) for name, array in joined.items()}
    return Output(values={}, arrays=joined)


def compare_groups(inputs: Inputs) -> Output:
    """Compare two corpora by the sums of the features of their groups."""
    p = inputs.parameters
    chosen = inputs.results[p["chosen"]].values
    if reason := chosen.get("reason"):
        return Output(values={"reason": reason})
    parts = [inputs.results[name] for name in p["features"]]
    sums, own, sizes = (
        np.concatenate([part.array(name) for part in parts]) for name in ("sums", "own", "sizes")
    )
    first = len(parts[0].array("own"))
    fourier = p["kernel"] == "rbf"
    if fourier:
        sums, own = sums / math.sqrt(FREQUENCIES), own / FREQUENCIES
    groups = GroupSums(sum_feature_pairs(sums), own, sizes, first)
    found = two_sample_discrepancy(groups, inputs.generator())
    sides = [slice(0, first), slice(first, None)]
    reach, bounds = ROUNDING * max(_unit(p["kernel"]), float(own.sum() / sizes.sum())), "exact"
    if fourier:
        means = [sums[side].sum(axis=0) / sizes[side].sum() for side in sides]
        reach, bounds = _frequency_error(means[0] - means[1]), "interval95"
    taken = [int(sizes[side].sum()) for side in sides]
    chance, error = _divide(found, taken, p["n"])
    if chance:
        # The rows and the frequencies are drawn independently.
        reach = math.hypot(reach, chance) if fourier else reach + chance
        bounds = "interval95"
    values = {"lower": found.value - reach, "upper": found.value + reach, "bounds": bounds}
    shape = {
        "groups": [first, len(sizes) - first],
        "rows": taken,
    }
    method = "fourier" if fourier else "features"
    known = {**values, **shape, "method": method, "bandwidth": chosen["bandwidth"]}
    return _output(found, known, error)


def _frequency_error(difference: Float64Array) -> float:
    """Return half the interval of MMD² over the random frequencies."""
    halves = difference.reshape(2, 2, -1)
    each = FREQUENCIES * np.square(halves).sum(axis=1).ravel()
    error = float(each.std(ddof=1)) / math.sqrt(len(each))
    return student_quantile(CONFIDENCE, len(each) - 1) * error


# --- both ----------------------------------------------------------------------------------------


def _output(found: Discrepancy, values: dict[str, Any], error: float) -> Output:
    own = {"value": found.value, "sampling_error": error}
    return Output(values={**own, **values}, arrays={"divided": found.divided})


def _features(
    kernel: str, rows: NDArray[Any], origin: Float64Array, frequencies: Float64Array | None
) -> NDArray[Any]:
    if frequencies is not None:
        return fourier_features(rows, origin, frequencies)
    return _exact_features(kernel, rows, origin)


def _exact_features(kernel: str, rows: NDArray[Any], origin: Float64Array) -> Float64Array:
    """Return features whose inner products are the kernel, up to what cancels in MMD²."""
    if kernel == "cosine":
        return as_points(rows, "cosine").rows
    return np.asarray(rows.astype(np.float64) - origin)


def _squares(features: NDArray[Any]) -> Float64Array:
    """Return the squared lengths of rows."""
    return np.asarray(np.einsum("ij,ij->i", features, features, dtype=np.float64))
