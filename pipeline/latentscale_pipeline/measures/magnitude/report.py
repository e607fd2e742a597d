"""The report's section on magnitude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.magnitude.results import MagnitudeFunction, MagnitudeResults
from latentscale_pipeline.measures.magnitude.scores import SCORES
from latentscale_pipeline.results.model import Results, Score
from latentscale_pipeline.views.chance import with_chance
from latentscale_pipeline.views.figure import (
    Curve,
    Figure,
    Panel,
    Rule,
    Style,
    present,
    said_of_brackets,
)
from latentscale_pipeline.views.formatting import counted, format_number, listed, printable
from latentscale_pipeline.views.rarefaction import Growth, draw_rarefaction
from latentscale_pipeline.views.terms import BOUNDS

DRAWN_SCALES = 3
"""Scales whose rarefaction is drawn, spread evenly over all."""


class MagnitudeReport(MeasureReport):
    """The diversity of a corpus at every scale."""

    group = "Diversity"
    title = "Diversity at every scale: magnitude"
    question = (
        "The effective number of distinct points when distances are multiplied by t: 1 at t = 0, "
        "and nearly all of them where t is large."
    )
    source = "Limbeck et al., Metric Space Magnitude, NeurIPS 2024, definitions 3.1 to 3.5"
    scores = SCORES

    def said_of_own_scale(self, score: Score, settings: Mapping[str, Any]) -> str:
        """Say of an area that it goes up to a scale of each corpus, unless scales are listed."""
        if score.score != "area" or isinstance(settings.get("scales"), list):
            return ""
        return (
            "MagArea goes up to a scale of each corpus, which near-duplicates move far; a job with "
            "the other corpus as its reference has one scale for both."
        )

    def figures(self, found: MagnitudeResults, results: Results) -> list[Figure]:
        """Draw the magnitude functions and their rarefaction curves."""
        functions = [(style, function) for style, function in present(found) if function.value]
        if not functions:
            return []
        curves = [curve for style, function in functions for curve in _curves(style, function)]
        grown = draw_rarefaction("magnitude-rarefaction", curves, "effective points")
        drawn = draw_functions(functions)
        if found.chance is not None:
            # A sample has scales of its own, up to where its rows are told apart.
            last = found.chance.x[-1]
            shares = [100 * scale / last for scale in found.chance.x]
            label = "scale, in % of the largest"
            drawn = with_chance(drawn, found.chance, x=shares, x_label=label)
        return [drawn, *([grown] if grown else []), *_draw_dimensions(functions)]

    def overlays(self, found: Sequence[tuple[Style, MagnitudeFunction]]) -> list[Figure]:
        """Draw the magnitude functions of several jobs."""
        functions = [(style, function) for style, function in found if function.value]
        return [draw_functions(functions), *_draw_dimensions(functions)] if functions else []

    def notes(self, found: MagnitudeResults) -> list[str]:
        """Say what duplicates do, how accurate areas are, and why there is no difference."""
        notes = [
            "Magnitude is computed on the distinct rows: duplicates do not change it.",
            *_rule_notes(found),
        ]
        if found.difference is None and found.difference_reason:
            notes.append(f"There is no MagDiff: {printable(found.difference_reason)}.")
        return notes

    def caveats(self, found: MagnitudeResults, results: Results) -> list[str]:
        """Say up to which scale an area is taken that no reference shares."""
        function = found.corpus
        if found.reference is not None or function.area is None:
            return []
        said = (
            f"MagArea goes up to scale {format_number(max(function.scales))}, which depends on the "
            "rows (near-duplicates raise it): compare only areas up to one scale"
        )
        return [said]

    def methods(self, found: MagnitudeResults) -> list[tuple[str, str]]:
        """Return the method and the scales of each function."""
        return [
            (f"magnitude, {style.name}", _function_method(function))
            for style, function in present(found)
            if function.scales
        ] + _distance_method(found)


def _distance_method(found: MagnitudeResults) -> list[tuple[str, str]]:
    distance = found.distance
    if distance is None or distance.scale is None:
        return []
    rows = " and ".join(f"{count:,}" for count in distance.rows)
    return [("magnitude distance", f"{rows} rows at scale {format_number(distance.scale)}")]


def _rule_notes(found: MagnitudeResults) -> list[str]:
    """Say how far areas over fewer scales are from those over all of them."""
    differing = [
        f"{function.area_trapezium_error / function.area:.2%} ({style.name})"
        for style, function in present(found)
        if function.area and function.area_trapezium_error is not None
    ]
    if not differing:
        return []
    said = (
        "MagArea is the trapezium rule over the scales, and its bracket leaves out the error of "
        f"that rule. Over every second scale MagArea differs by {' and '.join(differing)}."
    )
    return [said]


def _function_method(function: MagnitudeFunction) -> str:
    return (
        f"{listed(function.method)} at {len(function.scales)} scales from "
        f"{format_number(min(function.scales))} to {format_number(max(function.scales))}, "
        f"{printable(function.metric)} distance, {_points(function)}"
    )


def _points(function: MagnitudeFunction) -> str:
    known = function.points
    return f"{function.n:,} rows" if known is None else counted(known, "distinct row")


def draw_functions(functions: Sequence[tuple[Style, MagnitudeFunction]]) -> Figure:
    """Draw magnitude functions with their brackets and convergence scales."""
    curves = [
        Curve(
            style.name,
            function.scales,
            function.value,
            function.lower,
            function.upper,
            points=True,
            line=True,
            style=style,
            texts=[
                listed([BOUNDS[kind].name, method])
                for kind, method in zip(function.bounds, function.method, strict=True)
            ],
        )
        for style, function in functions
    ]
    rules: list[Rule] = []
    last = max(max(function.scales) for _, function in functions)
    sentences = []
    for style, function in functions:
        scale = function.convergence_scale
        if scale is None:
            reason = printable(function.convergence_scale_reason or "no reason was recorded")
            sentences.append(f"The {style.name} has no convergence scale: {reason}.")
        elif scale > 1.5 * last:
            beyond = f"t_conv of the {style.name} is {format_number(scale)}, outside this plot."
            sentences.append(beyond)
        else:
            rules.append(Rule(scale, style))
    brackets = (
        bracket
        for _, function in functions
        for bracket in zip(function.value, function.lower, function.upper, strict=True)
    )
    counts = [f"{_points(function)} ({style.name})" for style, function in functions]
    said = [
        f"Of {' and '.join(counts)}.",
        *(["Dotted lines mark the convergence scales t_conv."] if rules else []),
        *sentences,
        said_of_brackets(brackets, "Bars are the brackets"),
    ]
    caption = " ".join(filter(None, said))
    panel = Panel(
        "",
        "scale t (1/distance)",
        "magnitude (effective points)",
        curves,
        from_zero=True,
        rules=rules,
    )
    return Figure("magnitude-function", "Magnitude function", caption, [panel])


def _draw_dimensions(functions: Sequence[tuple[Style, MagnitudeFunction]]) -> list[Figure]:
    """Draw the dimension in which the rows of each corpus appear at each scale."""
    curves = [
        Curve(
            style.name,
            profile.scales,
            profile.value,
            profile.lower,
            profile.upper,
            points=True,
            line=True,
            style=style,
        )
        for style, function in functions
        if (profile := function.dimension) is not None
    ]
    if not curves:
        return []
    panel = Panel("", "scale t (1/distance)", "magnitude dimension", curves, from_zero=True)
    caption = (
        "The slope of the log magnitude over the log scale. A level part is the dimension in which "
        "the rows appear at these scales; it falls to 0 where every row stands alone, and doesn't "
        "reach the dimension of few rows before that. Bars hold the slopes to both neighbouring "
        "scales."
    )
    return [Figure("magnitude-dimension", "Dimension by scale", caption, [panel])]


def _curves(style: Style, function: MagnitudeFunction) -> list[Growth]:
    grown = function.rarefaction
    if grown is None:
        return []
    last = len(function.scales) - 1
    places = sorted({round(last * (share + 1) / DRAWN_SCALES) for share in range(DRAWN_SCALES)})
    return [
        Growth(
            of=f"t = {format_number(function.scales[place], 3)}",
            style=style,
            sizes=grown.sizes,
            values=[values[place] for values in grown.values],
            n=function.n,
            value=function.value[place],
            lower=function.lower[place],
            upper=function.upper[place],
        )
        for place in places
    ]
