"""Describe how many rows of a corpus repeat an earlier one."""

from __future__ import annotations

from latentscale_pipeline.results.model import Corpus
from latentscale_pipeline.views.formatting import counted

REPEATS = "duplicates"
"""The word for such rows."""


def format_repeats(corpus: Corpus) -> tuple[str, str]:
    """Return the number of rows that repeat an earlier one as a number and as a short text."""
    count = corpus.duplicates
    if count is None:
        return "unknown", f"{REPEATS} unknown"
    # Of two equal rows one repeats the other, and both have a duplicate.
    repeat = counted(count, "row repeats an earlier one", "rows repeat an earlier one")
    return f"{count:,}", repeat if count else "no row repeats an earlier one"
