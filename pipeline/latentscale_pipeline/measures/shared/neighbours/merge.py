"""Tasks that merge a row's neighbour lists, and certify their recall.

A certificate that misses its target triggers another search, in twice as many cells for every row
and with another round of refinement. Its lists are merged with the existing ones, so recall can
only rise, and certified again. If this misses as well, the job fails and reports the recall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale.neighbours.cell_layout import fitting_rows, group_cells
from latentscale.neighbours.certificate import Recall, recall_certificate
from latentscale.neighbours.exact import Neighbours, merge
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.errors import TargetMissed
from latentscale_pipeline.measures.shared.neighbours.assign import (
    grouping_rows,
    where_needed,
)
from latentscale_pipeline.measures.shared.neighbours.search import LISTS, lists_name
from latentscale_pipeline.measures.shared.neighbours.sizes import AGAIN, MISSED, PILOT_ROWS, Layout
from latentscale_pipeline.storage.artifacts import Artifact, Output

TURNED = "turned"
"""Object of a block's reversed edges, one section for each block that needs them."""


def newest_lists(read: Callable[[str], Artifact], names: Sequence[str]) -> Artifact:
    """Return the last of several stages that did any work."""
    return next(found for found in map(read, reversed(names)) if found.values.get("needed", True))


@where_needed
def merge_lists(inputs: Inputs) -> Output:
    """Merge the lists of a block of positions, and reverse their edges for other blocks."""
    p = inputs.parameters
    layout, k = Layout(p["n"], p["d"]), p["k"]
    start = inputs.index * layout.block
    count = min(layout.block, p["n"] - start)
    rows = np.empty(count, dtype=np.int64)
    best = Neighbours.none(count, k)
    if p["before"]:
        first = inputs.results[p["before"]].partition(inputs.index)
        best.put(slice(None), _read_lists(first))
    for lists in _lists_of_block(inputs, inputs.index):
        place = lists["position"] - start
        rows[place] = lists["row"]
        columns = (np.ascontiguousarray(lists[x]) for x in ("neighbours", "distances", "ties"))
        best.put(place, merge(best.take(place), Neighbours(*columns), k))
    turned = _turned_edges(best.indices, start, inputs.index, layout)
    return Output(
        # Rows whose groups have fewer than k other rows.
        values={"turned": list(turned), "short": int((best.indices[:, -1] < 0).sum())},
        arrays={"rows": rows, **_stored_arrays(best, p["n"])},
        sections={TURNED: [(str(block), edges) for block, edges in turned.items()]},
    )


def _stored_arrays(lists: Neighbours, n: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of lists as they are stored: distances in single precision, if they fit."""
    positions = np.int32 if n <= np.iinfo(np.int32).max else np.int64
    with np.errstate(over="ignore"):
        rounded = lists.distances.astype(np.float32)
    fits = np.array_equal(np.isfinite(rounded), np.isfinite(lists.distances))
    fits &= np.array_equal(rounded == 0, lists.distances == 0)
    return {
        "indices": lists.indices.astype(positions),
        "distances": rounded if fits else lists.distances,
        "ties": lists.ties,
    }


def _read_lists(part: Artifact) -> Neighbours:
    indices = part.array("indices").astype(np.int64)
    distances = part.array("distances").astype(np.float64)
    return Neighbours(indices, distances, part.array("ties"))


def _lists_of_block(inputs: Inputs, block: int) -> Iterator[NDArray[Any]]:
    """Yield the lists of every piece for a block of positions, in the order of pieces."""
    p = inputs.parameters
    searched = inputs.results[p["searched"]]
    for piece, of in searched.array("held").tolist():
        if of == block:
            part = searched.partition(piece % p["searches"])
            yield part.section(LISTS, lists_name(piece, block))


def _turned_edges(
    indices: Int64Array, start: int, own: int, layout: Layout
) -> dict[int, NDArray[Any]]:
    """Return the pairs (neighbour, row) whose neighbour is in another block, by that block."""
    block_of = np.where(indices < 0, own, indices // layout.block)
    turned = {}
    for block in np.unique(block_of).tolist():
        if block != own:
            row, place = np.nonzero(block_of == block)
            turned[block] = np.column_stack([indices[row, place], start + row])
    return turned


def certify_lists(inputs: Inputs) -> Output:
    """Certify the recall with the checked rows; store the lists of a small corpus in row order.

    Raises
    ------
    TargetMissed
        If the certificate of the second search misses its target, too.
    """
    p = inputs.parameters
    chosen = inputs.results[p["chosen"]]
    overlap = chosen.values["overlap"]
    if overlap == 0:
        return Output(values={"needed": False})
    recall = _certify(inputs)
    before = chosen.values["attempts"] if p["before"] else []
    attempts = [*before, {"overlap": overlap, "recall": asdict(recall)}]
    short = sum(part.values["short"] for part in inputs.parts)
    missed = recall.lower < p["recall"] or short > 0
    if missed and p["before"]:
        raise TargetMissed(_how_it_missed(attempts, short, p["k"], p["recall"]))
    layout = Layout(p["n"], p["d"])
    descended = p["method"] == "nndescent" and not layout.exact_groups
    values = {
        "method": "cells, overlap "
        + ", then ".join(str(each["overlap"]) for each in attempts)
        + (", searched by nndescent" if descended else ""),
        "recall": asdict(recall),
        "tied": inputs.results[f"checks-{p['role']}"].values["tied"],
        "attempts": attempts,
        "blocks": len(inputs.parts),
        "overlap": 0,
    }
    if missed:
        cells = inputs.results[f"cells-{p['role']}"]
        count = len(cells.array("centres"))
        more = min(AGAIN * overlap, count)
        owners = grouping_rows(cells)[:, :more]
        limit = fitting_rows(layout.group_rows, len(owners), p["n"])
        group_of = group_cells(owners, count, p["n"], limit)
        again = {
            "overlap": more,
            "leaves": AGAIN * chosen.values["leaves"],
            "missed": MISSED * (1.0 - p["recall"]) / AGAIN,
        }
        return Output({**values, **again}, {"group_of": group_of})
    # Lists which blocks have edges for which, so readers needn't open all of them.
    leading = [(i, to) for i, part in enumerate(inputs.parts) for to in part.values["turned"]]
    arrays = {"leading": np.array(leading, dtype=np.int64).reshape(-1, 2)}
    return Output(values, {**arrays, **_joined_lists(inputs)})


def _how_it_missed(attempts: list[dict[str, Any]], short: int, k: int, target: float) -> str:
    overlaps = " and ".join(str(each["overlap"]) for each in attempts)
    if short:
        return (
            f"{short} rows have fewer than k = {k} neighbours in their cells, with overlaps "
            f"of {overlaps}; raise overlap, lower k, or use neighbours: exact"
        )
    figures = " and ".join(f"{each['recall']['lower']:.4f}" for each in attempts)
    return (
        f"recall is certified at {figures} only, with overlaps of {overlaps}; the target is "
        f"{target}; lower recall, raise overlap, or use neighbours: exact"
    )


def _joined_lists(inputs: Inputs) -> dict[str, NDArray[Any]]:
    """Store the lists in the order of the corpus, unless there are many."""
    p = inputs.parameters
    if not p["joined"]:
        return {}
    order = np.concatenate([part.array("rows") for part in inputs.parts])
    indices = np.empty((p["n"], p["k"]), dtype=np.int64)
    distances = np.empty((p["n"], p["k"]), dtype=np.float32)
    for part in inputs.parts:
        rows = part.array("rows")
        indices[rows], distances[rows] = order[part.array("indices")], part.array("distances")
    return {"row_indices": indices, "row_distances": distances}


def _certify(inputs: Inputs) -> Recall:
    p = inputs.parameters
    checked = inputs.results[f"cells-{p['role']}"].array("checked")
    true = inputs.results[f"checks-{p['role']}"].array("distances")
    # Pilots chose the overlap, so they are left out of the certificate, unless all rows are in it.
    judging = np.arange(0 if len(checked) == p["n"] else PILOT_ROWS, len(checked))
    ascending = judging[np.argsort(checked[judging])]
    wanted = checked[ascending]
    found = np.full((len(ascending), p["k"]), np.inf)
    single = True
    for part in inputs.parts:
        rows, distances = part.array("rows"), part.array("distances")
        single &= distances.dtype == np.float32
        place = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
        hit = wanted[place] == rows
        found[place[hit]] = distances[hit]
    if single:
        # A neighbour that was found is no miss because its distance has been rounded up.
        true = true.astype(np.float32).astype(np.float64)
    recall = recall_certificate(found, true[ascending])
    if len(judging) == p["n"]:
        return Recall(value=recall.value, lower=recall.value, upper=recall.value, sampled=p["n"])
    return recall
