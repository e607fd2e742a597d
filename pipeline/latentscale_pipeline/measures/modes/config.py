"""The section ``measures.modes`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from latentscale_pipeline.config.section import Length, Section, require_distinct, require_rbf

ModesKernel = Literal["cosine", "rbf"]


class ModesSection(Section):
    """Modes: kinds of rows that are more frequent in the corpus or in the reference."""

    by_default: ClassVar[bool] = False
    compares: ClassVar[bool] = True
    equal_dimensions: ClassVar[bool] = True

    kernels: Annotated[list[ModesKernel], Field(min_length=1), AfterValidator(require_distinct)] = (
        Field(default=["cosine"])
    )
    """`cosine` finds kinds of rows by their direction, `rbf` (exp(-d²/2σ²)) by their place."""
    bandwidth: Annotated[Literal["median"] | Length, AfterValidator(require_rbf)] = "median"
    """σ of rbf, a distance; `median` is the median distance of random pairs of the reference."""
    count: Annotated[int, Field(ge=1, le=50)] = 5
    """How many modes of each kind are described."""
    examples: Annotated[int, Field(ge=1, le=100)] = 10
    """How many rows stand for a mode."""
