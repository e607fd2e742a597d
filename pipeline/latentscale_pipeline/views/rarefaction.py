"""Figures of rarefaction curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from latentscale_pipeline.views.content import Figure
from latentscale_pipeline.views.drawing import (
    Style,
    error_bars,
    in_plot,
    layout_of,
    scatter,
)

Json = dict[str, Any]

APART = "\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}"
"""Between the end of a curve and what stands there."""

ROOM_FOR_NAMES = 84
"""Pixels right of the plot, for what its curves are of."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Means over random subsets by their size, and what they were continued to at all rows.

    ``of`` tells the curves of one corpus apart: an order, a scale.
    """

    of: str
    style: Style
    sizes: Sequence[int]
    values: Sequence[float]
    n: int
    value: float
    lower: float
    upper: float


def draw_rarefaction(key: str, curves: Sequence[Curve], unit: str) -> Figure | None:
    """Draw rarefaction curves, or nothing where nothing was sampled."""
    if not curves:
        return None
    data: list[Json] = []
    drawn: set[str] = set()
    named: set[str] = set()
    for curve in curves:
        style, of = curve.style, in_plot(curve.of)
        own: Json = {"legendgroup": style.name, "showlegend": False, "hovertemplate": "%{y:,.5~g}"}
        last = curve.values[-1]
        y, lower, upper = [last, curve.value], [last, curve.lower], [last, curve.upper]
        data += [
            scatter(
                style, list(curve.sizes), list(curve.values), name=f"{style.name}, {of}", **own
            ),
            scatter(
                replace(style, dash="dot", symbol=f"{style.symbol}-open"),
                [curve.sizes[-1], curve.n],
                y,
                "lines+markers+text",
                name=f"{style.name}, {of}, continued",
                size=8,
                error_y=error_bars(style, y, lower, upper),
                # What a curve is of stands at its end, once for all corpora.
                text=["", "" if curve.of in named else f"{APART}{of}"],
                textposition="middle right",
                cliponaxis=False,
                **own,
            ),
        ]
        if style.name not in drawn:
            # Stands for all curves of a corpus in the legend.
            data.append(scatter(style, [None], [None], legendgroup=style.name))
        named.add(curve.of)
        drawn.add(style.name)
    layout = layout_of("rows", unit, log_x=True, log_y=True)
    layout["margin"]["r"] = ROOM_FOR_NAMES
    layout["hovermode"] = "closest"
    caption = (
        "What random subsets of growing size score on average, and the value for all rows that "
        "this was continued to, with its bracket. A curve that still rises at its end says that "
        "more rows would score higher: compare corpora of like size."
    )
    document = {"data": data, "layout": layout}
    return Figure(key, "Growth with the number of rows", caption, document)
