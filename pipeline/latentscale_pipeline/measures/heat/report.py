"""The report's section on heat traces and IMD, with its figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentscale.array_types import Float64Array
from latentscale.heat.null_models import NORMALIZATIONS, Normalization, null_trace
from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.heat.results import HeatResults, HeatTrace, Imd, NeighbourGraph
from latentscale_pipeline.measures.heat.scores import SCORES
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.chance import with_chance
from latentscale_pipeline.views.figure import (
    DASHES,
    Curve,
    Figure,
    Panel,
    Style,
    present,
    said_of_brackets,
)
from latentscale_pipeline.views.formatting import (
    counted,
    format_estimate,
    format_number,
    format_share,
    printable,
)

NORMAL_QUANTILE = 1.96
"""Half-width of a 95 % interval in standard errors, for traces without a stored band."""

MIN_DEGREE = 4
"""Mean degree below which the random graph of ``er`` has eigenvalues below 0: 1 - 2 / √degree."""

NULL_MODELS: dict[Normalization, Style] = {
    "complete": Style("complete graph", "gap", DASHES[2]),
    "er": Style("random graph", "gap", DASHES[3]),
}

GAP = Style("weighted gap", "gap")
POINT = Style("IMD", "ink", symbol="diamond")

UNITS: dict[str, str] = {
    "none": "heat trace",
    "empty": "heat trace per vertex",
    "complete": "heat trace relative to a complete graph",
    "er": "heat trace relative to a random graph",
}
"""Label of the vertical axis under each normalization."""


class HeatReport(MeasureReport):
    """The shape of a corpus."""

    group = "Shape"
    title = "Shape: heat trace and IMD"
    question = (
        "Heat spreads over the graph that joins every row to its nearest neighbours; how fast it "
        "does tells the shape of the corpus at every scale."
    )
    source = "Tsitsulin et al., The Shape of Data, ICLR 2020, equations 2 to 6"
    scores = SCORES
    replicated = "heat traces and IMD"

    def figures(self, found: HeatResults, results: Results) -> list[Figure]:
        """Draw the traces and the gap between them."""
        corpus, reference, imd = found.corpus, found.reference, found.imd
        traces = draw_traces(present(found), results.corpora.by_role()["corpus"].n)
        if found.chance is not None:
            traces = with_chance(traces, found.chance, relative=False)
        figures = [traces]
        if reference is not None and imd is not None and corpus.times == reference.times:
            figures.append(_weighted_gap(corpus, reference, imd))
        return figures

    def overlays(self, found: Sequence[tuple[Style, HeatTrace]]) -> list[Figure]:
        """Draw the traces of several jobs, if all have the same normalization."""
        alike = {trace.normalization for _, trace in found}
        return [draw_traces(found)] if len(alike) == 1 else []

    def notes(self, found: HeatResults) -> list[str]:
        """Describe the neighbour graphs, and IMD over subsamples."""
        graphs = [(style.name, trace.graph) for style, trace in present(found)]
        notes = [
            f"The neighbour graph of the {role} has {graph.edges:,} edges in "
            f"{counted(graph.components, 'component')}, with "
            f"{counted(graph.isolated, 'isolated vertex', 'isolated vertices')}; "
            f"{_recall_said(graph)}."
            for role, graph in graphs
        ]
        notes += [
            note
            for style, trace in present(found)
            for note in (_tie_note(style.name, trace), _null_model_note(style.name, trace))
            if note
        ]
        if found.imd is None and found.imd_reason:
            notes.append(f"There is no IMD: {printable(found.imd_reason)}.")
        return [*notes, *_subsample_notes(found)]

    def methods(self, found: HeatResults) -> list[tuple[str, str]]:
        """Return the neighbours, times and probes of each trace."""
        return [
            (f"heat trace, {style.name}", _trace_method(trace)) for style, trace in present(found)
        ]


def _recall_said(graph: NeighbourGraph) -> str:
    """Say how many of the nearest neighbours the graph has."""
    recall = graph.recall
    if recall.lower == 1:
        return "it is exact"
    least = format_number(recall.lower, 5)
    return f"its recall is {format_number(recall.value, 5)}, at least {least}"


def _tie_note(name: str, trace: HeatTrace) -> str:
    """Say how many rows have ties where their neighbours end; empty if there are none."""
    if not trace.graph.tied:
        return ""
    return (
        f"For {format_share(trace.graph.tied)} of the rows of the {name}, there are more rows at "
        f"the distance of the last of their {trace.k} neighbours. A hash of the rows decides which "
        "of these are neighbours, whatever the order of the rows. Another rule would give another "
        "graph; the brackets are about this one."
    )


def _null_model_note(name: str, trace: HeatTrace) -> str:
    """Warn of a random graph with eigenvalues that no graph has."""
    degree = trace.graph.mean_degree
    if trace.normalization != "er" or degree is None or degree >= MIN_DEGREE:
        return ""
    return (
        f"The heat trace of the {name} is divided by that of a random graph with negative "
        f"eigenvalues, because its mean degree, {format_number(degree, 3)}, is below "
        f"{MIN_DEGREE}. No graph has such eigenvalues; use another normalization."
    )


def _trace_method(trace: HeatTrace) -> str:
    estimated = f"{trace.probes} probes × {trace.steps} Lanczos steps"
    return (
        f"k = {trace.k} neighbours, {len(trace.times)} times from "
        f"{format_number(min(trace.times))} to {format_number(max(trace.times))}, "
        + (estimated if trace.probes else "all eigenvalues")
        + (
            ""
            if trace.tolerance is None
            else f", relative tolerance {format_number(trace.tolerance)}"
        )
        + f", normalization {printable(trace.normalization)}"
    )


def _subsample_notes(heat: HeatResults) -> list[str]:
    replicates = heat.replicates
    if replicates is None or replicates.imd is None:
        return []
    distance = replicates.imd
    differs = None if heat.imd is None else heat.imd.differs
    if differs is None:
        said = (
            "The two corpora differ in their numbers of rows, on which a trace depends a little: "
            "the subsamples, which have equally many, show more than the whole corpora."
        )
    else:
        beyond = "beyond" if differs else "not beyond"
        said = (
            f"The distance between the two corpora is {beyond} the errors of computation and of "
            "sampling."
        )
    return [
        said,
        (
            f"Over {replicates.count} random subsamples of {replicates.rows:,} rows of each, "
            f"the mean IMD is {distance.mean:.3g}, with a {replicates.level:.0%} interval from "
            f"{distance.lower:.3g} to {distance.upper:.3g}; the standard deviation of single "
            f"subsamples is {distance.standard_deviation:.2g}."
        ),
    ]


def draw_traces(traces: Sequence[tuple[Style, HeatTrace]], vertices: int | None = None) -> Figure:
    """Draw heat traces on a logarithmic axis of times.

    Parameters
    ----------
    traces : sequence of (Style, HeatTrace)
        The traces and their styles, all in the same normalization.
    vertices : int, optional
        Rows of the first corpus; if given, null models of that size are drawn too.
    """
    curves: list[Curve] = []
    brackets: list[tuple[float, float, float]] = []
    for style, trace in traces:
        lower, upper = (ends.tolist() for ends in _band(trace))
        brackets += zip(trace.trace, lower, upper, strict=True)
        curves.append(Curve(style.name, trace.times, trace.trace, lower, upper, style=style))
    first = traces[0][1]
    nulls = null_models(first, vertices) if vertices else []
    curves += [Curve(style.name, first.times, heat, style=style) for style, heat in nulls]
    unit = UNITS.get(first.normalization, printable(first.normalization))
    said = [
        "Left: local neighbourhoods. Right: the corpus as a whole.",
        said_of_brackets(brackets, "The band is a 95 % interval"),
        "Thin lines: graphs of the same size without structure, which lose their heat faster."
        if nulls
        else "",
    ]
    caption = " ".join(filter(None, said))
    panel = Panel("", "diffusion time t", unit, curves, log_x=True, from_zero=True)
    return Figure("heat-trace", "Heat trace", caption, [panel])


def null_models(trace: HeatTrace, vertices: int) -> list[tuple[Style, list[float]]]:
    """Return the heat traces of graphs without structure, normalised like ``trace``.

    The list is empty for the unnormalised Laplacian, whose null traces are not known.
    """
    edges, kind = trace.graph.edges, trace.normalization
    normalized = trace.laplacian in (None, "normalized")
    if not normalized or vertices < 2 or not edges or kind not in NORMALIZATIONS:
        return []
    times, degree = np.array(trace.times), 2.0 * edges / vertices
    divisor = null_trace(kind, times, vertices, degree)
    return [
        (style, (null_trace(model, times, vertices, degree) / divisor).tolist())
        for model, style in NULL_MODELS.items()
        if model != kind
    ]


def _weighted_gap(corpus: HeatTrace, reference: HeatTrace, imd: Imd) -> Figure:
    """Draw exp(-2(t + 1/t)) |h_corpus - h_reference|, whose largest value is the IMD."""
    # Imported here: it compiles functions, which other figures do not need.
    from latentscale.heat.imd import weighted_gap

    gap = weighted_gap(
        np.array(corpus.times),
        (np.array(corpus.trace), np.array(reference.trace)),
        (_band(corpus), _band(reference)),
    )
    value, lower, upper = (values.tolist() for values in gap)
    peak = Curve(
        POINT.name,
        [imd.time],
        [imd.value],
        [imd.lower],
        [imd.upper],
        points=True,
        style=POINT,
    )
    panel = Panel(
        "",
        "diffusion time t",
        "weighted gap",
        [Curve(GAP.name, corpus.times, value, lower, upper, style=GAP), peak],
        log_x=True,
        from_zero=True,
    )
    written = format_estimate(imd.value, imd.lower, imd.upper, typeset=True)
    caption = (
        "The gap between the two heat traces under IMD's weight e^(−2(t + 1/t)). Its highest "
        f"point over all times, at t = {format_number(imd.time, 3)}, is the IMD: {written.value} "
        f"{written.bracket}. The band adds both traces' brackets, so it is wider than the IMD's."
    )
    return Figure("heat-gap", "Where the two shapes differ", caption, [panel])


def _band(trace: HeatTrace) -> tuple[Float64Array, Float64Array]:
    """Return the ends of a heat trace's band: as stored, or from its standard errors."""
    if trace.lower is not None and trace.upper is not None:
        return np.array(trace.lower), np.array(trace.upper)
    value, error = np.array(trace.trace), np.array(trace.standard_error)
    return value - NORMAL_QUANTILE * error, value + NORMAL_QUANTILE * error
