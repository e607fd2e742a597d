"""The report of one finished job."""

from __future__ import annotations

from typing import Any

from latentscale_pipeline.report.method import method_section
from latentscale_pipeline.report.sections import measure_sections
from latentscale_pipeline.report.summary import answers, conclusions, sampling_warning
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.content import Report
from latentscale_pipeline.views.formatting import printable


def job_report(results: Results, provenance: dict[str, Any] | None = None) -> Report:
    """Return what the report of a finished job says.

    Parameters
    ----------
    results : Results
        What it found.
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
        conclusions=conclusions(results),
        answers=answers(results),
        warnings=[warning] if warning else [],
        sections=[*measure_sections(results), method_section(results, provenance)],
    )
