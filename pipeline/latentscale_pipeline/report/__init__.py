"""Reports of a job, a comparison or a series.

The content of a report (:mod:`~latentscale_pipeline.views.content`) is separate from its formats:
one HTML page that needs no network, Markdown, and JSON.
"""

from collections.abc import Callable, Mapping
from typing import Any

from latentscale_pipeline.report.document import format_json
from latentscale_pipeline.report.html import format_html
from latentscale_pipeline.report.job import job_report
from latentscale_pipeline.report.markdown import format_markdown
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.content import Report
from latentscale_pipeline.views.svg import draw_panels

FILE_WIDTH = 640
"""Width of a figure's file, in pixels."""

FORMATS: Mapping[str, Callable[[Report], str]] = {
    "html": format_html,
    "md": format_markdown,
    "json": format_json,
}
"""The formats of a report, with the function that writes each."""


def render_report(results: Results, provenance: dict[str, Any] | None = None) -> str:
    """Return the report of a finished job as one self-contained HTML document."""
    return format_html(job_report(results, provenance))


def figure_files(report: Report) -> dict[str, str]:
    """Return every figure of a report as SVG, on white, by the name of its file."""
    return {
        f"{figure.key}.svg": draw_panels(figure.panels, columns=1, paper="white", width=FILE_WIDTH)
        for section in report.sections
        for figure in section.figures
    }


__all__ = ["FORMATS", "Report", "figure_files", "job_report", "render_report"]
