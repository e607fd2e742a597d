"""Vendi scores under a kernel by stochastic Lanczos, in passes over pairs of row groups.

A pass is one product of the kernel matrix with up to 129 vectors. The state between two passes is
that of :mod:`latentscale.vendi.lanczos`, with its vectors split by groups.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.tiles.distances import Points, as_points
from latentscale.vendi.kernel_products import kernel_block_products
from latentscale.vendi.lanczos import KernelProducts, KernelTraces
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.stage import Inputs
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
from latentscale_pipeline.measures.vendi.similarity import Similarity, scores_output, under_kernel
from latentscale_pipeline.storage.artifacts import Output

PASS_DEFLATED = 128
"""Largest number of columns of the basis, which every state holds."""

VECTORS = "vectors"
"""Name of the array that is split by groups."""


@under_kernel
def multiply_pair(inputs: Inputs, similarity: Similarity) -> Output:
    """Compute the products of one pair of groups, in both directions."""
    state = read_state(inputs)
    corpus = inputs.corpora[inputs.parameters["role"]]
    groups = cut_rows(corpus.n, corpus.d)
    first, second = groups.pair(inputs.index)
    origin, wanted = state.array("origin"), state.values["squares_wanted"]
    roots = _roots(inputs, corpus)

    def side(group: int) -> tuple[Points, Float64Array, Float64Array | None]:
        rows = groups.rows(group)
        points = as_points(corpus.read_rows(rows.start, rows.stop), "euclidean")
        if not callable(similarity.kernel):
            points = points.about(origin)
        vectors = read_group(state, group) * roots[rows, None]
        return points, vectors, roots[rows] ** 2 if wanted else None

    a, vectors_a, masses_a = side(first)
    b, vectors_b, masses_b = (a, vectors_a, masses_a) if second == first else side(second)
    sums = kernel_block_products(
        a,
        b,
        similarity.kernel,
        similarity.bandwidth,
        vectors_a,
        vectors_b,
        masses_a=masses_a,
        masses_b=masses_b,
    )
    sides = [sums.products_a * roots[groups.rows(first), None]]
    if second != first:
        sides.append(sums.products_b * roots[groups.rows(second), None])
    return Output(
        values={
            "groups": sorted({first, second}),
            "squares": sums.squares,
            "squared_errors": sums.squared_errors,
            "least": sums.least,
        },
        arrays={"sums": np.vstack(sides)},
    )


@under_kernel
def advance_kernel(inputs: Inputs, similarity: Similarity) -> Output:
    """Start stochastic Lanczos, or advance it by one step with the products of a pass."""
    p, state = inputs.parameters, inputs.state
    corpus = inputs.corpora[p["role"]]
    groups = cut_rows(corpus.n, corpus.d)
    if state is None:
        orders = [float(order) for order in p["orders"]]
        roots = _roots(inputs, corpus) if p["weights"] else None
        traces = KernelTraces.start(
            corpus.n, orders, inputs.generator(), roots, deflated=PASS_DEFLATED
        )
        return _publish(traces, groups, _mean(corpus))
    vectors = join_groups(state, groups)
    traces = restore(KernelTraces.load, state, {VECTORS: vectors})
    sums = KernelProducts(
        add_group_sums(inputs.parts, groups, vectors.shape[1]),
        math.fsum(part.values["squares"] for part in inputs.parts),
        min(part.values["least"] for part in inputs.parts),
        math.fsum(part.values["squared_errors"] for part in inputs.parts),
    )
    traces = traces.advance(sums)
    if traces.request is not None:
        return _publish(traces, groups, state.array("origin"))
    scored = scores_output(inputs, similarity.bandwidth, traces.outcome.__getitem__)
    return replace(scored, values={**scored.values, "steps": traces.steps})


def _publish(traces: KernelTraces, groups: RowGroups, origin: Float64Array) -> Output:
    request = traces.request
    if request is None:
        raise ValueError("the iteration is finished")
    return state_output(
        traces,
        {"squares_wanted": request.squares},
        {**cut_by_groups(request.vectors, groups), "origin": origin},
        apart=VECTORS,
    )


def _roots(inputs: Inputs, corpus: Corpus) -> Float64Array:
    """Return the square roots of the probabilities of all rows."""
    weights = corpus.weights() if inputs.parameters["weights"] else None
    if weights is None:
        return np.full(corpus.n, corpus.n**-0.5)
    return np.asarray(np.sqrt(weights / weights.sum()))


def _mean(corpus: Corpus) -> Float64Array:
    total = np.zeros(corpus.d)
    for shard in range(corpus.shard_count):
        total += corpus.read_shard(shard).sum(axis=0, dtype=np.float64)
    return np.asarray(total / corpus.n)
