"""The section ``measures.conditional`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from latentscale_pipeline.config.section import Length, Section

BANDWIDTHS = {
    "conditional_bandwidth": "bandwidth",
    "conditional_reference_bandwidth": "reference_bandwidth",
}
"""The keys of the bandwidths, by the names under which `scales_from` takes them."""


class Conditional(Section):
    """The diversity of outputs, their prompts being known; it needs `pair`."""

    by_default: ClassVar[bool] = False
    compares: ClassVar[bool] = True
    row_by_row: ClassVar[bool] = True

    kernel: Literal["rbf", "cosine"] = "rbf"
    """Kernel of the Vendi scores: `rbf` (exp(-d²/2σ²)) or `cosine`."""
    bandwidth: Literal["median"] | Length = "median"
    """σ of rbf for the corpus; `median` is the median distance of its rows that
    differ.
    """
    reference_bandwidth: Literal["median"] | Length = "median"
    """The same for the reference."""
    kernel_rows: Annotated[int, Field(ge=100, le=10_000)] = 2000
    """Most pairs of rows of which Vendi scores are computed; they are chosen at random."""
    rows: Annotated[int, Field(ge=100, le=200_000)] = 20_000
    """The same for the Scendi score and the explained share."""
