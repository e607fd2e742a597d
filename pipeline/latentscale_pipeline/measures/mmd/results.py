"""Results of the maximum mean discrepancy: their part of ``measures`` in the results."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, NonNegativeFloat

from latentscale_pipeline.results.part import Part, Positive

Two = Annotated[list[Positive], Field(min_length=2, max_length=2)]


class DiscrepancyOfPair(Part):
    """The squared discrepancy under one kernel, and a test of it."""

    kernel: str
    """Kernel."""
    bandwidth: float | None
    """Bandwidth; null for kernels without one."""
    value: float
    """The unbiased estimate of MMD²."""
    sampling_error: NonNegativeFloat
    """Standard error over fresh samples of both corpora."""
    p: Annotated[float, Field(ge=0.0, le=1.0)]
    """Share of random divisions of the rows whose discrepancy is at least as large."""
    divisions: Positive
    """Number of random divisions."""
    groups: Two
    """Groups of corpus and reference that were divided."""
    rows: Two
    """Rows in these groups."""
    method: str
    """`pairs` if all pairs were visited, `features` for exact features, `fourier` for random ones.
    """


class MmdResults(Part):
    """Maximum mean discrepancy of the corpus from the reference."""

    model_config = ConfigDict(title="mmd")

    pair: list[DiscrepancyOfPair]
    """Discrepancies, by kernel."""
