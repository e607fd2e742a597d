"""Results of abundance: their part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict

from latentscale_pipeline.measures.shared.representatives import NamedRow
from latentscale_pipeline.results.part import Count, Part, Positive, Share


class UnusualKind(Part):
    """Rows in depleted, or in enriched, neighbourhoods that are near each other."""

    rows: Positive
    """How many there are."""
    share: Share
    """Share of the corpus's rows in their neighbourhoods, on average."""
    examples: list[NamedRow]
    """Those with the least usual neighbourhoods."""


class AbundanceResults(Part):
    """Kinds of rows that are rarer or more frequent than in the reference."""

    model_config = ConfigDict(title="abundance")

    metric: str
    """Distance between two rows."""
    k: Positive
    """Rows of a neighbourhood."""
    rows: list[Positive]
    """Rows of the corpus and of the reference that took part."""
    share: Share
    """Share of the corpus among these: what a neighbourhood has on average."""
    low: float
    """Share of the corpus up to which a neighbourhood is depleted; below 0 if none can be."""
    high: float
    """Share of the corpus from which on a neighbourhood is enriched; above 1 if none can be."""
    depleted: list[UnusualKind]
    """Kinds of reference rows that are rarer in the corpus, the largest first."""
    enriched: list[UnusualKind]
    """Kinds of rows of the corpus that are more frequent in it, the largest first."""
    kinds: dict[str, Count]
    """How many kinds there are of each."""
