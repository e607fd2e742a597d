"""Print a comparison: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from latentscale_pipeline.compare.cells import (
    WORDS,
    ComparedCells,
    write_identity,
    write_notes,
    write_scores,
)
from latentscale_pipeline.compare.difference import Verdict
from latentscale_pipeline.compare.gate_checks import GateResult
from latentscale_pipeline.compare.jobs import Comparison

COLUMNS = ("measure", "score", "of", "job", "baseline", "difference", "relative", "verdict")
NARROW_COLUMNS = ("score", "of", "job", "baseline", "difference", "verdict")
"""What fits on a narrow terminal, under a heading that names the measure."""

NUMBERS = frozenset({"job", "baseline", "difference", "relative"})
VERDICT_WIDTH = 22
"""Characters a verdict needs at least; longer ones are folded."""

NAME_WIDTH = 20
"""Characters of a score's name that aren't folded."""


def print_comparison(
    comparison: Comparison, gates: Sequence[GateResult] | None, console: Console
) -> None:
    """Print every score of both jobs, what keeps them apart, and how the gates went.

    Parameters
    ----------
    comparison : Comparison
        What to print.
    gates : sequence of GateResult or None
        None without a gates file.
    console : rich.console.Console
        A table on a terminal, plain unwrapped lines anywhere else.
    """
    scores = write_scores(comparison)
    _print_lines(console, [f"job       {write_identity(comparison.job)}"])
    _print_lines(console, [f"baseline  {write_identity(comparison.baseline)}"])
    rows = [_row(cells) for cells in scores]
    if not console.is_terminal:
        _print_lines(console, _plain(rows))
    elif _natural_width(rows) <= console.width:
        console.print(_table(COLUMNS, rows))
    else:
        for measure, group in groupby(scores, key=lambda cells: cells.measure):
            console.print(Text(measure, style="bold"))
            console.print(_table(NARROW_COLUMNS, [_narrow_row(cells) for cells in group]))
    _print_lines(console, write_notes(comparison))
    for result in gates or ():
        counted = f"{len(result.selected)} score{'s' if len(result.selected) > 1 else ''}"
        line = Text("passed  " if result.passed else "FAILED  ")
        line.stylize("green" if result.passed else "bold red")
        console.print(line + Text(f"{result.gate} ({counted})"), soft_wrap=True)


def _row(cells: ComparedCells) -> dict[str, str]:
    return {
        "measure": cells.measure,
        "score": cells.score,
        "of": cells.of,
        "job": f"{cells.job.value} {cells.job.bracket}".strip(),
        "baseline": f"{cells.baseline.value} {cells.baseline.bracket}".strip(),
        "difference": cells.difference,
        "relative": cells.relative,
        "verdict": cells.verdict if cells.comparable else f"{cells.verdict} (unlike)",
    }


def _narrow_row(cells: ComparedCells) -> dict[str, str]:
    """Return a row of two lines: brackets below values, the share below the difference."""
    return _row(cells) | {
        "job": f"{cells.job.value}\n{cells.job.bracket}".strip(),
        "baseline": f"{cells.baseline.value}\n{cells.baseline.bracket}".strip(),
        "difference": f"{cells.difference}\n{cells.relative}".strip(),
    }


def _print_lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _width(column: str, rows: Sequence[dict[str, str]]) -> int:
    return max([len(column), *(len(line) for row in rows for line in row[column].split("\n"))])


def _least_width(column: str, rows: Sequence[dict[str, str]]) -> int | None:
    if column == "verdict":
        return None
    width = _width(column, rows)
    return width if column in NUMBERS else min(width, NAME_WIDTH)


def _natural_width(rows: Sequence[dict[str, str]]) -> int:
    wide = [name for name in COLUMNS if name != "verdict"]
    return sum(_width(name, rows) + 2 for name in wide) + VERDICT_WIDTH


def _table(columns: Sequence[str], rows: Sequence[dict[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in NUMBERS else "left",
            no_wrap=column in NUMBERS,
            min_width=_least_width(column, rows),
            overflow="fold",
        )
    for row in rows:
        style = "bold" if row["verdict"].startswith(WORDS[Verdict.SIGNIFICANT]) else ""
        table.add_row(*(Text(row[name], style=style) for name in columns))
    return table


def _plain(rows: Sequence[dict[str, str]]) -> list[str]:
    lines = [dict(zip(COLUMNS, COLUMNS, strict=True)), *rows]
    widths = {name: _width(name, rows) for name in COLUMNS}
    return [
        "  ".join(line[name].ljust(widths[name]) for name in COLUMNS).rstrip() for line in lines
    ]
