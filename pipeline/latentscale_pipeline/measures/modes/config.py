"""The section ``measures.modes`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from latentscale_pipeline.config.section import Section


class ModesSection(Section):
    """Modes: kinds of rows that are more frequent in the corpus or in the reference."""

    by_default: ClassVar[bool] = False
    compares: ClassVar[bool] = True
    equal_dimensions: ClassVar[bool] = True

    count: Annotated[int, Field(ge=1, le=50)] = 5
    """How many modes of each kind are described."""
    examples: Annotated[int, Field(ge=1, le=100)] = 10
    """How many rows stand for a mode."""
