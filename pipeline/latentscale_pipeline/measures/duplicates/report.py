"""What the report says of duplicate rows."""

from __future__ import annotations

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.results.model import Corpus
from latentscale_pipeline.views.content import CorpusProperty
from latentscale_pipeline.views.formatting import write_share


class DuplicatesReport(MeasureReport):
    """How many rows of a corpus equal an earlier one."""

    def corpus_property(self, corpus: Corpus) -> CorpusProperty:
        """Return the number of duplicate rows."""
        count = corpus.duplicates
        if count is None:
            unknown = "duplicates unknown"
            return CorpusProperty("duplicates", "unknown", unknown, unknown)
        if count == 0:
            note = "no duplicate rows"
        else:
            note = f"{count:,} duplicate rows ({write_share(count / corpus.n)})"
        return CorpusProperty("duplicates", f"{count:,}", f"{count:,} duplicates", note)
