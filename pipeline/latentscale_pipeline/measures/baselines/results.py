"""What the baselines find: their part of ``measures`` in the results."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, NonNegativeFloat

from latentscale_pipeline.results.part import (
    Absent,
    Count,
    Part,
    Positive,
    Reason,
)


class MomentScores(Part):
    """Scores of one corpus, from its moments."""

    mean_similarity: float | None
    """Mean cosine similarity of two different rows."""
    IntDiv: float | None
    """1 minus the mean cosine similarity of all pairs, each row with itself included."""
    GMStds: float | None
    """Geometric mean of the coordinates' standard deviations."""
    reason: Absent[Reason] = None


class KernelDistance(Part):
    """KID of two corpora."""

    value: float
    """The unbiased estimate over all pairs."""
    sampling_error: NonNegativeFloat | None
    """Standard error over fresh samples; null if there are too few rows for groups."""
    block_value: float | None
    """Mean of the unbiased estimates inside the groups, as published code computes it."""
    groups: Count
    """Number of groups of each corpus."""
    rounding: Absent[NonNegativeFloat] = None
    """Bound of the error of the value; absent in results of earlier versions."""


class Overlap(Part):
    """One score of the overlap of two manifolds."""

    value: float
    """From exact neighbours."""
    from_graph: float
    """From approximate neighbours. Of a corpus that is much larger than the other, twice as many
    rows as the other has are taken, and the difference that they make is added to the value."""
    agreement: float
    """1 minus the absolute difference of the two."""


class BaselinesOfPair(Part):
    """Scores of the corpus against the reference."""

    rows: Annotated[list[Positive], Field(min_length=2, max_length=2)]
    """Rows of corpus and reference that were compared."""
    FID: float | None
    """Fréchet distance; null if it could not be computed."""
    KID: KernelDistance
    """Kernel distance."""
    precision: Overlap
    """Share of the corpus inside the reference's manifold."""
    recall: Overlap
    """Share of the reference inside the corpus's manifold."""
    density: Overlap
    """Balls of the reference around a row of the corpus, over k."""
    coverage: Overlap
    """Share of the reference's balls that hold a row of the corpus."""
    clipped_density: Absent[Overlap] = None
    """The same as density, with clipped radii and counts, as a share of good rows; absent in
    results of earlier versions.
    """
    clipped_coverage: Absent[Overlap] = None
    """How full the reference's balls are, as a share of good rows; absent as above."""


class BaselinesResults(Part):
    """Scores that other tools report."""

    model_config = ConfigDict(title="baselines")

    corpus: MomentScores
    """Scores of the corpus."""
    reference: Absent[MomentScores] = None
    """Scores of the reference; absent without one."""
    pair: Absent[BaselinesOfPair] = None
    """Scores of the corpus against the reference."""
