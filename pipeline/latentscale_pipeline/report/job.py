"""Build the report of one finished job.

Every score stands in the section of all numbers; a registered measure has a section with figures.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.labels import label_figures, label_tables
from latentscale_pipeline.report.look import rows_section
from latentscale_pipeline.report.method import method_section
from latentscale_pipeline.report.opening import open_report
from latentscale_pipeline.report.scores import (
    definitions_of,
    explain_sign,
    report_of,
    scores_table,
    section_of,
)
from latentscale_pipeline.results.model import Corpus, Results
from latentscale_pipeline.results.part import Role
from latentscale_pipeline.views.content import Report, Section
from latentscale_pipeline.views.formatting import counted, printable


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
    return Report(
        kind="job",
        title=printable(job.name),
        subtitle=" · ".join([printable(job.id), *([_day(job.finished)] if job.finished else [])]),
        corpora=[
            (role, _described(corpus, _source(role, corpus, provenance)))
            for role, corpus in results.corpora.by_role().items()
        ],
        opening=open_report(results),
        sections=[
            *rows_section(results),
            *_measure_sections(results),
            *_numbers(results),
            method_section(results, provenance),
        ],
    )


def _day(finished: str) -> str:
    """Write the day of a time in ISO 8601, or the time as it is."""
    try:
        return datetime.fromisoformat(finished).strftime("%d %b %Y").lstrip("0")
    except ValueError:
        return printable(finished)


def _source(role: Role, corpus: Corpus, provenance: dict[str, Any] | None) -> str:
    """Return the last part of where a corpus comes from."""
    known = (provenance or {}).get("corpora", {}).get(role)
    sources = known["sources"] if known and corpus.source is None else []
    path = sources[0]["path"] if len(sources) == 1 else corpus.source or corpus.uri or ""
    return printable(path.rstrip("/").rpartition("/")[2])


def _described(corpus: Corpus, name: str) -> str:
    """Describe a corpus by its name, its size, and what was left out."""
    whole = corpus.n + corpus.left_out
    rows = f"{corpus.n:,} of {whole:,} rows" if corpus.left_out else counted(corpus.n, "row")
    size = rows if corpus.d is None else f"{rows} × {corpus.d:,}"
    return ", ".join(text for text in (name, size) if text)


def _numbers(results: Results) -> list[Section]:
    """Return the section of all scores, a table for each measure."""
    names = dict.fromkeys(score.measure for score in results.scores)
    scores = {
        name: [
            s
            for s in results.scores
            if s.measure == name and (s.label is None or report_of(name).of_labels)
        ]
        for name in names
    }
    shown = [score for own in scores.values() for score in own]
    if not shown:
        return []
    return [
        Section(
            key="numbers",
            title="All numbers",
            folded=True,
            notes=explain_sign(shown, results),
            tables=[
                replace(scores_table(own, results), caption=section_of(name, 0).title)
                for name, own in scores.items()
                if own
            ],
            glossary=[found for own in scores.values() for found in definitions_of(own)],
        )
    ]


def _measure_sections(results: Results) -> list[Section]:
    """Return one section per measure, the known measures first; those without scores begin."""
    scored = list(dict.fromkeys(score.measure for score in results.scores))
    known = [name for name in MEASURES if name in scored or name in results.measures]
    titled = sorted(
        (name for name in known if report_of(name).title),
        key=lambda name: bool(report_of(name).scores),
    )
    further = [name for name in scored if name not in titled]
    sections = [
        _section(name, results, scored.index(name) if name in scored else 0)
        for name in [*titled, *further]
    ]
    return [section for section in sections if section.figures or section.notes or section.folds]


def _why_not(name: str, results: Results) -> list[str]:
    """Say why a measure found nothing."""
    reason = results.measures.get(f"{name}_reason")
    return [f"Not computed: {printable(reason)}."] if reason else []


def _section(name: str, results: Results, place: int) -> Section:
    heading, report = section_of(name, place), report_of(name)
    found, labels = results.part(name), results.part("labels")
    counts = labels.measured if labels else {}
    scores = [score for score in results.scores if score.measure == name]
    labelled = [score for score in scores if score.label is not None and not report.of_labels]
    return replace(
        heading,
        figures=[
            *(report.figures(found, results) if found else []),
            *label_figures(heading.key, labelled, counts),
        ],
        notes=report.notes(found) if found else _why_not(name, results),
        folds=[*(report.tables(found) if found else []), *label_tables(labelled, counts)],
    )
