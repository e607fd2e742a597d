"""The section ``measures.projection`` of the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from latentscale_pipeline.config.section import Metric, Section


class ProjectionSection(Section):
    """A map of some rows: t-SNE, for looking at. It has no scores."""

    metric: Metric = "cosine"
    """Distance between rows."""
    rows: Annotated[int, Field(ge=100, le=10_000)] = 2000
    """Rows on the map, chosen at random, in a job with a reference half of them from each corpus.
    The time grows with the square.
    """
    perplexity: Annotated[float, Field(ge=2.0, le=500.0)] = 30.0
    """Near rows that count for the place of a row."""
