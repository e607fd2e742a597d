"""Results of the spread: its part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict, NonNegativeFloat

from latentscale_pipeline.results.part import (
    Absent,
    Bounds,
    Part,
    Positive,
    Reason,
)


class SpreadAtScale(Part):
    """The spread at a scale."""

    scale: NonNegativeFloat
    """Scale t, in 1/bandwidth; of DCScore one over the temperature."""
    value: NonNegativeFloat
    """The spread, in effective items."""
    lower: NonNegativeFloat
    """Lower end of the bracket."""
    upper: NonNegativeFloat
    """Upper end of the bracket."""
    bounds: Bounds
    sampling_error: NonNegativeFloat | None
    """Standard error over new samples from the same source; null if unknown."""


class SpreadOfCorpus(Part):
    """The spread of a corpus."""

    explained = ("bandwidth",)

    n: Positive
    """Rows."""
    rows: Positive
    """Rows whose similarities to all rows were summed."""
    bandwidth: NonNegativeFloat | None
    """Unit of length of the scales, a distance."""
    bandwidth_reason: Absent[Reason] = None
    euclidean: list[SpreadAtScale]
    """Spread under the Euclidean distance, by scale; empty without a bandwidth."""
    cosine: Absent[SpreadAtScale] = None
    """DCScore; absent if it wasn't asked for."""


class SpreadResults(Part):
    """Spreads of the corpora."""

    model_config = ConfigDict(title="spread")

    corpus: SpreadOfCorpus
    """Spread of the corpus."""
    reference: Absent[SpreadOfCorpus] = None
    """Spread of the reference; absent without one."""
