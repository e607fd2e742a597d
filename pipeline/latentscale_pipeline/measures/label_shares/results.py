"""The part of the shares of labels in the results."""

from __future__ import annotations

from pydantic import ConfigDict

from latentscale_pipeline.results.part import Absent, Count, Part, Share


class LabelShare(Part):
    """How many rows have a label."""

    label: str
    """The label."""
    rows: Count
    """Rows of the corpus that have it."""
    reference_rows: Absent[Count] = None
    """Rows of the reference that have it; absent without a reference."""
    z: Absent[float] = None
    """The deviate of a standard normal distribution with this p-value; positive if more frequent
    than in the reference.
    """
    p: Absent[Share] = None
    """Probability of a difference at least as large by chance, for this label alone."""


class LabelSharesResults(Part):
    """How frequent every label is, beside the reference."""

    model_config = ConfigDict(title="label_shares")

    labels: list[LabelShare]
    """Every label that was compared, the least usual first; without a reference, the most frequent
    first.
    """
    few: Count
    """Number of labels with too few rows in all corpora together to be compared."""
    few_labels: Absent[dict[str, Count]] = None
    """Rows of the corpus with each of these labels, if it has any."""
