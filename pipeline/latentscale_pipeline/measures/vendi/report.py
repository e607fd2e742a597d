"""What the report says of Vendi scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from latentscale_pipeline.measures.base import MeasureReport, Role, Score, Topic
from latentscale_pipeline.measures.vendi.figures import (
    Drawn,
    draw_orders,
    kernels_of,
    of_kernel,
    vendi_figures,
)
from latentscale_pipeline.measures.vendi.results import VendiResults, VendiScore
from latentscale_pipeline.results.model import Corpus, Results
from latentscale_pipeline.views.content import Fact, Figure
from latentscale_pipeline.views.drawing import present
from latentscale_pipeline.views.formatting import listed, printable, write_number
from latentscale_pipeline.views.glossary import Definition
from latentscale_pipeline.views.scores import fact_beside_reference, find_known, whole_scores

Numbers = tuple[float, float, float]


class VendiReport(MeasureReport):
    """The effective number of items of a corpus."""

    title = "Effective number of items: Vendi scores"
    question = (
        "The number of completely dissimilar items that would be as diverse as the corpus, under "
        "a kernel that says what similar means."
    )
    source = (
        "Friedman and Dieng, The Vendi Score, TMLR 2023, definition 3.1; order q from Pasarkar "
        "and Dieng, Cousins of the Vendi Score, AISTATS 2024, equation 8"
    )
    scores: ClassVar[Mapping[str, Definition]] = {
        "vendi": Definition(
            "Vendi score",
            "Between 1, when all items are alike, and n, when all are completely dissimilar; "
            "low orders listen to rare kinds of items, high orders to the common ones.",
        ),
    }
    precedence = 1

    def figures(self, found: VendiResults, corpora: Mapping[Role, Corpus]) -> list[Figure]:
        """Draw the scores by order, and how they grow with the rows."""
        return vendi_figures(found)

    def overlays(self, found: Sequence[Drawn]) -> list[Figure]:
        """Draw the scores of the jobs' corpora by order, a plot for each kernel."""
        return [
            draw_orders(
                f"vendi-{place}",
                kernel,
                bandwidth,
                [
                    (style, chosen)
                    for style, own in found
                    if (chosen := of_kernel(own, kernel, bandwidth))
                ],
            )
            for place, (kernel, bandwidth) in enumerate(kernels_of(found))
        ]

    def notes(self, found: VendiResults) -> list[str]:
        """Say when scores of two corpora are comparable."""
        if not found.reference:
            return []
        return [
            (
                "Scores of two corpora are comparable only under the same kernel and bandwidth, "
                "and can grow with the number of rows: compare corpora of like size."
            )
        ]

    def methods(self, found: VendiResults) -> list[tuple[str, str]]:
        """Say by which methods a kernel was scored."""
        return [
            (f"Vendi, {style.name}", _kernel_method(entries, kernel, bandwidth))
            for style, entries in present(found)
            for kernel, bandwidth in kernels_of([(style, entries)])
        ]

    def conclusions(self, scores: Sequence[Score]) -> Mapping[Topic, str]:
        """Say how many completely different items would be as diverse."""
        first_orders = whole_scores(scores, "vendi", of="corpus", order="1")
        for kernel in dict.fromkeys(score.kernel for score in first_orders):
            wanted = {"order": "1", "kernel": kernel}
            ours = find_known(scores, "vendi", of="corpus", **wanted)
            theirs = find_known(scores, "vendi", of="reference", **wanted)
            if ours is not None:
                said = (
                    f"It is as diverse as {_plainly(ours[0])} completely different items would be "
                    f"(Vendi score, {printable(kernel)} kernel){_beside(ours, theirs)}."
                )
                return {"diversity": said}
        return {}

    def diversity(self, results: Results) -> list[Fact]:
        """Answer by one order of every kernel, order 1 where it was asked for."""
        scores = whole_scores(results.scores, "vendi")
        corpus = results.corpora.by_role()["corpus"]
        facts = []
        for kernel in dict.fromkeys(score.kernel for score in scores):
            own = [score for score in scores if score.kernel == kernel]
            order = "1" if any(score.order == "1" for score in own) else own[0].order
            facts += fact_beside_reference(
                f"Vendi score, {printable(kernel)} kernel, order {printable(order)}",
                [score for score in own if score.order == order],
                f"out of {corpus.n:,}",
            )
        return facts


def _beside(ours: Numbers, theirs: Numbers | None) -> str:
    """Compare a corpus with the reference, where there is one."""
    if theirs is None:
        return ""
    apart = ours[1] > theirs[2] or ours[2] < theirs[1]
    which = "more diverse than" if ours[0] > theirs[0] else "less diverse than"
    which = which if apart else "as far as can be told as diverse as"
    return f", {which} the reference ({_plainly(theirs[0])})"


def _plainly(value: float) -> str:
    return write_number(value, 3, typeset=True)


def _kernel_method(entries: Sequence[VendiScore], kernel: str, bandwidth: float | None) -> str:
    methods = listed(
        entry.method for entry in entries if (entry.kernel, entry.bandwidth) == (kernel, bandwidth)
    )
    width = "" if bandwidth is None else f", σ = {write_number(bandwidth)}"
    return f"{printable(kernel)} kernel{width}: {methods}"
