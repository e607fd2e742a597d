"""The neighbour graph of a corpus as a stage, with one block of vertices a task.

With exact neighbours there is one block, and vertices are rows in the order of the corpus. With
neighbours from cells vertices are positions (see :mod:`.neighbours.plan`), and a block's edges come
from its own lists and from the reversed edges of other blocks.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import scipy  # its submodules are imported when they are first used
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale.graphs.knn import (
    GraphSummary,
    summarise,
    symmetrise,
)
from latentscale.graphs.row_blocks import (
    block_components,
    count_components,
    join_block,
    leaving_edges,
)
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import RESULT_BYTES, CorpusFacts, Role
from latentscale_pipeline.measures.shared.neighbours.merge import TURNED, newest_lists
from latentscale_pipeline.measures.shared.neighbours.plan import list_stages
from latentscale_pipeline.measures.shared.neighbours.sizes import Layout
from latentscale_pipeline.storage.artifacts import Artifact, Output

ENTRY_BYTES, LONG_ENTRY_BYTES = 40, 60
"""Memory of an entry while a graph of one block is built, below and above 2^31 entries."""

BLOCK_ENTRY_BYTES = 100
"""The same for a neighbour in one of many blocks."""

LEADING = "leading"
"""Object of a block's edges to components of other blocks, one section for each of these."""


def graph_stage(k: int, role: Role, corpus: CorpusFacts, *, in_cells: bool) -> Stage:
    """Plan the graph that joins every row of a corpus to its k nearest neighbours."""
    listed, entries = corpus.n * k, 2 * corpus.n * k
    neighbours, layout = f"neighbours-{role}", Layout(corpus.n, corpus.d)
    exact = Stage(
        name=f"graph-{role}",
        temporary="arrays",
        work=build_graph,
        needs=(neighbours,),
        parameters={"neighbours": neighbours},
        memory_bytes=entries * (ENTRY_BYTES if entries < 2**31 else LONG_ENTRY_BYTES),
        cost_estimate=CostEstimate(
            bytes_read=16 * listed,
            # Two of three pairs are neighbours in one direction only.
            bytes_written=(4 if entries < 2**31 else 8) * (listed * 5 // 3)
            + 12 * corpus.n
            + RESULT_BYTES,
            elementwise_operations=300.0 * listed,
        ),
    )
    if not in_cells:
        return exact
    return replace(
        exact,
        lasting_parts=True,
        work=build_block,
        finalise=describe_graph,
        partitions=layout.blocks,
        needs=list_stages(role),
        parameters={"neighbours": list(list_stages(role)), "n": corpus.n, "d": corpus.d},
        memory_bytes=2 * min(corpus.n, layout.block) * k * BLOCK_ENTRY_BYTES,
    )


def build_graph(inputs: Inputs) -> Output:
    """Join rows that are neighbours in either direction, and describe the graph."""
    neighbours = inputs.results[inputs.parameters["neighbours"]]
    adjacency = symmetrise(neighbours.array("indices"))
    return Output(
        values={**_described(summarise(adjacency), neighbours), "blocks": 1},
        arrays=_stored(adjacency),
    )


def build_block(inputs: Inputs) -> Output:
    """Join the vertices of a block with their neighbours, and find its own components."""
    p = inputs.parameters
    layout = Layout(p["n"], p["d"])
    neighbours = _lists(inputs)
    start = inputs.index * layout.block
    leading = neighbours.array("leading")
    others = leading[leading[:, 1] == inputs.index, 0].tolist()
    edges = [neighbours.partition(other).section(TURNED, str(inputs.index)) for other in others]
    lists = neighbours.partition(inputs.index).array("indices").astype(np.int64)
    block = join_block(lists, start, edges, layout.n)
    count, labels = block_components(block, start)
    leaving = leaving_edges(block, start, labels)
    block_of = leaving[:, 0] // layout.block
    leads = [(str(other), leaving[block_of == other]) for other in np.unique(block_of).tolist()]
    return Output(
        values={
            "entries": int(block.nnz),
            "components": count,
            "isolated": int((np.diff(block.indptr) == 0).sum()),
            # Of the Laplacian, whose rows have an entry more.
            "product_work": int(np.square(np.diff(block.indptr).astype(np.int64) + 1).sum()),
        },
        arrays={**_stored(block), "labels": labels},
        sections={LEADING: leads},
    )


def _lists(inputs: Inputs) -> Artifact:
    return newest_lists(inputs.results.__getitem__, inputs.parameters["neighbours"])


def describe_graph(inputs: Inputs) -> Output:
    """Add up the blocks' statistics and join their components."""
    p = inputs.parameters
    counts = [part.values["components"] for part in inputs.parts]
    summary = GraphSummary(
        vertices=p["n"],
        edges=sum(part.values["entries"] for part in inputs.parts) // 2,
        components=count_components(counts, _joined_components(inputs, counts)),
        isolated=sum(part.values["isolated"] for part in inputs.parts),
    )
    neighbours = _lists(inputs)
    work = sum(part.values["product_work"] for part in inputs.parts)
    values = {**_described(summary, neighbours), "blocks": len(inputs.parts)}
    return Output(values={**values, "product_work": work})


def _joined_components(inputs: Inputs, counts: list[int]) -> Int64Array:
    """Pairs of components of different blocks that an edge joins, numbered through all blocks."""
    layout = Layout(inputs.parameters["n"], inputs.parameters["d"])
    first = np.cumsum([0, *counts])
    pairs = [np.empty((0, 2), dtype=np.int64)]
    for target, part in enumerate(inputs.parts):
        name = str(target)
        leads = [
            (source, other)
            for source, other in enumerate(inputs.parts)
            if name in other.objects[LEADING]["sections"]
        ]
        labels = part.array("labels") if leads else None
        for source, other in leads:
            edges = other.section(LEADING, name)
            if labels is not None:
                theirs = labels[edges[:, 0] - target * layout.block] + first[target]
                joined = np.column_stack([edges[:, 1] + first[source], theirs])
                pairs.append(np.unique(joined, axis=0))
    return np.concatenate(pairs)


def _described(summary: GraphSummary, neighbours: Artifact) -> dict[str, Any]:
    return {
        "summary": asdict(summary),
        "recall": neighbours.values["recall"],
        "tied": neighbours.values["tied"],
        "method": neighbours.values["method"],
        "attempts": neighbours.values.get("attempts", []),
    }


def _stored(adjacency: scipy.sparse.csr_array[Any, Any]) -> dict[str, NDArray[Any]]:
    return {"indices": adjacency.indices, "indptr": adjacency.indptr.astype(np.int64)}


def read_adjacency(graph: Artifact) -> scipy.sparse.csr_array[Any, Any]:
    """Read the whole adjacency matrix."""
    indices, lengths = [], []
    one = "indptr" in graph.objects
    for block in [graph] if one else map(graph.partition, range(graph.values["blocks"])):
        indices.append(block.array("indices"))
        lengths.append(np.diff(block.array("indptr")))
    columns = indices[0] if len(indices) == 1 else np.concatenate(indices)
    rows = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    # SciPy's products are faster with 32-bit indices; it needs both kinds alike.
    rows = rows.astype(columns.dtype if len(columns) < np.iinfo(np.int32).max else np.int64)
    n = len(rows) - 1
    ones = np.ones(len(columns), dtype=np.int8)
    return scipy.sparse.csr_array((ones, columns, rows), shape=(n, n))
