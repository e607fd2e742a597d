"""What heat trace and IMD find: their part of ``measures`` in the results."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, WithJsonSchema

from latentscale_pipeline.results.part import (
    Absent,
    AbsentOrNull,
    Bounds,
    Count,
    Part,
    Positive,
    Reason,
    Share,
    Spread,
)


class Recall(Part):
    """Share of true neighbours that were found, with its 95 % interval."""

    value: Share
    """Share of true neighbours that were found."""
    lower: Share
    """Lower end of its 95 % interval."""
    upper: Share
    """Upper end."""
    sampled: Count
    """Rows that were checked against all others."""


class Attempt(Part):
    """A search in cells."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    overlap: Positive
    """Cells that a row joined."""
    recall: Recall
    """What was found."""


class NeighbourGraph(Part):
    """The neighbour graph of a corpus."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    edges: Count
    """How many pairs of rows are joined."""
    components: Count
    """Connected components."""
    isolated: Count
    """Rows without an edge."""
    neighbours: Absent[str] = None
    """How the neighbours were found."""
    recall: Recall
    """Share of true neighbours in it."""
    mean_degree: Absent[Spread] = None
    """Rows that a row is joined with, on average."""
    tied: Absent[Share] = None
    """Share of rows for which more rows are as far away as their k-th neighbour: a hash of the rows
    decides which of them are neighbours. Of the checked rows, where neighbours are searched in
    cells.
    """
    attempts: Absent[list[Attempt]] = None
    """Searches in cells, in order: a certificate that missed was searched for again."""


class HeatTrace(Part):
    """Heat trace of a corpus."""

    times: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]
    """Diffusion times."""
    trace: list[float]
    """Heat trace at each, normalised as `normalization` says."""
    lower: Absent[list[float]] = None
    """Lower end of the bracket at each time."""
    upper: Absent[list[float]] = None
    """Upper end of the bracket at each time."""
    standard_error: list[Spread]
    """Over the probes, at each time."""
    bounds: Absent[Bounds] = None
    normalization: Annotated[str, WithJsonSchema({"enum": ["none", "empty", "complete", "er"]})]
    """What the trace was divided by."""
    laplacian: Annotated[Absent[str], WithJsonSchema({"enum": ["normalized", "unnormalized"]})] = (
        None
    )
    """Which Laplacian."""
    k: Positive
    """Neighbours of a row."""
    steps: Count
    """Lanczos steps of a probe."""
    probes: Count
    """Random probes."""
    tolerance: Absent[float] = None
    """Relative standard error asked for."""
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
    standard_error: Spread
    """Of the random probes; 0 where nothing is random."""
    bounds: Bounds
    time: float
    """Diffusion time at which the difference is largest."""


class Imd(ImdConvention):
    """Distance of the traces of two corpora."""

    value: float
    """IMD in the configured normalisation."""
    per_vertex: Absent[ImdConvention] = None
    """The same with traces divided by the number of vertices."""
    unnormalized: Absent[ImdConvention] = None
    """The same with traces as they are."""
    differs: Absent[bool] = None
    """Whether it is beyond its bracket and 1.96 sampling errors; absent where these are unknown."""


class SpreadOfTraces(Part):
    """Of the trace at each of the diffusion times, as normalised in the job."""

    mean: list[float]
    """Mean over the subsamples."""
    lower: list[float]
    """Lower end of the mean's interval."""
    upper: list[float]
    """Upper end of the mean's interval."""
    standard_deviation: list[Spread]
    """Of single subsamples."""


class SpreadOfImd(Part):
    """IMD between the subsamples of two corpora."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    mean: float
    """Mean over the subsamples."""
    lower: float
    """Lower end of the mean's interval."""
    upper: float
    """Upper end of the mean's interval."""
    standard_deviation: Spread
    """Of single subsamples."""


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
    replicates: Absent[HeatReplicates] = None
