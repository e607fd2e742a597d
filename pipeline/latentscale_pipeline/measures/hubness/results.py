"""Results of hubness: its part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict

from latentscale_pipeline.results.part import Absent, Count, Part, Positive, Reason


class HubnessOfCorpus(Part):
    """How unevenly the rows of a corpus are nearest neighbours of others."""

    n: Positive
    """Rows."""
    rows: Count
    """Rows whose neighbours among each other were looked up; 0 for too few."""
    metric: str
    """Distance between two rows."""
    k: Positive
    """Nearest neighbours of a row that count."""
    occurrences: list[Count]
    """How many rows are among the neighbours of 0, of 1, of 2 to 3, of 4 to 7 … rows."""
    most: Count
    """Rows that have the largest hub among their neighbours."""
    reason: Absent[Reason] = None


class HubnessResults(Part):
    """Hubness of the corpora."""

    model_config = ConfigDict(title="hubness")

    corpus: HubnessOfCorpus
    """Hubness of the corpus."""
    reference: Absent[HubnessOfCorpus] = None
    """Hubness of the reference; absent without one."""
