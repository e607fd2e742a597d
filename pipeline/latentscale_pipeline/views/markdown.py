"""Write text and tables as GitHub-flavoured Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = {mark: f"\\{mark}" for mark in "\\`*_[]<>|~#!&$"}
# An invisible word joiner keeps a name from mentioning a user or linking an issue.
_ESCAPES = str.maketrans({**_SPECIAL, "@": "@\N{WORD JOINER}", "#": "\\#\N{WORD JOINER}"})

# What begins like these becomes a link without any brackets.
_ADDRESS = re.compile(r"(https?|ftp|www)(:|\.)", re.IGNORECASE)


def escape_markdown(text: str) -> str:
    """Escape a line of text, so that it can't end a table cell or become markup."""
    return _ADDRESS.sub(r"\1\\\2", text.translate(_ESCAPES))


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, escaped: bool = False
) -> str:
    """Return a table.

    Parameters
    ----------
    header, rows : sequence of str
        Plain text.
    escaped : bool
        Whether the rows are Markdown already.
    """
    shown = rows if escaped else ([escape_markdown(cell) for cell in row] for row in rows)
    lines = [[escape_markdown(name) for name in header], ["---"] * len(header), *shown]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
