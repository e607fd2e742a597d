"""Text files whose rows are lines: count them once, then read from any row on.

The first pass counts the rows and records the offset of every 4096th, so that later reads can start
in the middle of a file. A quoted field may have line breaks, and then a row has several lines (RFC
4180).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

from latentscale_pipeline.corpus.formats.file import File, file_errors
from latentscale_pipeline.errors import BadInput

NOTED_ROWS = 4096
"""Distance between rows whose offsets are recorded."""

SNIFFED_BYTES = 1 << 20
SNIFFED_ROWS = 50

MAX_ROW_BYTES = 1 << 24
"""Bytes after which a quoted field is taken for one that doesn't end."""


@dataclass(frozen=True)
class Lines:
    """The rows of a text file, one a line.

    Attributes
    ----------
    file : File
    rows : int
        Number of rows.
    starts : tuple of int
        Offsets of every 4096th row.
    keep_empty : bool
        Whether empty lines are rows, too.
    separator : str
        What separates fields, if they may be quoted; empty if they aren't.
    """

    file: File
    rows: int
    starts: tuple[int, ...]
    keep_empty: bool = False
    separator: str = ""

    def read(self, start: int, stop: int) -> Iterator[tuple[int, int, str]]:
        """Yield number, byte offset and text of the rows from ``start`` up to ``stop``.

        Raises
        ------
        BadInput
            If a row isn't UTF-8, or the file ends before the last row.
        """
        with _opened(self.file) as opened:
            offset, row = self.starts[start // NOTED_ROWS], start // NOTED_ROWS * NOTED_ROWS
            opened.seek(offset)
            for line in _whole_rows(opened, self.separator, self.file.name, offset):
                if row >= stop:
                    return
                if self.keep_empty or line.strip():
                    if row >= start:
                        yield row, offset, self._decoded(line, row, offset)
                    row += 1
                offset += len(line)
        if row < stop:
            raise BadInput(
                f"{self.file.name}: truncated: it ends at byte {offset}, before row {row}; copy or "
                "write it again"
            )

    def _decoded(self, line: bytes, row: int, offset: int) -> str:
        try:
            return line.decode().strip("\r\n\ufeff")
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{self.file.name}: row {row}, at byte {offset + error.start}, isn't UTF-8 "
                f"({error.reason}); convert the file"
            ) from None


def count_lines(
    file: File, skipped: int = 0, *, keep_empty: bool = False, separator: str = ""
) -> Lines:
    """Count the rows of a file, which begin after ``skipped`` rows of another kind.

    Raises
    ------
    BadInput
        If a row between others has nothing but tabs: it looks empty, and may be one of empty cells.
    """
    rows, offset = -skipped, 0
    only_tabs = -1
    starts: list[int] = []
    with _opened(file) as opened:
        for line in _whole_rows(opened, separator, file.name):
            holds = keep_empty or bool(line.strip())
            if holds and only_tabs >= 0:
                raise BadInput(
                    f"{file.name}: row {rows}, at byte {only_tabs}, has only empty cells; delete "
                    "the line, or write its values"
                )
            if separator == "\t" and rows > 0 and not holds and b"\t" in line:
                only_tabs = offset
            if holds:
                if rows >= 0 and rows % NOTED_ROWS == 0:
                    starts.append(offset)
                rows += 1
            offset += len(line)
    return Lines(file, max(rows, 0), tuple(starts) or (offset,), keep_empty, separator)


def _whole_rows(
    lines: Iterable[bytes], separator: str, name: str, offset: int = 0
) -> Iterator[bytes]:
    """Yield rows from their lines; ``offset`` is where these begin."""
    if not separator:
        yield from lines
        return
    row: list[bytes] = []
    sign, size, inside = separator.encode(), 0, False
    for line in lines:
        if not row and b'"' not in line:
            offset += len(line)
            yield line
            continue
        row.append(line)
        size += len(line)
        if b'"' in line:
            try:
                inside = _ends_inside(line, sign, inside)
            except ValueError:
                raise BadInput(
                    f"{name}: the row at byte {offset} has a field that goes on after its closing "
                    'quote; put the whole field in quotes, and write a quote inside it as ""'
                ) from None
        if not inside:
            offset += size
            yield b"".join(row)
            row, size = [], 0
        elif size > MAX_ROW_BYTES:
            break
    if row:
        raise BadInput(
            f"{name}: the row at byte {offset} has a quoted field that doesn't end; close it, or "
            'write a quote inside a field as ""'
        )


def _ends_inside(line: bytes, separator: bytes, inside: bool) -> bool:
    """Return whether a line ends within a quoted field; ``inside`` says where it begins.

    Raises
    ------
    ValueError
        If more than blanks follows the closing quote of a field that has a separator or a line
        break. It may be two fields that begin with a quote, and all that is between them.
    """

    def next_quoted(start: int) -> int:
        found = line.find(separator + b'"', start)
        return found + len(separator) if found >= 0 else found

    begin = -1 if inside else 0 if line.startswith(b'"') else next_quoted(0)
    while inside or begin >= 0:
        end = line.find(b'"', begin + 1)
        while end >= 0 and line[end + 1 : end + 2] == b'"':
            end = line.find(b'"', end + 2)
        if end < 0:
            return True
        after = end + 1
        while line.startswith((b" ", b"\t"), after) and not line.startswith(separator, after):
            after += 1
        ended = after == len(line) or line.startswith((separator, b"\r", b"\n"), after)
        if (inside or separator in line[begin + 1 : end]) and not ended:
            raise ValueError
        inside, begin = False, next_quoted(end)
    return False


def sniff(file: File) -> bytes:
    """Return enough of a file's beginning for its first two rows."""
    head = file.head(SNIFFED_BYTES)
    if len(head) < file.size and head.count(b"\n") < 2 and b"\0" not in head:
        head = file.head(2 * MAX_ROW_BYTES)
    return head


def first_lines(head: bytes, size: int, separator: str = "") -> list[str]:
    """Return the complete first rows of a file that aren't empty; none if it isn't text.

    ``head`` are its first bytes, and ``size`` is its size.
    """
    if b"\0" in head:
        return []
    whole = head if len(head) >= size else head[: head.rfind(b"\n") + 1] or head
    # Invalid UTF-8 is reported with its position when the row is read.
    text = whole.removeprefix(b"\xef\xbb\xbf")
    rows: list[str] = []
    with suppress(BadInput):  # the last row isn't complete
        for row in _whole_rows(io.BytesIO(text), separator, ""):
            if row.strip():
                rows.append(row.decode(errors="replace").strip("\r\n"))
            if len(rows) > SNIFFED_ROWS:
                break
    return rows


@contextmanager
def _opened(file: File) -> Iterator[io.BufferedReader[Any]]:
    with (
        file_errors(file.name),
        file.open() as raw,
        io.BufferedReader(cast(io.RawIOBase, raw), 1 << 20) as lines,
    ):
        yield lines
