"""Results of magnitude: its part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict, NonNegativeFloat

from latentscale_pipeline.results.model import CurveRange
from latentscale_pipeline.results.part import (
    Absent,
    AbsentOrNull,
    Bounds,
    BoundsOrNull,
    Bracket,
    Part,
    Positive,
    Reason,
)


class Bracketed(Part):
    """A number with its bracket."""

    value: float
    """The number."""
    lower: float
    """Lower end of the bracket."""
    upper: float
    """Upper end of the bracket."""
    bounds: Bounds
    remark: Absent[str] = None
    """Remark on how to read the number."""


class RarefactionByScale(Part):
    """Mean magnitude of random subsets of increasing size, where rows were sampled."""

    sizes: list[Positive]
    """Sizes of the subsets."""
    values: list[list[float]]
    """Mean magnitude of random subsets, by size and scale."""


class DimensionProfile(Part):
    """The magnitude dimension: the slope of the log magnitude over the log scale."""

    scales: list[float]
    """Scales t above 0, in 1/distance."""
    value: list[float]
    """The slope at each scale."""
    lower: list[float]
    """Lower end of the bracket at each scale."""
    upper: list[float]
    """Upper end of the bracket at each scale."""


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
    """What the bracket guarantees at each scale."""
    method: list[str]
    """Method at each scale."""
    n: Positive
    """Rows."""
    points: AbsentOrNull[Positive] = None
    """Distinct rows: the limit of the function."""
    points_reason: Absent[Reason] = None
    metric: str
    """Distance between two rows."""
    certified_lower: Absent[list[float]] = None
    """Proven lower bound of the magnitude at each scale, where rows were sampled."""
    lower_by: Absent[list[str]] = None
    """Method of the lower end at each scale, where rows were sampled."""
    upper_by: Absent[list[str]] = None
    """Method of the upper end at each scale, where rows were sampled."""
    nystrom: Absent[list[float]] = None
    """Nyström approximation at each scale, where it was computed."""
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
    area_trapezium_error: Absent[NonNegativeFloat] = None
    """How far the trapezium rule on every second scale is from the area."""
    dimension: Absent[DimensionProfile] = None
    """Dimension in which the rows appear at each scale."""
    rarefaction: Absent[RarefactionByScale] = None
    """Magnitudes of the subsets from which the function is extrapolated."""


class DistanceOfMagnitudes(Part):
    """The magnitude distance of corpus and reference."""

    explained = ("value",)

    scale: float | None
    """Scale t, in 1/distance; null where there is no median distance."""
    rows: list[Positive]
    """Rows of the corpus and of the reference from which it was computed."""
    value: float | None
    """The distance, in effective points."""
    lower: float | None
    """Lower end of the bracket."""
    upper: float | None
    """Upper end of the bracket."""
    bounds: BoundsOrNull
    """What the bracket guarantees."""
    value_reason: Absent[Reason] = None


class MagnitudeResults(Part):
    """Magnitude functions."""

    model_config = ConfigDict(title="magnitude")

    corpus: MagnitudeFunction
    """Magnitude function of the corpus."""
    reference: AbsentOrNull[MagnitudeFunction] = None
    """Magnitude function of the reference; null without one."""
    chance: Absent[CurveRange] = None
    """Where the function of the corpus is expected from samples of the reference. The scales of a
    sample are evenly spaced up to its own cut-off scale; here they stand for those of the job.
    """
    distance: Absent[DistanceOfMagnitudes] = None
    """Magnitude distance to the reference, if it was asked for."""
    difference: float | None
    """MagDiff: area of the corpus minus that of the reference."""
    difference_reason: Absent[Reason] = None
    difference_trapezium_error: Absent[NonNegativeFloat] = None
    """How far the trapezium rule on every second scale is from the difference."""
