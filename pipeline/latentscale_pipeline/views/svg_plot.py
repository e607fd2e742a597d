"""Draw curves as one reproducible SVG document, without a plotting library.

The palette is by Okabe and Ito and is safe for colour-blind readers; dashes differ as well. A
single curve has the colour of the surrounding text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

WIDTH, HEIGHT = 420, 256
"""Size of one panel, in pixels."""

LEFT, RIGHT, TOP, BOTTOM = 58, 14, 40, 44
"""Margins of one panel, in pixels."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("", "6 3", "2 2", "8 3 2 3")
LEGEND_ROW, LEGEND_CHARACTER = 18, 6.4


@dataclass(frozen=True)
class Curve:
    """A line with its band, or points with their brackets.

    Attributes
    ----------
    name : str
        Curves of the same name have the same style in all panels and one entry in the legend.
    x, y : array_like, shape (m,)
        Coordinates; points that aren't finite are left out.
    lower, upper : array_like, shape (m,), optional
        Ends of the bracket; without them no bracket is drawn.
    points : bool
        Draw points instead of a line.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    lower: ArrayLike | None = None
    upper: ArrayLike | None = None
    points: bool = False


@dataclass(frozen=True)
class Panel:
    """Curves on one pair of axes; a logarithmic axis leaves out values that aren't positive."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False


def draw_panels(panels: Sequence[Panel], *, columns: int = 3, paper: str | None = None) -> str:
    """Return an SVG of panels in rows, with one legend below.

    Parameters
    ----------
    panels : sequence of Panel
        At least one, each with at least one finite point.
    columns : int
        Panels in a row.
    paper : str, optional
        Colour of the background; transparent by default.
    """
    names = list(dict.fromkeys(curve.name for panel in panels for curve in panel.curves))
    styles = {name: _style(place, len(names)) for place, name in enumerate(names)}
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    width = columns * WIDTH
    legend, legend_height = _legend(styles, width) if len(names) > 1 else ("", 0)
    height = rows * HEIGHT + legend_height
    drawn = "".join(
        f'<g transform="translate({place % columns * WIDTH},{place // columns * HEIGHT})">'
        f"{_panel(panel, styles)}</g>"
        for place, panel in enumerate(panels)
    )
    label = escape("; ".join(f"{p.y_label} over {p.x_label}" for p in panels))
    back = f'<rect width="{width}" height="{height}" fill="{paper}"/>' if paper else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="img" aria-label="{label}" fill="currentColor" font-size="11" '
        f'font-family="sans-serif">{back}{drawn}'
        f'<g transform="translate(0,{rows * HEIGHT})">{legend}</g></svg>'
    )


@dataclass(frozen=True)
class _Axis:
    """An axis: maps values to positions on one side of a panel."""

    low: float
    high: float
    log: bool
    start: float
    stop: float

    def place(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        low, high = (float(end) for end in self._scaled(np.array([self.low, self.high])))
        share: NDArray[np.float64] = (self._scaled(values) - low) / ((high - low) or 1.0)
        return self.start + share * (self.stop - self.start)

    def _scaled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log10(values) if self.log else values

    def ticks(self) -> list[float]:
        if self.log and self.high / self.low >= 10:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            every = max(1, len(powers) // 5)
            found = [10.0**power for power in powers][::every]
        else:
            found = _round_steps(self.low, self.high)
        slack = 1e-9 * (self.high - self.low)
        return [tick for tick in found if self.low - slack <= tick <= self.high + slack]


def _round_steps(low: float, high: float) -> list[float]:
    """Return four to nine ticks at multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 4 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * factor for factor in (5, 2) if power * factor <= rough), power)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _style(place: int, names: int) -> tuple[str, str]:
    if names == 1:
        return "currentColor", ""
    return COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)]


def _panel(panel: Panel, styles: dict[str, tuple[str, str]]) -> str:
    x_values = [_numbers(curve.x) for curve in panel.curves]
    y_values = [
        _numbers(ends)
        for curve in panel.curves
        for ends in (curve.y, curve.lower, curve.upper)
        if ends is not None
    ]
    across = _axis(x_values, panel.log_x, LEFT, WIDTH - RIGHT)
    down = _axis(y_values, panel.log_y, HEIGHT - BOTTOM, TOP)
    curves = "".join(_curve(curve, styles[curve.name], across, down) for curve in panel.curves)
    return _frame(panel, across, down) + curves


def _numbers(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)


def _axis(values: Sequence[NDArray[np.float64]], log: bool, start: float, stop: float) -> _Axis:
    every = np.concatenate([array.ravel() for array in values])
    kept = every[np.isfinite(every) & ((every > 0) | (not log))]
    return _Axis(float(kept.min()), float(kept.max()), log, start, stop)


def _frame(panel: Panel, across: _Axis, down: _Axis) -> str:
    left, right, bottom, top = across.start, across.stop, down.start, down.stop
    texts = [
        (left, top - 24, "start", panel.title, "bold"),
        ((left + right) / 2, HEIGHT - 8, "middle", panel.x_label, "normal"),
        (left - 50, top - 10, "start", panel.y_label, "normal"),
    ]
    lines = [f"M{left},{top} V{bottom} H{right}"]
    for tick, at in zip(across.ticks(), across.place(np.array(across.ticks())), strict=True):
        lines.append(f"M{at:.1f},{bottom} v4")
        texts.append((float(at), bottom + 16, "middle", f"{tick:.6g}", "normal"))
    for tick, at in zip(down.ticks(), down.place(np.array(down.ticks())), strict=True):
        lines.append(f"M{left},{at:.1f} h-4")
        texts.append((left - 6, float(at) + 4, "end", f"{tick:.6g}", "normal"))
    written = "".join(
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(text)}</text>"
        for x, y, anchor, text, weight in texts
    )
    path = " ".join(lines)
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>{written}'


def _curve(curve: Curve, style: tuple[str, str], across: _Axis, down: _Axis) -> str:
    x, y = _numbers(curve.x), _numbers(curve.y)
    lower = y if curve.lower is None else _numbers(curve.lower)
    upper = y if curve.upper is None else _numbers(curve.upper)
    kept = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not across.log))
    kept &= ((y > 0) & (lower > 0)) | (not down.log)
    at, value = across.place(x[kept]), down.place(y[kept])
    low, high = down.place(lower[kept]), down.place(upper[kept])
    colour, dash = style
    bracketed = curve.lower is not None or curve.upper is not None
    if curve.points:
        bars = " ".join(f"M{a:.1f},{b:.1f} V{c:.1f}" for a, b, c in zip(at, low, high, strict=True))
        dots = "".join(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.2"/>' for a, b in zip(at, value, strict=True)
        )
        drawn = f'<path d="{bars}" stroke="{colour}"/>' if bracketed and len(at) else ""
        return f'{drawn}<g fill="{colour}">{dots}</g>'
    band = ""
    if bracketed:
        edge = _points(np.append(at, at[::-1]), np.append(high, low[::-1]))
        band = f'<polygon points="{edge}" fill="{colour}" fill-opacity="0.2"/>'
    return (
        f'{band}<polyline points="{_points(at, value)}" fill="none" stroke="{colour}" '
        f'stroke-width="1.6" stroke-dasharray="{dash}"/>'
    )


def _legend(styles: dict[str, tuple[str, str]], width: float) -> tuple[str, float]:
    """Return the legend, in rows of line samples with their names, and its height."""
    x, y, drawn = float(LEFT), 12.0, []
    for name, (colour, dash) in styles.items():
        needed = 44 + LEGEND_CHARACTER * len(name)
        if x > LEFT and x + needed > width - RIGHT:
            x, y = float(LEFT), y + LEGEND_ROW
        drawn.append(
            f'<path d="M{x:.1f},{y - 4:.1f} h24" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dash}"/><text x="{x + 30:.1f}" y="{y:.1f}">{escape(name)}</text>'
        )
        x += needed
    return "".join(drawn), y + LEGEND_ROW


def _points(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
