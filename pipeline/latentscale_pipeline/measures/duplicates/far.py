"""Rows that lie far from others, settled by comparing them with all rows.

A search in cells never finds a distance that is too small. So the rows that are truly farther than
a limit are all among those for which it finds more, and comparing these with all rows settles which
they are. The limit comes from the reference's own rows in the same way: those with the largest
distances are compared with all others first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale.tiles.distances import as_points, row_blocks
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.duplicates import nearest
from latentscale_pipeline.measures.duplicates.search import lists_of
from latentscale_pipeline.storage.artifacts import Output

OUTLIERS = 0.0002
"""Share of the reference's rows that lie farther from all its others than an outlier must."""

FAR_PAIRS = 2e10
"""Pairs of rows that are compared to settle which rows of a corpus lie far from others."""

SETTLED_SHARE, SETTLED_ROWS = 4, 200
"""Rows of the reference that are compared with all others: so many times those that lie far, and
some more, if these aren't too many.
"""


def usual_reach(own: NDArray[np.floating]) -> float:
    """Return the distance that all but a small share of the rows have to the nearest other one."""
    return float(np.quantile(own, 1.0 - OUTLIERS, method="higher"))


def join_rows(inputs: Inputs) -> Output:
    """Join the lists of all blocks, and settle which rows lie far from others."""
    p = inputs.parameters
    arrays = {
        name: np.concatenate([part.array(name) for part in inputs.parts])
        for name in inputs.parts[0].objects
    }
    values: dict[str, Any] = {"reach": {}, "settled": {}}
    if p["limits"] is None:
        return Output(values=values, arrays=arrays)
    role, sources = p["role"], p["sources"]
    if role == p["limits"]:
        values["reach"] = _settle_own(inputs, arrays, role)
    reach = values["reach"] or inputs.results[p["reach"]].values["reach"]
    for source in sources:
        if source != role:
            settled = _settle_other(inputs, arrays, source, reach)
            values["settled"] = settled.pop(nearest.ALL)
            values |= {f"settled_{name}": counts for name, counts in settled.items()}
    return Output(values=values, arrays=arrays)


def settled_rows(n: int) -> int:
    """Return how many rows of a reference of n are compared with all others."""
    return min(n, int(SETTLED_SHARE * OUTLIERS * n) + SETTLED_ROWS, most_settled(n))


def most_settled(n: int) -> int:
    """Return the largest number of rows that are compared with n others."""
    return max(int(FAR_PAIRS // n), SETTLED_ROWS)


def _settle_own(inputs: Inputs, arrays: dict[str, NDArray[Any]], role: Role) -> dict[str, float]:
    """Settle the largest distances within a corpus; return how far its rows usually reach.

    All rows that are found to be farther than that have been settled. Where too few could be, it is
    the largest distance of the others, and fewer rows are farther than usual.
    """
    names = _names(inputs, role)
    n = inputs.corpora[role].n
    count = settled_rows(n)
    chosen = {
        name: np.argpartition(arrays[f"{role}_{name}_distance"], n - count)[n - count :]
        for name in names
    }
    rows = np.unique(np.concatenate(list(chosen.values())))
    _compare_with_all(inputs, arrays, rows, role)
    reach = {}
    for name in names:
        found = arrays[f"{role}_{name}_distance"]
        others = np.delete(found, rows)
        reach[name] = max(usual_reach(found), float(others.max()) if len(others) else 0.0)
    return reach


def _settle_other(
    inputs: Inputs, arrays: dict[str, NDArray[Any]], source: Role, reach: Mapping[str, float]
) -> dict[str, dict[str, int]]:
    """Settle which rows are far from all rows of another corpus; count those that were checked.

    Where the other corpus is the larger one, which are far from fewer of its rows is settled too.
    """
    # Outliers are judged among all rows of the reference, coverage among as many as it has.
    names = _names(inputs, source) if source != inputs.parameters["limits"] else [nearest.ALL]
    limits = {name: reach.get(name, reach[nearest.ALL]) for name in names}
    beyond = {
        name: np.flatnonzero(arrays[f"{source}_{name}_distance"] > limit)
        for name, limit in limits.items()
    }
    most = most_settled(inputs.corpora[source].n)
    stream = inputs.common_generator()
    rows = np.unique(np.concatenate(list(beyond.values())))
    if len(rows) > most:
        rows = np.sort(stream.choice(rows, most, replace=False))
    _compare_with_all(inputs, arrays, rows, source)
    counts = {}
    for name, limit in limits.items():
        checked = np.intersect1d(rows, beyond[name], assume_unique=True)
        settled = arrays[f"{source}_{name}_distance"][checked]
        counts[name] = {
            "beyond": len(beyond[name]),
            "checked": len(settled),
            "confirmed": int((settled > limit).sum()),
        }
    return counts


def _names(inputs: Inputs, source: Role) -> list[str]:
    p = inputs.parameters
    return [
        name for of, name in lists_of(p["role"], p["sources"], set(p["larger"])) if of == source
    ]


def _compare_with_all(
    inputs: Inputs, arrays: dict[str, NDArray[Any]], rows: Int64Array, source: Role
) -> None:
    """Replace what was found for some rows by their nearest of all, and of fewer."""
    p = inputs.parameters
    corpus, role = inputs.corpora[source], p["role"]
    fewer = None
    if source in p["larger"]:
        fewer = inputs.results[p["cells"]].array(f"{source}_fewer")
    candidates = nearest.Source(source, corpus, fewer)
    for block in row_blocks(len(rows), nearest.QUERY_ROWS):
        some = rows[block]
        queries = as_points(inputs.corpora[role].read_index(some), p["metric"])
        ids = some if role == source else np.full(len(some), -1)
        compared = nearest.search_corpus(queries, ids, candidates, p["metric"])
        for name, found in compared.items():
            arrays[f"{source}_{name}_row"][some] = found.indices[:, 0]
            arrays[f"{source}_{name}_distance"][some] = nearest.stored_distances(
                found.distances[:, 0]
            )
