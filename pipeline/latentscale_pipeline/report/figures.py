"""The figures of the report, as plain plotly documents.

Each function reads one entry of ``measures`` and returns a :class:`Figure`: traces and a layout as
dictionaries. Colours are written as names such as ``@corpus``; the page replaces them by the
colours of the scheme (light, dark, print) it is shown in. The palette is Okabe and Ito's, which
people with any colour vision can tell apart; lines also differ by their dashes and markers by
their shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from latentscale_pipeline.notation import (
    printable,
    write_estimate,
    write_number,
)
from latentscale_pipeline.report.meanings import BOUNDS, HEAT_UNITS

Json = dict[str, Any]

ROLES = ("corpus", "reference")
"""The corpora of a job, in the order in which they are drawn: dashes over a solid line."""

DASHES = {"corpus": "solid", "reference": "dash"}
SYMBOLS = {"corpus": "circle", "reference": "diamond"}
NORMAL_QUANTILE = 1.96
"""Half the width of a 95 % interval in standard errors, where a trace comes without its band."""

ENDS = ("value", "lower", "upper")

SHOWN_COMPONENTS = 30
"""Components in the chart; smaller ones are in the job's store."""

DWARFING = 20
"""How many times larger than the next a component makes the others invisible beside it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot: a key for its element, a title, a caption and plotly's document."""

    key: str
    title: str
    caption: str
    document: Json


def heat_figures(heat: Json) -> list[Figure]:
    """Return the heat traces with their bands and, for a pair, the gap that IMD measures."""
    traces = _present(heat)
    figures = [_heat_trace(traces)]
    if len(traces) == 2 and heat.get("imd") is not None:
        corpus, reference = traces["corpus"], traces["reference"]
        if corpus["times"] == reference["times"]:
            figures.append(_weighted_gap(corpus, reference, heat["imd"]))
    return figures


def magnitude_figures(magnitude: Json) -> list[Figure]:
    """Return the magnitude functions with their brackets and convergence scales."""
    functions = _present(magnitude)
    data: list[Json] = []
    for role, function in functions.items():
        hover = [
            [lower, upper, BOUNDS[bounds].name, _in_plot(method)]
            for lower, upper, bounds, method in zip(
                function["lower"],
                function["upper"],
                function["bounds"],
                function["method"],
                strict=True,
            )
        ]
        data += _banded_line(
            role,
            function["scales"],
            function["value"],
            function["lower"],
            function["upper"],
            markers=True,
            hover="%{y:,.6~g} [%{customdata[0]:,.6~g}, %{customdata[1]:,.6~g}] "
            "%{customdata[2]}, %{customdata[3]}",
            custom=hover,
        )
    top = max(max(function["upper"]) for function in functions.values())
    last = max(max(function["scales"]) for function in functions.values())
    sentences = []
    for role, function in functions.items():
        scale = function["convergence_scale"]
        if scale is None:
            reason = printable(function.get("convergence_scale_reason", "no reason was recorded"))
            sentences.append(f"The {role} has no convergence scale: {reason}.")
        elif scale > 1.5 * last:
            sentences.append(f"t_conv of the {role} is {write_number(scale)}, beyond this plot.")
        else:
            data.append(_convergence_line(role, function, scale, top))
    counts = " and ".join(f"{function['n']:,} ({role})" for role, function in functions.items())
    widest = _widest(functions.values())
    caption = " ".join(
        [
            f"The function starts at 1 and approaches the number of distinct rows: {counts}.",
            "Dotted lines mark the convergence scales t_conv.",
            *sentences,
            f"The band is the bracket: {widest}.",
        ]
    )
    layout = _layout("scale t (1/distance)", "magnitude (effective points)")
    layout["yaxis"]["rangemode"] = "tozero"
    return [
        Figure(
            "magnitude-function", "Magnitude function", caption, {"data": data, "layout": layout}
        )
    ]


def vendi_figures(vendi: Json) -> list[Figure]:
    """Return one plot a kernel: the scores by order, with their brackets."""
    entries = _present(vendi)
    kernels = dict.fromkeys(
        (entry["kernel"], entry["bandwidth"]) for role in entries for entry in entries[role]
    )
    return [
        _vendi_by_order(f"vendi-{place}", kernel, bandwidth, entries)
        for place, (kernel, bandwidth) in enumerate(kernels)
    ]


def geomca_figures(geomca: Json) -> list[Figure]:
    """Return the chart of the largest components, unless there are none.

    Bars are stacked; where one component dwarfs the others they stand side by side on a
    logarithmic axis, since a stack has no meaning there.
    """
    components = geomca["components"][:SHOWN_COMPONENTS]
    if not components:
        return []
    ranks = [component["rank"] for component in components]
    sizes = sorted((component["size"] for component in components), reverse=True)
    dwarfed = len(sizes) > 1 and sizes[0] > DWARFING * sizes[1]
    layout = _layout("component, by rank", "thinned points")
    layout["barmode"] = "group" if dwarfed else "stack"
    layout["bargap"] = 0.25
    layout["xaxis"] |= {
        "anchor": "y2",
        "dtick": max(1, len(ranks) // 10),
        "tick0": ranks[0],
        "range": [ranks[0] - 0.7, ranks[-1] + 0.7],
    }
    layout["yaxis"] |= {"domain": [0.42, 1.0]}
    if dwarfed:
        layout["yaxis"] |= {
            "type": "log",
            "range": [math.log10(0.5), math.log10(2 * sizes[0])],
            "title": {"text": "thinned points (log.)", "standoff": 8},
            "dtick": "D1" if sizes[0] < 100 else 1,
        }
    layout["yaxis2"] = _axis("score") | {
        "domain": [0.0, 0.32],
        "range": [-0.08, 1.08],
        "tickvals": [0, 0.5, 1],
    }
    layout["height"] = 460
    count = geomca.get("component_count")
    of_all = "" if count is None else f" of {count:,}"
    caption = (
        f"The {len(components)} largest components{of_all}: above, how many thinned points of each "
        "corpus they hold; below, consistency (1 for equally many of both) and quality (share of "
        "edges between the two corpora)."
    )
    data = [*_component_bars(components, ranks), *_component_scores(components, ranks)]
    return [Figure("geomca-components", "Components", caption, {"data": data, "layout": layout})]


def _component_bars(components: list[Json], ranks: list[int]) -> list[Json]:
    return [
        {
            "type": "bar",
            "name": role,
            "x": ranks,
            "y": [component[f"n_{role}"] for component in components],
            "marker": {"color": f"@{role}", "line": {"width": 0}},
            "hovertemplate": "%{y:,}",
        }
        for role in ROLES
    ]


def _component_scores(components: list[Json], ranks: list[int]) -> list[Json]:
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": ranks,
            "y": [component[name] for component in components],
            "yaxis": "y2",
            "marker": {
                "color": f"@{name}",
                "symbol": symbol,
                "size": size,
                "line": {"color": f"@{name}", "width": 2},
            },
            "hovertemplate": "%{y:.3f}",
        }
        for name, symbol, size in (("consistency", "square", 7), ("quality", "diamond-open", 12))
    ]


def _present(measure: Json) -> dict[str, Any]:
    """Return what a measure found for each corpus that there is."""
    return {role: measure[role] for role in ROLES if measure.get(role)}


def _heat_trace(traces: dict[str, Json]) -> Figure:
    data: list[Json] = []
    for role, trace in traces.items():
        lower, upper = _band(trace)
        data += _banded_line(
            role,
            trace["times"],
            trace["trace"],
            lower,
            upper,
            hover="%{y:.6~g} [%{customdata[0]:.6~g}, %{customdata[1]:.6~g}]",
            custom=[list(ends) for ends in zip(lower, upper, strict=True)],
        )
    normalization = next(iter(traces.values()))["normalization"]
    unit = HEAT_UNITS.get(normalization, _in_plot(normalization))
    layout = _layout("diffusion time t (logarithmic)", unit)
    layout["xaxis"] |= _log_axis()
    bands = [
        {"value": t["trace"], "lower": _band(t)[0], "upper": _band(t)[1]} for t in traces.values()
    ]
    caption = (
        "Left: local neighbourhoods. Right: the corpus as a whole. "
        f"The band is a 95 % interval: {_widest(bands)}."
    )
    return Figure("heat-trace", "Heat trace", caption, {"data": data, "layout": layout})


def _weighted_gap(corpus: Json, reference: Json, imd: Json) -> Figure:
    """Draw exp(-2(t + 1/t)) |h_corpus - h_reference|, whose largest value is the IMD."""
    middle, low, high = [], [], []
    bands = (*_band(corpus), *_band(reference))
    rows = zip(corpus["times"], corpus["trace"], reference["trace"], *bands, strict=True)
    for time, ours, theirs, our_low, our_high, their_low, their_high in rows:
        weight = math.exp(-2 * (time + 1 / time))
        gap = abs(ours - theirs)
        slack = (our_high - our_low + their_high - their_low) / 2
        middle.append(weight * gap)
        low.append(weight * max(0.0, gap - slack))
        high.append(weight * (gap + slack))
    data = _banded_line(
        "gap",
        corpus["times"],
        middle,
        low,
        high,
        hover="%{y:.2~e} [%{customdata[0]:.2~e}, %{customdata[1]:.2~e}]",
        custom=[list(ends) for ends in zip(low, high, strict=True)],
    )
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "IMD",
            "x": [imd["time"]],
            "y": [imd["value"]],
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [imd["upper"] - imd["value"]],
                "arrayminus": [imd["value"] - imd["lower"]],
                "color": "@ink",
            },
            "marker": {"color": "@ink", "symbol": "diamond", "size": 10},
            "hovertemplate": "%{y:.2~e}",
        }
    )
    layout = _layout("diffusion time t (logarithmic)", "weighted gap")
    layout["xaxis"] |= _log_axis()
    layout["yaxis"] |= {"rangemode": "tozero", "exponentformat": "power"}
    written = write_estimate(imd["value"], imd["lower"], imd["upper"], typeset=True)
    caption = (
        "The gap between the two heat traces under IMD's weight e^(−2(t + 1/t)). Its highest "
        f"point, at t = {write_number(imd['time'], 3)}, is the IMD: {written.value} "
        f"{written.bracket}. The band adds both traces' brackets, so it is wider than the IMD's."
    )
    document = {"data": data, "layout": layout}
    return Figure("heat-gap", "Where the two shapes differ", caption, document)


def _vendi_by_order(
    key: str, kernel: str, bandwidth: float | None, entries: dict[str, list[Json]]
) -> Figure:
    chosen = {
        role: [
            entry
            for entry in sorted(entries[role], key=lambda entry: float(entry["order"]))
            if (entry["kernel"], entry["bandwidth"]) == (kernel, bandwidth)
        ]
        for role in entries
    }
    data: list[Json] = []
    missing = []
    for role, scores in chosen.items():
        known = [entry for entry in scores if entry["value"] is not None]
        missing += [
            f"Order {entry['order']} of the {role} is missing: {printable(entry['value_reason'])}."
            for entry in scores
            if entry["value"] is None
        ]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": role,
                "x": [_order(entry) for entry in known],
                "y": [entry["value"] for entry in known],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [entry["upper"] - entry["value"] for entry in known],
                    "arrayminus": [entry["value"] - entry["lower"] for entry in known],
                    "color": f"@{role}",
                    "thickness": 1.5,
                    "width": 5,
                },
                "line": {"color": f"@{role}", "width": 2, "dash": DASHES[role]},
                "marker": {"color": f"@{role}", "symbol": SYMBOLS[role], "size": 9},
                "customdata": [
                    [
                        entry["lower"],
                        entry["upper"],
                        BOUNDS[entry["bounds"]].name,
                        _in_plot(entry["method"]),
                    ]
                    for entry in known
                ],
                "hovertemplate": "%{y:,.6~g} [%{customdata[0]:,.6~g}, %{customdata[1]:,.6~g}] "
                "%{customdata[2]}, %{customdata[3]}",
            }
        )
    values = [value for trace in data for value in trace["y"]]
    layout = _layout("order q", "effective items")
    layout["xaxis"] |= {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [
            _order(entry)
            for entry in sorted(
                (entry for scores in chosen.values() for entry in scores),
                key=lambda entry: float(entry["order"]),
            )
        ],
    }
    if values and max(values) > 10 * min(values):
        layout["yaxis"] |= _log_axis() | {"title": {"text": "effective items (logarithmic)"}}
    else:
        layout["yaxis"]["rangemode"] = "tozero"
    counts = " and ".join(
        f"{scores[0]['n']:,} ({role})" for role, scores in chosen.items() if scores
    )
    width = "" if bandwidth is None else f" with bandwidth σ = {write_number(bandwidth)}"
    known_scores = [
        {name: [entry[name] for entry in scores if entry["value"] is not None] for name in ENDS}
        for scores in chosen.values()
    ]
    caption = " ".join(
        [
            (
                f"Effective number of items out of {counts}, kernel {printable(kernel)}{width}. "
                f"Bars are the brackets: {_widest(known_scores)}."
            ),
            *missing,
        ]
    )
    title = f"Vendi score by order, {printable(kernel)} kernel"
    return Figure(key, title, caption, {"data": data, "layout": layout})


def _in_plot(text: object) -> str:
    """Escape a text for plotly, which reads some markup in labels and hover texts."""
    return escape(printable(text), quote=False)


def _order(entry: Json) -> str:
    return "∞" if entry["order"] == "inf" else _in_plot(entry["order"])


def _band(trace: Json) -> tuple[list[float], list[float]]:
    """Return the ends of a heat trace's band: as given, or from its standard errors."""
    if "lower" in trace and "upper" in trace:
        return trace["lower"], trace["upper"]
    pairs = list(zip(trace["trace"], trace["standard_error"], strict=True))
    return (
        [value - NORMAL_QUANTILE * error for value, error in pairs],
        [value + NORMAL_QUANTILE * error for value, error in pairs],
    )


def _banded_line(
    role: str,
    x: Sequence[float],
    y: Sequence[float],
    lower: Sequence[float],
    upper: Sequence[float],
    *,
    hover: str,
    custom: list[list[Any]],
    markers: bool = False,
) -> list[Json]:
    edge: Json = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "line": {"width": 0, "color": f"@{role}"},
        "legendgroup": role,
        "showlegend": False,
        "hoverinfo": "skip",
    }
    line: Json = {
        "type": "scatter",
        "mode": "lines+markers" if markers else "lines",
        "name": "weighted gap" if role == "gap" else role,
        "x": x,
        "y": y,
        "line": {"color": f"@{role}", "width": 2, "dash": DASHES.get(role, "solid")},
        "legendgroup": role,
        "customdata": custom,
        "hovertemplate": hover,
    }
    if markers:
        line["marker"] = {"color": f"@{role}", "symbol": SYMBOLS[role], "size": 6}
    return [
        edge | {"name": f"{role}, lower end", "y": lower},
        edge
        | {
            "name": f"{role}, upper end",
            "y": upper,
            "fill": "tonexty",
            "fillcolor": f"@{role}-band",
        },
        line,
    ]


def _convergence_line(role: str, function: Json, scale: float, top: float) -> Json:
    bracket = function.get("convergence")
    if bracket is None:
        text = write_number(scale)
    else:
        written = write_estimate(bracket["value"], bracket["lower"], bracket["upper"], typeset=True)
        text = f"{written.value} {written.bracket}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"t_conv, {role}",
        "x": [scale, scale],
        "y": [0, top],
        "line": {"color": f"@{role}", "width": 1.5, "dash": "dot"},
        "legendgroup": role,
        "text": [text, text],
        "hovertemplate": "%{text}",
    }


def _widest(brackets: Iterable[Json]) -> str:
    """Say how wide the widest bracket is, as a share of its value."""
    share = max(_half_widths(brackets), default=0.0)
    if share == 0:
        return "all of zero width"
    return f"at the widest ± {write_number(100 * share, 2)} % of the value"


def _half_widths(brackets: Iterable[Json]) -> Iterator[float]:
    for bracket in brackets:
        for value, lower, upper in zip(*(bracket[end] for end in ENDS), strict=True):
            if value:
                yield max(upper - value, value - lower) / abs(value)


def _axis(title: str) -> Json:
    return {
        "title": {"text": title, "standoff": 8},
        "automargin": True,
        "gridcolor": "@grid",
        "linecolor": "@axis",
        "tickcolor": "@axis",
        "ticks": "outside",
        "showline": True,
        "zeroline": False,
    }


def _log_axis() -> Json:
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": [step * 10.0**power for power in range(-6, 10) for step in (1, 2, 5)],
        "ticktext": [
            f"{step * 10**power:,}" if power >= 0 else f"{step * 10.0**power:.{-power}f}"
            for power in range(-6, 10)
            for step in (1, 2, 5)
        ],
    }


def _layout(x_title: str, y_title: str) -> Json:
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
        "xaxis": _axis(x_title),
        "yaxis": _axis(y_title),
    }
