"""Print a comparison: verdict and headline scores, or a table of all.

A table is drawn on a terminal; elsewhere it is plain lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latentscale_pipeline.compare.cells import (
    BRACKETS,
    COLUMNS,
    SUMMARY,
    ComparedCells,
    format_identity,
    format_notes,
    format_scores,
    job_names,
    summarise_score,
)
from latentscale_pipeline.compare.columns import headline_scores
from latentscale_pipeline.compare.gate_checks import GateResult
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.report.terminal_summary import format_evidence
from latentscale_pipeline.views.formatting import counted
from latentscale_pipeline.views.scores import explain_summary
from latentscale_pipeline.views.terminal import (
    Row,
    column_width,
    format_table,
    print_lines,
    rich_table,
)

GATES = {
    "passed": ("passed     ", "green"),
    "warned": ("warned     ", "yellow"),
    "failed": ("FAILED     ", "bold red"),
    "unchecked": ("UNCHECKED  ", "bold red"),
}
"""Word and style of what a gate says."""

NARROW_COLUMNS = ("score", "of", "job", "baseline", "difference", "verdict")
"""Columns on a narrow terminal, under a heading that names the measure."""

NUMBERS = frozenset({"job", "baseline", "difference", "relative"})
NONE_SHARED = "No score of a summary is in both jobs."

VERDICT_WIDTH = 22
"""Minimum width of a verdict in characters; longer verdicts are wrapped."""

NAME_WIDTH = 20
"""Minimum width of a score's name in characters; longer names are wrapped."""


def print_comparison(
    comparison: Comparison,
    gates: Sequence[GateResult] | None,
    console: Console,
    *,
    every_score: bool = False,
) -> None:
    """Print the verdict, the scores of both jobs, the mismatches, and the results of the gates.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    gates : sequence of GateResult or None
        Results of the gates; None if there are no gates.
    console : rich.console.Console
        Where to print: a table on a terminal, plain unwrapped lines elsewhere.
    every_score : bool
        Whether to print all scores, and not only the headlines.
    """
    shown = comparison if every_score else replace(comparison, scores=headline_scores(comparison))
    scores = format_scores(shown)
    print_lines(
        console,
        [
            f"job       {format_identity(comparison.job)}",
            f"baseline  {format_identity(comparison.baseline)}",
            *(["reference the same rows in both"] if comparison.same_reference else []),
        ],
    )
    if comparison.rows is not None:
        lines = comparison.rows.lines.items()
        print_lines(console, [f"{name:<10}{line}" for name, line in lines])
    _, baseline = job_names([comparison.job, comparison.baseline])
    evidence = format_evidence(comparison.verdict, comparison.results.scores, baseline)
    print_lines(console, [*evidence, ""])
    rows = [_row(cells) for cells in scores]
    if not every_score:
        summary = [summarise_score(score) for score in shown.scores]
        print_lines(console, format_table(SUMMARY, summary) if summary else [NONE_SHARED])
        look = [f"rows      {command}" for command in comparison.look_commands]
        signs = explain_summary(row[side] for row in summary for side in ("job", "baseline"))
        print_lines(console, ["", *signs, *look])
    elif not console.is_terminal:
        print_lines(console, format_table(COLUMNS, rows))
    elif _natural_width(rows) <= console.width:
        console.print(_table(COLUMNS, rows))
    else:
        for measure, group in groupby(scores, key=lambda cells: cells.measure):
            console.print(Text(measure, style="bold"))
            console.print(_table(NARROW_COLUMNS, [_narrow_row(cells) for cells in group]))
    if every_score:
        print_lines(console, [BRACKETS, ""])
    if more := len(comparison.scores) - len(scores):
        print_lines(console, [f"{counted(more, 'more score')}: --all", ""])
    print_lines(console, format_notes(comparison))
    for result in gates or ():
        many = counted(len(result.selected), "score")
        line = Text(*GATES[result.outcome])
        rests = f", {result.remark}" if result.remark else ""
        said = "can't be checked" if result.refusal else f"{many}{rests}"
        console.print(line + Text(f"{result.gate} ({said})"), soft_wrap=True)


def format_comparison(comparison: Comparison) -> str:
    """Return what :func:`print_comparison` prints without a terminal."""
    text = StringIO()
    print_comparison(comparison, None, Console(file=text, force_terminal=False))
    return text.getvalue().rstrip()


def _row(cells: ComparedCells, **others: str) -> Row:
    style = "bold" if cells.significant else ""
    return {name: Text(cell, style=style) for name, cell in {**cells.row(), **others}.items()}


def _narrow_row(cells: ComparedCells) -> Row:
    """Return a row of two lines: brackets below values, relative below absolute differences."""
    return _row(
        cells,
        job=f"{cells.job.value}\n{cells.job.bracket}".strip(),
        baseline=f"{cells.baseline.value}\n{cells.baseline.bracket}".strip(),
        difference=f"{cells.difference}\n{cells.relative}".strip(),
    )


def _natural_width(rows: Sequence[Row]) -> int:
    wide = [name for name in COLUMNS if name != "verdict"]
    return sum(column_width(name, rows) + 2 for name in wide) + VERDICT_WIDTH


def _table(columns: Sequence[str], rows: Sequence[Row]) -> Table:
    widths = {name: column_width(name, rows) for name in columns if name != "verdict"}
    return rich_table(
        columns,
        rows,
        right=NUMBERS,
        folded=set(columns) - NUMBERS,
        least={name: w if name in NUMBERS else min(w, NAME_WIDTH) for name, w in widths.items()},
    )
