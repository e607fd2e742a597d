"""The part of duplicates, leaks and outliers in the results."""

from __future__ import annotations

from pydantic import ConfigDict

from latentscale_pipeline.results.part import Absent, Count, Part, Positive, Spread


class RowsOfCorpus(Part):
    """Rows of one corpus that have others near them."""

    rows: Positive
    """Rows whose nearest rows were found: all, or random ones."""
    exact_duplicates: Count
    """Of these, rows that equal another row of the corpus."""
    near_duplicates: Count
    """Of these, rows within the distance of another row of the corpus, equal ones included."""
    repeated: Absent[Count] = None
    """Rows that equal an earlier row; absent unless the nearest rows of all were found."""
    covered: Absent[Count] = None
    """Rows that may go because one that stays lies within the distance; absent likewise."""


class RowsOfPair(Part):
    """Rows of each corpus by their distance to the other one."""

    leaks: Count
    """Rows of the corpus within the distance of a row of the reference."""
    outliers: Count
    """Rows of the corpus farther than `outlier_distance` from every row of the reference."""
    outlier_distance: Spread
    """Distance within which all but 1 in 5000 rows of the reference have another row of it."""
    not_covered: Count
    """Rows of the reference farther than `outlier_distance` from every row of the corpus."""


class DuplicatesResults(Part):
    """Rows that repeat, lie in both corpora, or lie apart."""

    model_config = ConfigDict(title="duplicates")

    metric: str
    """How rows are compared."""
    within: float
    """Distance up to which two rows are nearly the same."""
    corpus: RowsOfCorpus
    """Rows of the corpus."""
    reference: Absent[RowsOfCorpus] = None
    """Rows of the reference; absent without one."""
    pair: Absent[RowsOfPair] = None
    """Rows of both; absent without a reference of the same dimension."""
