"""Groups of rows that are nearly the same: which rows stay, and which of them covers each other.

A row stays if no earlier row that stays is within the distance. So every row that goes lies within
the distance of one that stays, and there are no chains. Only rows whose nearest row is so close
take part. The rows that equal an earlier one are found in the same way, at distance 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Int64Array
from latentscale.duplicates.distinct import EQUAL_DIRECTION
from latentscale.duplicates.sparsification import (
    UNDECIDED,
    SparsificationFronts,
    first_near,
    sparsify,
)
from latentscale.tiles.distances import Balls, Metric, Points, as_points
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import (
    FEW_TILES_BYTES,
    RESULT_BYTES,
    UNIT_OPERATIONS,
    JobFacts,
    Role,
)
from latentscale_pipeline.measures.duplicates import nearest
from latentscale_pipeline.measures.duplicates.config import Duplicates
from latentscale_pipeline.measures.shared.random_rows import BLOCK_ROWS, read_blocks
from latentscale_pipeline.storage.artifacts import Output

HELD_BYTES = 192 * 2**20
"""Memory of the rows that are held at once."""

ROUNDING = 1e-6
"""Share by which a stored distance may be wrong."""

DUPLICATE, COVERED = "repeated", "covered"
"""Names of the rows that equal an earlier one, and of those that one that stays covers."""

COVERED_SHARE = 0.1
"""Share of the rows that are expected to have another one near."""


def stage_name(role: Role) -> str:
    """Name the stage that forms the groups of a corpus."""
    return f"covered-{role}"


def equal_within(metric: Metric) -> float:
    """Return the distance up to which two rows are equal."""
    return EQUAL_DIRECTION if metric == "cosine" else 0.0


def cover_stage(section: Duplicates, facts: JobFacts, role: Role, lists: str) -> Stage:
    """Plan the groups of near-duplicates of a corpus, whose nearest rows are in ``lists``."""
    corpus = facts.corpora[role]
    held, near = min(_held_rows(corpus.d), corpus.n), COVERED_SHARE * corpus.n
    pairs = min(near**2 / 2, facts.pairs)
    return Stage(
        name=stage_name(role),
        work=cover_rows,
        corpora=(role,),
        needs=(lists,),
        parameters={
            "role": role,
            "metric": section.metric,
            "within": section.within,
            "lists": lists,
            "pairs": facts.pairs,
        },
        # Rows held in float64 and as tiles, a copy of those that stay, a block, the numbers of all.
        memory_bytes=held * corpus.d * (8 + 8 + 12)
        + 2 * corpus.shard_stored_bytes
        + 20 * BLOCK_ROWS * corpus.d
        + 60 * corpus.n
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=(2 + 2 * int(near) // held) * corpus.stored_bytes + 8 * corpus.n,
            bytes_written=int(16 * near) + RESULT_BYTES,
            float32_multiply_adds=pairs * corpus.d,
            elementwise_operations=3 * pairs + UNIT_OPERATIONS * near * corpus.d,
            method="greedy in row order",
        ),
    )


def _held_rows(d: int) -> int:
    return max(HELD_BYTES // (28 * d), BLOCK_ROWS)


def cover_rows(inputs: Inputs) -> Output:
    """Find the rows that repeat an earlier one, and those that one that stays covers."""
    p = inputs.parameters
    corpus, metric = inputs.corpora[p["role"]], p["metric"]
    found = inputs.results[p["lists"]]
    distances = found.array(f"{p['role']}_{nearest.ALL}_distance")
    arrays: dict[str, NDArray[Any]] = {}
    values: dict[str, int | str] = {}
    for name, within in ((DUPLICATE, equal_within(metric)), (COVERED, p["within"])):
        candidates = np.flatnonzero(distances <= within * (1.0 + ROUNDING))
        covering = cover(corpus, candidates, metric, within, p["pairs"])
        if covering is None:
            values["reason"] = (
                f"{len(candidates):,} rows of the {p['role']} have another one near: more than "
                f"{p['pairs']:.3g} pairs; raise budget.pairs, or lower within"
            )
            continue
        gone = np.flatnonzero(covering >= 0)
        arrays[f"{name}_rows"] = nearest.short_numbers(candidates[gone], corpus)
        arrays[f"{name}_by"] = nearest.short_numbers(covering[gone], corpus)
        values[name] = len(gone)
    return Output(values=values, arrays=arrays)


def cover(
    corpus: Corpus, candidates: Int64Array, metric: Metric, within: float, pairs: float
) -> Int64Array | None:
    """Return the earliest row that stays and covers each candidate; -1 for one that stays itself.

    None if more pairs of rows would be compared than are allowed.

    Parameters
    ----------
    corpus : Corpus
        All rows.
    candidates : ndarray of int64, shape (c,)
        The rows that may have another one within the distance, ascending.
    metric, within
        The distance up to which a row is covered.
    pairs : float
        Most pairs of rows that are compared.
    """
    fronts = SparsificationFronts.start(len(candidates))
    compared = 0.0
    while not fronts.finished:
        front = fronts.next_front(_held_rows(corpus.d))
        compared += 0.5 * len(front) ** 2
        if compared > pairs:
            return None
        points = as_points(corpus.read_index(candidates[front]), metric)
        thinned = sparsify(points, within, block_rows=BLOCK_ROWS)
        kept = fronts.settle(front, thinned)
        if not fronts.finished:
            compared += float(len(kept)) * int((fronts.representative == UNDECIDED).sum())
            _remove(fronts, corpus, candidates, points.take(thinned.kept), kept, within)
    covering = candidates[fronts.representative]
    covering[covering == candidates] = -1
    return covering


def _remove(
    fronts: SparsificationFronts,
    corpus: Corpus,
    candidates: Int64Array,
    keepers: Points,
    kept: Int64Array,
    within: float,
) -> None:
    """Remove the undecided rows that a kept row of the last front covers."""
    balls = Balls.about(keepers, within, strict=False)
    undecided = np.flatnonzero(fronts.representative == UNDECIDED)
    for block, vectors in read_blocks(corpus, candidates[undecided]):
        some = undecided[block]
        first = first_near(balls, as_points(vectors, keepers.metric))
        near = first != UNDECIDED
        fronts.representative[some[near]] = kept[first[near]]
