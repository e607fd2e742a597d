"""What the report says of intrinsic dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.intrinsic_dimension.results import (
    DimensionOfCorpus,
    IntrinsicDimensionResults,
)
from latentscale_pipeline.measures.intrinsic_dimension.scores import SCORES
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.chance import with_chance
from latentscale_pipeline.views.figure import Curve, Figure, Panel, Style, present
from latentscale_pipeline.views.formatting import printable

MIN_KEPT = 0.9
"""Share of the rows with enough neighbours below which a note says so."""

HIGH = 12.0
"""Dimension from which estimates are noticeably too small at usual numbers of rows."""


class IntrinsicDimensionReport(MeasureReport):
    """The number of coordinates that describe rows near each other."""

    group = "Shape"
    title = "Intrinsic dimension"
    question = (
        "How many coordinates describe the rows that are near each other, over the number of "
        "neighbours that count as near."
    )
    source = "Levina and Bickel 2004, MacKay and Ghahramani 2005 (MLE); Facco et al. 2017 (TwoNN)"
    scores = SCORES

    def figures(self, found: IntrinsicDimensionResults, results: Results) -> list[Figure]:
        """Draw the dimension over the number of neighbours, with what chance makes of it."""
        drawn = self.overlays(list(present(found)))
        if drawn and found.chance is not None:
            drawn = [with_chance(drawn[0], found.chance)]
        return drawn

    def overlays(self, found: Sequence[tuple[Style, DimensionOfCorpus]]) -> list[Figure]:
        """Draw the dimensions of several jobs."""
        known = [(style, part) for style, part in found if part.maximum_likelihood.value]
        return [_draw(known)] if known else []

    def notes(self, found: IntrinsicDimensionResults) -> list[str]:
        """Say how far to trust the number, and which rows don't count."""
        notes = [
            (
                "A dimension belongs to a scale: with more rows neighbours are nearer, so compare "
                "corpora of equally many rows."
            )
        ]
        if any(max(part.maximum_likelihood.value, default=0) > HIGH for _, part in present(found)):
            said = (
                "High dimensions are underestimated, because the neighbours of a row reach to the "
                "edge of its kind: 20 normal coordinates give 17 from 10,000 rows."
            )
            notes.append(said)
        for style, part in present(found):
            notes += _left_out(style, part)
        return notes

    def methods(self, found: IntrinsicDimensionResults) -> list[tuple[str, str]]:
        """Return which rows were looked up."""
        return [
            (f"intrinsic dimension, {style.name}", _method(part))
            for style, part in present(found)
            if part.rows
        ]


def _method(part: DimensionOfCorpus) -> str:
    rows = "random rows" if part.rows < part.n else "rows"
    return (
        f"nearest of all rows to {part.rows:,} {rows}, {printable(part.metric)} distance, "
        "jackknife over halves"
    )


def _left_out(style: Style, part: DimensionOfCorpus) -> list[str]:
    """Say so if many rows have too few neighbours at different distances."""
    counts = part.maximum_likelihood.rows
    if not part.rows or not counts or min(counts) >= MIN_KEPT * part.rows:
        return []
    said = (
        f"{1 - min(counts) / part.rows:.0%} of the rows of the {style.name} that were looked up "
        "have too few neighbours at different distances, because of copies; they don't count."
    )
    return [said]


def _draw(parts: Sequence[tuple[Style, DimensionOfCorpus]]) -> Figure:
    curves = [
        Curve(
            style.name,
            own.neighbours,
            own.value,
            own.lower,
            own.upper,
            points=True,
            line=True,
            style=style,
        )
        for style, part in parts
        for own in [part.maximum_likelihood]
    ]
    panel = Panel("", "neighbours", "intrinsic dimension", curves, log_x=True, from_zero=True)
    caption = (
        "Few neighbours are the smallest scale. A level curve is a dimension; one that falls says "
        "that rows near each other vary in more directions than rows farther apart, as noise does."
    )
    return Figure("intrinsic-dimension", "Dimension by scale", caption, [panel])
