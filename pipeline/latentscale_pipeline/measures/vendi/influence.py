"""Tasks that find the influence of every row on the score under the cosine kernel."""

from __future__ import annotations

import numpy as np

from latentscale.vendi.influence import Influence
from latentscale.vendi.second_moments import SecondMoment
from latentscale_pipeline.engine.stage import Inputs
from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.measures.vendi.config import Vendi
from latentscale_pipeline.storage.artifacts import Output

MAX_ROWS = 20_000_000
"""Most rows whose influences are found: one task joins them."""

SHARDS_PER_TASK = 8

BLOCK_ROWS = 4096
"""Rows whose influences are computed at a time."""

ARRAY = "influence"


def stage_name(role: Role) -> str:
    """Return the name of the stage that finds the influences."""
    return f"vendi-influence-{role}"


def influence_order(section: Vendi) -> float:
    """Return the order whose score rows influence; 0 if none is positive."""
    positive = [order for order in section.orders if order > 0]
    return 1.0 if 1.0 in positive else next(iter(positive), 0.0)


def has_influence(section: Vendi, n: int) -> bool:
    """Return whether the influences of the rows of a corpus are found."""
    cosine = any(kernel.name == "cosine" for kernel in section.kernels)
    return section.influence and cosine and influence_order(section) > 0 and n <= MAX_ROWS


def influence_of_shards(inputs: Inputs) -> Output:
    """Find the influences of the rows of a run of shards."""
    p = inputs.parameters
    corpus, scored = inputs.corpora[p["role"]], inputs.results[p["scored"]]
    first = inputs.index * SHARDS_PER_TASK
    shards = range(first, min(first + SHARDS_PER_TASK, corpus.shard_count))
    if scored.values.get("reason"):
        return Output()
    total = scored.values["total"]
    influence = Influence.of(SecondMoment(total, scored.array("matrix")), float(p["order"]))
    weights = corpus.weights() if p["weights"] else None
    found = []
    for shard in shards:
        held, rows = corpus.shard_range(shard), corpus.read_shard(shard)
        for start in range(0, len(rows), BLOCK_ROWS):
            block = slice(start, min(start + BLOCK_ROWS, len(rows)))
            masses = None if weights is None else weights[held][block]
            found.append(influence.of_rows(rows[block], masses).astype(np.float32))
    return Output(arrays={ARRAY: np.concatenate(found)})


def join_influences(inputs: Inputs) -> Output:
    """Join the influences of all rows."""
    if any(ARRAY not in part.objects for part in inputs.parts):
        return Output()
    return Output(arrays={ARRAY: np.concatenate([part.array(ARRAY) for part in inputs.parts])})
