"""What the report says of magnitude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from latentscale_pipeline.measures.base import MeasureReport, Role, Score, Topic
from latentscale_pipeline.measures.magnitude.figures import draw_functions, magnitude_figures
from latentscale_pipeline.measures.magnitude.results import MagnitudeFunction, MagnitudeResults
from latentscale_pipeline.results.model import Corpus, Results
from latentscale_pipeline.views.content import Fact, Figure
from latentscale_pipeline.views.drawing import Style, present
from latentscale_pipeline.views.formatting import listed, printable, write_number
from latentscale_pipeline.views.glossary import Definition
from latentscale_pipeline.views.scores import (
    fact_beside_reference,
    find_known,
    pair_facts,
    whole_scores,
)


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

    def figures(self, found: MagnitudeResults, corpora: Mapping[Role, Corpus]) -> list[Figure]:
        """Draw the functions and how they grow with the rows."""
        return magnitude_figures(found)

    def overlays(self, found: Sequence[tuple[Style, MagnitudeFunction]]) -> list[Figure]:
        """Draw the functions of the jobs' corpora."""
        functions = [(style, function) for style, function in found if function.value]
        return [draw_functions(functions)] if functions else []

    def notes(self, found: MagnitudeResults) -> list[str]:
        """Say what duplicates do, and why there is no difference."""
        notes = [
            "Magnitude is a property of the set of distinct rows: duplicates don't add to it.",
        ]
        if found.difference is None and found.difference_reason:
            notes.append(f"There is no MagDiff: {printable(found.difference_reason)}.")
        return notes

    def methods(self, found: MagnitudeResults) -> list[tuple[str, str]]:
        """Say by which method and at which scales."""
        return [
            (f"magnitude, {style.name}", _function_method(function))
            for style, function in present(found)
            if function.scales
        ]

    def conclusions(self, scores: Sequence[Score]) -> Mapping[Topic, str]:
        """Say which corpus is the more diverse over all scales."""
        value, lower, upper = find_known(scores, "magnitude", score="difference") or (0, 0, 0)
        if lower <= 0.0 <= upper:
            return {}
        which = "more" if value > 0 else "less"
        said = f"Over all scales together it is {which} diverse than the reference (MagDiff)."
        return {"difference": said}

    def diversity(self, results: Results) -> list[Fact]:
        """Answer by the area under the function."""
        areas = whole_scores(results.scores, "magnitude", score="area")
        return fact_beside_reference("MagArea, diversity over all scales", areas)

    def comparison(self, scores: Sequence[Score]) -> list[Fact]:
        """Compare by the difference of the areas."""
        return pair_facts(scores, "magnitude", self.scores, "difference")


def _function_method(function: MagnitudeFunction) -> str:
    return (
        f"{listed(function.method)} at {len(function.scales)} scales from "
        f"{write_number(min(function.scales))} to {write_number(max(function.scales))}, "
        f"{printable(function.metric)} distance, {function.n:,} distinct rows"
    )
