"""Vendi scores by order, with their brackets, and their rarefaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentscale_pipeline.measures.vendi.results import VendiResults, VendiScore
from latentscale_pipeline.views.content import Figure
from latentscale_pipeline.views.drawing import (
    Style,
    error_bars,
    hover_texts,
    in_plot,
    layout_of,
    present,
    scatter,
    widest,
)
from latentscale_pipeline.views.formatting import printable, write_number
from latentscale_pipeline.views.glossary import BOUNDS
from latentscale_pipeline.views.rarefaction import Curve, draw_rarefaction

Json = dict[str, Any]
Drawn = tuple[Style, Sequence[VendiScore]]


def vendi_figures(vendi: VendiResults) -> list[Figure]:
    """Return one plot a kernel: the scores by order; where sampled, how they grow as well."""
    drawn = present(vendi)
    figures = []
    for place, (kernel, bandwidth) in enumerate(kernels_of(drawn)):
        chosen = [(style, of_kernel(entries, kernel, bandwidth)) for style, entries in drawn]
        figures.append(draw_orders(f"vendi-{place}", kernel, bandwidth, chosen))
        curves = [curve for style, entries in chosen for curve in _curves(style, entries)]
        grown = draw_rarefaction(f"vendi-{place}-rarefaction", curves, "effective items")
        figures += [grown] if grown else []
    return figures


def kernels_of(drawn: Sequence[Drawn]) -> list[tuple[str, float | None]]:
    """Return the kernels and bandwidths of some corpora's entries, each once, in order."""
    found = ((entry.kernel, entry.bandwidth) for _, entries in drawn for entry in entries)
    return list(dict.fromkeys(found))


def draw_orders(key: str, kernel: str, bandwidth: float | None, chosen: Sequence[Drawn]) -> Figure:
    """Draw scores of one kernel by order, as points with their brackets."""
    brackets = [numbers for _, entries in chosen for entry in entries if (numbers := entry.numbers)]
    values = [value for value, _, _ in brackets]
    spread = bool(values) and max(values) > 10 * min(values)
    layout = layout_of("order q", "effective items", log_y=spread)
    orders = {float(entry.order): _order(entry) for _, entries in chosen for entry in entries}
    layout["xaxis"] |= {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [orders[order] for order in sorted(orders)],
    }
    if not spread:
        layout["yaxis"]["rangemode"] = "tozero"
    counts = " and ".join(
        f"{entries[0].n:,} ({style.name})" for style, entries in chosen if entries
    )
    width = "" if bandwidth is None else f" with bandwidth σ = {write_number(bandwidth)}"
    caption = " ".join(
        [
            (
                f"Effective number of items out of {counts}, kernel {printable(kernel)}{width}. "
                f"Bars are the brackets: {widest(brackets)}."
            ),
            *(
                f"Order {printable(entry.order)} of the {style.name} is missing: "
                f"{printable(entry.value_reason)}."
                for style, entries in chosen
                for entry in entries
                if entry.value is None
            ),
        ]
    )
    title = f"Vendi score by order, {printable(kernel)} kernel"
    data = [_points(style, entries) for style, entries in chosen]
    return Figure(key, title, caption, {"data": data, "layout": layout})


def _points(style: Style, entries: Sequence[VendiScore]) -> Json:
    known = [(entry, numbers) for entry in entries if (numbers := entry.numbers)]
    value, lower, upper = ([numbers[end] for _, numbers in known] for end in range(3))
    beside = (
        [BOUNDS[entry.bounds or ""].name for entry, _ in known],
        [in_plot(entry.method) for entry, _ in known],
    )
    return scatter(
        style,
        [_order(entry) for entry, _ in known],
        value,
        size=9,
        error_y=error_bars(style, value, lower, upper),
        **hover_texts(lower, upper, ",.6~g", beside),
    )


def of_kernel(
    entries: Sequence[VendiScore], kernel: str, bandwidth: float | None
) -> list[VendiScore]:
    """Return the entries of one kernel and bandwidth, by order."""
    own = [entry for entry in entries if (entry.kernel, entry.bandwidth) == (kernel, bandwidth)]
    return sorted(own, key=lambda entry: float(entry.order))


def _curves(style: Style, entries: Sequence[VendiScore]) -> list[Curve]:
    return [
        Curve(
            of=f"order {'∞' if entry.order == 'inf' else entry.order}",
            style=style,
            sizes=entry.rarefaction.sizes,
            values=entry.rarefaction.values,
            n=entry.n,
            value=numbers[0],
            lower=numbers[1],
            upper=numbers[2],
        )
        for entry in entries
        if entry.rarefaction and (numbers := entry.numbers)
    ]


def _order(entry: VendiScore) -> str:
    return "∞" if entry.order == "inf" else in_plot(entry.order)
