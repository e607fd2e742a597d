"""Magnitude functions with their brackets and convergence scales, and their rarefaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from latentscale_pipeline.measures.magnitude.results import MagnitudeFunction, MagnitudeResults
from latentscale_pipeline.views.content import Figure
from latentscale_pipeline.views.drawing import (
    Style,
    banded_line,
    in_plot,
    layout_of,
    present,
    scatter,
    widest,
)
from latentscale_pipeline.views.formatting import printable, write_estimate, write_number
from latentscale_pipeline.views.glossary import BOUNDS
from latentscale_pipeline.views.rarefaction import Curve, draw_rarefaction

Json = dict[str, Any]

DRAWN_SCALES = 3
"""Scales whose rarefaction is drawn, spread evenly over all."""


def magnitude_figures(magnitude: MagnitudeResults) -> list[Figure]:
    """Return the magnitude functions and, of sampled ones, how they grow with the rows."""
    functions = [(style, function) for style, function in present(magnitude) if function.value]
    if not functions:
        return []
    curves = [curve for style, function in functions for curve in _curves(style, function)]
    grown = draw_rarefaction("magnitude-rarefaction", curves, "effective points")
    return [draw_functions(functions), *([grown] if grown else [])]


def draw_functions(functions: Sequence[tuple[Style, MagnitudeFunction]]) -> Figure:
    """Draw magnitude functions with their brackets and convergence scales."""
    data: list[Json] = []
    for style, function in functions:
        data += banded_line(
            style,
            function.scales,
            function.value,
            function.lower,
            function.upper,
            number=",.6~g",
            beside=([BOUNDS[kind].name for kind in function.bounds], map(in_plot, function.method)),
            mode="lines+markers",
        )
    top = max(max(function.upper) for _, function in functions)
    last = max(max(function.scales) for _, function in functions)
    sentences = []
    for style, function in functions:
        scale = function.convergence_scale
        if scale is None:
            reason = printable(function.convergence_scale_reason or "no reason was recorded")
            sentences.append(f"The {style.name} has no convergence scale: {reason}.")
        elif scale > 1.5 * last:
            beyond = f"t_conv of the {style.name} is {write_number(scale)}, beyond this plot."
            sentences.append(beyond)
        else:
            data.append(_convergence_line(style, function, scale, top))
    brackets = (
        bracket
        for _, function in functions
        for bracket in zip(function.value, function.lower, function.upper, strict=True)
    )
    counts = " and ".join(f"{function.n:,} ({style.name})" for style, function in functions)
    caption = " ".join(
        [
            f"The function starts at 1 and approaches the number of distinct rows: {counts}.",
            "Dotted lines mark the convergence scales t_conv.",
            *sentences,
            f"The band is the bracket: {widest(brackets)}.",
        ]
    )
    layout = layout_of("scale t (1/distance)", "magnitude (effective points)")
    layout["yaxis"]["rangemode"] = "tozero"
    document = {"data": data, "layout": layout}
    return Figure("magnitude-function", "Magnitude function", caption, document)


def _convergence_line(style: Style, function: MagnitudeFunction, scale: float, top: float) -> Json:
    bracket = function.convergence
    if bracket is None:
        text = write_number(scale)
    else:
        written = write_estimate(bracket.value, bracket.lower, bracket.upper, typeset=True)
        text = f"{written.value} {written.bracket}"
    return scatter(
        replace(style, dash="dot"),
        [scale, scale],
        [0, top],
        "lines",
        name=f"t_conv, {style.name}",
        width=1.5,
        legendgroup=style.name,
        text=[text, text],
        hovertemplate="%{text}",
    )


def _curves(style: Style, function: MagnitudeFunction) -> list[Curve]:
    grown = function.rarefaction
    if grown is None:
        return []
    last = len(function.scales) - 1
    places = sorted({round(last * (share + 1) / DRAWN_SCALES) for share in range(DRAWN_SCALES)})
    return [
        Curve(
            of=f"t = {write_number(function.scales[place], 3)}",
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
