"""The section ``measures.spread`` of the configuration."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from latentscale_pipeline.config.section import Length, Section


class Spread(Section):
    """The spread under the Euclidean distance at some scales, and DCScore."""

    by_default: ClassVar[bool] = False

    scales: list[Length] = Field(default=[1.0, 3.0, 10.0], min_length=1, max_length=20)
    """Scales t: two rows at the distance d have the similarity exp(-t d/σ)."""
    bandwidth: Literal["median"] | Length = "median"
    """σ, a distance; `median` is the median distance of random pairs."""
    temperature: Length | None = 1.0
    """Temperature τ of DCScore, under which two rows have the similarity exp((cos - 1)/τ); null
    for no DCScore.
    """
    rows: Annotated[int, Field(ge=100, le=20_000)] = 4000
    """Most rows whose similarities to all rows are summed; they are chosen at random. Fewer are,
    but no less than 100, if they and all rows would exceed `budget.pairs`.
    """

    @field_validator("scales")
    @classmethod
    def _ascending(cls, scales: list[float]) -> list[float]:
        for scale, after in pairwise(sorted(scales)):
            if scale == after:
                raise ValueError(f"{scale:g} is listed twice")
        return sorted(scales)
