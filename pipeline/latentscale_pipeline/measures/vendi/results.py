"""Results of Vendi scores: their part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict, NonNegativeFloat

from latentscale_pipeline.results.part import (
    Absent,
    AbsentOrNull,
    Bounds,
    BoundsOrNull,
    Part,
    Positive,
    Reason,
    Role,
)


class Rarefaction(Part):
    """Mean score of random subsets of increasing size, where rows were sampled."""

    sizes: list[Positive]
    """Sizes of the subsets."""
    values: list[float]
    """Mean score at each size."""


class TruncatedScore(Part):
    """The score of the largest eigenvalues."""

    kept: Positive
    """Number t of eigenvalues."""
    value: float
    """Score, at most t."""
    lower: float
    """Lower end of the bracket."""
    upper: float
    """Upper end of the bracket."""
    bounds: Bounds


class VendiScore(Part):
    """One score, by kernel and order."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"value": {"type": "number"}}, "required": ["value"]},
            "then": {
                "properties": {
                    "lower": {"type": "number"},
                    "upper": {"type": "number"},
                    "bounds": {"$ref": "#/$defs/bounds"},
                    "method": {"type": "string"},
                }
            },
        }
    )
    explained = ("value",)

    kernel: str
    """Kernel."""
    bandwidth: float | None
    """Bandwidth; null for kernels without one."""
    order: str
    """Order; `inf` for infinity."""
    n: Positive
    """Rows."""
    value: float | None
    """Score; null where it could not be computed."""
    lower: float | None
    """Lower end of the bracket."""
    upper: float | None
    """Upper end of the bracket."""
    standard_error: NonNegativeFloat | None
    """Standard error over the random probes, where there are any."""
    bounds: BoundsOrNull
    """What the bracket guarantees."""
    method: str | None
    """Method."""
    value_reason: Absent[Reason] = None
    truncated: AbsentOrNull[TruncatedScore] = None
    """The truncated score; null where the eigenvalues aren't known."""
    rarefaction: Absent[Rarefaction] = None
    """Scores of the subsets from which the score is extrapolated."""


class VendiResults(Part):
    """Vendi scores."""

    model_config = ConfigDict(title="vendi")

    corpus: list[VendiScore]
    """Scores of the corpus, one entry for each kernel and order."""
    reference: AbsentOrNull[list[VendiScore]] = None
    """Scores of the reference; null without one."""
    weighted: Absent[list[Role]] = None
    """The corpora whose rows count by their weights; absent if none does."""
