"""Results of heat traces and IMD: their part of ``measures`` in the results."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, NonNegativeFloat, WithJsonSchema

from latentscale_pipeline.results.model import CurveRange
from latentscale_pipeline.results.part import (
    Absent,
    AbsentOrNull,
    Bounds,
    Count,
    Part,
    Positive,
    Reason,
    Share,
)


class Recall(Part):
    """Share of true neighbours that were found, with its 95 % interval."""

    value: Share
    """Share of true neighbours that were found."""
    lower: Share
    """Lower end of its 95 % interval."""
    upper: Share
    """Upper end of its 95 % interval."""
    sampled: Count
    """Rows that were checked against all others."""


class Attempt(Part):
    """A search in cells."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    overlap: Positive
    """Cells that a row joined."""
    recall: Recall
    """Recall of the search."""


class NeighbourGraph(Part):
    """The neighbour graph of a corpus."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    edges: Count
    """Number of edges."""
    components: Count
    """Connected components."""
    isolated: Count
    """Rows without an edge."""
    neighbours: Absent[str] = None
    """Neighbour search."""
    recall: Recall
    """Share of true neighbours in the graph."""
    mean_degree: Absent[NonNegativeFloat] = None
    """Rows that a row is joined with, on average."""
    tied: Absent[Share] = None
    """Share of rows for which more rows are as far away as their k-th neighbour: a hash of the rows
    decides which of them are neighbours. Of the checked rows, where neighbours are searched in
    cells.
    """
    attempts: Absent[list[Attempt]] = None
    """Searches in cells, in order; a search that missed the recall is repeated."""


class HeatTrace(Part):
    """Heat trace of a corpus."""

    times: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]
    """Diffusion times."""
    trace: list[float]
    """Heat trace at each time, normalised as `normalization` says."""
    lower: Absent[list[float]] = None
    """Lower end of the bracket at each time."""
    upper: Absent[list[float]] = None
    """Upper end of the bracket at each time."""
    standard_error: list[NonNegativeFloat]
    """Standard error over the probes at each time."""
    bounds: Absent[Bounds] = None
    normalization: Annotated[str, WithJsonSchema({"enum": ["none", "empty", "complete", "er"]})]
    """Divisor of the trace."""
    laplacian: Annotated[Absent[str], WithJsonSchema({"enum": ["normalized", "unnormalized"]})] = (
        None
    )
    """Laplacian of the graph."""
    k: Positive
    """Neighbours per row."""
    steps: Count
    """Lanczos steps per probe."""
    probes: Count
    """Number of random probes."""
    tolerance: Absent[float] = None
    """Requested relative standard error."""
    graph: NeighbourGraph
    """The neighbour graph."""


class ImdConvention(Part):
    """IMD in one normalisation."""

    value: float
    """IMD in this normalisation."""
    lower: float
    """Lower end of the bracket."""
    upper: float
    """Upper end of the bracket."""
    standard_error: NonNegativeFloat
    """Standard error over the random probes; 0 where nothing is random."""
    bounds: Bounds
    time: float
    """Diffusion time at which the difference is largest."""


class Imd(ImdConvention):
    """Distance of the traces of two corpora."""

    value: float
    """IMD in the configured normalisation."""
    per_vertex: Absent[ImdConvention] = None
    """IMD of traces divided by the number of vertices."""
    unnormalized: Absent[ImdConvention] = None
    """IMD of traces that are not normalised."""
    differs: Absent[bool] = None
    """Whether its lower end exceeds 1.96 sampling errors.

    Absent where these are unknown, or the corpora's numbers of rows differ by more than 1 %.
    """


class SpreadOfTraces(Part):
    """Spread of the trace at each diffusion time, as normalised in the job."""

    mean: list[float]
    """Mean over the subsamples."""
    lower: list[float]
    """Lower end of the mean's interval."""
    upper: list[float]
    """Upper end of the mean's interval."""
    standard_deviation: list[NonNegativeFloat]
    """Standard deviation of single subsamples."""


class SpreadOfImd(Part):
    """IMD between the subsamples of two corpora."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    mean: float
    """Mean over the subsamples."""
    lower: float
    """Lower end of the mean's interval."""
    upper: float
    """Upper end of the mean's interval."""
    standard_deviation: NonNegativeFloat
    """Standard deviation of single subsamples."""


class HeatReplicates(Part):
    """Means over random subsamples, with Student's intervals of the given level."""

    count: Annotated[int, Field(ge=2)]
    """Subsamples of each corpus."""
    rows: Annotated[int, Field(ge=2)]
    """Rows of a subsample."""
    level: float
    """Confidence level of the intervals."""
    corpus: SpreadOfTraces
    reference: Absent[SpreadOfTraces] = None
    imd: SpreadOfImd | None
    """IMD between the subsamples of the two corpora; null where there is one corpus."""


class HeatResults(Part):
    """Heat trace and IMD."""

    model_config = ConfigDict(title="heat")

    corpus: HeatTrace
    """Heat trace of the corpus."""
    reference: AbsentOrNull[HeatTrace] = None
    """Heat trace of the reference; null without one."""
    imd: AbsentOrNull[Imd] = None
    """Distance of the two; null without a reference."""
    imd_reason: Absent[Reason] = None
    chance: Absent[CurveRange] = None
    """Where the trace of the corpus is expected from samples of the reference, at some times."""
    replicates: Absent[HeatReplicates] = None
