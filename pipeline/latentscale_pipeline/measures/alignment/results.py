"""Results of the alignment: its part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict

from latentscale_pipeline.measures.shared.unpaired import UnpairedRows
from latentscale_pipeline.results.part import Absent, Count, Part, Positive, Reason


class AlignmentResults(Part):
    """How alike two models represent the same items."""

    model_config = ConfigDict(title="alignment")

    by: str
    """What pairs rows: `rows` or `ids`."""
    common: Count
    """Pairs of rows there are; estimated for corpora of more than 200 000 rows with ids."""
    pairs: Count
    """Pairs that were compared; 0 for too few."""
    metric: str
    """Distance by which neighbours were found."""
    k: Positive
    """Nearest neighbours of an item that count."""
    overlaps: list[Count]
    """How many items have 0, 1 … k neighbours in common."""
    corpus: UnpairedRows
    """Rows of the corpus without a partner."""
    reference: UnpairedRows
    """Rows of the reference without a partner."""
    reason: Absent[Reason] = None
