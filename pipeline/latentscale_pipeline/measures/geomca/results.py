"""The results of GeomCA: its part of ``measures``."""

from __future__ import annotations

from pydantic import ConfigDict, NonNegativeFloat

from latentscale_pipeline.results.part import (
    Absent,
    Count,
    Part,
    Positive,
    Reason,
    Share,
)


class Row(Part):
    """A row by its number, and by its id if the corpus has ids."""

    row: Count
    """Number of the row in its corpus."""
    id: Absent[str] = None
    """Its id, if the corpus has ids."""


class RowsByRole(Part):
    """Rows of both corpora."""

    corpus: list[Row]
    """Rows of the corpus."""
    reference: list[Row]
    """Rows of the reference."""


class Component(Part):
    """A connected component of the thinned rows of both corpora."""

    rank: Count
    """0 is the largest."""
    size: Positive
    """Thinned rows in it."""
    n_reference: Count
    """Thinned rows of the reference in it."""
    n_corpus: Count
    """Thinned rows of the corpus in it."""
    consistency: Share
    """Balance of the two corpora; 1 if it has equally many rows of both."""
    quality: Share
    """Share of the edges that join the two corpora."""
    edges: Count
    """Number of edges in it."""
    examples: Absent[RowsByRole] = None
    """Rows that represent it."""


class GeomcaSizes(Part):
    """Rows of both corpora, before and after thinning."""

    reference: Count
    """Rows of the reference."""
    corpus: Count
    """Rows of the corpus."""
    reference_sparse: Count
    """Rows of the reference that thinning kept."""
    corpus_sparse: Count
    """Rows of the corpus that thinning kept."""


class Outliers(Part):
    """Rows in components of a single thinned point."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    reference: Count
    """Outliers of the reference."""
    corpus: Count
    """Outliers of the corpus."""


class GeomcaScores(Part):
    """The scores under one order of the rows."""

    model_config = ConfigDict(json_schema_extra={"inline": True})

    precision: Share
    """Share of the thinned corpus in components that count."""
    recall: Share
    """Share of the thinned reference in components that count."""
    consistency: Share
    """Balance of the two corpora; 1 if it has equally many rows of both."""
    quality: Share
    """Share of the edges that join the two corpora."""
    precision_rows: Share
    """Precision counted in rows."""
    recall_rows: Share
    """Recall counted in rows."""


class GeomcaSetting(Part):
    """The scores at one distance and one pair of thresholds."""

    epsilon: float
    """Distance below which rows were joined."""
    delta: float
    """Distance to which rows were thinned, in units of the vectors."""
    eta_c: Share
    """Threshold of consistency."""
    eta_q: Share
    """Threshold of quality."""
    precision: Share
    """Share of the thinned corpus in components that count."""
    recall: Share
    """Share of the thinned reference in components that count."""
    consistency: Share
    """Balance of the two corpora; 1 if it has equally many rows of both."""
    quality: Share
    """Share of the edges that join the two corpora."""
    precision_rows: Share
    """Precision counted in rows."""
    recall_rows: Share
    """Recall counted in rows."""
    sizes: GeomcaSizes
    """Rows before and after thinning."""
    component_count: Count
    """Number of all components."""


class GeomcaResults(Part):
    """GeomCA."""

    model_config = ConfigDict(title="geomca")

    explained = (
        *("precision", "recall", "consistency", "quality"),
        *("precision_rows", "recall_rows"),
    )

    epsilon: float
    """Distance below which rows were joined."""
    epsilon_lower: Absent[NonNegativeFloat] = None
    """Lower end of the 95 % interval of the percentile over samples of the reference."""
    epsilon_upper: Absent[NonNegativeFloat] = None
    """Upper end of that interval."""
    percentile: float | None
    """Percentile of sampled distances; null if epsilon was given."""
    delta: float
    """Distance to which rows were thinned, in units of the vectors."""
    precision: Share | None
    """Share of the thinned corpus in components that count."""
    recall: Share | None
    """Share of the thinned reference in components that count."""
    consistency: Share | None
    """Balance of the two corpora; 1 if it has equally many rows of both."""
    quality: Share | None
    """Share of the edges that join the two corpora."""
    precision_rows: Share | None
    """Precision counted in rows."""
    recall_rows: Share | None
    """Recall counted in rows."""
    precision_reason: Absent[Reason] = None
    recall_reason: Absent[Reason] = None
    consistency_reason: Absent[Reason] = None
    quality_reason: Absent[Reason] = None
    precision_rows_reason: Absent[Reason] = None
    recall_rows_reason: Absent[Reason] = None
    eta_c: Share
    """Threshold of consistency."""
    eta_q: Share
    """Threshold of quality."""
    sizes: GeomcaSizes
    """Rows before and after thinning."""
    outliers: Absent[Outliers] = None
    """Rows in components of a single thinned point."""
    component_count: Absent[Count] = None
    """Number of all components, listed or not."""
    components: list[Component]
    """The largest components, largest first."""
    orders: Absent[list[GeomcaScores]] = None
    """The scores under random orders of the rows."""
    sweep: Absent[list[GeomcaSetting]] = None
    """The scores at other distances and thresholds."""
    outlier_examples: Absent[RowsByRole] = None
    """Some of the outliers."""
