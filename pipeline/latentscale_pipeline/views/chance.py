"""Draw how a curve differs from that of the reference, with the grey that chance makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from latentscale_pipeline.results.model import CurveRange
from latentscale_pipeline.views.figure import CHANCE, ROLE_STYLES, Curve, Figure, Panel

HEIGHT = 90
"""Height of the panel, in pixels."""


def with_chance(
    figure: Figure,
    known: CurveRange,
    *,
    x: Sequence[float] | None = None,
    x_label: str = "",
    relative: bool = True,
) -> Figure:
    """Return a figure with a panel of differences below.

    Parameters
    ----------
    figure : Figure
        Its last panel has the axis of x that the differences share.
    known : CurveRange
        Mean values over samples of the corpus and of the reference, and their expected ranges.
    x, x_label
        Places and their label, if they aren't those of the figure.
    relative : bool
        Whether differences are in percent of the reference's values, which aren't 0.
    """

    def differences(values: Sequence[float]) -> list[float]:
        pairs = zip(values, known.centre, strict=True)
        return [100 * (value / at - 1) if relative else value - at for value, at in pairs]

    base = figure.panels[-1]
    x = known.x if x is None else x
    lower, upper, found = map(differences, (known.lower, known.upper, known.found))
    band = Curve(CHANCE.name, x, [0.0] * len(x), lower, upper, line=False, style=CHANCE)
    corpus = Curve("corpus", x, found, points=bool(base.places), style=ROLE_STYLES["corpus"])
    unit = " in %" if relative else ""
    below = Panel(
        "",
        x_label or base.x_label,
        f"difference from the reference{unit}, of samples of {known.rows:,} rows",
        [band, corpus],
        log_x=base.log_x,
        places=base.places,
        height=HEIGHT,
    )
    caption = f"{_summary_sentence(known, base)} {figure.caption}"
    return replace(figure, caption=caption, panels=[*figure.panels, below])


def _summary_sentence(known: CurveRange, panel: Panel) -> str:
    """Say which values lie outside of the grey, or how many."""
    ends = zip(known.lower, known.found, known.upper, strict=True)
    outside = [not low <= value <= high for low, value, high in ends]
    count = sum(outside)
    if not count:
        return "Below, all lies where chance puts it 95 times in 100."
    where = f"{count} of {len(outside)} values"
    if panel.places:
        names = [panel.places[round(x)] for x, out in zip(known.x, outside, strict=True) if out]
        where = f"{panel.x_label} {' and '.join(names)}"
    verb = "lies" if count == 1 else "lie"
    return f"Below, {where} {verb} outside of what chance makes 95 times in 100."
