"""The section ``measures.duplicates`` of the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from latentscale_pipeline.config.section import Length, Metric, Section


class Duplicates(Section):
    """Rows that repeat another row, lie in both corpora, or lie far from all others."""

    metric: Metric = "cosine"
    """Distance between rows; cosine is 1 - cos of the angle."""
    within: Length = 0.05
    """Distance up to which two rows are nearly the same. Must be given for other metrics than
    cosine.
    """
    rows: Annotated[int, Field(ge=100)] | None = None
    """Rows of each corpus whose nearest rows are found. By default all, while that takes at most
    2·10⁹ pairs, and as many random rows as that allows beyond. Groups of near-duplicates need all
    rows.
    """

    @model_validator(mode="after")
    def _distances_have_a_scale(self) -> Duplicates:
        if self.metric != "cosine" and "within" not in self.model_fields_set:
            raise ValueError(f"within must be given with metric {self.metric}: it has no scale")
        return self
