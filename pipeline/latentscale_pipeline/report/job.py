"""Build the report of one finished job.

A registered measure has a section with figures; any other has a section with its scores only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.labels import label_figures, label_tables
from latentscale_pipeline.report.method import method_section
from latentscale_pipeline.report.scores import definitions_of, report_of, scores_table, section_of
from latentscale_pipeline.report.summary import answers, conclusions, sampling_warning
from latentscale_pipeline.report.verdict import judgement
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.content import Report, Section
from latentscale_pipeline.views.formatting import printable
from latentscale_pipeline.views.scores import whole_scores


def job_report(results: Results, provenance: dict[str, Any] | None = None) -> Report:
    """Return the content of a finished job's report.

    Parameters
    ----------
    results : Results
        The results of the job.
    provenance : dict, optional
        The job's document of the schema ``latentscale.provenance/1``.
    """
    job = results.job
    finished = f" · finished {printable(job.finished)}" if job.finished else ""
    warning = sampling_warning(results.scores)
    return Report(
        kind="job",
        title=printable(job.name),
        subtitle=f"{printable(job.id)}{finished}",
        judgement=judgement(results),
        conclusions=conclusions(results),
        answers=answers(results),
        warnings=[warning] if warning else [],
        sections=[*_measure_sections(results), method_section(results, provenance)],
    )


def _measure_sections(results: Results) -> list[Section]:
    """Return one section per measure, the known measures first."""
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
