"""What the report says of the spectrum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.spectrum.results import SpectrumOfCorpus, SpectrumResults
from latentscale_pipeline.measures.spectrum.scores import SCORES
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.chance import with_chance
from latentscale_pipeline.views.figure import Curve, Figure, Panel, Style, present
from latentscale_pipeline.views.formatting import format_number, listed

WELL_KNOWN = 8
"""Rows for each dimension from which corrections and their sampling errors hold."""

MIN_BINS = 4
"""Fewest bins of lengths that are drawn."""


class SpectrumReport(MeasureReport):
    """Effective dimensions and lengths."""

    group = "Shape"
    title = "Effective dimensions: the spectrum of the covariance"
    question = (
        "In how many directions the rows vary, and how long they are. A collapsed model uses few "
        "of its dimensions."
    )
    source = (
        "Roy and Vetterli 2007 (effective rank); Garrido et al. 2023 (RankMe); Rudman et al. 2022 "
        "(IsoScore)"
    )
    scores = SCORES

    def figures(self, found: SpectrumResults, results: Results) -> list[Figure]:
        """Draw the explained shares with what chance makes of them, and the lengths."""
        parts = list(present(found))
        drawn = self.overlays(parts)
        if found.chance is not None:
            drawn[0] = with_chance(drawn[0], found.chance, relative=False)
        return drawn

    def overlays(self, found: Sequence[tuple[Style, SpectrumOfCorpus]]) -> list[Figure]:
        """Draw the explained shares and the lengths of several jobs."""
        varying = [(style, part) for style, part in found if part.shares]
        wide = [part for _, part in found if len(part.lengths.counts) >= MIN_BINS]
        return [
            *([_draw_shares(varying)] if varying else []),
            *([_draw_lengths(found)] if wide else []),
        ]

    def notes(self, found: SpectrumResults) -> list[str]:
        """Say how many components hold most, and how long the rows are."""
        held = [
            f"90 % of the variance of the {style.name} is in {part.components_90} components of "
            f"{part.dimensions}, 99 % in {part.components_99}."
            for style, part in present(found)
            if part.components_90
        ]
        few = [
            f"The {style.name} has fewer than {WELL_KNOWN} rows for each dimension: its ranks are "
            "too small, and the corrected ones are too by less."
            for style, part in present(found)
            if part.shares and part.n < WELL_KNOWN * part.dimensions
        ]
        return [*held, *few, *(_said_of_lengths(style, part) for style, part in present(found))]

    def methods(self, found: SpectrumResults) -> list[tuple[str, str]]:
        """Return where sampling errors and corrections come from."""
        return [
            (
                f"spectrum, {style.name}",
                f"moments of {part.n:,} rows"
                + (f", jackknife over {part.groups} random groups" if part.groups > 1 else ""),
            )
            for style, part in present(found)
        ]


def _said_of_lengths(style: Style, part: SpectrumOfCorpus) -> str:
    least, largest = (format_number(each) for each in (part.lengths.least, part.lengths.largest))
    if least == largest:
        return f"All rows of the {style.name} have the length {least}."
    zero = f", {part.lengths.zero_rows:,} of them 0" if part.lengths.zero_rows else ""
    return f"Rows of the {style.name} have lengths from {least} to {largest}{zero}."


def _draw_shares(parts: Sequence[tuple[Style, SpectrumOfCorpus]]) -> Figure:
    curves = [Curve(style.name, part.components, part.shares, style=style) for style, part in parts]
    panel = Panel(
        "",
        "principal components",
        "explained share of the variance",
        curves,
        log_x=True,
        from_zero=True,
    )
    caption = (
        "The earlier a curve rises, the fewer directions the rows vary in; "
        f"{listed([f'{part.n:,} rows ({style.name})' for style, part in parts])}."
    )
    return Figure("spectrum", "Explained variance", caption, [panel])


def _draw_lengths(parts: Sequence[tuple[Style, SpectrumOfCorpus]]) -> Figure:
    """Draw the shares of rows by length, as steps between the bins' ends."""
    curves = []
    for style, part in parts:
        edges, counts = part.lengths.edges, part.lengths.counts
        x = [end for pair in pairwise(edges) for end in pair]
        y = [count / part.n for count in counts for _ in range(2)]
        curves.append(Curve(style.name, x, y, style=style))
    panel = Panel("", "length of a row", "share of the rows", curves, log_x=True, from_zero=True)
    caption = "A step is 4.4 % of the length wide."
    return Figure("row-lengths", "Lengths of rows", caption, [panel])
