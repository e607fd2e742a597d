"""Heat traces with their bands and null models, and the gap that IMD measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentscale.heat.null_models import NORMALIZATIONS, Normalization, null_trace
from latentscale_pipeline.views.content import Figure
from latentscale_pipeline.views.drawing import (
    Style,
    banded_line,
    error_bars,
    in_plot,
    layout_of,
    log_axis,
    present,
    widest,
)
from latentscale_pipeline.views.formatting import write_estimate, write_number

Json = dict[str, Any]

NORMAL_QUANTILE = 1.96
"""Half the width of a 95 % interval in standard errors, where a trace comes without its band."""

NULL_MODELS: dict[str, Normalization] = {"complete graph": "complete", "random graph": "er"}

GAP = Style("weighted gap", "gap")

UNITS: dict[str, str] = {
    "none": "heat trace",
    "empty": "heat trace per vertex",
    "complete": "heat trace relative to a complete graph",
    "er": "heat trace relative to a random graph",
}
"""What the vertical axis shows under each normalization."""


def heat_figures(heat: Json, corpora: Json) -> list[Figure]:
    """Return the heat traces with their bands and, for a pair, the gap that IMD measures."""
    traces = present(heat)
    if not traces:
        return []
    figures = [draw_traces(traces, corpora["corpus"]["n"] if heat.get("corpus") else None)]
    if len(traces) == 2 and heat.get("imd") is not None:
        corpus, reference = heat["corpus"], heat["reference"]
        if corpus["times"] == reference["times"]:
            figures.append(_weighted_gap(corpus, reference, heat["imd"]))
    return figures


def draw_traces(traces: Sequence[tuple[Style, Json]], vertices: int | None = None) -> Figure:
    """Draw heat traces on a logarithmic axis of times.

    Parameters
    ----------
    traces : sequence of (Style, dict)
        The entries of ``heat`` and how to draw them, all in one normalization.
    vertices : int, optional
        Rows of the first; null models of that size are drawn beside.
    """
    data: list[Json] = []
    bands = []
    for style, trace in traces:
        lower, upper = _band(trace)
        bands.append({"value": trace["trace"], "lower": lower, "upper": upper})
        data += banded_line(
            style,
            trace["times"],
            trace["trace"],
            lower,
            upper,
            hover="%{y:.6~g} [%{customdata[0]:.6~g}, %{customdata[1]:.6~g}]",
            custom=[list(ends) for ends in zip(lower, upper, strict=True)],
        )
    first = traces[0][1]
    nulls = null_models(first, vertices) if vertices else {}
    data += [_null_line(name, first["times"], heat) for name, heat in nulls.items()]
    normalization = first["normalization"]
    layout = layout_of(
        "diffusion time t (logarithmic)", UNITS.get(normalization, in_plot(normalization))
    )
    layout["xaxis"] |= log_axis()
    caption = (
        "Left: local neighbourhoods. Right: the corpus as a whole. "
        f"The band is a 95 % interval: {widest(bands)}."
    )
    if nulls:
        caption += (
            " Grey: null models in the same normalization, a complete graph and a random graph of "
            "as many vertices and edges; a corpus with structure loses its heat more slowly."
        )
    return Figure("heat-trace", "Heat trace", caption, {"data": data, "layout": layout})


def null_models(trace: Json, vertices: int) -> dict[str, list[float]]:
    """Return the heat traces of graphs without structure, normalised as the trace is.

    Known for the normalised Laplacian only.
    """
    edges, kind = trace["graph"]["edges"], trace["normalization"]
    normalized = trace.get("laplacian", "normalized") == "normalized"
    if not normalized or vertices < 2 or not edges or kind not in NORMALIZATIONS:
        return {}
    times, degree = np.array(trace["times"]), 2.0 * edges / vertices
    divisor = null_trace(kind, times, vertices, degree)
    return {
        name: (null_trace(model, times, vertices, degree) / divisor).tolist()
        for name, model in NULL_MODELS.items()
        if model != kind
    }


def _null_line(name: str, times: list[float], heat: list[float]) -> Json:
    dash = {"complete graph": "dot", "random graph": "dashdot"}[name]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": times,
        "y": heat,
        "line": {"color": "@gap", "width": 1.3, "dash": dash},
        "hovertemplate": "%{y:.4~g}",
    }


def _weighted_gap(corpus: Json, reference: Json, imd: Json) -> Figure:
    """Draw exp(-2(t + 1/t)) |h_corpus - h_reference|, whose largest value is the IMD."""
    # Compiles functions, which a comparison without this figure shouldn't wait for.
    from latentscale.heat.imd import weighted_gap

    gap = weighted_gap(
        np.array(corpus["times"]),
        (np.array(corpus["trace"]), np.array(reference["trace"])),
        (_band_arrays(corpus), _band_arrays(reference)),
    )
    middle, low, high = (values.tolist() for values in gap)
    data = banded_line(
        GAP,
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
            "error_y": error_bars([imd["value"]], [imd["lower"]], [imd["upper"]])
            | {"color": "@ink"},
            "marker": {"color": "@ink", "symbol": "diamond", "size": 10},
            "hovertemplate": "%{y:.2~e}",
        }
    )
    layout = layout_of("diffusion time t (logarithmic)", "weighted gap")
    layout["xaxis"] |= log_axis()
    layout["yaxis"] |= {"rangemode": "tozero"}
    written = write_estimate(imd["value"], imd["lower"], imd["upper"], typeset=True)
    caption = (
        "The gap between the two heat traces under IMD's weight e^(−2(t + 1/t)). Its highest "
        f"point, at t = {write_number(imd['time'], 3)}, is the IMD: {written.value} "
        f"{written.bracket}. The band adds both traces' brackets, so it is wider than the IMD's."
    )
    document = {"data": data, "layout": layout}
    return Figure("heat-gap", "Where the two shapes differ", caption, document)


def _band(trace: Json) -> tuple[list[float], list[float]]:
    """Return the ends of a heat trace's band: as given, or from its standard errors."""
    if "lower" in trace and "upper" in trace:
        return trace["lower"], trace["upper"]
    pairs = list(zip(trace["trace"], trace["standard_error"], strict=True))
    return (
        [value - NORMAL_QUANTILE * error for value, error in pairs],
        [value + NORMAL_QUANTILE * error for value, error in pairs],
    )


def _band_arrays(trace: Json) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    lower, upper = _band(trace)
    return np.array(lower), np.array(upper)
