"""The bandwidth of kernels that have none of their own: the median distance of rows.

Where a measure of the job takes the weights of rows into account, the median does, too.
"""

from __future__ import annotations

import math

import numpy as np

from latentscale.array_types import Int64Array
from latentscale.sampling.median_distance import (
    MEDIAN_PAIRS,
    PAIRS_AT_ONCE,
    RowPairs,
    draw_pairs,
    median_distance,
)
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import RESULT_BYTES, JobFacts
from latentscale_pipeline.measures.shared.random_rows import (
    gather_rows,
    read_share,
    row_bytes,
    share_reading,
)
from latentscale_pipeline.storage.artifacts import Output

WEIGHT_BYTES = 48
"""Memory of a row's weight: as stored, in units of the largest, and summed."""

PAIR_BYTES = 100
"""Memory of a drawn pair of rows: its numbers, sorted, and its distance."""


def planned_bandwidth(given: float | str | None, facts: JobFacts) -> float | str | None:
    """Return the bandwidth of a section, from another job where that gives the median distance."""
    fixed = facts.fixed_scales.get("bandwidth") if given == "median" else None
    return given if fixed is None else fixed


def median_pairs(n: int) -> int:
    """Return how many pairs of n rows give the median distance."""
    return min(n * (n - 1) // 2, MEDIAN_PAIRS)


def read_bandwidth(inputs: Inputs) -> tuple[float | None, str]:
    """Return a task's bandwidth, None for a kernel without one, and why it isn't known."""
    given = inputs.parameters["bandwidth"]
    if given != "median":
        return given, ""
    found = inputs.results["bandwidth"].values
    return found.get("bandwidth"), found.get("reason", "")


def bandwidth_stage(facts: JobFacts) -> Stage:
    """Plan the bandwidth that kernels share: the median distance of random pairs of rows."""
    role = facts.scale_role
    corpus = facts.corpora[role]
    pairs = median_pairs(corpus.n)
    # Two rows a pair, less those that are drawn again.
    drawn = math.ceil(-corpus.n * math.expm1(-2.0 * pairs / corpus.n))
    stage = Stage(
        name="bandwidth",
        work=find_bandwidth,
        corpora=(role,),
        parameters={"role": role} | ({"weights": corpus.weights} if corpus.weights else {}),
        seed=facts.seed,
        memory_bytes=row_bytes(corpus) * drawn
        + (WEIGHT_BYTES * corpus.n if corpus.weights else 0)
        + pairs * PAIR_BYTES
        + 3 * 8 * PAIRS_AT_ONCE * corpus.d,
        cost_estimate=CostEstimate(
            bytes_written=RESULT_BYTES,
            elementwise_operations=10.0 * pairs * corpus.d,
            method="median distance of random pairs",
            why="a bandwidth is median",
        ),
    )
    return share_reading(stage, corpus, read_pairs, drawn)


def read_pairs(inputs: Inputs) -> Output:
    """Read the rows of random pairs in some shards."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    return read_share(inputs, corpus, _rows_in(_draw(inputs, corpus))[0])


def find_bandwidth(inputs: Inputs) -> Output:
    """Compute the bandwidth: the median distance of random pairs of rows."""
    corpus = inputs.corpora[inputs.parameters["role"]]
    try:
        drawn = _draw(inputs, corpus)
        rows, places = _rows_in(drawn)
        first, second = np.split(places, 2)
        pairs = RowPairs(first, second, drawn.weights)
        bandwidth = median_distance(gather_rows(inputs, corpus, rows), pairs)
    except ValueError as error:
        return Output(values={"reason": str(error)})
    return Output(values={"bandwidth": bandwidth})


def _draw(inputs: Inputs, corpus: Corpus) -> RowPairs:
    weights = corpus.weights() if "weights" in inputs.parameters else None
    return draw_pairs(corpus.n, inputs.common_generator(), weights=weights)


def _rows_in(pairs: RowPairs) -> tuple[Int64Array, Int64Array]:
    """Return the rows in pairs, ascending, and the places of first and of second rows."""
    both = np.concatenate([pairs.first, pairs.second])
    rows, places = np.unique(both, return_inverse=True)
    return rows, places
