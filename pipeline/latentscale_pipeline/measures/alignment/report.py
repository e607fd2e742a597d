"""What the report says of the alignment."""

from __future__ import annotations

from latentscale_pipeline.measures.alignment.results import AlignmentResults
from latentscale_pipeline.measures.alignment.scores import SCORES
from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.shared.unpaired import describe_unpaired
from latentscale_pipeline.results import model
from latentscale_pipeline.views.figure import Curve, Figure, Panel
from latentscale_pipeline.views.formatting import format_share, printable


class AlignmentReport(MeasureReport):
    """Whether two models place the same items alike."""

    group = "Shape"
    sorted_by = "average_overlap"
    judged = False
    title = "Alignment of two models"
    question = (
        "Do two models see the same similarities between the same items, and does a search return "
        "the same ones with both?"
    )
    source = (
        "Kornblith et al., ICML 2019 (CKA); Song et al., JMLR 2012 (the debiased form); Huh et "
        "al., ICML 2024 (neighbour overlap)"
    )
    scores = SCORES

    def notes(self, found: AlignmentResults) -> list[str]:
        """Say which pairs the numbers are of, and what chance would give."""
        if not found.pairs:
            return []
        alone = [f"{sentence}." for sentence in describe_unpaired(found.corpus, found.reference)]
        chance = found.k / (found.pairs - 1)
        sampled = (
            f"The numbers are those of {found.pairs:,} random pairs of rows, of {found.common:,}."
        )
        return [
            *alone,
            *([sampled] if found.pairs < found.common else []),
            (
                "The overlap depends on the number of pairs and on k: compare jobs of equally "
                f"many. Of two models with nothing in common it is {format_share(chance)} here. "
                "`latentscale rows JOB --sort average_overlap` lists the items that moved most."
            ),
        ]

    def caveats(self, found: AlignmentResults, results: model.Results) -> list[str]:
        """Say which rows have no partner."""
        return list(describe_unpaired(found.corpus, found.reference))

    def figures(self, found: AlignmentResults, results: model.Results) -> list[Figure]:
        """Draw how many neighbours of an item both models agree on."""
        if not found.pairs:
            return []
        shares = [100.0 * count / found.pairs for count in found.overlaps]
        curve = Curve("items", range(len(shares)), shares, points=True, line=True)
        panel = Panel("", "neighbours in common", "items (%)", [curve], from_zero=True)
        caption = (
            f"Of the {found.k} nearest neighbours of an item, how many both models agree on. Items "
            "on the left have other neighbours by one model than by the other."
        )
        return [Figure("alignment", "Common neighbours", caption, [panel])]

    def methods(self, found: AlignmentResults) -> list[tuple[str, str]]:
        """Return which pairs were compared."""
        if not found.pairs:
            return []
        what = "ids" if found.by == "ids" else "row numbers"
        return [
            (
                "alignment",
                (
                    f"{found.pairs:,} pairs of rows by {what}; {found.k} nearest of them, "
                    f"{printable(found.metric)} distance"
                ),
            )
        ]
