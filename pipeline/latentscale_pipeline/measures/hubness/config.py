"""The section ``measures.hubness`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from latentscale_pipeline.config.section import Metric, Section


class Hubness(Section):
    """How unevenly rows are nearest neighbours of others."""

    by_default: ClassVar[bool] = False

    metric: Metric = "euclidean"
    """Distance between rows."""
    k: Annotated[int, Field(ge=1, le=100)] = 10
    """Nearest neighbours of a row that count."""
    rows: Annotated[int, Field(ge=100, le=100_000)] = 10_000
    """Most rows whose neighbours among each other are looked up; they are chosen at random. Fewer
    are, but no less than 100, if their pairs would exceed `budget.pairs`.
    """
