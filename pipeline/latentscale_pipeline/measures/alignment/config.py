"""The section ``measures.alignment`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from latentscale_pipeline.config.section import Metric, Section


class Alignment(Section):
    """How alike two models represent the same items; it needs `pair`."""

    compares: ClassVar[bool] = True
    of_many: ClassVar[bool] = True
    row_by_row: ClassVar[bool] = True

    metric: Metric = "cosine"
    """Distance by which neighbours are found."""
    k: Annotated[int, Field(ge=1, le=100)] = 10
    """Nearest neighbours of an item that count."""
    rows: Annotated[int, Field(ge=100, le=100_000)] = 10_000
    """Most pairs of rows that are compared; they are chosen at random. Fewer are, but no less than
    100, if their neighbours would exceed `budget.pairs`.
    """
