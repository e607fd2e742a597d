"""Tasks of abundance: find the neighbourhoods of random rows, and compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from latentscale.abundance.neighbourhoods import Abundance, compare_neighbourhoods, group_kinds
from latentscale.array_types import Int32Array, Int64Array
from latentscale.neighbours.exact import nearest
from latentscale.tiles.distances import as_points
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.storage.artifacts import Output

OWN: Mapping[str, Role] = {"depleted": "reference", "enriched": "corpus"}
"""The corpus whose rows are in such neighbourhoods."""


def find_neighbourhoods(inputs: Inputs) -> Output:
    """Find the rows nearest to some rows, among those of both corpora that take part."""
    p = inputs.parameters
    drawn = [inputs.results[name].array("vectors") for name in p["drawn"]]
    # With keys, equal rows draw their neighbours from one another evenly.
    points = as_points(np.concatenate(drawn), p["metric"]).keyed()
    places = np.arange(len(points), dtype=np.int64)
    first = inputs.index * p["queries"]
    some = slice(first, min(first + p["queries"], len(points)))
    found = nearest(points.take(some), points, p["k"], query_ids=places[some], candidate_ids=places)
    return Output(arrays={"lists": found.indices.astype(np.int32)})


def compare_abundance(inputs: Inputs) -> Output:
    """Compare the neighbourhoods, and divide rows in unusual ones into kinds."""
    p = inputs.parameters
    lists = np.concatenate([part.array("lists") for part in inputs.parts])
    rows = [inputs.results[name].array("rows") for name in p["drawn"]]
    first = np.arange(len(lists)) < len(rows[0])
    found = compare_neighbourhoods(lists, first, inputs.generator())
    numbers = np.concatenate(rows)
    values = {
        name: {
            "share": found.shares[name].found,
            **_kinds(lists, found, name, numbers, p["count"], p["examples"]),
        }
        for name in OWN
    }
    arrays = {f"{name}_divided": found.shares[name].divided for name in OWN}
    for name, role in OWN.items():
        own = first == (role == "corpus")
        arrays[f"{role}_rows"] = numbers[own]
        arrays[f"{role}_share"] = (found.counts[own] / lists.shape[1]).astype(np.float32)
        arrays[f"{role}_unusual"] = getattr(found, name)[own]
    return Output({**values, "low": found.low, "high": found.high}, arrays)


def _kinds(
    lists: Int32Array,
    found: Abundance,
    name: str,
    numbers: Int64Array,
    count: int,
    examples: int,
) -> Mapping[str, Any]:
    """Describe the largest kinds of unusual rows."""
    kinds = group_kinds(lists, getattr(found, name))
    sign = 1 if name == "depleted" else -1

    def describe(places: Sequence[int] | Int64Array) -> dict[str, Any]:
        counts = found.counts[places]
        order = np.argsort(sign * counts, kind="stable")[:examples]
        return {
            "rows": len(places),
            "share": float(counts.mean()) / lists.shape[1],
            "examples": numbers[np.asarray(places)[order]].tolist(),
        }

    return {"kinds": len(kinds), "largest": [describe(kind) for kind in kinds[:count]]}
