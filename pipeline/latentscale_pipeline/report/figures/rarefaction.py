"""Rarefaction: how a count of effective items grows with the rows it is counted among."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from latentscale_pipeline.report.content import Figure
from latentscale_pipeline.report.drawing import Style, error_bars, layout_of, log_axis

Json = dict[str, Any]

WIDTHS = (1.2, 2.0, 2.8, 3.6)
"""Line widths that tell the curves of one corpus apart, thin to thick."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Means over random subsets by their size, and what they were continued to at all rows."""

    name: str
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
    drawn: dict[str, int] = {}
    for curve in curves:
        place = drawn[curve.style.name] = drawn.get(curve.style.name, -1) + 1
        colour = f"@{curve.style.colour}"
        width = WIDTHS[place % len(WIDTHS)]
        data += [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": curve.name,
                "x": list(curve.sizes),
                "y": list(curve.values),
                "line": {"color": colour, "width": width, "dash": curve.style.dash},
                "marker": {"color": colour, "symbol": curve.style.symbol, "size": 6},
                "legendgroup": curve.name,
                "hovertemplate": "%{y:,.5~g}",
            },
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{curve.name}, continued",
                "x": [curve.sizes[-1], curve.n],
                "y": [curve.values[-1], curve.value],
                "error_y": error_bars(
                    [curve.values[-1], curve.value],
                    [curve.values[-1], curve.lower],
                    [curve.values[-1], curve.upper],
                )
                | {"color": colour},
                "line": {"color": colour, "width": width, "dash": "dot"},
                "marker": {"color": colour, "symbol": f"{curve.style.symbol}-open", "size": 8},
                "legendgroup": curve.name,
                "showlegend": False,
                "hovertemplate": "%{y:,.5~g}",
            },
        ]
    layout = layout_of("rows (logarithmic)", f"{unit}, logarithmic")
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
