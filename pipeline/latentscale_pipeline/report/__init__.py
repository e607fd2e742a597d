"""The report of a finished job: one self-contained HTML file that needs no network."""

from latentscale_pipeline.report.page import render_report

__all__ = ["render_report"]
