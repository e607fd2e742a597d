"""Vendi scores under a kernel by stochastic Lanczos, in rounds over pairs of row groups.

A round is one product of the kernel matrix with some sixty vectors; the state between two rounds
is that of :mod:`latentscale.kernel_traces`, its vectors cut by groups so that a task reads its
share and no more.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.distances import Points, as_points
from latentscale.kernel_products import kernel_block_products
from latentscale.kernel_traces import DEFLATED, PROBES, KernelTraces
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Effort, Inputs
from latentscale_pipeline.job.publishing import Output
from latentscale_pipeline.stages.measure import (
    RESULT_BYTES,
    TILE_BYTES,
    CorpusFacts,
    store_estimate,
)
from latentscale_pipeline.stages.packing import pack, unpack
from latentscale_pipeline.stages.row_groups import RowGroups, cut_rows
from latentscale_pipeline.stages.similarity import (
    Similarity,
    find_kernel,
    refusing_bad_functions,
)

EXPECTED_ROUNDS = 22
"""Rounds on data of no unusual shape: two for the basis, twenty steps of Lanczos."""

COLUMNS = 1 + DEFLATED + PROBES

SIMILARITY_FOLDS = 3
"""Folds of one pair: its distance, its exponential, its square."""


def lanczos_pairs(n: int) -> float:
    """Row pairs that the rounds visit."""
    return EXPECTED_ROUNDS * float(n) ** 2 / 2


def lanczos_partitions(corpus: CorpusFacts) -> int:
    """Count the tasks of a round."""
    return cut_rows(corpus.n, corpus.d).pairs


def lanczos_memory(corpus: CorpusFacts) -> int:
    """Memory of a product's task, or of the step that takes the products."""
    rows = min(cut_rows(corpus.n, corpus.d).size, corpus.n)
    # Rows as they're stored, in float64, and moved to the origin; vectors and products.
    group = rows * (corpus.d * 8 * 2 + corpus.d * 4 + COLUMNS * 8 * 3)
    product = 2 * group + corpus.shard_bytes + TILE_BYTES
    step = corpus.n * (COLUMNS * 8 * 7 + PROBES * 9) + corpus.shard_bytes + TILE_BYTES
    return max(product, step) + 16 * corpus.n


def lanczos_effort(corpus: CorpusFacts) -> Effort:
    """Work of all rounds."""
    groups = cut_rows(corpus.n, corpus.d).count
    pairs = float(corpus.n) ** 2 / 2
    vectors = 8 * corpus.n * COLUMNS
    per_round = vectors * groups + 3 * vectors + groups**2 // 2 * RESULT_BYTES
    return Effort(
        bytes_read=EXPECTED_ROUNDS * (groups * corpus.stored_bytes + per_round),
        bytes_written=EXPECTED_ROUNDS * per_round,
        products=EXPECTED_ROUNDS * pairs * (corpus.d + 2 * COLUMNS),
        folds=EXPECTED_ROUNDS * pairs * SIMILARITY_FOLDS,
        rounds=EXPECTED_ROUNDS,
        method="lanczos",
    )


@refusing_bad_functions
def multiply_pair(inputs: Inputs) -> Output:
    """Compute one pair of groups' share of the products, in both directions."""
    state = inputs.state
    if state is None:
        raise ValueError("a round starts from a state")
    corpus = inputs.corpora[inputs.parameters["role"]]
    groups = cut_rows(corpus.n, corpus.d)
    first, second = groups.pair(inputs.index)
    kernel = find_kernel(inputs)
    origin, wanted = state.array("origin"), state.values["squares_wanted"]
    roots = _roots(inputs, corpus)

    def side(group: int) -> tuple[Points, NDArray[np.float64], NDArray[np.float64] | None]:
        rows = groups.rows(group)
        points = as_points(corpus.read_rows(rows.start, rows.stop), "euclidean")
        if not callable(kernel):
            points = points.about(origin)
        vectors = state.array(_vectors(group)) * roots[rows, None]
        return points, vectors, roots[rows] ** 2 if wanted else None

    a, vectors_a, masses_a = side(first)
    b, vectors_b, masses_b = (a, vectors_a, masses_a) if second == first else side(second)
    sums = kernel_block_products(
        a,
        b,
        kernel,
        state.values["bandwidth"],
        vectors_a,
        vectors_b,
        masses_a=masses_a,
        masses_b=masses_b,
    )
    sides = [sums.products_a * roots[groups.rows(first), None]]
    if second != first:
        sides.append(sums.products_b * roots[groups.rows(second), None])
    return Output(
        values={"groups": sorted({first, second}), "squares": sums.squares, "least": sums.least},
        arrays={"sums": np.vstack(sides)},
    )


def advance_traces(inputs: Inputs, similarity: Similarity) -> Output:
    """Begin the iteration, or take a round's products one step on."""
    p, state = inputs.parameters, inputs.state
    corpus = inputs.corpora[p["role"]]
    groups = cut_rows(corpus.n, corpus.d)
    if state is None:
        orders = [float(order) for order in p["orders"]]
        roots = _roots(inputs, corpus) if p["weights"] else None
        traces = KernelTraces.start(corpus.n, orders, inputs.generator(), roots)
        return _publish(traces, groups, similarity.bandwidth, _mean(corpus))
    vectors = np.concatenate([state.array(_vectors(group)) for group in range(groups.count)])
    arrays = unpack(state.values["index"], state.array)
    traces = KernelTraces.load(vectors, arrays, state.values["traces"])
    products = np.zeros_like(vectors)
    for part in inputs.parts:
        start, added = 0, part.array("sums")
        for group in part.values["groups"]:
            rows = groups.rows(group)
            products[rows] += added[start : start + rows.stop - rows.start]
            start += rows.stop - rows.start
    squares = math.fsum(part.values["squares"] for part in inputs.parts)
    least = min(part.values["least"] for part in inputs.parts)
    traces = traces.advance(products, squares, least)
    if not traces.finished:
        return _publish(traces, groups, similarity.bandwidth, state.array("origin"))
    outcome = traces.outcome
    scores = {order: store_estimate(outcome[float(order)]) for order in p["orders"]}
    steps = len(traces.diagonals)
    values = {"scores": scores, "bandwidth": similarity.bandwidth, "steps": steps}
    return Output(values=values)


def _publish(
    traces: KernelTraces, groups: RowGroups, bandwidth: float | None, origin: NDArray[np.float64]
) -> Output:
    packed, index = pack(traces.arrays(), "state_")
    vectors = {_vectors(group): traces.vectors[groups.rows(group)] for group in range(groups.count)}
    values: dict[str, Any] = {
        "traces": traces.values(),
        "index": index,
        "bandwidth": bandwidth,
        "squares_wanted": traces.wants_squares,
    }
    arrays = {**vectors, **packed, "origin": origin}
    return Output(values=values, arrays=arrays, finished=False)


def _roots(inputs: Inputs, corpus: Corpus) -> NDArray[np.float64]:
    """Roots of the probabilities of all rows."""
    weights = corpus.weights() if inputs.parameters["weights"] else None
    if weights is None:
        return np.full(corpus.n, corpus.n**-0.5)
    return np.asarray(np.sqrt(weights / weights.sum()))


def _mean(corpus: Corpus) -> NDArray[np.float64]:
    total = np.zeros(corpus.d)
    for shard in range(corpus.shard_count):
        total += corpus.read_shard(shard).sum(axis=0, dtype=np.float64)
    return np.asarray(total / corpus.n)


def _vectors(group: int) -> str:
    return f"vectors_{group:05d}"
