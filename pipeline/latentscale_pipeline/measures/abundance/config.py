"""The section ``measures.abundance`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from latentscale_pipeline.config.section import Metric, Section

MIN_ROWS = 100


class AbundanceSection(Section):
    """Kinds of rows that are rarer or more frequent than in the reference, by neighbourhoods."""

    compares: ClassVar[bool] = True
    equal_dimensions: ClassVar[bool] = True

    metric: Metric = "euclidean"
    """Distance between rows."""
    k: Annotated[int, Field(ge=10, le=1000)] = 100
    """Rows of a neighbourhood; of small corpora a quarter of all rows at most. Kinds with fewer
    rows in both corpora together are hardly found.
    """
    rows: Annotated[int, Field(ge=100, le=50_000)] = 10_000
    """Most rows of a corpus that take part; they are chosen at random. Fewer do, but no less than
    100, if their pairs would exceed `budget.pairs`.
    """
    count: Annotated[int, Field(ge=1, le=50)] = 5
    """How many kinds of each sort are described."""
    examples: Annotated[int, Field(ge=1, le=100)] = 10
    """How many rows stand for a kind."""

    @property
    def fewest_rows(self) -> int:
        """Fewest rows of a corpus whose neighbourhoods are compared."""
        return MIN_ROWS
