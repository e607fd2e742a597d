"""What the report says of magnitude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from latentscale_pipeline.measures.base import MeasureReport, Topic
from latentscale_pipeline.measures.magnitude.figures import draw_functions, magnitude_figures
from latentscale_pipeline.views.content import Fact, Figure
from latentscale_pipeline.views.drawing import ROLES, Style
from latentscale_pipeline.views.formatting import listed, printable, write_number
from latentscale_pipeline.views.glossary import Definition
from latentscale_pipeline.views.scores import fact_beside_reference, find_score, pair_facts

Json = dict[str, Any]


class MagnitudeReport(MeasureReport):
    """The diversity of a corpus at every scale."""

    title = "Diversity at every scale: magnitude"
    question = (
        "Magnitude counts the points that are effectively distinct when distances are multiplied "
        "by t: one when everything looks alike, all of them when everything looks apart."
    )
    source = "Limbeck et al., Metric Space Magnitude, NeurIPS 2024, definitions 3.1 to 3.5"
    scores: ClassVar[Mapping[str, Definition]] = {
        "area": Definition(
            "MagArea",
            "Area under the magnitude function over the evaluated scales: diversity gathered "
            "over all of them.",
        ),
        "convergence_scale": Definition(
            "Convergence scale t_conv",
            "The scale at which magnitude has nearly reached the number of distinct points "
            "(95 % of it unless configured otherwise).",
        ),
        "difference": Definition(
            "MagDiff",
            "Area of the corpus less the area of the reference over the same scales: above 0 "
            "the corpus is the more diverse, below 0 the reference.",
        ),
    }

    def figures(self, found: Json, corpora: Json) -> list[Figure]:
        """Draw the functions and how they grow with the rows."""
        return magnitude_figures(found, corpora)

    def overlays(self, found: Sequence[tuple[Style, Json]]) -> list[Figure]:
        """Draw the functions of the jobs' corpora."""
        functions = [
            (style, part["corpus"])
            for style, part in found
            if part.get("corpus") and part["corpus"]["value"]
        ]
        return [draw_functions(functions)] if functions else []

    def notes(self, found: Json) -> list[str]:
        """Say what duplicates do, and why there is no difference."""
        reason = found.get("difference_reason")
        notes = [
            "Magnitude is a property of the set of distinct rows: duplicates don't add to it.",
        ]
        if found["difference"] is None and reason:
            notes.append(f"There is no MagDiff: {printable(reason)}.")
        return notes

    def methods(self, found: Json) -> list[tuple[str, str]]:
        """Say by which method and at which scales."""
        return [
            (f"magnitude, {role}", _function_method(found[role]))
            for role in ROLES
            if found.get(role) and found[role]["scales"]
        ]

    def conclusions(self, scores: list[Json]) -> Mapping[Topic, str]:
        """Say which corpus is the more diverse over all scales."""
        row = find_score(scores, "pair", measure="magnitude", score="difference")
        if row is None or row["lower"] <= 0.0 <= row["upper"]:
            return {}
        which = "more" if row["value"] > 0 else "less"
        said = f"Over all scales together it is {which} diverse than the reference (MagDiff)."
        return {"difference": said}

    def diversity(self, results: Json) -> list[Fact]:
        """Answer by the area under the function."""
        area = [
            row
            for row in results["scores"]
            if (row["measure"], row["score"]) == ("magnitude", "area") and row.get("label") is None
        ]
        return fact_beside_reference("MagArea, diversity over all scales", area, "")

    def comparison(self, scores: list[Json]) -> list[Fact]:
        """Compare by the difference of the areas."""
        return pair_facts(scores, "magnitude", self.scores, "difference")


def _function_method(function: Json) -> str:
    return (
        f"{listed(function['method'])} at {len(function['scales'])} scales from "
        f"{write_number(min(function['scales']))} to "
        f"{write_number(max(function['scales']))}, {printable(function['metric'])} "
        f"distance, {function['n']:,} distinct rows"
    )
