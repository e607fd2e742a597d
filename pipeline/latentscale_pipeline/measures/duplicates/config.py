"""The section ``measures.duplicates`` of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

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
    neighbours: Literal["auto", "exact", "cells"] = "auto"
    """How the nearest rows are found. `exact` compares all rows while that takes at most 2·10⁹
    pairs, and as many random rows as that allows beyond. `cells` finds nearly all near rows of
    all, and says how many it misses. `auto` uses cells where all rows have too many pairs, up to
    2·10⁷ rows a corpus.
    """
    rows: Annotated[int, Field(ge=100)] | None = None
    """Random rows of each corpus that are compared with all others, instead of what `neighbours`
    says. Groups of near-duplicates need all rows.
    """

    @model_validator(mode="after")
    def _rows_are_compared(self) -> Duplicates:
        if self.rows is not None and self.neighbours == "cells":
            raise ValueError("rows is for neighbours: exact; cells find those of all rows")
        return self

    @model_validator(mode="after")
    def _distances_have_a_scale(self) -> Duplicates:
        if self.metric != "cosine" and "within" not in self.model_fields_set:
            raise ValueError(f"within must be given with metric {self.metric}: it has no scale")
        return self
