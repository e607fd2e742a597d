"""What the report says of abundance."""

from __future__ import annotations

from collections.abc import Sequence

from latentscale_pipeline.measures.abundance.results import AbundanceResults, UnusualKind
from latentscale_pipeline.measures.abundance.scores import SCORES
from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.shared.representatives import table_cells
from latentscale_pipeline.views.content import Table, table_of
from latentscale_pipeline.views.formatting import format_share

SHOWN_ROWS = 5
"""Rows that stand for a kind in a table."""


class AbundanceReport(MeasureReport):
    """Kinds of rows that are rarer or more frequent than in the reference."""

    group = "Coverage"
    title = "Abundance: kinds of rows that are rarer or more frequent"
    question = "Which kinds of rows the corpus has less of than the reference, and which more."
    source = (
        "Dann et al., Differential abundance testing on single-cell data using k-nearest neighbor "
        "graphs, Nature Biotechnology 2022"
    )
    scores = SCORES

    def are_exceptions(self, found: AbundanceResults, score: str) -> bool:
        """Return that they aren't: a kind that is more frequent isn't to be left out as a whole."""
        return False

    def tables(self, found: AbundanceResults) -> list[Table]:
        """Return the kinds of both sorts, with rows that stand for them."""
        sorts = (
            ("Rarer in the corpus: kinds of reference rows", found.depleted),
            ("More frequent in the corpus: kinds of its rows", found.enriched),
        )
        return [
            table_of(title, _table_rows(kinds), numeric=("rows", "corpus nearby"))
            for title, kinds in sorts
            if kinds
        ]

    def methods(self, found: AbundanceResults) -> list[tuple[str, str]]:
        """Return what a neighbourhood is."""
        ours, theirs = found.rows
        return [
            (
                "abundance",
                f"{found.k} nearest rows ({found.metric}) among {ours:,} and {theirs:,} rows",
            )
        ]

    def notes(self, found: AbundanceResults) -> list[str]:
        """Say how to read the kinds."""
        return [
            (
                f"A neighbourhood has {format_share(found.share)} rows of the corpus on average. "
                "Chance makes some unusual ones, too: their share counts if it is outside of its "
                "expected range, and then the largest kinds say what is rarer or more frequent."
            )
        ]


def _table_rows(kinds: Sequence[UnusualKind]) -> list[dict[str, str]]:
    return [
        {
            "kind": str(place),
            "rows": f"{kind.rows:,}",
            "corpus nearby": format_share(kind.share),
            **table_cells(kind.examples, "rows like", SHOWN_ROWS),
        }
        for place, kind in enumerate(kinds, 1)
    ]
