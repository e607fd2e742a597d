"""What the report says of Vendi scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from latentscale_pipeline.measures.base import MeasureReport, Topic
from latentscale_pipeline.measures.vendi.figures import (
    draw_orders,
    kernels_of,
    of_kernel,
    vendi_figures,
)
from latentscale_pipeline.views.content import Fact, Figure
from latentscale_pipeline.views.drawing import ROLES, Style
from latentscale_pipeline.views.formatting import listed, printable, write_number
from latentscale_pipeline.views.glossary import Definition
from latentscale_pipeline.views.scores import fact_beside_reference, find_score

Json = dict[str, Any]


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

    def figures(self, found: Json, corpora: Json) -> list[Figure]:
        """Draw the scores by order, and how they grow with the rows."""
        return vendi_figures(found, corpora)

    def overlays(self, found: Sequence[tuple[Style, Json]]) -> list[Figure]:
        """Draw the scores of the jobs' corpora by order, a plot for each kernel."""
        entries = [(style, part["corpus"]) for style, part in found if part.get("corpus")]
        return [
            draw_orders(
                f"vendi-{place}",
                kernel,
                bandwidth,
                [
                    (style, chosen)
                    for style, own in entries
                    if (chosen := of_kernel(own, kernel, bandwidth))
                ],
            )
            for place, (kernel, bandwidth) in enumerate(kernels_of(entries))
        ]

    def notes(self, found: Json) -> list[str]:
        """Say when scores of two corpora are comparable."""
        if not found.get("reference"):
            return []
        return [
            (
                "Scores of two corpora are comparable only under the same kernel and bandwidth, "
                "and can grow with the number of rows: compare corpora of like size."
            )
        ]

    def methods(self, found: Json) -> list[tuple[str, str]]:
        """Say by which methods a kernel was scored."""
        return [
            (f"Vendi, {role}", _kernel_method(found[role], kernel, bandwidth))
            for role in ROLES
            if found.get(role)
            for kernel, bandwidth in dict.fromkeys(
                (entry["kernel"], entry["bandwidth"]) for entry in found[role]
            )
        ]

    def conclusions(self, scores: list[Json]) -> Mapping[Topic, str]:
        """Say how many completely different items would be as diverse."""
        row = find_score(scores, "corpus", measure="vendi", order="1")
        if row is None:
            return {}
        kernel = row.get("kernel")
        other = find_score(scores, "reference", measure="vendi", order="1", kernel=kernel)
        more = ""
        if other is not None:
            apart = row["lower"] > other["upper"] or row["upper"] < other["lower"]
            which = "more diverse than" if row["value"] > other["value"] else "less diverse than"
            more = f", {which if apart else 'as far as can be told as diverse as'} the reference"
            more += f" ({_plainly(other)})"
        said = (
            f"It is as diverse as {_plainly(row)} completely different items would be "
            f"(Vendi score, {printable(kernel)} kernel){more}."
        )
        return {"diversity": said}

    def diversity(self, results: Json) -> list[Fact]:
        """Answer by one order of every kernel, order 1 where it was asked for."""
        scores = [
            row
            for row in results["scores"]
            if row["measure"] == "vendi" and row.get("label") is None
        ]
        facts = []
        for kernel in dict.fromkeys(row.get("kernel") for row in scores):
            rows = [row for row in scores if row.get("kernel") == kernel]
            order = "1" if any(row.get("order") == "1" for row in rows) else rows[0].get("order")
            facts += fact_beside_reference(
                f"Vendi score, {printable(kernel)} kernel, order {printable(order)}",
                [row for row in rows if row.get("order") == order],
                f"out of {results['corpora']['corpus']['n']:,}",
            )
        return facts


def _plainly(row: Json) -> str:
    return write_number(row["value"], 3, typeset=True)


def _kernel_method(entries: list[Json], kernel: str, bandwidth: float | None) -> str:
    methods = listed(
        entry["method"]
        for entry in entries
        if (entry["kernel"], entry["bandwidth"]) == (kernel, bandwidth)
    )
    width = "" if bandwidth is None else f", σ = {write_number(bandwidth)}"
    return f"{printable(kernel)} kernel{width}: {methods}"
