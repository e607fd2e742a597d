"""The section ``measures.geomca`` of the configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import (
    Field,
    PositiveInt,
    model_validator,
)

from latentscale_pipeline.config.section import Fraction, Length, Section


class GeomcaSweep(Section):
    """Further values of the settings; distances are in units of the job's epsilon."""

    epsilon: list[Annotated[float, Field(ge=1e-6, le=1e6)]] = Field(default=[])
    """Joining distances, in units of the job's epsilon."""
    delta: list[Annotated[float, Field(ge=0.0)]] = Field(default=[])
    """Thinning distances, in units of the job's epsilon."""
    eta_c: list[Fraction] = Field(default=[])
    """Thresholds of consistency."""
    eta_q: list[Fraction] = Field(default=[])
    """Thresholds of quality."""

    @model_validator(mode="after")
    def _distinct(self) -> GeomcaSweep:
        for name, values in self:
            if len(set(values)) < len(values):
                raise ValueError(f"{name} lists a value twice")
        return self


class Geomca(Section):
    """Geometric component analysis of a corpus against a reference."""

    compares: ClassVar[bool] = True
    equal_dimensions: ClassVar[bool] = True

    percentile: Annotated[float, Field(gt=0.0, le=100.0)] = 10.0
    """Epsilon, as a percentile of the distances between two random samples of the reference."""
    epsilon: Length | None = None
    """Distance below which two rows are joined, in units of the vectors; null: the percentile.
    """
    delta: Annotated[float, Field(ge=0.0)] = 1.0
    """Distance to which rows are thinned, in units of epsilon; 0 only merges equal rows."""
    eta_c: Fraction = 0.0
    """Components count for precision and recall if their consistency exceeds this."""
    eta_q: Fraction = 0.0
    """Components count for precision and recall if their quality exceeds this."""
    rows: PositiveInt | None = None
    """Random rows of each corpus to take; null takes all, or as many as ``budget.pairs`` allows."""
    sweep: GeomcaSweep | None = None
    """Other distances and thresholds at which scores are reported as well."""
