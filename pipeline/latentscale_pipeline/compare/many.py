"""Print several jobs beside one baseline: a verdict each, and their scores in columns."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from latentscale_pipeline.compare.cells import format_identity, job_names
from latentscale_pipeline.compare.columns import explain_signs, notes_of, side_by_side
from latentscale_pipeline.compare.document import comparison_document
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.compare.terminal import NONE_SHARED
from latentscale_pipeline.report.terminal_summary import WIDTH
from latentscale_pipeline.report.verdict import format_verdict
from latentscale_pipeline.views.formatting import counted
from latentscale_pipeline.views.scores import explain_summary
from latentscale_pipeline.views.terminal import format_table, print_lines

COMPARISONS_SCHEMA = "latentscale.comparisons/1"


def print_comparisons(
    comparisons: Sequence[Comparison], console: Console, *, every_score: bool = False
) -> None:
    """Print the verdict on each job, and a table with a column for each.

    Parameters
    ----------
    comparisons : sequence of Comparison
        Of several jobs with one baseline.
    console : rich.console.Console
        Where to print.
    every_score : bool
        Whether to print all scores, and not only the headlines.
    """
    baseline = comparisons[0].baseline
    *names, usual = job_names([*(found.job for found in comparisons), baseline])
    print_lines(console, [f"baseline  {format_identity(baseline)}", ""])
    for name, found in zip(names, comparisons, strict=True):
        heading, sentences = format_verdict(found.verdict, usual)
        said = textwrap.wrap(
            " ".join(sentences), WIDTH, initial_indent="  ", subsequent_indent="  "
        )
        print_lines(console, [f"{name}: {heading.upper()}", *said])
    columns = side_by_side(comparisons, [*names, usual], every_score=every_score)
    rows, more = columns.rows, columns.more
    table = format_table(["", *columns.names], rows) if rows else [NONE_SHARED]
    print_lines(console, ["", *table])
    signs = explain_summary(cell for row in rows for cell in row.values())
    print_lines(console, ["", *explain_signs(columns), *signs])
    if more:
        print_lines(console, [f"{counted(more, 'more score')}: --all"])
    print_lines(console, notes_of(comparisons, names))


def comparisons_document(comparisons: Sequence[Comparison]) -> str:
    """Return comparisons with one baseline as JSON text."""
    found: dict[str, Any] = {
        "schema": COMPARISONS_SCHEMA,
        "comparisons": [comparison_document(each) for each in comparisons],
    }
    return json.dumps(found, indent=1, allow_nan=False)
