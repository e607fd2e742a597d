"""The section ``measures.baselines`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import (
    Field,
)

from latentscale_pipeline.config.section import Section


class Baselines(Section):
    """Measures that others compare with: similarity, FID, KID, precision, recall and the like."""

    by_default: ClassVar[bool] = False
    equal_dimensions: ClassVar[bool] = True

    k: Annotated[int, Field(ge=1, le=100)] = 5
    """Neighbours that make a row's ball, in precision, recall, density and coverage."""
    rows: Annotated[int, Field(ge=2)] = 20_000
    """Random rows a side for those four and for KID."""
