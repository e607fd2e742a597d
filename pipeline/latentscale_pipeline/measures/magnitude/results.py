"""What the magnitude function finds: its part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict

from latentscale_pipeline.results.part import (
    Absent,
    AbsentOrNull,
    Bounds,
    Bracket,
    Part,
    Positive,
    Reason,
    Spread,
)


class Bracketed(Part):
    """A number with its bracket."""

    value: float
    """The number; null where it could not be computed."""
    lower: float
    """Lower end of the bracket."""
    upper: float
    """Upper end of the bracket."""
    bounds: Bounds
    remark: Absent[str] = None
    """What a reader should know of it."""


class RarefactionByScale(Part):
    """How the function grew with the rows, where rows were sampled."""

    sizes: list[Positive]
    """Sizes of the subsets."""
    values: list[list[float]]
    """Mean magnitude of random subsets, by size and scale."""


class MagnitudeFunction(Part):
    """Magnitude of a corpus at every scale."""

    explained = ("convergence_scale", "area")

    scales: list[float]
    """Scales t, in 1/distance."""
    value: list[float]
    """Magnitude at each scale."""
    lower: list[float]
    """Lower end of the bracket at each scale."""
    upper: list[float]
    """Upper end of the bracket at each scale."""
    bounds: list[Bounds]
    """What the bracket promises at each scale."""
    method: list[str]
    """How it was computed at each scale."""
    n: Positive
    """Rows."""
    points: AbsentOrNull[Positive] = None
    """Distinct rows: the limit of the function."""
    points_reason: Absent[Reason] = None
    metric: str
    """Distance between two rows."""
    certified_lower: Absent[list[float]] = None
    """At each scale, what the magnitude is at least by an inequality, where rows were sampled."""
    lower_by: Absent[list[str]] = None
    """How the lower end was found at each scale, where rows were sampled."""
    upper_by: Absent[list[str]] = None
    """How the upper end was found at each scale, where rows were sampled."""
    nystrom: Absent[list[float]] = None
    """Nyström's approximation at each scale, where it was made."""
    convergence_scale: float | None
    """Scale at which the magnitude reaches the target share of the distinct rows."""
    convergence_scale_reason: Absent[Reason] = None
    convergence: AbsentOrNull[Bracketed] = None
    """The convergence scale with its bracket."""
    area: float | None
    """MagArea: area under the function over the scales, by the trapezium rule."""
    area_reason: Absent[Reason] = None
    area_bracket: AbsentOrNull[Bracket] = None
    """Bracket of the area, with that of the scale up to which it is taken."""
    area_trapezium_error: Absent[Spread] = None
    """How far the trapezium rule on every second scale is from the area."""
    rarefaction: Absent[RarefactionByScale] = None
    """Magnitudes of the subsets that an extrapolation is made from."""


class MagnitudeResults(Part):
    """Magnitude functions."""

    model_config = ConfigDict(title="magnitude")

    corpus: MagnitudeFunction
    """Magnitude function of the corpus."""
    reference: AbsentOrNull[MagnitudeFunction] = None
    """Magnitude function of the reference; null without one."""
    difference: float | None
    """MagDiff: area of the corpus less that of the reference."""
    difference_reason: Absent[Reason] = None
    difference_trapezium_error: Absent[Spread] = None
    """How far the trapezium rule on every second scale is from the difference."""
