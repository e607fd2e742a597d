"""Vendi scores under a kernel by stochastic Lanczos, in passes over pairs of row groups.

A first stage adds up the squared similarities, and stores the similarities where there is room for
them. A pass is one product of the kernel matrix with up to 129 vectors. Its tasks read the stored
similarities, or compute the same ones again. The state between two passes is that of
:mod:`latentscale.vendi.lanczos`, with its vectors split by groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.tiles.distances import Points, as_points
from latentscale.tiles.top_lists import content_keys
from latentscale.vendi.kernel_products import (
    SimilaritySquares,
    SimilarityTiles,
    Tile,
    multiply_tiles,
    sum_squares,
)
from latentscale.vendi.lanczos import KernelTraces
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
from latentscale_pipeline.storage.artifacts import Artifact, Output

PASS_DEFLATED = 128
"""Largest number of columns of the basis, which every state holds."""

PASS_ROWS = 6144
"""Most rows of a group: 150 MB of similarities for a pair of groups."""

VECTORS = "vectors"
"""Name of the array that is split by groups."""

KEYS = "keys"
"""Name of the array with the hashes of rows."""

TILES = "tiles"
"""Name of the object with the similarities of a pair of groups, a section each tile."""


def pass_groups(n: int, d: int) -> RowGroups:
    """Cut the rows of a corpus into the groups of a pass."""
    return cut_rows(n, d, PASS_ROWS)


@under_kernel
def add_similarities(inputs: Inputs, similarity: Similarity) -> Output:
    """Add the squared similarities of one pair of groups, and store the similarities if asked.

    The pair of a group with itself also stores the keys by which equal rows are known.
    """
    stored = inputs.stage.hints["stored"]
    corpus = inputs.corpora[inputs.parameters["role"]]
    groups = pass_groups(corpus.n, corpus.d)
    first, second = groups.pair(inputs.index)
    roots = _roots(inputs, corpus)
    sides = _read_sides(inputs)
    tiles = _compute_tiles(similarity, *sides, keep=stored)
    arrays = {KEYS: content_keys(sides[0].rows)} if second == first else {}
    masses_a, masses_b = (roots[groups.rows(group)] ** 2 for group in (first, second))
    found = sum_squares(tiles, masses_a, None if second == first else masses_b)
    if not stored:
        return Output(values=asdict(found), arrays=arrays)
    sections = ((f"{rows.start}-{columns.start}", tile) for rows, columns, tile in tiles.kept)
    return Output(values=asdict(found), arrays=arrays, sections={TILES: sections})


@under_kernel
def join_similarities(inputs: Inputs, similarity: Similarity) -> Output:
    """Add the sums of all pairs of groups, and join the keys of all rows."""
    parts = [SimilaritySquares(**part.values) for part in inputs.parts]
    total = SimilaritySquares(
        math.fsum(part.squares for part in parts),
        math.fsum(part.squared_errors for part in parts),
        math.fsum(part.rounded_squares for part in parts),
        math.fsum(part.rounded_errors for part in parts),
        min(part.least for part in parts),
    )
    # Pairs of a group with itself come in the order of the groups.
    keys = [part.array(KEYS) for part in inputs.parts if KEYS in part.objects]
    return Output(values=asdict(total), arrays={KEYS: np.concatenate(keys)})


@under_kernel
def multiply_pair(inputs: Inputs, similarity: Similarity) -> Output:
    """Compute the products of one pair of groups, in both directions."""
    state = read_state(inputs)
    corpus = inputs.corpora[inputs.parameters["role"]]
    groups = pass_groups(corpus.n, corpus.d)
    first, second = groups.pair(inputs.index)
    roots = _roots(inputs, corpus)[:, None]
    stored = inputs.results[inputs.parameters["similarities"]].partition(inputs.index)
    kept = TILES in stored.objects
    tiles = _read_tiles(stored) if kept else _compute_tiles(similarity, *_read_sides(inputs))
    vectors_a, vectors_b = (
        read_group(state, group) * roots[groups.rows(group)] for group in (first, second)
    )
    rough = state.values["rough"]
    sums = multiply_tiles(tiles, vectors_a, None if second == first else vectors_b, single=rough)
    sides = [
        found * roots[groups.rows(group)]
        for found, group in zip(sums, sorted({first, second}), strict=False)
    ]
    return Output(values={"groups": sorted({first, second})}, arrays={"sums": np.vstack(sides)})


def _read_sides(inputs: Inputs) -> tuple[Points, Points | None]:
    """Read a pair of groups; None instead of the second if it is the first."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    groups = pass_groups(corpus.n, corpus.d)
    first, second = groups.pair(inputs.index)
    held = [groups.rows(group) for group in sorted({first, second})]
    runs = corpus.read_runs(np.arange(rows.start, rows.stop) for rows in held)
    sides = [as_points(rows, "euclidean") for rows in runs]
    return sides[0], None if second == first else sides[1]


def _compute_tiles(
    similarity: Similarity, a: Points, b: Points | None, *, keep: bool = False
) -> SimilarityTiles:
    """Return the similarities of one pair of groups, in single precision."""
    if not callable(similarity.kernel):
        means = [side.rows.mean(axis=0) for side in (a, b or a)]
        origin = 0.5 * (means[0] + means[1])
        a, b = a.about(origin), None if b is None else b.about(origin)
    return SimilarityTiles(
        a, similarity.kernel, similarity.bandwidth, b, kind=np.float32, keep=keep
    )


def _read_tiles(stored: Artifact) -> Iterator[Tile]:
    for name in stored.objects[TILES]["sections"]:
        tile = stored.section(TILES, name)
        row, column = map(int, name.split("-"))
        rows, columns = tile.shape
        yield Tile(slice(row, row + rows), slice(column, column + columns), tile)


@under_kernel
def advance_kernel(inputs: Inputs, similarity: Similarity) -> Output:
    """Start stochastic Lanczos, or advance it by one step with the products of a pass."""
    p, state = inputs.parameters, inputs.state
    corpus = inputs.corpora[p["role"]]
    groups = pass_groups(corpus.n, corpus.d)
    if state is None:
        orders = [float(order) for order in p["orders"]]
        roots = _roots(inputs, corpus) if p["weights"] else None
        summed = inputs.results[p["similarities"]]
        traces = KernelTraces.start(
            corpus.n,
            SimilaritySquares(**summed.values),
            orders,
            inputs.generator(),
            roots,
            keys=summed.array(KEYS),
            deflated=PASS_DEFLATED,
        )
        return _publish(traces, groups)
    vectors = join_groups(state, groups)
    traces = restore(KernelTraces.load, state, {VECTORS: vectors})
    traces = traces.advance(add_group_sums(inputs.parts, groups, vectors.shape[1]))
    if traces.request is not None:
        return _publish(traces, groups)
    scored = scores_output(inputs, similarity.bandwidth, traces.outcome.__getitem__)
    return replace(scored, values={**scored.values, "steps": traces.steps})


def _publish(traces: KernelTraces, groups: RowGroups) -> Output:
    request = traces.request
    if request is None:
        raise ValueError("the iteration is finished")
    cut = cut_by_groups(request.vectors, groups)
    return state_output(traces, {"rough": request.rough}, cut, apart=VECTORS)


def _roots(inputs: Inputs, corpus: Corpus) -> Float64Array:
    """Return the square roots of the probabilities of all rows."""
    weights = corpus.weights() if inputs.parameters["weights"] else None
    if weights is None:
        return np.full(corpus.n, corpus.n**-0.5)
    return np.asarray(np.sqrt(weights / weights.sum()))
