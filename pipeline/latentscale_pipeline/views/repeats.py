"""How many rows of a corpus equal an earlier one, in words."""

from __future__ import annotations

from latentscale_pipeline.results.model import Corpus
from latentscale_pipeline.views.formatting import write_share

REPEATS = "duplicates"
"""What such rows are called."""


def write_repeats(corpus: Corpus) -> tuple[str, str, str]:
    """Write how many there are: as a number, in brief, and in a sentence's place."""
    count = corpus.duplicates
    if count is None:
        return "unknown", f"{REPEATS} unknown", f"{REPEATS} unknown"
    share = write_share(count / corpus.n)
    note = f"{count:,} duplicate rows ({share})" if count else "no duplicate rows"
    return f"{count:,}", f"{count:,} {REPEATS}", note
