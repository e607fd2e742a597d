"""The section ``measures.baselines`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import (
    Field,
)

from latentscale_pipeline.config.section import Section


class Baselines(Section):
    """Scores that other tools report: similarity, FID, KID, precision, recall and the like."""

    by_default: ClassVar[bool] = False
    equal_dimensions: ClassVar[bool] = True

    k: Annotated[int, Field(ge=1, le=100)] = 5
    """Neighbour to which the ball of a row reaches, of all scores that have balls."""
    rows: Annotated[int, Field(ge=2)] = 20_000
    """Most rows of each corpus for these and KID; beyond, random rows are taken."""
