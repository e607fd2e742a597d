"""What the report says of the conditional diversity."""

from __future__ import annotations

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.conditional.results import ConditionalResults
from latentscale_pipeline.measures.conditional.scores import SCORES
from latentscale_pipeline.measures.shared.unpaired import describe_unpaired
from latentscale_pipeline.results import model
from latentscale_pipeline.views.formatting import format_number


class ConditionalReport(MeasureReport):
    """How diverse outputs are beyond their prompts."""

    group = "Diversity"
    judged = False
    title = "Conditional diversity"
    question = (
        "How many kinds of outputs are there for one prompt, and how much of the diversity of the "
        "outputs comes from the prompts? The corpus has the outputs, the reference the prompts."
    )
    source = (
        "Jalali et al., Conditional Vendi score, 2024; Ospanov et al., Scendi score, 2024 (the "
        "explained share is ours)"
    )
    scores = SCORES

    def notes(self, found: ConditionalResults) -> list[str]:
        """Say which pairs the numbers are of."""
        if not found.pairs:
            return []
        alone = [f"{sentence}." for sentence in describe_unpaired(found.corpus, found.reference)]
        return [
            *alone,
            (
                f"The Vendi scores are those of {found.kernel_pairs:,} pairs of rows, and the "
                f"others those of {found.pairs:,}, of {found.common:,}. All but the explained "
                "share depend on the number of pairs: compare jobs of equally many."
            ),
            *_by_chance(found),
        ]

    def caveats(self, found: ConditionalResults, results: model.Results) -> list[str]:
        """Say which rows have no partner."""
        return list(describe_unpaired(found.corpus, found.reference))

    def methods(self, found: ConditionalResults) -> list[tuple[str, str]]:
        """Return which pairs were compared."""
        if not found.pairs:
            return []
        what = "ids" if found.by == "ids" else "row numbers"
        widths = [found.bandwidth, found.reference_bandwidth]
        named = " and ".join(format_number(width) for width in widths if width is not None)
        kernel = f"{found.kernel}, bandwidths {named}" if named else found.kernel
        return [
            ("Vendi scores", f"{found.kernel_pairs:,} pairs of rows by {what}; {kernel}"),
            ("Scendi score", f"{found.pairs:,} pairs of rows by {what}; cosine"),
        ]


def _by_chance(found: ConditionalResults) -> list[str]:
    if found.information_by_chance is None:
        return []
    chance = format_number(found.information_by_chance, 3)
    return [f"With the prompts of other rows the information Vendi score would be {chance}."]
