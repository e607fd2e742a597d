"""The distinct rows of a corpus: finding them shard by shard, and reading them group by group.

Measures of sets count equal rows once. One pass over the shards projects every row onto one
direction. Then only rows with equal projections are read and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.array_types import Float64Array, Int64Array
from latentscale.duplicates.distinct import (
    Distinct,
    find_candidates,
    find_distinct,
    merge_candidates,
    merge_within,
    project,
)
from latentscale.tiles.distances import Metric, Points, as_points
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    UNIT_OPERATIONS,
    CorpusFacts,
    Role,
)
from latentscale_pipeline.measures.shared.row_groups import RowGroups, cut_rows
from latentscale_pipeline.storage.artifacts import Output


def distinct_stage(role: Role, metric: Metric, facts: CorpusFacts, merged: float) -> Stage:
    """Plan the search for a corpus's distinct rows under a metric.

    Parameters
    ----------
    role, metric, facts
        The corpus and how its rows are compared.
    merged : float
        Distance up to which rows are merged; above 0 all rows are in memory at once.
    """
    held = facts.shard_bytes if merged == 0 else 2 * facts.points_bytes
    return Stage(
        name=f"distinct-{metric}-{role}",
        temporary="result",
        work=find_rows,
        corpora=(role,),
        parameters={"role": role, "metric": metric, "merge_within": merged},
        # All projections and one shard; then row numbers, sorted and grouped.
        memory_bytes=max(held + 16 * facts.n, 80 * facts.n) + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=facts.stored_bytes,
            bytes_written=16 * facts.n + 8 * facts.d + RESULT_BYTES,
            elementwise_operations=(
                UNIT_OPERATIONS if metric == "cosine" else CONVERSION_OPERATIONS + 1
            )
            * facts.n
            * facts.d
            + 200.0 * facts.n,
        ),
    )


def find_rows(inputs: Inputs) -> Output:
    """Find the distinct rows, and the mean of all rows as a common origin for tiles."""
    corpus, metric = inputs.corpora[inputs.parameters["role"]], inputs.parameters["metric"]
    projections = np.empty(corpus.n)
    total = np.zeros(corpus.d)
    for shard in range(corpus.shard_count):
        points = as_points(corpus.read_shard(shard), metric)
        projections[corpus.shard_range(shard)] = project(points)
        total += points.rows.sum(axis=0)
    distinct = _find_distinct(corpus, metric, projections, inputs.parameters["merge_within"])
    return Output(
        values={"distinct": len(distinct.rows), "duplicates": distinct.duplicates},
        arrays={"rows": distinct.rows, "group": distinct.group, "origin": total / corpus.n},
    )


def _find_distinct(
    corpus: Corpus, metric: Metric, projections: Float64Array, merged: float
) -> Distinct:
    if merged > 0:
        return merge_within(as_points(corpus.read_all(), metric), merged)
    candidates = find_candidates(projections, metric)
    if len(candidates) == 0:
        return Distinct(np.arange(corpus.n), np.arange(corpus.n))
    among = find_distinct(as_points(corpus.read_index(candidates), metric))
    return merge_candidates(corpus.n, candidates, among)


@dataclass(frozen=True)
class DistinctRows:
    """The distinct rows of a corpus.

    Attributes
    ----------
    corpus : Corpus
        The corpus.
    metric : str
        The metric that compares rows.
    rows : ndarray of int64, shape (m,)
        Their numbers in the corpus, ascending.
    group : ndarray of int64, shape (n,)
        The distinct row that each row of the corpus equals.
    origin : ndarray of float64, shape (d,)
        The mean of the points, the origin of all tiles.
    """

    corpus: Corpus
    metric: Metric
    rows: Int64Array
    group: Int64Array
    origin: Float64Array

    @classmethod
    def of(cls, inputs: Inputs) -> DistinctRows:
        """Read the distinct rows of a task's corpus and metric."""
        role, metric = inputs.parameters["role"], inputs.parameters["metric"]
        artifact = inputs.results[f"distinct-{metric}-{role}"]
        rows, group, origin = (artifact.array(name) for name in ("rows", "group", "origin"))
        return cls(inputs.corpora[role], metric, rows, group, origin)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def distinct(self) -> Distinct:
        """The distinct rows and the groups."""
        return Distinct(self.rows, self.group)

    @property
    def groups(self) -> RowGroups:
        """Groups of the same size as those of all rows, so the last ones may be empty."""
        return RowGroups(len(self), cut_rows(self.corpus.n, self.corpus.d).size)

    def read(self, which: slice | Int64Array) -> Points:
        """Read the distinct rows at ascending positions."""
        return self._points(self.corpus.read_index(self.rows[which]))

    def read_groups(self, which: Iterable[int] | None = None) -> Iterator[Points]:
        """Read all distinct rows, or some groups of them, group by group."""
        groups = self.groups
        runs = (
            self.rows[groups.rows(group)]
            for group in (range(groups.count) if which is None else which)
        )
        return map(self._points, self.corpus.read_runs(runs))

    def _points(self, rows: NDArray[Any]) -> Points:
        return as_points(rows, self.metric).about(self.origin)
