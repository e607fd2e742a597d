"""Write a report as one JSON document."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from latentscale_pipeline.views.content import Report

REPORT_SCHEMA = "latentscale.report/2"


def report_document(report: Report) -> dict[str, Any]:
    """Return a report as plain JSON values; figures are panels with the numbers of curves."""
    return {"schema": REPORT_SCHEMA, **asdict(report)}


def format_json(report: Report) -> str:
    """Return a report as JSON text; NaN and infinity raise an error."""
    return json.dumps(report_document(report), indent=1, allow_nan=False, default=_plain) + "\n"


def _plain(value: Any) -> list[Any]:
    """Return a set, sorted, or a sequence of another kind as a list."""
    return sorted(value) if isinstance(value, frozenset) else list(value)
