"""Print tables on a terminal, or as aligned lines of plain text elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = Mapping[str, str | Text]
"""Cells by column name; a missing column is an empty cell."""


GAP = 2
"""Characters between two columns."""

FOLDED_WIDTH = 16
"""Characters to which a column that wraps may shrink."""


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines without wrapping, however narrow the terminal is."""
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    right: Collection[str] = (),
    folded: Collection[str] = (),
) -> None:
    """Print a table on a terminal, or lines of plain text elsewhere and if it would be cut."""
    least = {
        name: min(width, FOLDED_WIDTH) if name in folded else width
        for name in columns
        for width in [column_width(name, rows)]
    }
    if console.is_terminal and sum(least.values()) + GAP * len(least) <= console.width:
        console.print(rich_table(columns, rows, right=right, folded=folded, least=least))
    else:
        print_lines(console, format_table(columns, rows))


def format_table(
    columns: Sequence[str], rows: Sequence[Row], widths: Mapping[str, int] | None = None
) -> list[str]:
    """Return one line for the header and one per row, in aligned columns.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns, which are their headings.
    rows : sequence of mapping
        Cells by column name; styles are ignored.
    widths : mapping, optional
        Widths of columns; by default that of the widest cell.
    """
    wide = widths or {name: column_width(name, rows) for name in columns}
    return [
        "  ".join(_padded(str(row.get(name, "")), wide[name]) for name in columns).rstrip()
        for row in ({name: name for name in columns}, *rows)
    ]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def rich_table(
    columns: Sequence[str],
    rows: Iterable[Row],
    *,
    right: Collection[str] = (),
    folded: Collection[str] = (),
    least: Mapping[str, int | None] | None = None,
    gap: int = GAP,
    title: str | None = None,
) -> Table:
    """Return a rich table without rules.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns, which are their headings.
    rows : iterable of mapping
        Cells by column name, with or without styles; markup in them is shown as text.
    right : collection of str
        Right-aligned columns.
    folded : collection of str
        Columns that wrap on a narrow terminal.
    least : mapping, optional
        Minimum widths of columns in characters.
    gap : int
        Number of characters between two columns.
    title : str, optional
        Heading above the table.
    """
    table = Table(
        title=title,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, gap, 0, 0),
        header_style="dim",
    )
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name not in folded,
            min_width=(least or {}).get(name),
            overflow="fold",
        )
    for row in rows:
        cells = (row.get(name, "") for name in columns)
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
    return table


def column_width(name: str, rows: Iterable[Row]) -> int:
    """Return the width of a column's widest line, including its heading, in characters."""
    return max(
        cell_len(line) for row in ({}, *rows) for line in str(row.get(name, name)).split("\n")
    )
