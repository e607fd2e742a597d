"""Tasks of the heat trace of a graph larger than memory: Lanczos steps by row blocks.

``laplacian-*`` forms the Laplacian by blocks of vertices. The trace is an iterated stage with two
passes per Lanczos step (:mod:`latentscale.heat.row_blocks`). In the first pass, every block
multiplies its rows with the vectors; it reads its own part of them, and the rows of other blocks
that are joined with its own. In the second pass, it orthogonalises the product against the vectors
and stores the rows that other blocks need next.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale.heat.laplacian_blocks import (
    block_moments,
    first_moments,
    joined_rows,
    laplacian_block,
)
from latentscale.heat.row_blocks import (
    RowRequest,
    RowSums,
    TraceByRows,
    TraceSettings,
    multiply_block,
    orthogonalise_block,
)
from latentscale.heat.trace import moments_in_budget
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.heat.artifact import read_settings, read_times
from latentscale_pipeline.measures.shared.iteration_state import (
    read_state,
    restore,
    state_output,
)
from latentscale_pipeline.measures.shared.neighbours.sizes import Layout
from latentscale_pipeline.measures.shared.records import record_output
from latentscale_pipeline.storage.artifacts import Artifact, Output

NEEDED, JOINED, SENT = "needed", "joined", "sent"
"""Objects with the rows of the Laplacian that other blocks need, the numbers of those rows of the
vectors that they need, and these rows.
"""

PARTS = ("data", "indices", "indptr")
"""Arrays of a sparse matrix."""

# --- the Laplacian ----------------------------------------------------------------------------


def form_block(inputs: Inputs) -> Output:
    """Form a block of the Laplacian, and its rows that other blocks need to square it."""
    p = inputs.parameters
    layout, graph = Layout(p["n"], p["d"]), inputs.results[p["graph"]]
    own = graph.partition(inputs.index)
    start = inputs.index * layout.block
    indptr, indices = own.array("indptr"), own.array("indices")
    m = len(indptr) - 1
    adjacency = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(m, p["n"]))
    named = np.unique(indices).astype(np.int64)
    degrees = np.empty(len(named))
    touched = sorted({inputs.index, *np.unique(named // layout.block).tolist()})
    for other in touched:
        low, high = _bounds(layout, other)
        place = slice(*np.searchsorted(named, [low, high]))
        lengths = np.diff(graph.partition(other).array("indptr"))
        degrees[place] = lengths[named[place] - low]
    normalised = p["laplacian"] == "normalized"
    block = laplacian_block(adjacency, start, named, degrees, normalised=normalised)
    needed: list[tuple[str, NDArray[Any]]] = []
    joined: list[tuple[str, NDArray[Any]]] = []
    for other in touched:
        if other == inputs.index:
            continue
        numbers = joined_rows(block, *_bounds(layout, other))
        joined.append((str(other), numbers.astype(np.int32)))
        # A row with very many entries isn't sent: the Laplacian isn't squared then.
        if _is_squared(inputs):
            rows = block[numbers]
            needed += [(f"{other}/{name}", getattr(rows, name)) for name in PARTS]
    norm = float(abs(block).sum(axis=1).max()) if block.nnz else 0.0
    # Every pass multiplies with the rows of the vectors that are named, in this order.
    named, columns = np.unique(block.indices, return_inverse=True)
    return Output(
        {"norm": norm, "touched": touched},
        {
            "indptr": block.indptr,
            "columns": columns.astype(np.int32),
            "data": block.data,
            "named": named.astype(np.int64),
        },
        sections={NEEDED: needed, JOINED: joined},
    )


def bound_norm(inputs: Inputs) -> Output:
    """Bound the largest eigenvalue by the largest absolute row sum."""
    norms = [part.values["norm"] for part in inputs.parts]
    return Output(values={"width": max(norms) or 1.0, "squared": _is_squared(inputs)})


def _is_squared(inputs: Inputs) -> bool:
    """Return whether the third and the fourth moment are computed by squaring the Laplacian."""
    p = inputs.parameters
    return moments_in_budget(inputs.results[p["graph"]].values["product_work"], p["n"])


def _bounds(layout: Layout, block: int) -> tuple[int, int]:
    return block * layout.block, min((block + 1) * layout.block, layout.n)


def _read_block(part: Artifact, named: Int64Array) -> scipy.sparse.csr_array[Any, Any]:
    """Return the rows of a block, with the named vertices as columns."""
    indptr = part.array("indptr")
    return scipy.sparse.csr_array(
        (part.array("data"), part.array("columns"), indptr), shape=(len(indptr) - 1, len(named))
    )


def _all_columns(
    local: scipy.sparse.csr_array[Any, Any], named: Int64Array, n: int
) -> scipy.sparse.csr_array[Any, Any]:
    """Return the same rows, with all vertices as columns."""
    return scipy.sparse.csr_array(
        (local.data, named[local.indices], local.indptr), shape=(local.shape[0], n)
    )


# --- a pass over the blocks -------------------------------------------------------------------


def advance_block(inputs: Inputs) -> Output:
    """Compute a block's share of a pass."""
    request = RowRequest.load(read_state(inputs).values["request"])
    if request.phase == "multiply":
        return _multiply(inputs, request)
    return _orthogonalise(inputs, request)


def _multiply(inputs: Inputs, request: RowRequest) -> Output:
    """Gather the vectors' rows that the block needs, and multiply its rows with them."""
    p = inputs.parameters
    n, layout, matrix = p["n"], Layout(p["n"], p["d"]), inputs.results[p["matrix"]]
    part = matrix.partition(inputs.index)
    touched, named = part.values["touched"], part.array("named")
    local = _read_block(part, named)
    gathered = np.empty((len(named), request.width))
    first, last = _bounds(layout, inputs.index)
    before = None
    if request.step == 0:
        vector = request.start_vectors(n, first, last)
    else:
        own = inputs.last_iteration[inputs.index]
        vector, before = own.array("rest") * request.scale, own.array("vector")
    for other in touched:
        low, high = _bounds(layout, other)
        place = slice(*np.searchsorted(named, [low, high]))
        if other == inputs.index:
            gathered[place] = vector[named[place] - first]
        elif request.step == 0:
            gathered[place] = request.start_vectors(n, low, high)[named[place] - low]
        else:
            sent = inputs.last_iteration[other].section(SENT, str(inputs.index))
            gathered[place] = sent * request.scale
    product, sums = multiply_block(request, local, gathered, vector, before)
    if request.moments:
        block = _all_columns(local, named, n)
        moments = (
            first_moments(block, first)
            if request.moments == 3
            else block_moments(block, first, named, _read_joined(inputs, block, named, touched))
        )
        sums = replace(sums, moments=moments.tolist())
    return Output(values=asdict(sums), arrays={"vector": vector, "product": product})


def _read_joined(
    inputs: Inputs,
    block: scipy.sparse.csr_array[Any, Any],
    named: Int64Array,
    touched: list[int],
) -> scipy.sparse.csr_array[Any, Any]:
    """Read the rows of the Laplacian for the block's nonzero columns."""
    p = inputs.parameters
    layout, matrix = Layout(p["n"], p["d"]), inputs.results[p["matrix"]]
    rows = []
    first, _ = _bounds(layout, inputs.index)
    for other in touched:
        low, high = _bounds(layout, other)
        inside = named[(named >= low) & (named < high)]
        if other == inputs.index:
            rows.append(block[inside - first])
            continue
        part = matrix.partition(other)
        data, indices, indptr = (part.section(NEEDED, f"{inputs.index}/{name}") for name in PARTS)
        rows.append(scipy.sparse.csr_array((data, indices, indptr), shape=(len(inside), p["n"])))
    return scipy.sparse.csr_array(scipy.sparse.vstack(rows, format="csr"))


def _orthogonalise(inputs: Inputs, request: RowRequest) -> Output:
    """Orthogonalise against the vectors, and store the rows that other blocks will need."""
    p = inputs.parameters
    part = inputs.results[p["matrix"]].partition(inputs.index)
    last = inputs.last_iteration[inputs.index]
    vector, rest, sums = orthogonalise_block(request, last.array("vector"), last.array("product"))
    sent = [
        (str(other), rest[part.section(JOINED, str(other))])
        for other in part.values["touched"]
        if other != inputs.index
    ]
    return Output(
        values=asdict(sums), arrays={"vector": vector, "rest": rest}, sections={SENT: sent}
    )


def advance_vectors(inputs: Inputs) -> Output:
    """Add up the blocks' sums and advance the trace by one pass."""
    if inputs.state is None:
        p = inputs.parameters
        formed = inputs.results[p["matrix"]].values
        settings = TraceSettings(
            n=p["n"], norm=formed["width"], exact=formed["squared"], **read_settings(p)
        )
        trace = TraceByRows.start(settings, read_times(p), inputs.generator())
    else:
        sums = RowSums.total([RowSums(**part.values) for part in inputs.parts])
        trace = restore(TraceByRows.load, inputs.state).advance(sums)
    request = trace.request
    if request is None:
        return record_output(trace.outcome)
    return state_output(trace, {"request": request.values()})
