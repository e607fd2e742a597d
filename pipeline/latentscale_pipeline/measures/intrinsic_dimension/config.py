"""The section ``measures.intrinsic_dimension`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from latentscale_pipeline.config.section import Metric, Section


class IntrinsicDimension(Section):
    """Intrinsic dimensions: TwoNN, and maximum likelihood over numbers of neighbours."""

    by_default: ClassVar[bool] = False

    metric: Metric = "euclidean"
    """Distance between rows; under `cosine` the length of the chord between unit rows."""
    k: Annotated[int, Field(ge=3, le=100)] = 20
    """Neighbours of a row, of the score `MLE`. The report shows other numbers as well."""
    rows: Annotated[int, Field(ge=100, le=100_000)] = 2000
    """Most rows whose nearest neighbours among all rows are looked up; they are chosen at random.
    Fewer are, but no less than 100, if they and all rows would exceed `budget.pairs`.
    """
