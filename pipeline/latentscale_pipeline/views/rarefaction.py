"""Draw rarefaction curves."""

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
"""Gap between the end of a curve and its label."""

ROOM_FOR_NAMES = 84
"""Pixels to the right of the plot for the labels of the curves."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean scores of random subsets by size, and their extrapolation to all rows.

    ``of`` distinguishes the curves of one corpus: an order or a scale.
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
    """Return a figure of rarefaction curves; None if nothing was sampled."""
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
                # The label at the end of a curve, once for all corpora.
                text=["", "" if curve.of in named else f"{APART}{of}"],
                textposition="middle right",
                cliponaxis=False,
                **own,
            ),
        ]
        if style.name not in drawn:
            # One entry in the legend for all curves of a corpus.
            data.append(scatter(style, [None], [None], legendgroup=style.name))
        named.add(curve.of)
        drawn.add(style.name)
    layout = layout_of("rows", unit, log_x=True, log_y=True)
    layout["margin"]["r"] = ROOM_FOR_NAMES
    layout["hovermode"] = "closest"
    caption = (
        "Mean scores of random subsets of growing size, and the extrapolated value for all rows "
        "with its bracket. If a curve still rises at its end, more rows would score higher: "
        "compare corpora of similar size."
    )
    document = {"data": data, "layout": layout}
    return Figure(key, "Growth with the number of rows", caption, document)
