"""Draw how a curve differs from that of the reference, with the grey that chance makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
    points: bool = False,
    outside: str = "",
    **panel: Any,
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
    points : bool
        Whether values are drawn as points instead of a line.
    outside : str
        The places whose values lie outside of the grey, for the caption; by default they are
        counted.
    panel
        Further settings of the panel.
    """

    def differences(values: Sequence[float]) -> list[float]:
        pairs = zip(values, known.centre, strict=True)
        return [100 * (value / at - 1) if relative else value - at for value, at in pairs]

    lower, upper, found = map(differences, (known.lower, known.upper, known.found))
    x = list(known.x) if x is None else list(x)
    band = Curve(CHANCE.name, x, [0.0] * len(x), lower, upper, line=False, style=CHANCE)
    corpus = Curve("corpus", x, found, points=points, style=ROLE_STYLES["corpus"])
    unit = " in %" if relative else ""
    title = f"difference from the reference{unit}, of samples of {known.rows:,} rows"
    base = figure.panels[-1]
    below = Panel(
        "", x_label or base.x_label, title, [band, corpus], log_x=base.log_x, height=HEIGHT, **panel
    )
    return replace(
        figure, caption=f"{_said(known, outside)} {figure.caption}", panels=[*figure.panels, below]
    )


def _said(known: CurveRange, outside: str) -> str:
    """Say whether values lie outside of the grey."""
    beyond = [
        not low <= value <= high
        for low, value, high in zip(known.lower, known.found, known.upper, strict=True)
    ]
    if not any(beyond):
        return "Below, all lies where chance puts it 95 times in 100."
    where = outside or f"{sum(beyond)} of {len(beyond)} values"
    verb = "lies" if outside and " and " not in outside else "lie"
    return f"Below, {where} {verb} outside of what chance makes 95 times in 100."
