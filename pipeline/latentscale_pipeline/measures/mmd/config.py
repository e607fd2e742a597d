"""The section ``measures.mmd`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from latentscale_pipeline.config.section import Length, Section, require_distinct, require_rbf

MmdKernel = Literal["rbf", "cosine", "linear"]


class Mmd(Section):
    """Maximum mean discrepancy: a test of whether both corpora have the same distribution."""

    by_default: ClassVar[bool] = False
    compares: ClassVar[bool] = True
    of_many: ClassVar[bool] = True
    equal_dimensions: ClassVar[bool] = True

    kernels: Annotated[list[MmdKernel], Field(min_length=1), AfterValidator(require_distinct)] = (
        Field(default=["rbf"])
    )
    """`rbf` (exp(-d²/2σ²)) sees any difference, `linear` one of the means, `cosine` one of the mean
    directions.
    """
    bandwidth: Annotated[Literal["median"] | Length, AfterValidator(require_rbf)] = "median"
    """σ of rbf, a distance; `median` is the median distance of random pairs of the reference."""
