"""Results of the spectrum: its part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict, NonNegativeFloat

from latentscale_pipeline.results.model import CurveRange
from latentscale_pipeline.results.part import Absent, Count, Part, Positive, Share


class RowLengths(Part):
    """Euclidean lengths of the rows of a corpus."""

    least: NonNegativeFloat
    """The shortest."""
    largest: NonNegativeFloat
    """The longest."""
    edges: list[float]
    """Ends of the bins of the histogram, one more than bins."""
    counts: list[Count]
    """Rows in each bin; rows of length 0 are in none."""
    zero_rows: Count
    """Rows of length 0."""


class SpectrumOfCorpus(Part):
    """How the variance of a corpus is spread over its directions, and its rows' lengths."""

    n: Positive
    """Rows."""
    dimensions: Positive
    """Coordinates of a row."""
    groups: Positive
    """Random groups of rows from which sampling errors and corrections come; 1 for none."""
    components: list[Positive]
    """Numbers of principal components."""
    shares: list[Share]
    """Share of the variance that so many components hold; empty if nothing varies."""
    components_90: Absent[Positive] = None
    """Components that hold 90 % of the variance."""
    components_99: Absent[Positive] = None
    """Components that hold 99 % of the variance."""
    lengths: RowLengths
    """Lengths of the rows."""


class SpectrumResults(Part):
    """Effective dimensions of the corpora, and the lengths of their rows."""

    model_config = ConfigDict(title="spectrum")

    corpus: SpectrumOfCorpus
    """Spectrum of the corpus."""
    reference: Absent[SpectrumOfCorpus] = None
    """Spectrum of the reference; absent without one."""
    chance: Absent[CurveRange] = None
    """Where the explained share of the corpus is expected from samples of the reference."""
