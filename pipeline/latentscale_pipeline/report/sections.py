"""One section for each measure: those of the registry with figures, any other with its scores."""

from __future__ import annotations

from typing import Any

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.labels import label_figures, label_tables
from latentscale_pipeline.report.scores import definitions_of, scores_table, titled_report
from latentscale_pipeline.views.content import Section
from latentscale_pipeline.views.formatting import printable

Json = dict[str, Any]


def measure_sections(results: Json) -> list[Section]:
    """Return one section for each measure that was asked for, the known ones first."""
    scored = dict.fromkeys(row["measure"] for row in results["scores"])
    known = {
        name: report
        for name in MEASURES
        if (name in scored or name in results["measures"]) and (report := titled_report(name))
    }
    return [
        *(_known_section(name, report, results) for name, report in known.items()),
        *(
            _further_section(f"further-{position}", name, results)
            for position, name in enumerate(scored)
            if name not in known
        ),
    ]


def _known_section(name: str, report: MeasureReport, results: Json) -> Section:
    rows, labelled = _rows_of(name, results["scores"])
    found = results["measures"].get(name)
    counts = _label_counts(results)
    return Section(
        key=name,
        title=report.title,
        question=report.question,
        source=report.source,
        scores=scores_table(rows),
        glossary=definitions_of([*rows, *labelled]),
        figures=[
            *(report.figures(found, results["corpora"]) if found else []),
            *label_figures(name, labelled, counts),
        ],
        notes=report.notes(found) if found else [],
        tables=[*(report.tables(found) if found else []), *label_tables(labelled, counts)],
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
