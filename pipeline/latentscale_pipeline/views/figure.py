"""Figures as data: panels of curves, independent of where they are drawn.

The same figure is drawn in a page, in a notebook and as a file (:mod:`~.svg`), and its numbers are
written into the JSON document of a report. Colours are names: a page gives them the colours of its
scheme, a file those of :data:`~.svg.COLOURS`. The palette is by Okabe and Ito and is safe for
colour-blind readers; lines also differ in their dashes, and points in their shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from latentscale_pipeline.views.formatting import format_number, printable

ROLES = ("corpus", "reference")
"""The corpora of a job in drawing order: the dashed line is drawn over the solid one."""

NUMBERED = 6
"""Number of colours for numbered styles; further styles differ in dashes and symbols."""

DASHES = ("", "6 4", "2 3", "8 3 2 3")
"""Dashes of lines, as lengths of strokes and gaps in pixels."""

SYMBOLS = ("disc", "diamond", "square", "triangle", "cross", "star")
"""Shapes of points."""


@dataclass(frozen=True, slots=True)
class Style:
    """What distinguishes one of several curves: its name, colour, dash and symbol."""

    name: str
    colour: str
    dash: str = ""
    symbol: str = "disc"


ROLE_STYLES = {
    "corpus": Style("corpus", "corpus"),
    "reference": Style("reference", "reference", DASHES[1], "diamond"),
}


CHANCE = Style("what chance makes (95 %)", "chance")
"""The grey below a difference."""

MIN_SEEN = 0.005
"""Share of a value that a bracket has at least to be seen beside the line."""

FIELD_HEIGHT = 30
"""Height of a field of a grid, in pixels."""

PLACE_HEIGHT = 34
"""Height of a place of a turned panel, in pixels: its name above its point."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line with its band, or points with their brackets.

    Attributes
    ----------
    name : str
        Curves of the same name have the same style in all panels and one entry in the legend; a
        curve without a name is neither in the legend nor read out.
    x, y : array_like, shape (m,)
        Coordinates; points that aren't finite are left out.
    lower, upper : array_like, shape (m,), optional
        Ends of the bracket; without them no bracket is drawn.
    points : bool
        Draw points.
    line : bool, optional
        Draw a line; by default if no points are drawn.
    style : Style, optional
        How it looks; by default the next of the numbered styles.
    texts : sequence of str, length m
        What is said of each point beside its value.
    end : str
        A name that is written at its last point.
    dot : float
        Width in pixels of its points where they are too many for symbols; 0 for symbols.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    lower: ArrayLike | None = None
    upper: ArrayLike | None = None
    points: bool = False
    line: bool | None = None
    style: Style | None = None
    texts: Sequence[str] = ()
    end: str = ""
    dot: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A dotted line across a panel at one value of x, named unless a curve has its style."""

    at: float
    style: Style


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves on one pair of axes; a logarithmic axis leaves out values that aren't positive.

    Attributes
    ----------
    title, x_label, y_label : str
        Its texts; the label of y stands above its axis.
    curves : sequence of Curve
        At least one point of them is finite.
    log_x, log_y : bool
        Whether an axis is logarithmic.
    from_zero : bool
        Whether a linear axis of y begins at zero.
    zeros : bool
        Whether logarithmic axes have a strip for values of zero, named "none".
    places : sequence of str
        Names of the values 0, 1, 2, … of x, instead of numbers.
    dates : bool
        Whether x is a time, in seconds since the epoch.
    turned : bool
        Whether x runs down and y to the right; then the names of places stand in the panel.
    scattered : bool
        Whether points are looked up by both coordinates rather than by x alone.
    bare : float
        Side of a square without axes, whose coordinates begin at 0 and mean nothing; 0 for axes.
    height : int
        Height of the area between the axes, in pixels.
    rules : sequence of Rule
        Values of x that are marked.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False
    zeros: bool = False
    places: Sequence[str] = ()
    dates: bool = False
    turned: bool = False
    scattered: bool = False
    bare: float = 0.0
    height: int = 170
    rules: Sequence[Rule] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """A square of numbers between all pairs of some things, shaded by their size.

    Attributes
    ----------
    names, heads : sequence of str, length n
        The things, as rows and as columns, in the same order.
    texts : sequence of sequences of str, shape (n, n)
        What is written in each field.
    shades : sequence of sequences of float, shape (n, n)
        How dark each field is, from 0 to 1.
    """

    names: Sequence[str]
    heads: Sequence[str]
    texts: Sequence[Sequence[str]]
    shades: Sequence[Sequence[float]]

    turned: ClassVar[bool] = False
    bare: ClassVar[float] = 0.0

    @property
    def height(self) -> int:
        """Height in pixels, with a line of numbers above the fields."""
        return FIELD_HEIGHT * (len(self.names) + 1)


@dataclass(frozen=True, slots=True)
class Figure:
    """Panels below each other, with a key, a title and a caption that says what they show.

    A figure with a grid has no panels. Pages draw it, and files don't.
    """

    key: str
    title: str
    caption: str
    panels: Sequence[Panel] = ()
    grid: Grid | None = None


def numbered_styles(names: Sequence[str]) -> list[Style]:
    """Return a style for each name, such as the jobs of a comparison."""
    return [
        Style(
            printable(name),
            f"line-{place % NUMBERED}",
            DASHES[(place // NUMBERED + place) % len(DASHES)],
            SYMBOLS[place % len(SYMBOLS)],
        )
        for place, name in enumerate(names)
    ]


def styles_of(panels: Iterable[Panel]) -> dict[str, Style]:
    """Return the style of each name in some panels: its own, or the next of the numbered ones."""
    curves = [curve for panel in panels for curve in panel.curves]
    # The first style of a name counts.
    own = {curve.name: curve.style for curve in reversed(curves) if curve.style is not None}
    free = [name for name in dict.fromkeys(curve.name for curve in curves) if name not in own]
    numbered = dict(zip(free, numbered_styles(free), strict=True))
    return {curve.name: own.get(curve.name) or numbered[curve.name] for curve in curves}


def legend_of(panels: Sequence[Panel]) -> list[tuple[str, Style, bool]]:
    """Return the names of a legend with their styles, and whether only points have them."""
    curves = [curve for panel in panels for curve in panel.curves]
    lines = {curve.name for curve in curves if curve.line or not (curve.points or curve.dot)}
    return [(name, style, name not in lines) for name, style in styles_of(panels).items() if name]


def present(found: Any) -> list[tuple[Style, Any]]:
    """Return the style and the findings of a measure for each corpus that has any."""
    parts = {role: getattr(found, role, None) for role in ROLES}
    return [(ROLE_STYLES[role], part) for role, part in parts.items() if part]


def said_of_brackets(brackets: Iterable[tuple[float, float, float]], what: str) -> str:
    """Say how wide the widest bracket is as a share of its value; nothing if it can't be seen."""
    share = max((half_width(*bracket) for bracket in brackets if bracket[0]), default=0.0)
    if share < MIN_SEEN:
        return ""
    width = format_number(100 * share, 2, typeset=True)
    return f"{what}: at the widest ± {width} % of the value."


def half_width(value: float, lower: float, upper: float) -> float:
    """Return the larger distance of a bracket's ends from its value, as a share of the value."""
    return max(upper - value, value - lower) / abs(value)
