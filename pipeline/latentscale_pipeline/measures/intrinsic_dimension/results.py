"""Results of the intrinsic dimension: its part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict, NonNegativeFloat

from latentscale_pipeline.results.model import CurveRange
from latentscale_pipeline.results.part import Absent, Count, Part, Positive, Reason


class DimensionByNeighbours(Part):
    """Intrinsic dimensions by maximum likelihood, over numbers of neighbours."""

    neighbours: list[Positive]
    """Numbers of neighbours, ascending."""
    value: list[NonNegativeFloat]
    """The dimension at each."""
    lower: list[NonNegativeFloat]
    """Lower ends of the brackets."""
    upper: list[NonNegativeFloat]
    """Upper ends of the brackets."""
    sampling_error: list[NonNegativeFloat | None]
    """Standard errors over new samples from the same source; null if unknown."""
    rows: list[Count]
    """Rows with so many neighbours at different distances."""


class DimensionOfCorpus(Part):
    """Intrinsic dimension of a corpus."""

    n: Positive
    """Rows."""
    rows: Count
    """Rows whose neighbours were looked up."""
    metric: str
    """Distance between two rows."""
    maximum_likelihood: DimensionByNeighbours
    """The dimension over numbers of neighbours; empty lists if there is none."""
    reason: Absent[Reason] = None


class IntrinsicDimensionResults(Part):
    """Intrinsic dimensions of the corpora."""

    model_config = ConfigDict(title="intrinsic_dimension")

    corpus: DimensionOfCorpus
    """Dimension of the corpus."""
    reference: Absent[DimensionOfCorpus] = None
    """Dimension of the reference; absent without one."""
    chance: Absent[CurveRange] = None
    """Where the dimension of the corpus is expected from samples of the reference."""
