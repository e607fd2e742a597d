"""One section for each measure: those of the registry with figures, any other with its scores."""

from __future__ import annotations

from dataclasses import replace

from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.labels import label_figures, label_tables
from latentscale_pipeline.report.scores import definitions_of, report_of, scores_table, section_of
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.content import Section
from latentscale_pipeline.views.scores import whole_scores


def measure_sections(results: Results) -> list[Section]:
    """Return one section for each measure that was asked for, the known ones first."""
    scored = list(dict.fromkeys(score.measure for score in results.scores))
    known = [name for name in MEASURES if name in scored or name in results.measures]
    titled = [name for name in known if report_of(name).title]
    further = [name for name in scored if name not in titled]
    return [
        _section(name, results, scored.index(name) if name in scored else 0)
        for name in [*titled, *further]
    ]


def _section(name: str, results: Results, place: int) -> Section:
    heading, report = section_of(name, place), report_of(name)
    found, labels = results.part(name), results.part("labels")
    counts = labels.measured if labels else {}
    scores = [score for score in results.scores if score.measure == name]
    whole = whole_scores(scores, name)
    labelled = [score for score in scores if score.label is not None]
    return replace(
        heading,
        scores=scores_table(whole),
        glossary=definitions_of([*whole, *labelled]),
        figures=[
            *(report.figures(found, results.corpora.by_role()) if found else []),
            *label_figures(heading.key, labelled, counts),
        ],
        notes=report.notes(found) if found else [],
        tables=[*(report.tables(found) if found else []), *label_tables(labelled, counts)],
    )
