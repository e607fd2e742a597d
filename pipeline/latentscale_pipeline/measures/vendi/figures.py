"""Vendi scores by order, with their brackets, and their rarefaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentscale_pipeline.views.content import Figure
from latentscale_pipeline.views.drawing import (
    ENDS,
    Style,
    error_bars,
    in_plot,
    layout_of,
    log_axis,
    present,
    widest,
)
from latentscale_pipeline.views.formatting import printable, write_number
from latentscale_pipeline.views.glossary import BOUNDS
from latentscale_pipeline.views.rarefaction import Curve, draw_rarefaction

Json = dict[str, Any]


def vendi_figures(vendi: Json, corpora: Json) -> list[Figure]:
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


def kernels_of(drawn: Sequence[tuple[Style, list[Json]]]) -> list[tuple[str, float | None]]:
    """Return the kernels and bandwidths of some corpora's entries, each once, in order."""
    found = ((entry["kernel"], entry["bandwidth"]) for _, entries in drawn for entry in entries)
    return list(dict.fromkeys(found))


def draw_orders(
    key: str,
    kernel: str,
    bandwidth: float | None,
    chosen: Sequence[tuple[Style, list[Json]]],
) -> Figure:
    """Draw scores of one kernel by order, as points with their brackets."""
    data: list[Json] = []
    missing = []
    for style, scores in chosen:
        known = [entry for entry in scores if entry["value"] is not None]
        missing += [
            f"Order {printable(entry['order'])} of the {style.name} is missing: "
            f"{printable(entry['value_reason'])}."
            for entry in scores
            if entry["value"] is None
        ]
        data.append(_points(style, known))
    values = [value for trace in data for value in trace["y"]]
    layout = layout_of("order q", "effective items")
    orders = {float(entry["order"]): _order(entry) for _, scores in chosen for entry in scores}
    layout["xaxis"] |= {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [orders[order] for order in sorted(orders)],
    }
    if values and max(values) > 10 * min(values):
        layout["yaxis"] |= log_axis() | {"title": {"text": "effective items (logarithmic)"}}
    else:
        layout["yaxis"]["rangemode"] = "tozero"
    counts = " and ".join(
        f"{scores[0]['n']:,} ({style.name})" for style, scores in chosen if scores
    )
    width = "" if bandwidth is None else f" with bandwidth σ = {write_number(bandwidth)}"
    known_scores = [
        {name: [entry[name] for entry in scores if entry["value"] is not None] for name in ENDS}
        for _, scores in chosen
    ]
    caption = " ".join(
        [
            (
                f"Effective number of items out of {counts}, kernel {printable(kernel)}{width}. "
                f"Bars are the brackets: {widest(known_scores)}."
            ),
            *missing,
        ]
    )
    title = f"Vendi score by order, {printable(kernel)} kernel"
    return Figure(key, title, caption, {"data": data, "layout": layout})


def _points(style: Style, known: list[Json]) -> Json:
    value, lower, upper = ([entry[end] for entry in known] for end in ENDS)
    colour = f"@{style.colour}"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": style.name,
        "x": [_order(entry) for entry in known],
        "y": value,
        "error_y": error_bars(value, lower, upper) | {"color": colour},
        "line": {"color": colour, "width": 2, "dash": style.dash},
        "marker": {"color": colour, "symbol": style.symbol, "size": 9},
        "customdata": [
            [
                entry["lower"],
                entry["upper"],
                BOUNDS[entry["bounds"]].name,
                in_plot(entry["method"]),
            ]
            for entry in known
        ],
        "hovertemplate": "%{y:,.6~g} [%{customdata[0]:,.6~g}, %{customdata[1]:,.6~g}] "
        "%{customdata[2]}, %{customdata[3]}",
    }


def of_kernel(entries: list[Json], kernel: str, bandwidth: float | None) -> list[Json]:
    """Return the entries of one kernel and bandwidth, by order."""
    ordered = sorted(entries, key=lambda entry: float(entry["order"]))
    return [
        entry for entry in ordered if (entry["kernel"], entry["bandwidth"]) == (kernel, bandwidth)
    ]


def _curves(style: Style, entries: list[Json]) -> list[Curve]:
    return [
        Curve(
            of=f"order {'∞' if entry['order'] == 'inf' else entry['order']}",
            style=style,
            sizes=entry["rarefaction"]["sizes"],
            values=entry["rarefaction"]["values"],
            n=entry["n"],
            value=entry["value"],
            lower=entry["lower"],
            upper=entry["upper"],
        )
        for entry in entries
        if entry.get("rarefaction") and entry["value"] is not None
    ]


def _order(entry: Json) -> str:
    return "∞" if entry["order"] == "inf" else in_plot(entry["order"])
