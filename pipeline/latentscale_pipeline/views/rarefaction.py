"""Draw rarefaction curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from latentscale_pipeline.views.figure import DASHES, Curve, Figure, Panel, Style


@dataclass(frozen=True, slots=True)
class Growth:
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


def draw_rarefaction(key: str, found: Sequence[Growth], unit: str) -> Figure | None:
    """Return a figure of rarefaction curves; None if nothing was sampled."""
    if not found:
        return None
    named: set[str] = set()
    curves = []
    for growth in found:
        curves += _curves(growth, end="" if growth.of in named else growth.of)
        named.add(growth.of)
    caption = (
        "Mean scores of random subsets of growing size, and the extrapolated value for all rows "
        "with its bracket. If a curve still rises at its end, more rows would score higher: "
        "compare corpora of similar size."
    )
    panel = Panel("", "rows", unit, curves, log_x=True, log_y=True)
    return Figure(key, "Growth with the number of rows", caption, [panel])


def _curves(growth: Growth, end: str) -> list[Curve]:
    """Return the means as a line, and the extrapolation as a dotted one with its bracket."""
    style, last = growth.style, growth.values[-1]
    continued = replace(style, dash=DASHES[2])
    beyond = [growth.sizes[-1], growth.n]
    return [
        Curve(
            style.name,
            list(growth.sizes),
            list(growth.values),
            points=True,
            line=True,
            style=style,
            texts=[growth.of] * len(growth.sizes),
        ),
        Curve("", beyond, [last, growth.value], style=continued),
        Curve(
            style.name,
            beyond[1:],
            [growth.value],
            [growth.lower],
            [growth.upper],
            points=True,
            style=style,
            texts=[f"{growth.of}, extrapolated"],
            end=end,
        ),
    ]
