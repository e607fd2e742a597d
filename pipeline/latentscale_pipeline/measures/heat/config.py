"""The section ``measures.heat`` of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from latentscale_pipeline.config.section import Auto, Fraction, Metric, Section, Tolerance


class HeatTimes(Section):
    """Logarithmically spaced diffusion times."""

    start: PositiveFloat = 0.1
    """First diffusion time (no unit)."""
    stop: PositiveFloat = 10.0
    """Last diffusion time."""
    count: Annotated[int, Field(ge=2, le=10_000)] = 256
    """How many times, evenly spaced in their logarithm."""

    @model_validator(mode="after")
    def _ordered(self) -> HeatTimes:
        if self.start >= self.stop:
            raise ValueError("start must be below stop")
        return self


class Heat(Section):
    """Heat trace of the neighbour graph, and IMD with a reference."""

    k: PositiveInt = 5
    """Neighbours of a row. Two rows are joined when either is among the other's k nearest."""
    metric: Metric = "euclidean"
    """Distance by which neighbours are near."""
    neighbours: Literal["auto", "exact", "cells"] = "auto"
    """How neighbours are found: `auto` is exact up to 50 000 rows and in cells beyond."""
    recall: Fraction = 0.98
    """Share of true neighbours that a search in cells has to find; a certificate holds it to that.
    """
    overlap: Auto | PositiveInt = "auto"
    """Cells that a row joins; `auto` chooses the fewest of 2, 3, 4 and 6 that promise the recall.
    """
    times: HeatTimes = HeatTimes()
    """Diffusion times at which the heat trace is given. IMD doesn't depend on them."""
    laplacian: Literal["normalized", "unnormalized"] = "normalized"
    """Which Laplacian of the neighbour graph."""
    steps: Auto | Annotated[int, Field(ge=2, le=1000)] = 10
    """Lanczos steps of a probe; `auto` takes as many as the quadrature needs."""
    probes: Auto | Annotated[int, Field(ge=2, le=100_000)] = "auto"
    """Random probes; `auto` takes as many as the tolerance needs."""
    tolerance: Tolerance = 1.0e-3
    """Relative standard error of the heat trace at which `probes: auto` stops."""
    distribution: Literal["rademacher", "gaussian"] = "rademacher"
    """Entries of a probe: random signs, or normal numbers."""
    variance_reduction: Literal["moments", "linear", "none"] = "moments"
    """Control variate: `moments` is a polynomial of degree 4 with exact traces, `linear` the one of
    the paper.
    """
    normalization: Literal["none", "empty", "complete", "er"] = "empty"
    """What the heat trace is divided by: `empty` is the number of vertices; `complete` and `er` are
    the traces of a complete and of a random graph. `er` needs the normalised Laplacian.
    """

    @model_validator(mode="after")
    def _has_null_model(self) -> Heat:
        if self.normalization == "er" and self.laplacian == "unnormalized":
            raise ValueError("normalization er needs laplacian: normalized")
        return self
