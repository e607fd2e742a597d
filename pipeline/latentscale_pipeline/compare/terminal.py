"""Print a comparison: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latentscale_pipeline.compare.cells import (
    COLUMNS,
    ComparedCells,
    write_identity,
    write_notes,
    write_scores,
)
from latentscale_pipeline.compare.gate_checks import GateResult
from latentscale_pipeline.compare.jobs import Comparison
from latentscale_pipeline.views.terminal import (
    Row,
    column_width,
    format_table,
    print_lines,
    rich_table,
)

NARROW_COLUMNS = ("score", "of", "job", "baseline", "difference", "verdict")
"""Columns on a narrow terminal, under a heading that names the measure."""

NUMBERS = frozenset({"job", "baseline", "difference", "relative"})
VERDICT_WIDTH = 22
"""Minimum width of a verdict in characters; longer verdicts are wrapped."""

NAME_WIDTH = 20
"""Minimum width of a score's name in characters; longer names are wrapped."""


def print_comparison(
    comparison: Comparison, gates: Sequence[GateResult] | None, console: Console
) -> None:
    """Print every score of both jobs, the mismatches, and the results of the gates.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    gates : sequence of GateResult or None
        Results of the gates; None if there are no gates.
    console : rich.console.Console
        Where to print: a table on a terminal, plain unwrapped lines elsewhere.
    """
    scores = write_scores(comparison)
    print_lines(
        console,
        [
            f"job       {write_identity(comparison.job)}",
            f"baseline  {write_identity(comparison.baseline)}",
        ],
    )
    rows = [_row(cells) for cells in scores]
    if not console.is_terminal:
        print_lines(console, format_table(COLUMNS, rows))
    elif _natural_width(rows) <= console.width:
        console.print(_table(COLUMNS, rows))
    else:
        for measure, group in groupby(scores, key=lambda cells: cells.measure):
            console.print(Text(measure, style="bold"))
            console.print(_table(NARROW_COLUMNS, [_narrow_row(cells) for cells in group]))
    print_lines(console, write_notes(comparison))
    for result in gates or ():
        counted = f"{len(result.selected)} score{'s' if len(result.selected) > 1 else ''}"
        line = Text("passed  " if result.passed else "FAILED  ")
        line.stylize("green" if result.passed else "bold red")
        console.print(line + Text(f"{result.gate} ({counted})"), soft_wrap=True)


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
