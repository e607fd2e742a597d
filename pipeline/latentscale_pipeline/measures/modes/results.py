"""Results of the modes: their part of ``measures`` in the results."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, NonNegativeFloat

from latentscale_pipeline.measures.shared.representatives import NamedRow
from latentscale_pipeline.results.part import Absent, Part, Share


class ModeRow(NamedRow):
    """A row that stands for a mode."""

    cosine: Annotated[float, Field(ge=0.0, le=1.0)]
    """Absolute cosine with the mode's direction; under rbf of the row's features."""


class Mode(Part):
    """A kind of rows that is more frequent in one corpus than in the other."""

    kernel: str = "cosine"
    """Kernel."""
    value: Annotated[float, Field(ge=0.0)]
    """Difference of the two shares."""
    sampling_error: Absent[NonNegativeFloat] = None
    """Its standard error over fresh samples; absent in earlier results."""
    corpus: Share
    """Mean squared cosine of the corpus's rows, or of their features, with the direction."""
    reference: Share
    """The same of the reference's rows."""
    rows: list[ModeRow]
    """The rows nearest to the direction, of the corpus in which the mode is more frequent."""


class ModesResults(Part):
    """Modes of the corpus beside the reference."""

    model_config = ConfigDict(title="modes")

    bandwidth: Absent[NonNegativeFloat] = None
    """Bandwidth σ of the RBF kernel."""
    novel: list[Mode]
    """Modes that are more frequent in the corpus, by kernel, the largest difference first."""
    missing: list[Mode]
    """Modes that are more frequent in the reference, by kernel, the largest difference first."""
