"""The section ``measures.heat`` of the configuration."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

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
    """Number of times, evenly spaced in their logarithm."""

    @model_validator(mode="after")
    def _ordered(self) -> HeatTimes:
        if self.start >= self.stop:
            raise ValueError("start must be below stop")
        # Rounding of the logarithms moves a time by some 1e-13 of itself.
        if math.log(self.stop / self.start) < 1e-11 * self.count:
            raise ValueError("start and stop are too near each other for so many times")
        return self


class Heat(Section):
    """Heat trace of the neighbour graph, and IMD with a reference."""

    of_many: ClassVar[bool] = True

    k: PositiveInt = 5
    """Neighbours per row. Two rows are joined if either is among the other's k nearest."""
    metric: Metric = "euclidean"
    """Distance that defines the neighbours."""
    neighbours: Literal["auto", "exact", "cells", "nndescent"] = "auto"
    """Neighbour search: `auto` is exact up to 50 000 rows and uses cells beyond. `nndescent` uses
    cells and searches groups of them with pynndescent; not for the Manhattan metric.
    """
    recall: Fraction = 0.98
    """Share of true neighbours that a search in cells must find, checked on sampled rows."""
    overlap: Auto | PositiveInt = "auto"
    """Cells that a row joins; `auto` chooses of 2, 3, 4 and 6 the fewest expected to reach the
    recall, or more that cost little.
    """
    times: HeatTimes = HeatTimes()
    """Diffusion times at which the heat trace is given. IMD doesn't depend on them."""
    laplacian: Literal["normalized", "unnormalized"] = "normalized"
    """Laplacian of the neighbour graph."""
    steps: Auto | Annotated[int, Field(ge=2, le=1000)] = 10
    """Lanczos steps per probe; `auto` uses as many as the quadrature needs."""
    probes: Auto | Annotated[int, Field(ge=2, le=100_000)] = "auto"
    """Number of random probes; `auto` uses as many as the tolerance needs."""
    tolerance: Tolerance = 1.0e-3
    """Relative standard error of the heat trace at which `probes: auto` stops."""
    distribution: Literal["rademacher", "gaussian"] = "rademacher"
    """Distribution of a probe's entries: random signs or normal numbers."""
    variance_reduction: Literal["moments", "linear", "none"] = "moments"
    """Control variate: `moments` is a polynomial of degree 4 with exact traces, `linear` is the
    one of the paper.
    """
    normalization: Literal["none", "empty", "complete", "er"] = "empty"
    """What the heat trace is divided by: `empty` is the number of vertices; `complete` and `er` are
    the traces of a complete and of a random graph. `er` needs the normalised Laplacian.
    """

    @property
    def fewest_rows(self) -> int:
        """One more than the neighbours of a row."""
        return self.k + 1

    @model_validator(mode="after")
    def _descends(self) -> Heat:
        if self.neighbours == "nndescent" and self.metric == "manhattan":
            raise ValueError("neighbours nndescent needs metric: euclidean or cosine")
        return self

    @model_validator(mode="after")
    def _has_null_model(self) -> Heat:
        if self.normalization == "er" and self.laplacian == "unnormalized":
            raise ValueError("normalization er needs laplacian: normalized")
        return self
