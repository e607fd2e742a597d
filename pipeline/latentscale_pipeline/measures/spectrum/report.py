"""What the report says of the spectrum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.spectrum.results import SpectrumOfCorpus, SpectrumResults
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.chance import with_chance
from latentscale_pipeline.views.figure import Curve, Figure, Panel, Style, present
from latentscale_pipeline.views.formatting import listed, write_number
from latentscale_pipeline.views.glossary import Definition

WELL_KNOWN = 8
"""Rows for each dimension from which corrections and their sampling errors hold."""

LEAST_BINS = 4
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
    scores: ClassVar[Mapping[str, Definition]] = {
        "effective rank": Definition(
            "Effective rank",
            "Number of directions in which the rows vary: the exponential of the entropy of the "
            "principal components' shares of the variance.",
            headline=True,
            least=1.0,
        ),
        "effective rank corrected": Definition(
            "Effective rank, corrected",
            "An estimate of the effective rank with very many rows of the same source.",
            least=1.0,
        ),
        "participation ratio": Definition(
            "Participation ratio",
            "The same count, in which small components matter less: one over the sum of the "
            "squared shares.",
            least=1.0,
        ),
        "participation ratio corrected": Definition(
            "Participation ratio, corrected",
            "An estimate of the participation ratio with very many rows of the same source.",
            least=1.0,
        ),
        "RankMe": Definition(
            "RankMe",
            "Effective rank of the rows themselves, from their singular values; the mean counts as "
            "a direction.",
            least=1.0,
        ),
        "IsoScore": Definition(
            "IsoScore",
            "Whether all directions are used alike: 1 if they are, 0 if there is only one.",
            least=0.0,
            most=1.0,
        ),
        "first component": Definition(
            "First component",
            "Share of the variance that the first principal component holds.",
            least=0.0,
            most=1.0,
        ),
        "mean length": Definition(
            "Mean length",
            "Mean Euclidean length of the rows, which cosine measures can't see.",
            headline=True,
            least=0.0,
        ),
        "length variation": Definition(
            "Variation of lengths",
            "Standard deviation of the rows' lengths over their mean.",
            least=0.0,
        ),
    }

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
        wide = [part for _, part in found if len(part.lengths.counts) >= LEAST_BINS]
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
    least, largest = (write_number(each) for each in (part.lengths.least, part.lengths.largest))
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
