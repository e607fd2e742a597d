"""The part of duplicates, leaks and outliers in the results."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ConfigDict, NonNegativeFloat

from latentscale_pipeline.measures.base import Role
from latentscale_pipeline.results.part import Absent, Count, Part, Positive

OTHER: Mapping[Role, Role] = {"corpus": "reference", "reference": "corpus"}


class SearchCheck(Part):
    """What a search in cells finds, by random rows that were compared with all others."""

    rows: Positive
    """Rows that were compared with all others."""
    nearest: Count
    """Of these, rows whose nearest row the search found."""
    near: Count
    """Of these, rows with one within the distance."""
    near_found: Count
    """Of these, rows for which the search found one."""


class RowsOfCorpus(Part):
    """Rows of one corpus that have others near them."""

    rows: Positive
    """Rows whose nearest rows were looked for: all, or random ones."""
    checked: Absent[SearchCheck] = None
    """What cells find of rows of its own; absent where all rows were compared."""
    checked_across: Absent[SearchCheck] = None
    """What cells find of rows of the other corpus; absent likewise."""
    exact_duplicates: Count
    """Of these, rows that equal another row of the corpus."""
    near_duplicates: Count
    """Of these, rows within the distance of another row of the corpus, equal ones included."""
    left_out: Absent[list[str]] = None
    """Why rows of a larger corpus were left out of this one; absent if none were."""
    repeated: Absent[Count] = None
    """Rows that equal an earlier row; absent unless the nearest rows of all were looked for, or if
    so many are near that they have too many pairs.
    """
    covered: Absent[Count] = None
    """Rows that may go because one that stays lies within the distance; absent likewise."""


class NearestDistances(Part):
    """How many rows have their nearest row at which distance."""

    edges: list[float]
    """Edges of the bins."""
    corpus: list[Count]
    """Rows of the corpus in each bin."""
    reference: Absent[list[Count]] = None
    """Rows of the reference in each bin; absent without one."""


class FarRows(Part):
    """Rows that cells call far, which have been compared with all others."""

    beyond: Count
    """Rows that cells called far."""
    checked: Count
    """Of these, rows that were compared with all others."""
    confirmed: Count
    """Of these, rows that are far."""


class RowsOfPair(Part):
    """Rows of each corpus by their distance to the other one.

    Rows that cells call far are compared with all others, or a random part of them.
    """

    exact_leaks: Absent[Count] = None
    """Rows of the corpus that equal a row of the reference; absent in results of earlier versions.
    """
    leaks: Count
    """Rows of the corpus within the distance of a row of the reference."""
    outliers: Count
    """Rows of the corpus farther than `outlier_distance` from every row of the reference."""
    outlier_distance: NonNegativeFloat
    """Distance within which all but at most 1 in 5000 rows of the reference have another row of it.
    """
    not_covered: Count
    """Rows of the reference farther than `outlier_distance` from every row of the corpus."""
    outliers_settled: Absent[FarRows] = None
    """Outliers that were compared with all rows; absent where all rows were."""
    not_covered_settled: Absent[FarRows] = None
    """Rows of the reference that were; absent likewise."""


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
    own_distances: Absent[NearestDistances] = None
    """Distances to the nearest other row of the same corpus; absent in older results."""
    reference_distances: Absent[NearestDistances] = None
    """Distances to the nearest row of the reference, other than the row itself; absent likewise,
    and without a reference of the same dimension.
    """
