"""One section a measure: the known ones with figures and notes, any other with its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from latentscale_pipeline.notation import counted, printable
from latentscale_pipeline.report.content import Figure, Section
from latentscale_pipeline.report.coverage import geomca_notes, geomca_tables
from latentscale_pipeline.report.figures import (
    geomca_figures,
    heat_figures,
    magnitude_figures,
    vendi_figures,
)
from latentscale_pipeline.report.labels import label_figures, label_tables
from latentscale_pipeline.report.meanings import MEASURES
from latentscale_pipeline.report.scores import meanings_of, scores_table

Json = dict[str, Any]


def measure_sections(results: Json) -> list[Section]:
    """Return one section a measure that was asked for, the known ones first."""
    scored = dict.fromkeys(row["measure"] for row in results["scores"])
    known = [name for name in MEASURES if name in scored or name in results["measures"]]
    return [
        *(_known_section(name, results) for name in known),
        *(
            _further_section(f"further-{position}", name, results)
            for position, name in enumerate(scored)
            if name not in MEASURES
        ),
    ]


def _known_section(name: str, results: Json) -> Section:
    measure = MEASURES[name]
    rows, labelled = _rows_of(name, results["scores"])
    found, corpora = results["measures"].get(name), results["corpora"]
    figures = FIGURES[name](found, corpora) if found and name in FIGURES else []
    counts = _label_counts(results)
    return Section(
        key=name,
        title=measure.title,
        question=measure.question,
        source=measure.source,
        scores=scores_table(rows),
        meanings=meanings_of([*rows, *labelled]),
        figures=[*figures, *label_figures(name, labelled, counts)],
        notes=NOTES[name](found) if found and name in NOTES else [],
        tables=[
            *(geomca_tables(found) if found and name == "geomca" else []),
            *label_tables(labelled, counts),
        ],
    )


def _further_section(key: str, name: str, results: Json) -> Section:
    rows, labelled = _rows_of(name, results["scores"])
    counts = _label_counts(results)
    return Section(
        key=key,
        title=printable(name),
        scores=scores_table(rows),
        figures=label_figures(key, labelled, counts),
        tables=label_tables(labelled, counts),
    )


def _rows_of(measure: str, scores: list[Json]) -> tuple[list[Json], list[Json]]:
    """Return a measure's rows of whole corpora, and those of single labels."""
    rows = [row for row in scores if row["measure"] == measure]
    whole = [row for row in rows if row.get("label") is None]
    return whole, [row for row in rows if row.get("label") is not None]


def _label_counts(results: Json) -> dict[str, int]:
    labels = results["measures"].get("labels") or {}
    return dict(labels.get("measured", {}))


def _heat_notes(heat: Json) -> list[str]:
    notes = []
    for role in ("corpus", "reference"):
        trace = heat.get(role)
        if not trace:
            continue
        graph = trace["graph"]
        notes.append(
            f"The neighbour graph of the {role} has {graph['edges']:,} edges in "
            f"{counted(graph['components'], 'component')}, with "
            f"{counted(graph['isolated'], 'isolated vertex', 'isolated vertices')}."
        )
    if heat.get("imd") is None and heat.get("imd_reason"):
        notes.append(f"There is no IMD: {printable(heat['imd_reason'])}.")
    return [*notes, *_subsample_notes(heat)]


def _subsample_notes(heat: Json) -> list[str]:
    replicates = heat.get("replicates")
    if not replicates or not replicates["imd"]:
        return []
    distance, beyond = replicates["imd"], "beyond" if heat["imd"]["differs"] else "not beyond"
    return [
        (
            f"The distance between the two corpora is {beyond} what the computation and the "
            "sampling of the rows explain."
        ),
        (
            f"Over {replicates['count']} random subsamples of {replicates['rows']:,} rows of each, "
            f"IMD is {distance['mean']:.3g} in the mean, within {distance['lower']:.3g} and "
            f"{distance['upper']:.3g} at {replicates['level']:.0%}; single ones vary by "
            f"{distance['standard_deviation']:.2g}."
        ),
    ]


def _magnitude_notes(magnitude: Json) -> list[str]:
    reason = magnitude.get("difference_reason")
    notes = [
        "Magnitude is a property of the set of distinct rows: duplicates don't add to it.",
    ]
    if magnitude["difference"] is None and reason:
        notes.append(f"There is no MagDiff: {printable(reason)}.")
    return notes


def _vendi_notes(vendi: Json) -> list[str]:
    if not vendi.get("reference"):
        return []
    return [
        (
            "Scores of two corpora are comparable only under the same kernel and bandwidth, and "
            "can grow with the number of rows: compare corpora of like size."
        )
    ]


FIGURES: Mapping[str, Callable[[Json, Json], list[Figure]]] = {
    "heat": heat_figures,
    "geomca": geomca_figures,
    "magnitude": magnitude_figures,
    "vendi": vendi_figures,
}
NOTES: Mapping[str, Callable[[Json], list[str]]] = {
    "heat": _heat_notes,
    "geomca": geomca_notes,
    "magnitude": _magnitude_notes,
    "vendi": _vendi_notes,
}
