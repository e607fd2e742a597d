"""What the Vendi scores find: their part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict

from latentscale_pipeline.results.part import (
    Absent,
    AbsentOrNull,
    BoundsOrNull,
    Part,
    Positive,
    Reason,
    Spread,
)


class Rarefaction(Part):
    """Mean score of random subsets by their size, where rows were sampled."""

    sizes: list[Positive]
    """Sizes of the subsets."""
    values: list[float]
    """Score at each size."""


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
    """Which kernel."""
    bandwidth: float | None
    """Null for kernels without one."""
    order: str
    """Order; `inf` for infinity."""
    n: Positive
    """Rows."""
    value: float | None
    """The number; null where it could not be computed."""
    lower: float | None
    """Lower end of the bracket."""
    upper: float | None
    """Upper end of the bracket."""
    standard_error: Spread | None
    """Of random probes, where there are any."""
    bounds: BoundsOrNull
    """What the bracket promises."""
    method: str | None
    """How it was computed."""
    value_reason: Absent[Reason] = None
    rarefaction: Absent[Rarefaction] = None
    """Scores of the subsets that an extrapolation is made from."""


class VendiResults(Part):
    """Vendi scores."""

    model_config = ConfigDict(title="vendi")

    corpus: list[VendiScore]
    """Scores of the corpus, one entry for each kernel and order."""
    reference: AbsentOrNull[list[VendiScore]] = None
    """Scores of the reference; null without one."""
