"""Building blocks of figures: axes, layouts, lines with bands, colours.

A figure is a plotly document: traces and a layout as dictionaries. Colours are names such as
``@corpus``, which the page replaces with the colours of its scheme (light, dark or print). The
palette is by Okabe and Ito and is safe for colour-blind readers; lines also differ in their dashes,
and markers in their shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from latentscale_pipeline.views.formatting import printable, write_number

Json = dict[str, Any]

ROLES = ("corpus", "reference")
"""The corpora of a job in drawing order: the dashed line is drawn over the solid one."""


@dataclass(frozen=True, slots=True)
class Style:
    """Line and colour that distinguish one of several curves in a figure."""

    name: str
    colour: str
    dash: str = "solid"
    symbol: str = "circle"


ROLE_STYLES = {
    "corpus": Style("corpus", "corpus"),
    "reference": Style("reference", "reference", "dash", "diamond"),
}

_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star")
COLOURS = 6
"""Number of colours for numbered styles; further styles differ in dashes and symbols."""


def numbered_styles(names: Sequence[str]) -> list[Style]:
    """Return a style for each name, such as the jobs of a comparison."""
    return [
        Style(
            in_plot(name),
            f"line-{place % COLOURS}",
            _DASHES[(place // COLOURS + place) % len(_DASHES)],
            _SYMBOLS[place % len(_SYMBOLS)],
        )
        for place, name in enumerate(names)
    ]


def present(found: Any) -> list[tuple[Style, Any]]:
    """Return the style and the findings of a measure for each corpus that has any."""
    parts = {role: getattr(found, role, None) for role in ROLES}
    return [(ROLE_STYLES[role], part) for role, part in parts.items() if part]


def in_plot(text: object) -> str:
    """Escape a text for plotly, which interprets some markup in labels and hover texts."""
    return escape(printable(text), quote=False)


def scatter(
    style: Style,
    x: Sequence[Any],
    y: Sequence[Any],
    mode: str = "lines+markers",
    *,
    name: str = "",
    width: float = 2,
    size: int = 6,
    **others: Any,
) -> Json:
    """Return a line, markers or both in a style; ``others`` are further keys of the trace."""
    colour = f"@{style.colour}"
    trace: Json = {"type": "scatter", "mode": mode, "name": name or style.name, "x": x, "y": y}
    if "lines" in mode:
        trace["line"] = {"color": colour, "width": width, "dash": style.dash}
    if "markers" in mode:
        trace["marker"] = {"color": colour, "symbol": style.symbol, "size": size}
    return {**trace, **others}


def banded_line(
    style: Style,
    x: Sequence[float] | Sequence[str],
    y: Sequence[float | None],
    lower: Sequence[float],
    upper: Sequence[float],
    *,
    number: str,
    beside: Sequence[Iterable[str]] = (),
    mode: str = "lines",
) -> list[Json]:
    """Return a line over its uncertainty band: two invisible edges with the area between filled.

    The hover text of a point is its value and bracket in the format ``number``, then the texts of
    ``beside``.
    """
    edge: Json = {"legendgroup": style.name, "showlegend": False, "hoverinfo": "skip"}
    filled: Json = {**edge, "fill": "tonexty", "fillcolor": f"@{style.colour}-band"}
    hover = hover_texts(lower, upper, number, beside)
    return [
        scatter(style, x, lower, "lines", name=f"{style.name}, lower end", width=0, **edge),
        scatter(style, x, upper, "lines", name=f"{style.name}, upper end", width=0, **filled),
        scatter(style, x, y, mode, legendgroup=style.name, **hover),
    ]


def hover_texts(
    lower: Sequence[float],
    upper: Sequence[float],
    number: str,
    beside: Sequence[Iterable[str]] = (),
) -> Json:
    """Return the hover texts of points: value, bracket, and further texts."""
    texts = ", ".join(f"%{{customdata[{place}]}}" for place in range(2, 2 + len(beside)))
    return {
        "customdata": [list(row) for row in zip(lower, upper, *beside, strict=True)],
        "hovertemplate": f"%{{y:{number}}} [%{{customdata[0]:{number}}}, "
        f"%{{customdata[1]:{number}}}] {texts}".rstrip(),
    }


def error_bars(
    style: Style, value: Sequence[float], lower: Sequence[float], upper: Sequence[float]
) -> Json:
    """Return the brackets of some values as error bars."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - middle for middle, high in zip(value, upper, strict=True)],
        "arrayminus": [middle - low for middle, low in zip(value, lower, strict=True)],
        "thickness": 1.5,
        "width": 5,
        "color": f"@{style.colour}",
    }


def widest(brackets: Iterable[tuple[float, float, float]]) -> str:
    """Return the width of the widest bracket as a share of its value."""
    share = max((half_width(*bracket) for bracket in brackets if bracket[0]), default=0.0)
    if share == 0:
        return "all of zero width"
    return f"at the widest ± {write_number(100 * share, 2, typeset=True)} % of the value"


def half_width(value: float, lower: float, upper: float) -> float:
    """Return the larger distance of a bracket's ends from its value, as a share of the value."""
    return max(upper - value, value - lower) / abs(value)


def axis(title: str, *, log: bool = False) -> Json:
    """Return an axis, linear or logarithmic with ticks at 1, 2 and 5 times powers of ten."""
    plain: Json = {
        "title": {"text": f"{title} (logarithmic)" if log else title, "standoff": 8},
        "automargin": True,
        "gridcolor": "@grid",
        "linecolor": "@axis",
        "tickcolor": "@axis",
        "ticks": "outside",
        "showline": True,
        "zeroline": False,
        "exponentformat": "power",
    }
    if not log:
        return plain
    ticks = [(step, power) for power in range(-6, 10) for step in (1, 2, 5)]
    return plain | {
        "type": "log",
        "tickmode": "array",
        "tickvals": [step * 10.0**power for step, power in ticks],
        "ticktext": [
            f"{step * 10**power:,}" if power >= 0 else f"{step * 10.0**power:.{-power}f}"
            for step, power in ticks
        ],
    }


def layout_of(x_title: str, y_title: str, *, log_x: bool = False, log_y: bool = False) -> Json:
    """Return the layout that all figures share, with its axes."""
    return {
        "height": 380,
        "margin": {"l": 56, "r": 12, "t": 12, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "@ink"},
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": "@surface",
            "bordercolor": "@axis",
            "font": {"color": "@ink"},
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@axis", "activecolor": "@ink"},
        "xaxis": axis(x_title, log=log_x),
        "yaxis": axis(y_title, log=log_y),
    }
