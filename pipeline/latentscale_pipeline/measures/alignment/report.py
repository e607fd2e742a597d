"""What the report says of the alignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from latentscale_pipeline.measures.alignment.results import AlignmentResults
from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.shared.unpaired import describe_unpaired
from latentscale_pipeline.results import model
from latentscale_pipeline.views.figure import Curve, Figure, Panel
from latentscale_pipeline.views.formatting import printable, write_share
from latentscale_pipeline.views.glossary import Definition


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
    scores: ClassVar[Mapping[str, Definition]] = {
        "CKA, debiased": Definition(
            "CKA, debiased",
            "Correlation of the similarities between items by both models: 1 if one is a rotation "
            "of the other, near 0 if they have nothing in common. The number of items and of "
            "dimensions doesn't matter.",
            headline=True,
            relation="similarity",
            most=1.0,
        ),
        "CKA": Definition(
            "CKA",
            "The same as most papers print it. For few items in many dimensions it is large for "
            "any two models.",
            least=0.0,
            most=1.0,
        ),
        "neighbour overlap": Definition(
            "Neighbour overlap",
            "Share of the nearest neighbours of an item that both models agree on, on average.",
            headline=True,
            relation="similarity",
            least=0.0,
            most=1.0,
        ),
        "no common neighbour": Definition(
            "No common neighbour",
            "Share of the items whose nearest neighbours by one model are all others than by the "
            "other.",
            least=0.0,
            most=1.0,
        ),
    }

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
                f"many. Of two models with nothing in common it is {write_share(chance)} here. "
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
