"""Draw panels as SVG, without a plotting library.

A panel is drawn in shares of its area between the axes, so that it fits any width and its texts
and points keep their size: lines lie in a nested SVG that is stretched, texts and points at
percentages beside it. A page gives the area a width by its style sheet; a file has a fixed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from latentscale.array_types import BoolArray, Float64Array
from latentscale_pipeline.views.axis import STEPS, Axis, axis_over, format_date, in_power
from latentscale_pipeline.views.figure import (
    CHANCE,
    FIELD_HEIGHT,
    Curve,
    Grid,
    Panel,
    Style,
    legend_of,
    styles_of,
)
from latentscale_pipeline.views.formatting import format_estimate, format_number, printable, shorten

WIDTH = 420
"""Width of one panel of a file, in pixels."""

LEFT, RIGHT, TOP, BOTTOM = 58, 14, 40, 44
"""Margins of one panel of a file, in pixels."""

COLOURS = {
    "line-0": "#0072B2",
    "line-1": "#D55E00",
    "line-2": "#009E73",
    "line-3": "#CC79A7",
    "line-4": "#56B4E9",
    "line-5": "#E69F00",
    "corpus": "#0072B2",
    "reference": "#C4500A",
    "chance": "#CDD4DB",
    "gap": "#58626D",
    "soft": "#58626D",
    "grid": "#E2E5E9",
    "ink": "#16191D",
    "marked": "#D58FB8",
}
"""Colours of a file by name."""

ON_ANY_PAPER = {"soft": "#7C828A", "gap": "#7C828A", "grid": "#7C828A40", "ink": "currentColor"}
"""What is drawn in other colours where the file has no background."""

LEGEND_ROW, LEGEND_CHARACTER = 18, 6.4

SHAPES = {
    "diamond": "M0,-5.5 5.5,0 0,5.5 -5.5,0Z",
    "square": "M-4,-4H4V4H-4Z",
    "triangle": "M0,-5 5,4H-5Z",
    "cross": "M-4,-4 4,4M-4,4 4,-4",
    "star": "M0,-5V5M-4.3,-2.5 4.3,2.5M-4.3,2.5 4.3,-2.5",
}
"""Outlines of the symbols other than a disc, in pixels."""

RADIUS = 3.6
"""Radius of a disc, in pixels; points of lines are smaller where there are many."""

LOW = 150
"""Height in pixels below which an axis has half as many ticks."""

LINE = 16
"""Height of a line of text, in pixels."""

MANY = 40
"""Points of a curve beyond which they are drawn smaller."""

NAMES_SHARE, NAME_LENGTH = 32.0, 20
"""Share of a grid's width for the names of its rows, in percent, and their largest length."""

DARKEST = 0.6
"""Opacity of the darkest field of a grid, on which text can still be read."""

Colour = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Readout:
    """What is said of a place in a panel: where it is, in percent, and the text."""

    x: float
    y: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawn panel.

    Attributes
    ----------
    body : str
        The content of an SVG whose size is that of the area between the axes.
    x_label, y_label : str
        The labels of the axes, with the powers of ten of their numbers.
    readouts : sequence of Readout
        From left to right.
    """

    body: str
    x_label: str
    y_label: str
    readouts: Sequence[Readout]


def draw_panel(panel: Panel, styles: Mapping[str, Style], colour: Colour) -> Drawing:
    """Draw one panel.

    Parameters
    ----------
    panel : Panel
        Its curves.
    styles : mapping
        The style of each name of a curve.
    colour : callable
        Gives the value of ``fill`` and ``stroke`` for the name of a colour.
    """
    across, down = _axes(panel)
    plot = _Plot(panel, across, down, colour)
    lines = [plot.rule(rule.at, rule.style) for rule in panel.rules]
    marks = []
    if not panel.bare:
        lines, marks = [plot.grid(), *lines], [plot.ticks()]
    for curve in panel.curves:
        lines.append(plot.lines(curve, curve.style or styles[curve.name]))
        marks.append(plot.marks(curve, curve.style or styles[curve.name]))
    marks.append(plot.ends())
    named = [rule for rule in panel.rules if rule.style.name not in styles]
    marks += [plot.rule_name(rule.at, rule.style) for rule in named]
    nested = (
        '<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%" '
        f'overflow="visible" fill="none">{"".join(lines)}</svg>'
    )
    powers = (down.power, across.power) if panel.turned else (across.power, down.power)
    labels = (panel.x_label + in_power(powers[0]), panel.y_label + in_power(powers[1]))
    return Drawing(nested + "".join(marks), *labels, plot.readouts())


def draw_panels(
    panels: Sequence[Panel], *, columns: int = 3, paper: str | None = None, width: int = WIDTH
) -> str:
    """Return an SVG of panels in rows, with one legend below.

    Parameters
    ----------
    panels : sequence of Panel
        At least one, each with at least one finite point.
    columns : int
        Panels in a row.
    paper : str, optional
        Colour of the background; transparent by default.
    width : int
        Width of a panel, in pixels.
    """
    styles = styles_of(panels)
    alone = len(styles) == 1
    named = legend_of(panels)
    columns = min(columns, len(panels))
    heights = [TOP + _height(panel, width) + BOTTOM for panel in panels]
    rows = [max(heights[start : start + columns]) for start in range(0, len(panels), columns)]

    own = COLOURS | ({} if paper else ON_ANY_PAPER) | ({"line-0": "currentColor"} if alone else {})

    def colour(name: str) -> str:
        return own.get(name, own["gap"])

    legend, legend_height = _legend(named, columns * width, colour) if len(named) > 1 else ("", 0.0)
    height = sum(rows) + legend_height
    drawn = "".join(
        f'<g transform="translate({place % columns * width},{sum(rows[: place // columns])})">'
        f"{_framed(panel, styles, colour, width)}</g>"
        for place, panel in enumerate(panels)
    )
    label = escape(
        "; ".join("a map" if p.bare else f"{p.y_label} over {p.x_label}" for p in panels)
    )
    size = f'viewBox="0 0 {columns * width} {height:g}" width="{columns * width}"'
    back = f'<rect width="100%" height="100%" fill="{paper}"/>' if paper else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}" '
        f'fill="currentColor" font-size="11" font-family="sans-serif">{back}{drawn}'
        f'<g transform="translate(0,{sum(rows)})">{legend}</g></svg>'
    )


def draw_grid(grid: Grid, colour: Colour) -> Drawing:
    """Draw a grid.

    Parameters
    ----------
    grid : Grid
        Its names, heads, texts and shades.
    colour : callable
        Gives the value of ``fill`` for the name of a colour.
    """
    width = (100.0 - NAMES_SHARE) / len(grid.names)
    parts = []
    for place, name in enumerate(grid.names):
        x, y = NAMES_SHARE + (place + 0.5) * width, (place + 1.65) * FIELD_HEIGHT
        said = escape(printable(shorten(name, NAME_LENGTH)))
        parts.append(f'<text x="0" y="{y:.0f}" font-size="13">{said}</text>')
        parts.append(
            f'<text x="{x:.2f}%" y="{0.65 * FIELD_HEIGHT:.0f}" text-anchor="middle" '
            f'font-size="13">{escape(grid.heads[place])}</text>'
        )
    for row, (texts, shades) in enumerate(zip(grid.texts, grid.shades, strict=True)):
        for column, (text, shade) in enumerate(zip(texts, shades, strict=True)):
            x, y = NAMES_SHARE + column * width, (row + 1) * FIELD_HEIGHT
            parts.append(
                f'<rect x="{x:.2f}%" y="{y}" width="{width:.2f}%" height="{FIELD_HEIGHT}" '
                f'fill="{colour("corpus")}" fill-opacity="{DARKEST * shade:.3f}"/>'
                f'<text x="{x + width / 2:.2f}%" y="{y + 0.65 * FIELD_HEIGHT:.0f}" '
                f'text-anchor="middle" font-size="13">{escape(text)}</text>'
            )
    return Drawing(f'<g fill="currentColor">{"".join(parts)}</g>', "", "", ())


def sample_of(style: Style, colour: Colour, *, points: bool = False) -> str:
    """Return a short line, a point or a band in a style: 24 × 12 pixels, for a legend."""
    tone = colour(style.colour)
    if style.colour == CHANCE.colour:
        return f'<rect y="1" width="24" height="10" fill="{tone}"/>'
    if points:
        return _symbol(style.symbol, "12", "6", RADIUS, tone)
    return f'<path d="M0,6H24" stroke="{tone}" stroke-width="2"{_dashes(style.dash)}/>'


@dataclass(frozen=True, slots=True)
class _Plot:
    """A panel with its axes; ``across`` is the axis to the right, ``down`` the other."""

    panel: Panel
    across: Axis
    down: Axis
    colour: Colour

    def grid(self) -> str:
        steps = [f"M0,{1000 - 1000 * at:.1f}H1000" for at, _ in self.down.ticks()]
        if self.panel.turned or self.panel.scattered:
            steps += [f"M{1000 * at:.1f},0V1000" for at, _ in self.across.ticks()]
        grid = _path("".join(steps), self.colour("grid"), 1)
        return grid + _path("M0,0V1000H1000", self.colour("soft"), 1)

    def ticks(self) -> str:
        below = [
            f'<text x="{100 * at:.2f}%" y="100%" dy="16" text-anchor="middle">{escape(text)}</text>'
            for at, text in self.across.ticks()
        ]
        # The names of places stand in the panel, above their points: they can be long.
        where = ('x="6" dy="-6"', "start") if self.panel.turned else ('x="-7" dy="4"', "end")
        beside = [
            f'<text {where[0]} y="{100 - 100 * at:.2f}%" text-anchor="{where[1]}">{escape(text)}'
            "</text>"
            for at, text in self.down.ticks()
        ]
        return f'<g fill="{self.colour("soft")}">{"".join(below)}{"".join(beside)}</g>'

    def rule(self, at: float, style: Style) -> str:
        x = 1000 * self.across.place(np.array([at]))[0]
        return _path(f"M{x:.1f},0V1000", self.colour(style.colour), 1.5, "2 3")

    def rule_name(self, at: float, style: Style) -> str:
        """Write the name of a rule beside its upper end, on the side with more room."""
        x = self.across.place(np.array([at]))[0]
        shift, anchor = (4, "start") if x < 0.5 else (-4, "end")
        return (
            f'<text x="{100 * x:.2f}%" y="10" dx="{shift}" text-anchor="{anchor}" '
            f'fill="{self.colour(style.colour)}">{escape(style.name)}</text>'
        )

    def placed(
        self, curve: Curve
    ) -> tuple[BoolArray, Float64Array, Float64Array, Float64Array, Float64Array]:
        """Return which points can be drawn, and x, y, lower and upper of these as shares."""
        x, y = _numbers(curve.x), _numbers(curve.y)
        own, other = (self.down, self.across) if self.panel.turned else (self.across, self.down)
        at, value = own.place(x), other.place(y)
        ends = [self._end(given, value, other) for given in (curve.lower, curve.upper)]
        kept = np.isfinite(at) & np.isfinite(value)
        return kept, at[kept], value[kept], ends[0][kept], ends[1][kept]

    def _end(self, given: ArrayLike | None, value: Float64Array, axis: Axis) -> Float64Array:
        """Return where ends of brackets lie; on the axis if they are beyond a logarithmic one."""
        if given is None:
            return value
        ends = _numbers(given)
        placed = axis.place(ends)
        beyond = (ends <= 0) & ~np.isfinite(placed)
        return np.where(np.isfinite(placed), placed, np.where(beyond, 0.0, value))

    def lines(self, curve: Curve, style: Style) -> str:
        _, at, value, lower, upper = self.placed(curve)
        if not len(at):
            return ""
        tone = self.colour(style.colour)
        if curve.dot:
            return _dots(zip(at, value, strict=True), curve.dot, tone)
        bracketed = curve.lower is not None or curve.upper is not None
        drawn = ""
        if bracketed and curve.points:
            ends = zip(at, lower, upper, strict=True)
            bars = "".join(f"M{self._point(a, b)}L{self._point(a, c)}" for a, b, c in ends)
            drawn += _path(bars, tone, 1.5)
        elif bracketed:
            edge = self._points(np.append(at, at[::-1]), np.append(upper, lower[::-1]))
            shade = 1 if style.colour == CHANCE.colour else 0.2
            drawn += f'<path d="M{edge}Z" fill="{tone}" fill-opacity="{shade}"/>'
        if not curve.points if curve.line is None else curve.line:
            drawn += _path(f"M{self._points(at, value)}", tone, 2, style.dash)
        return drawn

    def marks(self, curve: Curve, style: Style) -> str:
        _, at, value, _, _ = self.placed(curve)
        tone = self.colour(style.colour)
        radius = RADIUS if len(at) <= MANY else RADIUS / 2
        drawn = ""
        if curve.points:
            drawn = "".join(
                _symbol(style.symbol, *self._percent(a, b), radius, tone)
                for a, b in zip(at, value, strict=True)
            )
        return drawn

    def ends(self) -> str:
        """Write the names at the ends of curves; one that would lie on another is left out."""
        drawn, taken = "", list[float]()
        for curve in self.panel.curves:
            _, at, value, _, _ = self.placed(curve)
            if not curve.end or not len(at):
                continue
            height = self.panel.height * float(value[-1])
            if all(abs(height - other) >= LINE for other in taken):
                taken.append(height)
                x, y = self._percent(at[-1], value[-1])
                place = f'x="{x}" y="{y}" dx="4" dy="-9" text-anchor="end"'
                drawn += f"<text {place}>{escape(curve.end)}</text>"
        return drawn

    def readouts(self) -> list[Readout]:
        """Return what is said of each place: of all curves at a value of x, or of one point."""
        panel = self.panel
        found: dict[tuple[float, float | None, str], dict[str, None]] = {}
        for curve in filter(lambda curve: curve.name, panel.curves):
            kept, at, value, _, _ = self.placed(curve)
            own = _numbers(curve.x)[kept].tolist()
            said = _summary_sentence(curve, kept, alone=panel.scattered)
            for of, text, a, b in zip(own, said, at, value, strict=True):
                if panel.places and of not in range(len(panel.places)):
                    continue  # a band reaches beyond the first and the last place
                x, y = (b, a) if panel.turned else (a, b)
                single = panel.turned or panel.scattered
                layer = f"{curve.name}: " if panel.bare else ""
                key = (round(100 * x, 2), round(100 - 100 * y, 2) if single else None, layer)
                found.setdefault(key, {self._place(of): None})[f"{layer}{text}"] = None
        readouts = []
        for key in sorted(found, key=lambda key: (key[0], key[1] or 0.0)):
            named, *texts = found[key]
            readouts.append(Readout(*key[:2], f"{named}{': ' if named else ''}{'; '.join(texts)}"))
        return readouts

    def _place(self, value: float) -> str:
        """Say a value of x."""
        panel = self.panel
        if panel.scattered:
            return ""
        if panel.dates:
            return format_date(value)
        if not panel.places:
            return f"{panel.x_label} {format_number(value, 3, typeset=True)}"
        name = panel.places[round(value)]
        return name if panel.turned else f"{panel.x_label} {name}"

    def _percent(self, a: float, b: float) -> tuple[str, str]:
        x, y = (b, a) if self.panel.turned else (a, b)
        return f"{100 * x:.2f}%", f"{100 - 100 * y:.2f}%"

    def _point(self, a: float, b: float) -> str:
        x, y = (b, a) if self.panel.turned else (a, b)
        return f"{1000 * x:.1f},{1000 - 1000 * y:.1f}"

    def _points(self, a: Float64Array, b: Float64Array) -> str:
        return " ".join(self._point(*point) for point in zip(a, b, strict=True))


def _axes(panel: Panel) -> tuple[Axis, Axis]:
    """Return the axis to the right and the axis upwards."""
    if panel.bare:
        return (Axis(0.0, panel.bare),) * 2
    curves = panel.curves
    x_values = [_numbers(curve.x) for curve in curves]
    y_values = [
        _numbers(ends)
        for curve in curves
        for ends in (curve.y, curve.lower, curve.upper)
        if ends is not None
    ]
    pointed = any(curve.points for curve in curves)
    x_values.append(np.array([rule.at for rule in panel.rules]))
    own = axis_over(
        x_values,
        log=panel.log_x,
        zeros=panel.zeros,
        places=panel.places,
        dates=panel.dates,
        margin=pointed,
    )
    other = axis_over(
        y_values,
        log=panel.log_y,
        zeros=panel.zeros,
        from_zero=panel.from_zero,
        margin=True,
        steps=STEPS if panel.height >= LOW else STEPS // 2,
    )
    return (other, own) if panel.turned else (own, other)


def _height(panel: Panel, width: int) -> int:
    """Return the height of the area between the axes in a file; a map is a square."""
    return width - LEFT - RIGHT if panel.bare else panel.height


def _framed(panel: Panel, styles: Mapping[str, Style], colour: Colour, width: int) -> str:
    """Return a panel with its margins and labels, for a file."""
    drawn = draw_panel(panel, styles, colour)
    inside = width - LEFT - RIGHT
    height = _height(panel, width)
    middle, foot = LEFT + inside / 2, TOP + height + BOTTOM - 8
    texts = [
        (LEFT, TOP - 24, "start", panel.title, "bold"),
        (middle, foot, "middle", drawn.x_label, "normal"),
        (LEFT - 50, TOP - 10, "start", drawn.y_label, "normal"),
    ]
    written = "".join(
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(text)}</text>"
        for x, y, anchor, text, weight in texts
        if text
    )
    return (
        f'{written}<svg x="{LEFT}" y="{TOP}" width="{inside}" height="{height}" '
        f'overflow="visible">{drawn.body}</svg>'
    )


def _legend(
    named: Sequence[tuple[str, Style, bool]], width: float, colour: Colour
) -> tuple[str, float]:
    """Return the legend, in rows of samples (of points, if so) with their names, and its height."""
    x, y, drawn = float(LEFT), 12.0, []
    for name, style, points in named:
        needed = 44 + LEGEND_CHARACTER * len(name)
        if x > LEFT and x + needed > width - RIGHT:
            x, y = float(LEFT), y + LEGEND_ROW
        drawn.append(
            f'<g transform="translate({x:.1f},{y - 10:.1f})">'
            f"{sample_of(style, colour, points=points)}</g>"
            f'<text x="{x + 30:.1f}" y="{y:.1f}">{escape(name)}</text>'
        )
        x += needed
    return "".join(drawn), y + LEGEND_ROW


def _summary_sentence(curve: Curve, kept: BoolArray, *, alone: bool) -> list[str]:
    """Say the value of every kept point with its bracket, then its text; or its text alone."""
    places = np.flatnonzero(kept).tolist()
    beside = [printable(curve.texts[place]) if curve.texts else "" for place in places]
    if alone and curve.texts:
        return beside
    y = _numbers(curve.y)[kept].tolist()
    if curve.lower is None or curve.upper is None:
        written = [format_number(value, 5, typeset=True) for value in y]
    else:
        ends = (_numbers(end)[kept].tolist() for end in (curve.lower, curve.upper))
        brackets = zip(y, *ends, strict=True)
        written = [f"{format_estimate(*b, typeset=True)}".removesuffix(" ± 0") for b in brackets]
    name = printable(curve.name)
    return [
        f"{name} {value}, {text}" if text else f"{name} {value}"
        for value, text in zip(written, beside, strict=True)
    ]


def _numbers(values: ArrayLike) -> Float64Array:
    return np.asarray(values, dtype=np.float64)


def _path(steps: str, tone: str, width: float, dash: str = "") -> str:
    if not steps:
        return ""
    line = f'stroke="{tone}" stroke-width="{width:g}"{_dashes(dash)}'
    return f'<path d="{steps}" {line} vector-effect="non-scaling-stroke"/>'


def _dots(points: Iterable[tuple[float, float]], width: float, tone: str) -> str:
    """Return points as one path: a line of no length has round ends."""
    steps = "".join(f"M{1000 * x:.0f},{1000 - 1000 * y:.0f}h0" for x, y in points)
    line = f'stroke="{tone}" stroke-width="{width:g}" stroke-linecap="round"'
    return f'<path d="{steps}" {line} vector-effect="non-scaling-stroke"/>'


def _dashes(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def _symbol(symbol: str, x: str, y: str, radius: float, tone: str) -> str:
    if symbol == "disc":
        return f'<circle cx="{x}" cy="{y}" r="{radius:g}" fill="{tone}"/>'
    paint = f'stroke="{tone}" stroke-width="2"' if symbol in {"cross", "star"} else f'fill="{tone}"'
    scale = "" if radius == RADIUS else f' transform="scale({radius / RADIUS:g})"'
    shape = f'<path d="{SHAPES[symbol]}" {paint}{scale}/>'
    return f'<svg x="{x}" y="{y}" overflow="visible">{shape}</svg>'
