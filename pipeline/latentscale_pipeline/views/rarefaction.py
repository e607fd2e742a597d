"""Figures of rarefaction curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from latentscale_pipeline.views.content import Figure
from latentscale_pipeline.views.drawing import (
    Style,
    error_bars,
    in_plot,
    layout_of,
    log_axis,
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
    in_legend: set[str] = set()
    named: set[str] = set()
    for curve in curves:
        colour = f"@{curve.style.colour}"
        # What a curve is of stands at its end, once for all corpora.
        end = "" if curve.of in named else f"{APART}{in_plot(curve.of)}"
        data += [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{curve.style.name}, {in_plot(curve.of)}",
                "x": list(curve.sizes),
                "y": list(curve.values),
                "line": {"color": colour, "width": 2, "dash": curve.style.dash},
                "marker": {"color": colour, "symbol": curve.style.symbol, "size": 6},
                "legendgroup": curve.style.name,
                "showlegend": False,
                "hovertemplate": "%{y:,.5~g}",
            },
            {
                "type": "scatter",
                "mode": "lines+markers+text",
                "name": f"{curve.style.name}, {in_plot(curve.of)}, continued",
                "x": [curve.sizes[-1], curve.n],
                "y": [curve.values[-1], curve.value],
                "error_y": error_bars(
                    [curve.values[-1], curve.value],
                    [curve.values[-1], curve.lower],
                    [curve.values[-1], curve.upper],
                )
                | {"color": colour},
                "line": {"color": colour, "width": 2, "dash": "dot"},
                "marker": {"color": colour, "symbol": f"{curve.style.symbol}-open", "size": 8},
                "text": ["", end],
                "textposition": "middle right",
                "cliponaxis": False,
                "legendgroup": curve.style.name,
                "showlegend": False,
                "hovertemplate": "%{y:,.5~g}",
            },
        ]
        if curve.style.name not in in_legend:
            data.append(_in_legend(curve.style))
        named.add(curve.of)
        in_legend.add(curve.style.name)
    layout = layout_of("rows (logarithmic)", f"{unit} (logarithmic)")
    layout["margin"]["r"] = ROOM_FOR_NAMES
    layout["hovermode"] = "closest"
    layout["xaxis"] |= log_axis()
    layout["yaxis"] |= log_axis()
    caption = (
        "What random subsets of growing size score on average, and the value for all rows that "
        "this was continued to, with its bracket. A curve that still rises at its end says that "
        "more rows would score higher: compare corpora of like size."
    )
    document = {"data": data, "layout": layout}
    return Figure(key, "Growth with the number of rows", caption, document)


def _in_legend(style: Style) -> Json:
    """Return what stands for all curves of a corpus in the legend."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": style.name,
        "x": [None],
        "y": [None],
        "line": {"color": f"@{style.colour}", "width": 2, "dash": style.dash},
        "marker": {"color": f"@{style.colour}", "symbol": style.symbol, "size": 6},
        "legendgroup": style.name,
    }
