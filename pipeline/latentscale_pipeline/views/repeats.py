"""Describe how many rows of a corpus duplicate an earlier row."""

from __future__ import annotations

from latentscale_pipeline.results.model import Corpus
from latentscale_pipeline.views.formatting import counted, format_share

REPEATS = "duplicates"
"""The word for such rows."""


def format_repeats(corpus: Corpus) -> tuple[str, str, str]:
    """Return the number of duplicate rows as a number, as a short text and as a note."""
    count = corpus.duplicates
    if count is None:
        return "unknown", f"{REPEATS} unknown", f"{REPEATS} unknown"
    share = format_share(count / corpus.n)
    # Of two equal rows one repeats the other, and both have a duplicate.
    repeat = counted(count, "row repeats an earlier one", "rows repeat an earlier one")
    note = f"{repeat} ({share})" if count else "no duplicate rows"
    return f"{count:,}", repeat if count else "0 exact duplicates", note
