"""Text files whose rows are lines: count them once, then read from any row on.

The first pass counts the rows and records the offset of every 4096th, so that later reads can start
in the middle of a file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from latentscale_pipeline.corpus.formats.file import File, file_errors
from latentscale_pipeline.errors import BadInput

NOTED_ROWS = 4096
"""Distance between rows whose offsets are recorded."""

SNIFFED_BYTES = 1 << 20
SNIFFED_ROWS = 50


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
    """

    file: File
    rows: int
    starts: tuple[int, ...]
    keep_empty: bool = False

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
            for line in opened:
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


def count_lines(file: File, skipped: int = 0, *, keep_empty: bool = False) -> Lines:
    """Count the rows of a file, which begin after ``skipped`` lines."""
    rows, offset = -skipped, 0
    starts: list[int] = []
    with _opened(file) as opened:
        for line in opened:
            if keep_empty or line.strip():
                if rows >= 0 and rows % NOTED_ROWS == 0:
                    starts.append(offset)
                rows += 1
            offset += len(line)
    return Lines(file, max(rows, 0), tuple(starts) or (offset,), keep_empty)


def first_lines(head: bytes, size: int) -> list[str]:
    """Return the complete first lines of a file that aren't empty; none if it isn't text.

    ``head`` are its first bytes, and ``size`` is its size.
    """
    if b"\0" in head:
        return []
    whole = head if len(head) >= size else head[: head.rfind(b"\n") + 1] or head
    # Invalid UTF-8 is reported with its position when the row is read.
    text = whole.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    return [line for line in re.split(r"\r?\n", text) if line.strip()][: SNIFFED_ROWS + 1]


@contextmanager
def _opened(file: File) -> Iterator[io.BufferedReader[Any]]:
    with (
        file_errors(file.name),
        file.open() as raw,
        io.BufferedReader(cast(io.RawIOBase, raw), 1 << 20) as lines,
    ):
        yield lines
