"""The part of the shares of labels in the results."""

from __future__ import annotations

from pydantic import ConfigDict

from latentscale_pipeline.results.part import Count, Part, Share


class LabelShare(Part):
    """How many rows have a label."""

    label: str
    """The label."""
    rows: Count
    """Rows of the corpus that have it."""
    reference_rows: Count
    """Rows of the reference that have it."""
    z: float
    """Difference of the two shares, in standard errors."""
    p: Share
    """Probability of a difference at least as large by chance, for this label alone."""


class LabelSharesResults(Part):
    """How frequent every label is, beside the reference."""

    model_config = ConfigDict(title="label_shares")

    labels: list[LabelShare]
    """Every label that was compared, the least usual first."""
    few: Count
    """Number of labels with too few rows in both corpora together to be compared."""
