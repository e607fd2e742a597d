"""The section ``measures.magnitude`` of the configuration."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from latentscale_pipeline.config.section import Length, Metric, Section, Tolerance


class Magnitude(Section):
    """Magnitude function, its area, and the difference to a reference."""

    metric: Metric = "euclidean"
    """Distance between two rows."""
    scales: (
        Annotated[int, Field(ge=2, le=1000)]
        | list[Annotated[float, Field(ge=0.0, allow_inf_nan=False)]]
    ) = 20
    """Scales t, in 1/distance: their number from 0 to the convergence scale, or an ascending list.
    """
    target: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95
    """Share of the distinct rows that the magnitude reaches at the convergence scale."""
    method: Literal["auto", "cholesky", "cg", "subsample", "nystrom"] = "auto"
    """Method; `auto` chooses by the number of rows and `budget.pairs`."""
    tolerance: Tolerance = 1.0e-3
    """Relative width of the bracket at which iterations stop."""
    distance: bool = False
    """Whether the magnitude distance to the reference is computed as well, from up to 2000 random
    rows of each.
    """
    distance_scale: Literal["median"] | Length = "median"
    """Its scale t, in 1/distance; `median` is one over the median Euclidean distance of random
    pairs.
    """
    merge_within: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """Rows within this distance of each other count as one row, in units of the metric."""

    @field_validator("scales")
    @classmethod
    def _increasing(cls, scales: int | list[float]) -> int | list[float]:
        if isinstance(scales, list) and (
            len(scales) < 2 or any(a >= b for a, b in pairwise(scales))
        ):
            raise ValueError("a list of scales needs at least two, strictly increasing")
        return scales

    @model_validator(mode="after")
    def _distance_has_a_scale(self) -> Magnitude:
        if self.distance and self.distance_scale == "median" and self.metric != "euclidean":
            raise ValueError(
                "the median distance of pairs is Euclidean; give distance_scale as a number under "
                f"metric {self.metric}"
            )
        return self
