"""Vendi scores under a kernel by stochastic Lanczos, in passes over pairs of row groups.

A pass is one product of the kernel matrix with some sixty vectors; the state between two passes is
that of :mod:`latentscale.vendi.lanczos`, its vectors cut by groups.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from latentscale.tiles.distances import Points, as_points
from latentscale.vendi.kernel_products import kernel_block_products
from latentscale.vendi.lanczos import DEFLATED, PROBES, KernelProducts, KernelTraces
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import RESULT_BYTES, TILE_BYTES, CorpusFacts, store_estimate
from latentscale_pipeline.measures.shared.iteration_state import (
    add_group_sums,
    cut_by_groups,
    join_groups,
    read_group,
    read_state,
    restore,
    state_output,
)
from latentscale_pipeline.measures.shared.row_groups import RowGroups, cut_rows
from latentscale_pipeline.measures.vendi.similarity import (
    Similarity,
    find_kernel,
    refusing_bad_functions,
)
from latentscale_pipeline.storage.artifacts import Output

EXPECTED_ITERATIONS = 22
"""Passes on data of no unusual shape: two for the basis, twenty steps of Lanczos."""

COLUMNS = 1 + DEFLATED + PROBES

VECTORS = "vectors"
"""The array of the iteration that is cut by groups."""

SIMILARITY_OPERATIONS = 3
"""Elementwise operations of one pair: its distance, its exponential, its square."""


def lanczos_pairs(n: int) -> float:
    """Row pairs that the passes visit."""
    return EXPECTED_ITERATIONS * float(n) ** 2 / 2


def lanczos_partitions(corpus: CorpusFacts) -> int:
    """Count the tasks of a pass."""
    return cut_rows(corpus.n, corpus.d).pairs


def lanczos_memory(corpus: CorpusFacts) -> int:
    """Memory of a product's task, or of the step that takes the products."""
    rows = min(cut_rows(corpus.n, corpus.d).size, corpus.n)
    # Rows as they're stored, in float64, and moved to the origin; vectors and products.
    group = rows * (corpus.d * 8 * 2 + corpus.d * 4 + COLUMNS * 8 * 3)
    product = 2 * group + corpus.shard_bytes + TILE_BYTES
    step = corpus.n * (COLUMNS * 8 * 7 + PROBES * 9) + corpus.shard_bytes + TILE_BYTES
    return max(product, step) + 16 * corpus.n


def lanczos_cost(corpus: CorpusFacts) -> CostEstimate:
    """Work of all passes."""
    groups = cut_rows(corpus.n, corpus.d).count
    pairs = float(corpus.n) ** 2 / 2
    vectors = 8 * corpus.n * COLUMNS
    per_iteration = vectors * groups + 3 * vectors + groups**2 // 2 * RESULT_BYTES
    return CostEstimate(
        bytes_read=EXPECTED_ITERATIONS * (groups * corpus.stored_bytes + per_iteration),
        bytes_written=EXPECTED_ITERATIONS * per_iteration,
        float64_multiply_adds=EXPECTED_ITERATIONS * pairs * (corpus.d + 2 * COLUMNS),
        elementwise_operations=EXPECTED_ITERATIONS * pairs * SIMILARITY_OPERATIONS,
        iterations=EXPECTED_ITERATIONS,
        method="lanczos",
    )


@refusing_bad_functions
def multiply_pair(inputs: Inputs) -> Output:
    """Compute one pair of groups' share of the products, in both directions."""
    state = read_state(inputs)
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
        vectors = read_group(state, group) * roots[rows, None]
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
    """Begin the iteration, or take a pass's products one step on."""
    p, state = inputs.parameters, inputs.state
    corpus = inputs.corpora[p["role"]]
    groups = cut_rows(corpus.n, corpus.d)
    if state is None:
        orders = [float(order) for order in p["orders"]]
        roots = _roots(inputs, corpus) if p["weights"] else None
        traces = KernelTraces.start(corpus.n, orders, inputs.generator(), roots)
        return _publish(traces, groups, similarity.bandwidth, _mean(corpus))
    vectors = join_groups(state, groups)
    traces = restore(KernelTraces, state, {VECTORS: vectors})
    sums = KernelProducts(
        add_group_sums(inputs.parts, groups, vectors.shape[1]),
        math.fsum(part.values["squares"] for part in inputs.parts),
        min(part.values["least"] for part in inputs.parts),
    )
    traces = traces.advance(sums)
    if traces.request is not None:
        return _publish(traces, groups, similarity.bandwidth, state.array("origin"))
    outcome = traces.outcome
    scores = {order: store_estimate(outcome[float(order)]) for order in p["orders"]}
    values = {"scores": scores, "bandwidth": similarity.bandwidth, "steps": traces.steps}
    return Output(values=values)


def _publish(
    traces: KernelTraces, groups: RowGroups, bandwidth: float | None, origin: NDArray[np.float64]
) -> Output:
    request = traces.request
    if request is None:
        raise ValueError("the iteration is finished")
    return state_output(
        traces,
        {"bandwidth": bandwidth, "squares_wanted": request.squares},
        {**cut_by_groups(request.vectors, groups), "origin": origin},
        apart=VECTORS,
    )


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
