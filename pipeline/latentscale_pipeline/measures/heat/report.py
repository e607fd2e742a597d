"""What the report says of heat traces and IMD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from latentscale_pipeline.measures.base import MeasureReport, Role, Score
from latentscale_pipeline.measures.heat.figures import draw_traces, heat_figures
from latentscale_pipeline.measures.heat.results import HeatResults, HeatTrace
from latentscale_pipeline.results.model import Corpus
from latentscale_pipeline.views.content import Fact, Figure
from latentscale_pipeline.views.drawing import Style, present
from latentscale_pipeline.views.formatting import counted, printable, write_number
from latentscale_pipeline.views.glossary import Definition
from latentscale_pipeline.views.scores import pair_facts


class HeatReport(MeasureReport):
    """The shape of a corpus."""

    title = "Shape: heat trace and IMD"
    question = (
        "Heat diffuses over the graph that joins every row to its nearest neighbours; how fast it "
        "spreads at short and at long times describes the shape of the corpus at every scale."
    )
    source = "Tsitsulin et al., The Shape of Data, ICLR 2020, equations 2 to 6"
    scores: ClassVar[Mapping[str, Definition]] = {
        "imd": Definition(
            "Intrinsic distance (IMD)",
            "The largest gap between the two heat traces over all times, weighted so that "
            "times near 1 count most; 0 means the same shape at every scale, whatever the "
            "rotation, scale or dimension of the two corpora.",
        ),
        "heat_trace": Definition(
            "Heat trace",
            "How much heat is still where it started after the given diffusion time: "
            "at short times it depends on local neighbourhoods, at long times on how well the "
            "whole corpus hangs together.",
        ),
    }
    replicated = "heat traces and IMD"

    def figures(self, found: HeatResults, corpora: Mapping[Role, Corpus]) -> list[Figure]:
        """Draw the traces and the gap between them."""
        return heat_figures(found, corpora)

    def overlays(self, found: Sequence[tuple[Style, HeatTrace]]) -> list[Figure]:
        """Draw the traces of the jobs' corpora, where all have one normalization."""
        alike = {trace.normalization for _, trace in found}
        return [draw_traces(found)] if len(alike) == 1 else []

    def notes(self, found: HeatResults) -> list[str]:
        """Describe the neighbour graphs, and IMD over subsamples."""
        graphs = [(style.name, trace.graph) for style, trace in present(found)]
        notes = [
            f"The neighbour graph of the {role} has {graph.edges:,} edges in "
            f"{counted(graph.components, 'component')}, with "
            f"{counted(graph.isolated, 'isolated vertex', 'isolated vertices')}."
            for role, graph in graphs
        ]
        if found.imd is None and found.imd_reason:
            notes.append(f"There is no IMD: {printable(found.imd_reason)}.")
        return [*notes, *_subsample_notes(found)]

    def methods(self, found: HeatResults) -> list[tuple[str, str]]:
        """Say with which neighbours, times and probes a trace was computed."""
        return [
            (f"heat trace, {style.name}", _trace_method(trace)) for style, trace in present(found)
        ]

    def comparison(self, scores: Sequence[Score]) -> list[Fact]:
        """Compare the shapes by IMD."""
        return pair_facts(scores, "heat", self.scores, "imd")

    def certainty(self, found: HeatResults) -> str:
        """Say how many of the true neighbours the graphs have."""
        recalls = [trace.graph.recall for _, trace in present(found)]
        lowest = min(recalls, key=lambda recall: recall.lower)
        if lowest.lower == 1:
            return "The neighbour graphs are exact."
        return (
            f"Recall of the neighbour graph: {write_number(lowest.value, 5)}, at least "
            f"{write_number(lowest.lower, 5)} ({lowest.sampled:,} rows checked)."
        )


def _trace_method(trace: HeatTrace) -> str:
    return (
        f"k = {trace.k} neighbours, {len(trace.times)} times from "
        f"{write_number(min(trace.times))} to {write_number(max(trace.times))}, "
        f"{trace.probes} probes × {trace.steps} Lanczos steps"
        + (
            ""
            if trace.tolerance is None
            else f", relative tolerance {write_number(trace.tolerance)}"
        )
        + f", normalization {printable(trace.normalization)}"
    )


def _subsample_notes(heat: HeatResults) -> list[str]:
    replicates = heat.replicates
    if replicates is None or replicates.imd is None:
        return []
    distance = replicates.imd
    beyond = "beyond" if heat.imd is not None and heat.imd.differs else "not beyond"
    return [
        (
            f"The distance between the two corpora is {beyond} what the computation and the "
            "sampling of the rows explain."
        ),
        (
            f"Over {replicates.count} random subsamples of {replicates.rows:,} rows of each, "
            f"IMD is {distance.mean:.3g} in the mean, within {distance.lower:.3g} and "
            f"{distance.upper:.3g} at {replicates.level:.0%}; single ones vary by "
            f"{distance.standard_deviation:.2g}."
        ),
    ]
